//! Which batch a record belongs to that the broker has answered, and what came of the batch.
//!
//! Through the client a record carries a number and nothing else: a place in memory for each would be
//! taken by the thread that publishes and given back by the one that reports.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use babelqueue_core::Error;
use tokio::sync::Notify;

/// The batches that are on their way.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// The number of the next record.
    next: usize,
    /// By the number of the first record.
    batches: BTreeMap<usize, Arc<Answers>>,
}

impl Batches {
    /// A batch of so many records.
    pub(crate) fn begin(self: &Arc<Self>, count: usize) -> Batch {
        let answers = Arc::new(Answers::new(count));
        let first = self.open().begin(&answers);
        Batch {
            batches: Arc::clone(self),
            first,
            answers,
        }
    }

    /// The answer to the record of this number. Nobody asks for it any more where its batch was
    /// dropped.
    pub(crate) fn answer(&self, number: usize, answer: Result<(), Error>) {
        let of = self.open().of(number);
        if let Some((answers, at)) = of {
            answers.answer(at, answer);
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn begin(&mut self, answers: &Arc<Answers>) -> usize {
        // An empty batch takes a number as well: no two have the same first one.
        let taken = answers.count.max(1);
        // The numbers of one batch follow one another, also where they come to an end.
        let first = match self.next.checked_add(taken) {
            Some(_) => self.next,
            None => 0,
        };
        self.next = first + taken;
        self.batches.insert(first, Arc::clone(answers));
        first
    }

    /// The batch of the record of this number, and the record's place in it.
    fn of(&self, number: usize) -> Option<(Arc<Answers>, usize)> {
        let (first, answers) = self.batches.range(..=number).next_back()?;
        let at = number - first;
        (at < answers.count).then(|| (Arc::clone(answers), at))
    }
}

/// A batch on its way; answers to a dropped one go nowhere.
#[derive(Debug)]
pub(crate) struct Batch {
    batches: Arc<Batches>,
    first: usize,
    answers: Arc<Answers>,
}

impl Batch {
    /// The numbers of its records, in order.
    pub(crate) fn numbers(&self) -> Range<usize> {
        self.first..self.first + self.answers.count
    }

    /// Answers to the record of this number, which is one of its own.
    pub(crate) fn answer(&self, number: usize, answer: Result<(), Error>) {
        self.answers.answer(number - self.first, answer);
    }

    /// Waits for the answers to all its records; one for each, in order.
    pub(crate) async fn answers(self) -> Vec<Result<(), Error>> {
        self.answers.all().await;
        self.answers.take()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.batches.open().batches.remove(&self.first);
    }
}

/// The answers to one batch.
#[derive(Debug)]
struct Answers {
    count: usize,
    open: AtomicUsize,
    failures: Mutex<Vec<(usize, Error)>>,
    complete: Notify,
}

impl Answers {
    fn new(count: usize) -> Self {
        Self {
            count,
            open: AtomicUsize::new(count),
            failures: Mutex::default(),
            complete: Notify::new(),
        }
    }

    fn answer(&self, at: usize, answer: Result<(), Error>) {
        if let Err(error) = answer {
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            failures.push((at, error));
        }
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete.notify_one();
        }
    }

    async fn all(&self) {
        while self.open.load(Ordering::Acquire) > 0 {
            self.complete.notified().await;
        }
    }

    fn take(&self) -> Vec<Result<(), Error>> {
        let mut answers: Vec<_> = (0..self.count).map(|_| Ok(())).collect();
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, error) in failures.drain(..) {
            answers[at] = Err(error);
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Which records were confirmed, once all are answered.
    async fn confirmed(batch: Batch) -> Vec<bool> {
        let answers = tokio::time::timeout(Duration::from_secs(5), batch.answers()).await;
        let answers = answers.expect("every record has its answer");
        answers.iter().map(Result::is_ok).collect()
    }

    fn failed() -> Result<(), Error> {
        Err(Error::message("no"))
    }

    #[tokio::test]
    async fn each_answer_finds_its_record() {
        let batches = Arc::new(Batches::default());
        let (first, second) = (batches.begin(2), batches.begin(3));
        let (a, b) = (first.numbers(), second.numbers());
        batches.answer(b.start + 1, failed());
        batches.answer(a.start, Ok(()));
        batches.answer(b.start, Ok(()));
        first.answer(a.start + 1, failed());
        batches.answer(b.start + 2, Ok(()));
        assert_eq!(confirmed(second).await, [true, false, true]);
        assert_eq!(confirmed(first).await, [true, false]);
    }

    #[tokio::test]
    async fn an_empty_batch_takes_no_others_place() {
        let batches = Arc::new(Batches::default());
        let (empty, other) = (batches.begin(0), batches.begin(1));
        assert!(confirmed(empty).await.is_empty());
        batches.answer(other.first, failed());
        assert_eq!(confirmed(other).await, [false]);
    }

    #[tokio::test]
    async fn the_answer_to_a_dropped_batch_is_nobody_elses() {
        let batches = Arc::new(Batches::default());
        let (before, dropped, after) = (batches.begin(1), batches.begin(2), batches.begin(1));
        let numbers = dropped.numbers();
        drop(dropped);
        for number in numbers {
            batches.answer(number, failed());
        }
        for batch in [before, after] {
            batches.answer(batch.first, Ok(()));
            assert_eq!(confirmed(batch).await, [true]);
        }
        assert!(batches.open().batches.is_empty());
    }

    #[tokio::test]
    async fn numbers_begin_anew_at_their_end() {
        let batches = Arc::new(Batches::default());
        batches.open().next = usize::MAX - 1;
        let (last, anew) = (batches.begin(1), batches.begin(2));
        assert_eq!((last.first, anew.first), (usize::MAX - 1, 0));
        batches.answer(usize::MAX - 1, Ok(()));
        batches.answer(1, failed());
        batches.answer(0, Ok(()));
        assert_eq!(confirmed(last).await, [true]);
        assert_eq!(confirmed(anew).await, [true, false]);
    }
}
