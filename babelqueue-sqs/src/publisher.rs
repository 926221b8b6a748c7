use std::collections::VecDeque;
use std::sync::Arc;

use babelqueue_core::Error;
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, yield_now};

use crate::batch::{self, Parcel};
use crate::client::Link;
use crate::content::{MAX_ENTRIES, max_request};
use crate::queues::Queue;

/// How many calls may wait to be looked at; more wait outside.
const WAITING_CALLS: usize = 256;

/// How many messages may wait for a request; more wait outside.
const WAITING_MESSAGES: usize = 1024;

/// Sends everything that goes to one queue, ten messages a request.
///
/// Who comes while nothing is under way is sent at once, alone if need be. What comes meanwhile
/// gathers, and goes as soon as it fills a request, or an answer has come.
pub(crate) struct Publisher {
    calls: mpsc::Sender<Vec<Waiting>>,
    task: JoinHandle<()>,
}

/// A message, and who waits for what becomes of it.
struct Waiting {
    parcel: Parcel,
    reply: oneshot::Sender<Result<(), Error>>,
}

impl Publisher {
    /// Starts its task.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub(crate) fn start(link: Arc<Link>, queue: Arc<Queue>) -> Self {
        let (calls, receiver) = mpsc::channel(WAITING_CALLS);
        // To a FIFO queue the order of requests is the order of messages.
        let window = if queue.is_fifo {
            1
        } else {
            link.config.publish_window
        };
        let desk = Desk {
            link,
            max_request: max_request(queue.max_message),
            queue,
            window,
            calls: receiver,
            pending: VecDeque::new(),
            flying: FuturesUnordered::new(),
        };
        Self {
            calls,
            task: tokio::spawn(desk.run()),
        }
    }

    /// Whether its task has ended, with the runtime that it ran on.
    pub(crate) fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Sends in order, and resolves when each is answered; one result each. A call that is dropped
    /// sends no more of what it has not sent yet.
    pub(crate) async fn send(&self, parcels: Vec<Parcel>) -> Vec<Result<(), Error>> {
        let mut answers = Vec::with_capacity(parcels.len());
        let mut call = Vec::with_capacity(parcels.len());
        for parcel in parcels {
            let (reply, answer) = oneshot::channel();
            call.push(Waiting { parcel, reply });
            answers.push(answer);
        }
        // Where it fails the answers say so.
        _ = self.calls.send(call).await;
        let gone = |_| Err(Error::transient("publish", "the publisher has stopped"));
        let answers = join_all(answers).await.into_iter();
        answers.map(|answer| answer.unwrap_or_else(gone)).collect()
    }
}

/// Nobody is left who could wait for an answer.
impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Desk {
    link: Arc<Link>,
    queue: Arc<Queue>,
    max_request: usize,
    window: usize,
    calls: mpsc::Receiver<Vec<Waiting>>,
    pending: VecDeque<Waiting>,
    flying: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl Desk {
    async fn run(mut self) {
        loop {
            while let Some(batch) = self.next_batch() {
                let sent = send(self.link.clone(), self.queue.clone(), batch);
                self.flying.push(Box::pin(sent));
            }
            tokio::select! {
                biased;
                Some(()) = self.flying.next(), if !self.flying.is_empty() => {}
                Some(call) = self.calls.recv(), if self.pending.len() < WAITING_MESSAGES => {
                    self.pending.extend(call);
                    self.gather().await;
                }
                else => return,
            }
        }
    }

    /// Lets who is about to send do so, so that all of them share a request.
    async fn gather(&mut self) {
        yield_now().await;
        while self.pending.len() < WAITING_MESSAGES
            && let Ok(call) = self.calls.try_recv()
        {
            self.pending.extend(call);
        }
    }

    /// What is to be sent now, if anything is.
    fn next_batch(&mut self) -> Option<Vec<Waiting>> {
        // Nobody waits for those any more.
        self.pending.retain(|waiting| !waiting.reply.is_closed());
        let sizes = self.pending.iter().map(|waiting| waiting.parcel.size);
        let (count, is_full) = fitting(sizes, self.max_request);
        let may_go = self.flying.is_empty() || is_full && self.flying.len() < self.window;
        (may_go && count > 0).then(|| self.pending.drain(..count).collect())
    }
}

/// How many of these, in order, go into one request, and whether no more would.
fn fitting(sizes: impl Iterator<Item = usize>, max: usize) -> (usize, bool) {
    let (mut count, mut sum) = (0, 0_usize);
    for size in sizes {
        sum = sum.saturating_add(size);
        if count > 0 && sum > max {
            return (count, true);
        }
        count += 1;
        if count == MAX_ENTRIES {
            return (count, true);
        }
    }
    (count, sum >= max)
}

async fn send(link: Arc<Link>, queue: Arc<Queue>, batch: Vec<Waiting>) {
    let (parcels, replies): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .map(|waiting| (waiting.parcel, waiting.reply))
        .unzip();
    let sent = batch::send(&link, &queue, parcels).await;
    for (reply, sent) in replies.into_iter().zip(sent) {
        let sent = sent.map_err(|undone| undone.into_error("publish", queue.describe()));
        // Whoever has gone does not want it.
        _ = reply.send(sent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_holds_ten_messages_and_no_more_bytes_than_it_may() {
        let of = |sizes: &[usize]| fitting(sizes.iter().copied(), 100);
        assert_eq!(of(&[]), (0, false));
        assert_eq!(of(&[1; 9]), (9, false));
        assert_eq!(of(&[1; 10]), (10, true));
        assert_eq!(of(&[1; 30]), (10, true));
        assert_eq!(of(&[60, 40]), (2, true));
        assert_eq!(of(&[60, 41]), (1, true));
        assert_eq!(of(&[101, 1]), (1, true));
    }
}
