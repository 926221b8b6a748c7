use std::collections::VecDeque;
use std::ops::Range;

use crate::progress;

/// What one partition's records have come to: which have been read and are not settled, and from
/// there what a commit may say.
///
/// Everything below `next` has been read, and of that everything is done but what is `pending`, so
/// only the latter is kept: a slow record costs one entry, however far the rest runs ahead.
#[derive(Debug)]
pub(crate) struct Book<T> {
    /// The offset after the last one read; `None` until the first record shows where the log begins.
    next: Option<i64>,
    /// Ascending. Settled entries in the middle stay as `None` until there are many.
    pending: VecDeque<(i64, Option<T>)>,
    settled_inside: usize,
    /// Done before this member came, above `next`: ascending, apart from each other.
    done_ahead: VecDeque<Range<i64>>,
}

/// What a record that was read is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read<T> {
    /// Not seen before: it wants handling.
    New,
    /// Done before this member came.
    Done,
    /// The log has begun anew at or below what was read (a topic made again, a truncation): the
    /// record is new, and the entries from its offset on are not what they were.
    Anew(Vec<T>),
}

/// A commit: the lowest offset that is not done, and what is done above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) offset: i64,
    pub(crate) metadata: String,
}

impl<T> Book<T> {
    /// The book of a partition that nothing is known of.
    pub(crate) fn new() -> Self {
        Self {
            next: None,
            pending: VecDeque::new(),
            settled_inside: 0,
            done_ahead: VecDeque::new(),
        }
    }

    /// The book of a partition at its committed state. Metadata that is not ours counts as empty.
    pub(crate) fn resumed(commit: &Commit) -> Self {
        let done = progress::decode(commit.offset, &commit.metadata).unwrap_or_default();
        Self {
            next: Some(commit.offset),
            done_ahead: done.into(),
            ..Self::new()
        }
    }

    /// Takes note that `offset` was read; unless it is done, [`push`](Self::push) it next.
    pub(crate) fn read(&mut self, offset: i64) -> Read<T> {
        let before = self.next.replace(offset.saturating_add(1));
        if before.is_some_and(|next| offset < next) {
            self.done_ahead.clear();
            return Read::Anew(self.cut(offset));
        }
        while self.done_ahead.front().is_some_and(|run| run.end <= offset) {
            self.done_ahead.pop_front();
        }
        match self.done_ahead.front() {
            Some(run) if run.contains(&offset) => Read::Done,
            _ => Read::New,
        }
    }

    /// Adds the record that was just read.
    pub(crate) fn push(&mut self, offset: i64, item: T) {
        self.pending.push_back((offset, Some(item)));
    }

    /// The unsettled record at `offset`.
    pub(crate) fn get(&self, offset: i64) -> Option<&T> {
        self.pending[self.find(offset)?].1.as_ref()
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, offset: i64) -> Option<&mut T> {
        let at = self.find(offset)?;
        self.pending[at].1.as_mut()
    }

    /// Puts another in the place of the unsettled record at `offset`.
    pub(crate) fn replace(&mut self, offset: i64, item: T) {
        if let Some(at) = self.find(offset)
            && self.pending[at].1.is_some()
        {
            self.pending[at].1 = Some(item);
        }
    }

    /// The unsettled records from `offset` on, in order.
    pub(crate) fn from(&self, offset: i64) -> impl Iterator<Item = (i64, &T)> {
        let start = self.pending.partition_point(|(at, _)| *at < offset);
        self.pending
            .range(start..)
            .filter_map(|(at, item)| Some((*at, item.as_ref()?)))
    }

    /// Settles the record at `offset`.
    pub(crate) fn settle(&mut self, offset: i64) -> Option<T> {
        let at = self.find(offset)?;
        let item = self.pending[at].1.take()?;
        self.settled_inside += 1;
        while matches!(self.pending.front(), Some((_, None))) {
            self.pending.pop_front();
            self.settled_inside -= 1;
        }
        // Squeezed when half is dead weight: amortised, a settle stays cheap in any order.
        if self.settled_inside > 32 && self.settled_inside > self.pending.len() / 2 {
            self.pending.retain(|(_, item)| item.is_some());
            self.settled_inside = 0;
        }
        Some(item)
    }

    /// How many are not settled.
    pub(crate) fn len(&self) -> usize {
        self.pending.len() - self.settled_inside
    }

    /// Empties the book, and gives what was not settled.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        self.settled_inside = 0;
        self.pending
            .drain(..)
            .filter_map(|(_, item)| item)
            .collect()
    }

    /// What may be committed now; `None` while nothing was read and nothing was committed before.
    pub(crate) fn commit(&self) -> Option<Commit> {
        let next = self.next?;
        let mut ahead = self.done_ahead.iter().cloned().peekable();
        let first_pending = self.pending.front().map(|(offset, _)| *offset);
        let offset = match (first_pending, ahead.peek()) {
            (Some(offset), _) => offset,
            // All that was read is done, and so is what comes right after it.
            (None, Some(run)) if run.start <= next => run.end,
            (None, _) => next,
        };
        let runs = merged(self.done_inside(next).chain(ahead));
        let metadata = progress::encode(offset, runs.filter(|run| run.end > offset));
        Some(Commit { offset, metadata })
    }

    /// The done ranges between the first pending record and `next`.
    fn done_inside(&self, next: i64) -> impl Iterator<Item = Range<i64>> {
        let open = self.pending.iter().filter(|(_, item)| item.is_some());
        let after = open.clone().skip(1).map(|(offset, _)| *offset);
        open.map(|(offset, _)| offset + 1)
            .zip(after.chain([next]))
            .map(|(from, to)| from..to)
            .filter(|run| !run.is_empty())
    }

    fn cut(&mut self, offset: i64) -> Vec<T> {
        let keep = self.pending.partition_point(|(at, _)| *at < offset);
        let gone: Vec<T> = self
            .pending
            .drain(keep..)
            .filter_map(|(_, item)| item)
            .collect();
        self.settled_inside = self
            .pending
            .iter()
            .filter(|(_, item)| item.is_none())
            .count();
        gone
    }

    fn find(&self, offset: i64) -> Option<usize> {
        // Mostly no offset is missing between the lowest and this one.
        let (lowest, _) = self.pending.front()?;
        let at = usize::try_from(offset.checked_sub(*lowest)?).ok()?;
        if self
            .pending
            .get(at)
            .is_some_and(|(found, _)| *found == offset)
        {
            return Some(at);
        }
        self.pending
            .binary_search_by_key(&offset, |(at, _)| *at)
            .ok()
    }
}

/// Ranges that ascend, with those that touch made one.
fn merged(runs: impl Iterator<Item = Range<i64>>) -> impl Iterator<Item = Range<i64>> {
    let mut runs = runs.peekable();
    std::iter::from_fn(move || {
        let mut run = runs.next()?;
        while let Some(next) = runs.next_if(|next| next.start <= run.end) {
            run.end = run.end.max(next.end);
        }
        Some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(offset: i64, metadata: &str) -> Commit {
        Commit {
            offset,
            metadata: metadata.to_owned(),
        }
    }

    fn read(book: &mut Book<i64>, offsets: Range<i64>) {
        for offset in offsets {
            match book.read(offset) {
                Read::New => book.push(offset, offset),
                Read::Done => {}
                Read::Anew(_) => panic!("{offset} is not anew"),
            }
        }
    }

    #[test]
    fn nothing_read_nothing_to_commit() {
        assert_eq!(Book::<i64>::new().commit(), None);
        let resumed = Book::<i64>::resumed(&commit(5, ""));
        assert_eq!(resumed.commit(), Some(commit(5, "")));
    }

    #[test]
    fn a_commit_never_passes_an_unsettled_record() {
        let mut book = Book::new();
        read(&mut book, 10..15);
        assert_eq!(book.commit(), Some(commit(10, "")));
        book.settle(11);
        assert_eq!(book.commit().unwrap().offset, 10);
        book.settle(10);
        assert_eq!(book.commit(), Some(commit(12, "")));
        for offset in 12..15 {
            book.settle(offset);
        }
        assert_eq!((book.commit(), book.len()), (Some(commit(15, "")), 0));
    }

    #[test]
    fn a_record_is_settled_once() {
        let mut book = Book::new();
        read(&mut book, 0..3);
        assert_eq!(book.settle(1), Some(1));
        assert_eq!(book.settle(1), None);
        assert_eq!(book.settle(7), None);
        assert_eq!(book.get(1), None);
        assert_eq!(book.from(1).map(|(at, _)| at).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_restart_skips_what_was_done_above_the_commit() {
        let mut book = Book::new();
        read(&mut book, 0..100);
        for offset in (0..100).filter(|offset| offset % 10 != 3) {
            book.settle(offset);
        }
        let saved = book.commit().unwrap();
        assert_eq!(saved.offset, 3);

        let mut after = Book::resumed(&saved);
        assert_eq!(after.commit(), Some(saved));
        read(&mut after, 3..120);
        let again: Vec<i64> = after.from(0).map(|(at, _)| at).collect();
        let expected: Vec<i64> = (0..10).map(|i| 10 * i + 3).chain(100..120).collect();
        assert_eq!(again, expected);
    }

    #[test]
    fn what_is_done_ahead_survives_a_second_restart_before_it_is_read() {
        let done = progress::encode(5, [10..20, 30..40]);
        let mut book = Book::resumed(&commit(5, &done));
        read(&mut book, 5..8);
        book.settle(6);
        let expected = progress::encode(5, [6..7, 10..20, 30..40]);
        assert_eq!(book.commit(), Some(commit(5, &expected)));

        read(&mut book, 8..12);
        for offset in [5, 7, 8, 9] {
            book.settle(offset);
        }
        assert_eq!(
            book.commit(),
            Some(commit(20, &progress::encode(20, Some(30..40))))
        );
    }

    #[test]
    fn offsets_that_the_log_skips_count_as_done() {
        let mut book = Book::new();
        for offset in [4, 9, 10] {
            assert_eq!(book.read(offset), Read::New);
            book.push(offset, offset);
        }
        book.settle(4);
        assert_eq!(book.commit(), Some(commit(9, "")));
    }

    #[test]
    fn a_log_that_begins_anew_is_read_anew() {
        let mut book = Book::resumed(&commit(50, &progress::encode(50, Some(60..90))));
        read(&mut book, 50..55);
        book.settle(51);
        assert_eq!(book.read(52), Read::Anew(vec![52, 53, 54]));
        book.push(52, 52);
        assert_eq!(book.read(0), Read::Anew(vec![50, 52]));
        book.push(0, 0);
        assert_eq!(book.read(61), Read::New, "the runs of the old log are gone");
        assert_eq!(book.commit().unwrap().offset, 0);
    }

    #[test]
    fn one_slow_record_costs_one_entry() {
        let mut book = Book::new();
        read(&mut book, 0..1);
        for offset in 1..100_000 {
            read(&mut book, offset..offset + 1);
            assert_eq!(book.settle(offset), Some(offset));
            assert!(book.pending.len() < 100, "{}", book.pending.len());
        }
        let saved = book.commit().unwrap();
        assert_eq!((saved.offset, saved.metadata.len()), (0, 9));
    }

    /// Against a set of flags that says the same in the plainest way.
    #[test]
    fn any_order_of_settles_gives_the_commit_of_a_plain_model() {
        let random = babelqueue_core::random::Random::seeded(7);
        for _ in 0..50 {
            let mut book = Book::new();
            let mut done = Vec::new();
            for _ in 0..300 {
                if random.unit() < 0.5 {
                    let offset = i64::try_from(done.len()).unwrap();
                    read(&mut book, offset..offset + 1);
                    done.push(false);
                } else if !done.is_empty() {
                    let at = usize::try_from(random.next_u64() % done.len() as u64).unwrap();
                    let settled = book.settle(i64::try_from(at).unwrap());
                    assert_eq!(settled.is_some(), !done[at]);
                    done[at] = true;
                }
                let Some(saved) = book.commit() else { continue };
                let low = done.iter().position(|done| !done).unwrap_or(done.len());
                assert_eq!(usize::try_from(saved.offset).unwrap(), low);
                let after = Book::<i64>::resumed(&saved);
                let flags: Vec<bool> = (0..done.len())
                    .map(|at| {
                        let at = i64::try_from(at).unwrap();
                        at < saved.offset || after.done_ahead.iter().any(|run| run.contains(&at))
                    })
                    .collect();
                assert_eq!(flags, done);
            }
        }
    }
}
