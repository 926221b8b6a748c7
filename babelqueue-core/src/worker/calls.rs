//! The calls that a worker has in flight. Each brings back what it took along.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::finished::Finished;
use super::held::Key;
use super::status::Fate;
use crate::Error;
use crate::flag::Flag;
use crate::transport::{
    Delivery, Receiver, Settled, Settler, SubscribeOptions, Subscription, Transport,
};

/// Calls in flight, each with its queue's number. One is polled only when it was woken: a pending
/// settle that was looked at after each finished handler cost a quarter of the throughput. They are
/// first polled in the order in which they were pushed, which the order of a lane rests on
/// ([`Settler::settle`]); the library does it so without saying so, hence the test below.
pub(super) type Calls<T> = FuturesUnordered<BoxFuture<'static, (usize, T)>>;

/// What the receiving half comes back with.
pub(super) enum Intaken {
    Subscribed(Result<Subscription, Error>),
    Received(Box<dyn Receiver>, Result<Vec<Arc<Delivery>>, Error>),
    /// The stop came first. Without a receiver where it was not subscribed yet.
    Interrupted(Option<Box<dyn Receiver>>),
    Closed(Result<(), Error>),
}

/// What a settle call comes back with.
pub(super) struct SettleAnswer {
    pub(super) keys: Vec<(Key, Fate)>,
    pub(super) answers: Vec<Result<Settled, Error>>,
}

/// What an extend call comes back with.
pub(super) struct ExtendAnswer {
    pub(super) keys: Vec<Key>,
    pub(super) answers: Vec<Result<Instant, Error>>,
}

pub(super) async fn subscribe(
    transport: Arc<dyn Transport>,
    queue: Arc<str>,
    options: SubscribeOptions,
    stopping: Arc<Flag>,
) -> Intaken {
    tokio::select! {
        biased;
        () = stopping.raised() => Intaken::Interrupted(None),
        subscription = transport.subscribe(&queue, options) => Intaken::Subscribed(subscription),
    }
}

/// Receives, until the stop: dropping a receive loses nothing, and what the broker had handed out
/// then is given back by the close.
pub(super) async fn receive(
    mut receiver: Box<dyn Receiver>,
    max: usize,
    stopping: Arc<Flag>,
) -> Intaken {
    let batch = tokio::select! {
        biased;
        () = stopping.raised() => None,
        batch = receiver.receive(max) => Some(batch),
    };
    match batch {
        Some(batch) => {
            // A receiver that gives nothing and does not wait must leave the others their turn.
            if batch.as_ref().is_ok_and(Vec::is_empty) {
                yield_now().await;
            }
            Intaken::Received(receiver, batch)
        }
        None => Intaken::Interrupted(Some(receiver)),
    }
}

pub(super) async fn close(mut receiver: Box<dyn Receiver>, within: Duration) -> Intaken {
    Intaken::Closed(receiver.close(within).await)
}

pub(super) async fn settle(settler: Arc<dyn Settler>, finished: Finished) -> SettleAnswer {
    SettleAnswer {
        answers: settler.settle(finished.batch).await,
        keys: finished.keys,
    }
}

pub(super) async fn extend(
    settler: Arc<dyn Settler>,
    keys: Vec<Key>,
    deliveries: Vec<Arc<Delivery>>,
) -> ExtendAnswer {
    ExtendAnswer {
        answers: settler.extend(&deliveries).await,
        keys,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::stream::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn calls_begin_in_the_order_in_which_they_were_pushed() {
        let begun = Arc::new(Mutex::new(Vec::new()));
        let mut calls: Calls<()> = Calls::new();
        let push = |calls: &Calls<()>, number: usize| {
            let begun = Arc::clone(&begun);
            calls.push(Box::pin(async move {
                begun.lock().unwrap().push(number);
                // Some are still in flight, and some woken, as others join them.
                if !number.is_multiple_of(3) {
                    yield_now().await;
                }
                if number.is_multiple_of(5) {
                    std::future::pending::<()>().await;
                }
                (number, ())
            }));
        };
        for round in 0..20 {
            for number in 5 * round..5 * (round + 1) {
                push(&calls, number);
            }
            for _ in 0..round % 5 {
                calls.next().await;
            }
        }
        while begun.lock().unwrap().len() < 100 {
            calls.next().await;
        }
        assert!(begun.lock().unwrap().is_sorted());
    }
}
