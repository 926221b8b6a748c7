//! The messages that are on their way, in two stages: the client writes them, the broker answers.

use std::collections::VecDeque;
use std::future::{Future, poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, Stream as _};

/// `C` is what a written message becomes: the future of its answer.
pub(crate) struct Flights<C: Future, E> {
    /// In the order in which the client writes them.
    writing: VecDeque<(u64, BoxFuture<'static, Result<C, E>>)>,
    written: FuturesUnordered<Written<C>>,
}

/// What became of the messages that are through, each by its number.
pub(crate) type Round<A, E> = Vec<(u64, Result<A, E>)>;

impl<C, A, E> Flights<C, E>
where
    C: Future<Output = Result<A, E>> + Send + Unpin + 'static,
    E: Send + 'static,
{
    pub(crate) fn new() -> Self {
        Self {
            writing: VecDeque::new(),
            written: FuturesUnordered::new(),
        }
    }

    /// How many the client has not written yet.
    pub(crate) fn unwritten(&self) -> usize {
        self.writing.len()
    }

    /// Adds a message behind all others, and polls its future once: with that it is the client's, and
    /// in its place.
    pub(crate) fn push(&mut self, number: u64, mut writing: BoxFuture<'static, Result<C, E>>) {
        if let Some(written) = (&mut writing).now_or_never() {
            writing = ready(written).boxed();
        }
        self.writing.push_back((number, writing));
    }

    /// Waits until one is written or answered, and gives all answers that are there by then, also
    /// those that came before the last one that is given; none where only something was written. For
    /// ever where there is nothing on its way.
    ///
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> Round<A, E> {
        let mut round = Vec::new();
        // The runtime's fairness would end a round before its time as well.
        let moved = poll_fn(|context| self.advance(&mut round, context));
        tokio::task::unconstrained(moved).await;
        round
    }

    /// An answer that is seen may lie behind one that is there, but whose message has not been seen to
    /// be written. So a round ends only when nothing more is written.
    fn advance(&mut self, round: &mut Round<A, E>, context: &mut Context<'_>) -> Poll<()> {
        let woken = Arc::new(Woken {
            by_now: AtomicBool::new(false),
            task: context.waker().clone(),
        });
        let waker = Waker::from(woken.clone());
        let context = &mut Context::from_waker(&waker);
        let mut moved = false;
        loop {
            self.take_answers(round, &woken, context);
            if !self.take_written(round, context) {
                break;
            }
            moved = true;
        }
        if moved || !round.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    fn take_answers(&mut self, round: &mut Round<A, E>, woken: &Woken, context: &mut Context<'_>) {
        loop {
            match Pin::new(&mut self.written).poll_next(context) {
                Poll::Ready(Some(answer)) => round.push(answer),
                // It also gives up its turn now and then although more is complete, and wakes us.
                Poll::Pending if woken.by_now.swap(false, Ordering::AcqRel) => {}
                Poll::Ready(None) | Poll::Pending => return,
            }
        }
    }

    /// Whether there was any. Only the first is waited for: it is written first.
    fn take_written(&mut self, round: &mut Round<A, E>, context: &mut Context<'_>) -> bool {
        let mut any = false;
        while let Some((number, writing)) = self.writing.front_mut()
            && let Poll::Ready(written) = writing.poll_unpin(context)
        {
            match written {
                Ok(answer) => self.written.push(Written {
                    number: *number,
                    answer,
                }),
                Err(error) => round.push((*number, Err(error))),
            }
            self.writing.pop_front();
            any = true;
        }
        any
    }
}

/// A message that waits for its answer.
struct Written<C> {
    number: u64,
    answer: C,
}

impl<C: Future + Unpin> Future for Written<C> {
    type Output = (u64, C::Output);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let number = self.number;
        self.answer
            .poll_unpin(context)
            .map(|answer| (number, answer))
    }
}

/// Wakes a task, and tells whether it has.
struct Woken {
    by_now: AtomicBool,
    task: Waker,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.by_now.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Ready;

    use tokio::sync::oneshot::error::RecvError;
    use tokio::sync::oneshot::{self, Receiver, Sender};

    use super::*;

    type Answer = Receiver<&'static str>;

    /// A message whose write and whose answer are still to come.
    fn message(
        flights: &mut Flights<Answer, RecvError>,
        number: u64,
    ) -> (Sender<()>, Sender<&'static str>) {
        let (write, written) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        let writing = async move {
            written.await?;
            Ok(answered)
        };
        flights.push(number, writing.boxed());
        (write, answer)
    }

    fn numbers<A, E>(round: &Round<A, E>) -> Vec<u64> {
        let mut numbers: Vec<_> = round.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers
    }

    #[tokio::test]
    async fn a_round_holds_all_that_was_answered() {
        let mut flights: Flights<Answer, RecvError> = Flights::new();
        let mut messages: Vec<_> = (0..500)
            .map(|number| message(&mut flights, number))
            .collect();
        assert_eq!(flights.unwritten(), 500);
        assert!(flights.next().now_or_never().is_none());
        let mut answers = Vec::new();
        for (write, answer) in messages.drain(..) {
            write.send(()).unwrap();
            answers.push(answer);
        }
        assert_eq!(numbers(&flights.next().await), [0; 0]);
        assert_eq!(flights.unwritten(), 0);
        assert!(flights.next().now_or_never().is_none());
        let rest = answers.split_off(400);
        for answer in answers {
            answer.send("taken").unwrap();
        }
        assert_eq!(numbers(&flights.next().await), (0..400).collect::<Vec<_>>());
        assert!(flights.next().now_or_never().is_none());
        drop(rest);
        let last = flights.next().await;
        assert_eq!(numbers(&last), (400..500).collect::<Vec<_>>());
        assert!(last.iter().all(|(_, answer)| answer.is_err()));
    }

    #[tokio::test]
    async fn an_answer_is_seen_with_those_that_were_not_seen_to_be_written() {
        let mut flights: Flights<Answer, RecvError> = Flights::new();
        let (write, answer) = message(&mut flights, 0);
        let (write_of_1, answer_of_1) = message(&mut flights, 1);
        write.send(()).unwrap();
        assert_eq!(numbers(&flights.next().await), [0; 0]);
        write_of_1.send(()).unwrap();
        answer_of_1.send("returned").unwrap();
        answer.send("taken").unwrap();
        assert_eq!(numbers(&flights.next().await), [0, 1]);
    }

    #[tokio::test]
    async fn a_failed_write_is_an_answer() {
        let mut flights: Flights<Answer, RecvError> = Flights::new();
        let (write, _answer) = message(&mut flights, 7);
        drop(write);
        let round = flights.next().await;
        assert_eq!(numbers(&round), [7]);
        assert!(round[0].1.is_err());
        assert!(flights.next().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_message_that_is_written_and_answered_at_once_needs_no_second_look() {
        let mut flights: Flights<Ready<Result<(), ()>>, ()> = Flights::new();
        for number in 0..100 {
            flights.push(number, ready(Ok(ready(Ok(())))).boxed());
        }
        assert_eq!(flights.next().await.len(), 100);
    }

    #[tokio::test]
    async fn a_round_goes_on_where_futures_yield() {
        let mut flights: Flights<BoxFuture<'static, Result<(), ()>>, ()> = Flights::new();
        for number in 0..100 {
            let answer = async move {
                for _ in 0..number % 4 {
                    tokio::task::yield_now().await;
                }
                Ok(())
            };
            flights.push(number, async { Ok(answer.boxed()) }.boxed());
        }
        let mut seen = 0;
        while seen < 100 {
            seen += flights.next().await.len();
        }
        assert_eq!(seen, 100);
    }
}
