//! What happens to a delivery between the buffer and its settlement, in a task of its own or in that
//! of the delivery before it in its lane.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::desk::{Desk, Settling, Sorted};
use super::held::Key;
use crate::decide::{Dispatch, classify};
use crate::handler::{
    Context, Failure, HandlerFuture, Outcome, Turn, caught, clear_away, discard, poll_caught,
};
use crate::transport::{Delivery, Settlement};

/// How long a task goes on with further deliveries: handlers that take longer have a task each, and
/// nobody waits behind them who need not.
const GOES_ON_FOR: Duration = Duration::from_micros(100);

/// What a task has to tell, in the order in which it happened.
#[derive(Debug)]
pub(super) enum Reports {
    One(Report),
    Many(Vec<Report>),
}

/// What a task tells the worker's loop of a delivery.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) queue: usize,
    pub(super) key: Key,
    pub(super) news: News,
    /// Whether the task has gone on to the delivery that follows this one.
    pub(super) goes_on: bool,
}

#[derive(Debug)]
pub(super) enum News {
    /// From here on it cannot be aborted. The rest of the news is still to come.
    Blocking,
    /// Done; this is to be settled.
    Done(Settling),
    /// The transport said that the delivery is no longer ours; the handler was not started.
    Refused,
    /// The task was aborted before the handler was done.
    Aborted,
    /// The same, and what would have gone on all the same had not begun.
    GivenUp,
}

/// The task of a delivery, and of those that follow it in its lane as long as they are acknowledged.
/// Whatever happens to it, it reports: dropped half-way, that it was aborted.
pub(super) struct Task {
    desk: Arc<Desk>,
    key: Key,
    delivery: Arc<Delivery>,
    followers: VecDeque<(Key, Arc<Delivery>)>,
    /// Of a handler that blocks.
    turn: Option<Arc<Turn>>,
    /// What has happened and was not told yet: nobody waits for it while the task goes on.
    untold: Vec<Report>,
    ended: bool,
}

impl Task {
    pub(super) fn new(
        desk: Arc<Desk>,
        key: Key,
        delivery: Arc<Delivery>,
        followers: VecDeque<(Key, Arc<Delivery>)>,
    ) -> Self {
        Self {
            desk,
            key,
            delivery,
            followers,
            turn: None,
            untold: Vec::new(),
            ended: false,
        }
    }

    // Little is kept across the one await: this future is copied on its way into the runtime, once
    // for each message.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn would hold `self` twice"
    )]
    pub(super) fn run(mut self) -> impl Future<Output = ()> + Send {
        async move {
            let begun = (!self.followers.is_empty()).then(Instant::now);
            while !self.ended {
                let news = match self.open() {
                    Opened::Ended(news) => news,
                    Opened::Handling(mut handling, sorted) => {
                        let result = poll_fn(|cx| {
                            let polled = poll_caught(&mut handling, cx);
                            if polled.is_pending() {
                                tell(&self.desk, &mut self.untold);
                            }
                            polled
                        })
                        .await;
                        let result = clear_away(handling, result);
                        self.conclude(&sorted, result)
                    }
                };
                self.next_after(news, begun);
            }
        }
    }

    /// Reports of this delivery, and goes on to the one that follows, if it may.
    fn next_after(&mut self, news: News, begun: Option<Instant>) {
        // Anything else holds up the lane until it is settled.
        let lane_is_free = matches!(news, News::Done((Settlement::Ack, _)) | News::Refused);
        let may_go_on = lane_is_free
            && begun.is_some_and(|begun| begun.elapsed() < GOES_ON_FOR)
            && !self.desk.shared.is_ending();
        let next = self.followers.pop_front().filter(|_| may_go_on);
        let report = self.report(news, next.is_some());
        if let Some((key, delivery)) = next {
            if self.untold.is_empty() {
                self.untold.reserve(2 + self.followers.len());
            }
            self.untold.push(report);
            (self.key, self.delivery) = (key, delivery);
            self.turn = None;
        } else {
            self.end(report);
        }
    }

    /// Begin, gate, verdict, decode, route, handler: the same order on every binding
    /// (contract §7.2).
    fn open(&mut self) -> Opened {
        let (desk, delivery) = (&*self.desk, &*self.delivery);
        let begun = caught(|| desk.settler.begin(delivery));
        if let Ok(false) = begun {
            return Opened::Ended(News::Refused);
        }
        let dispatch = match classify(delivery, desk.shared.rules) {
            Ok(dispatch) => dispatch,
            Err(refused) => return Opened::Ended(News::Done(desk.refuse(delivery, &refused))),
        };
        // A transport's panic counts like a handler's: given back, the delivery would come again at
        // once, for ever.
        if let Err(failure) = begun {
            return Opened::Ended(self.conclude(&Sorted::of(&dispatch), Err(failure)));
        }
        let Some(route) = desk.shared.routes.find(&dispatch.route(&delivery.facts)) else {
            return Opened::Ended(News::Done(desk.unknown(delivery, &dispatch)));
        };
        if route.blocking {
            self.turn = Some(Arc::default());
            let blocking = self.report(News::Blocking, false);
            self.untold.push(blocking);
            tell(desk, &mut self.untold);
        }
        let sorted = Sorted::of(&dispatch);
        let context = self.context(dispatch).with_turn(self.turn.clone());
        match caught(|| route.handler.call(context)) {
            Ok(handling) => Opened::Handling(handling, sorted),
            Err(failure) => Opened::Ended(self.conclude(&sorted, Err(failure))),
        }
    }

    fn conclude(&self, sorted: &Sorted, result: Result<Outcome, Failure>) -> News {
        let settling = self.desk.conclude(&self.delivery, sorted, &result);
        // An error can panic when it is dropped; that it failed is settled by now.
        discard(result);
        News::Done(settling)
    }

    fn context(&self, dispatch: Dispatch) -> Context {
        let attempts = u32::try_from(dispatch.attempts).unwrap_or(u32::MAX);
        Context::within(
            Arc::clone(&self.desk.shared.surroundings),
            dispatch.into_reconciled(),
            Arc::clone(&self.delivery),
            attempts,
        )
    }

    fn report(&self, news: News, goes_on: bool) -> Report {
        Report {
            queue: self.desk.queue,
            key: self.key,
            news,
            goes_on,
        }
    }

    fn end(&mut self, last: Report) {
        self.ended = true;
        if self.untold.is_empty() {
            send(&self.desk, Reports::One(last));
        } else {
            self.untold.push(last);
            tell(&self.desk, &mut self.untold);
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.ended {
            // What the handler had left is dropped by now.
            let given_up = self.turn.as_ref().is_some_and(|turn| turn.is_given_up());
            let news = if given_up {
                News::GivenUp
            } else {
                News::Aborted
            };
            let last = self.report(news, false);
            self.end(last);
        }
    }
}

/// Tells what was not told yet.
fn tell(desk: &Desk, untold: &mut Vec<Report>) {
    if !untold.is_empty() {
        send(desk, Reports::Many(std::mem::take(untold)));
    }
}

fn send(desk: &Desk, reports: Reports) {
    // Nobody listens any more only where the worker was dropped.
    let _ = desk.reports.send(reports);
}

/// What a delivery is once it has been opened.
enum Opened {
    Ended(News),
    Handling(HandlerFuture, Sorted),
}
