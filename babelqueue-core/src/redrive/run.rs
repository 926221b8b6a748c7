use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::held::Held;
use super::judge::{Judge, Judgement};
use super::rounds::Rounds;
use super::{Fate, Interrupted, Item, Redrive, Summary};
use crate::Error;
use crate::transport::{
    Delivery, Receiver, Settled, Settlement, Settler, SubscribeOptions, Subscription,
};

/// How long the broker gets to take everything back at the end.
const CLOSING: Duration = Duration::from_secs(10);

/// How many messages that stay are remembered at least, however small the window is.
const MARKS: usize = 1_000;

/// One run over a queue.
pub(super) struct Run<'r, F> {
    redrive: &'r Redrive,
    judge: Judge<'r>,
    report: F,
    summary: Summary,
    receiver: Box<dyn Receiver>,
    settler: Arc<dyn Settler>,
    held: Held,
    rounds: Rounds,
    /// How many messages may still be looked at.
    left: usize,
}

impl<'r, F: FnMut(Item) + Send> Run<'r, F> {
    pub(super) async fn of(redrive: &'r Redrive, report: F) -> Result<Summary, Interrupted> {
        let left = redrive.max.unwrap_or(usize::MAX);
        let prefetch = redrive.window.saturating_add(redrive.batch).min(left);
        let options = SubscribeOptions::with_prefetch(prefetch).draining();
        let subscribed = redrive.transport.subscribe(&redrive.queue, options).await;
        let Subscription { receiver, settler } =
            subscribed.map_err(|source| Interrupted::new(Summary::default(), source))?;
        let mut run = Self {
            redrive,
            judge: Judge::new(redrive),
            report,
            summary: Summary::default(),
            receiver,
            settler,
            held: Held::new(),
            rounds: Rounds::new(redrive.window.max(MARKS)),
            left,
        };
        let ended = run.through().await;
        let closed = run.close().await;
        match ended.and(closed) {
            Ok(()) => Ok(run.summary),
            Err(source) => Err(Interrupted::new(run.summary, source)),
        }
    }

    /// Until nothing new comes, the queue has gone round, or enough has been looked at.
    async fn through(&mut self) -> Result<(), Error> {
        let mut end = later(self.redrive.first_idle);
        while self.left > 0 && !self.rounds.are_complete() {
            let received = self.receive(end).await?;
            let came = !received.is_empty();
            if self.handle(received).await? {
                end = later(self.redrive.idle);
            } else if !came && self.lanes_wait() {
                self.put_back(usize::MAX).await?;
                end = later(self.redrive.idle);
            } else if Instant::now() >= end {
                return Ok(());
            }
            let goes_on = self.left > 0 && !self.rounds.are_complete();
            if goes_on && self.held.len() >= self.redrive.window {
                self.put_back(self.redrive.window).await?;
            }
        }
        Ok(())
    }

    /// The next batch; empty when nothing has come until `end`. Leases are renewed meanwhile.
    async fn receive(&mut self, end: Instant) -> Result<Vec<Arc<Delivery>>, Error> {
        let most = self.redrive.batch.min(self.left);
        loop {
            self.held.renew(&*self.settler).await;
            let until = self.held.next_renewal().map_or(end, |due| due.min(end));
            match timeout_at(until, self.receiver.receive(most)).await {
                Ok(received) => return received,
                Err(_) if Instant::now() >= end => return Ok(Vec::new()),
                Err(_) => {}
            }
        }
    }

    /// Whether nothing comes because something of its lane is held, and would come otherwise.
    fn lanes_wait(&self) -> bool {
        self.redrive.transport.capabilities().lane_waits
            && (self.held.iter()).any(|kept| !kept.again && kept.delivery.lane.is_some())
    }

    /// Moves what is to be moved, and holds the rest. Tells whether anything was new.
    async fn handle(&mut self, received: Vec<Arc<Delivery>>) -> Result<bool, Error> {
        let looked_at = self.left;
        let mut items = Vec::new();
        let mut moves = Vec::new();
        for delivery in received {
            if !self.settler.begin(&delivery) {
                continue;
            }
            if self.rounds.know(&delivery) {
                self.held.push(delivery, true);
                continue;
            }
            self.left -= 1;
            let Judgement { item, moved } = self.judge.judge(&delivery);
            if !matches!(item.fate, Fate::TooNew | Fate::MovedBefore) {
                self.rounds.meet_new();
            }
            if let Some((settlement, mark)) = moved {
                items.push((item, mark));
                moves.push((delivery, settlement));
            } else {
                self.tell(item);
                self.held.push(delivery, false);
            }
        }
        let answers = settle(&*self.settler, moves).await;
        let mut failed = None;
        for ((item, mark), answer) in items.into_iter().zip(answers) {
            match answer {
                Ok(Settled::Done | Settled::LaneRewound) => {
                    self.judge.has_moved(mark);
                    self.tell(item);
                }
                Ok(Settled::Fenced) => self.tell(Item {
                    fate: Fate::Lost,
                    bypassed: false,
                    ..item
                }),
                // The transport has seen to it that the message comes back.
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(self.left < looked_at), Err)
    }

    /// Sends the first `most` of what is held to the queue's tail, in order.
    async fn put_back(&mut self, most: usize) -> Result<(), Error> {
        let kept = self.held.take(most);
        for kept in &kept {
            self.rounds.put_back(&kept.delivery, kept.again);
        }
        let copies = kept.into_iter().map(|kept| {
            let settlement = Settlement::DeadLetter {
                queue: Arc::clone(&self.redrive.queue),
                record: kept.delivery.body.clone(),
                verbatim: true,
                attempts: kept.delivery.facts.attempts.unwrap_or(0),
            };
            (kept.delivery, settlement)
        });
        let copies = copies.collect();
        let answers = settle(&*self.settler, copies).await;
        answers.into_iter().try_for_each(|answer| answer.map(drop))
    }

    /// Gives back what is held, and leaves.
    async fn close(&mut self) -> Result<(), Error> {
        let kept = self.held.take(usize::MAX).into_iter();
        let releases = kept.map(|kept| (kept.delivery, Settlement::release()));
        let releases = releases.collect();
        for answer in settle(&*self.settler, releases).await {
            if let Err(error) = answer {
                tracing::warn!(%error, "a message could not be given back at once; the broker gives it out again later");
            }
        }
        self.receiver.close(CLOSING).await
    }

    fn tell(&mut self, item: Item) {
        self.summary.count(&item);
        (self.report)(item);
    }
}

async fn settle(
    settler: &dyn Settler,
    batch: Vec<(Arc<Delivery>, Settlement)>,
) -> Vec<Result<Settled, Error>> {
    if batch.is_empty() {
        return Vec::new();
    }
    settler.settle(batch).await
}

fn later(wait: Duration) -> Instant {
    /// As good as for ever, and within what a clock can hold.
    const LONGEST: Duration = Duration::from_hours(24 * 365);
    Instant::now() + wait.min(LONGEST)
}
