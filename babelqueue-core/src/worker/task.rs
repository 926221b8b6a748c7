//! What happens to one delivery between the buffer and its settlement, in a task of its own.

use std::future::poll_fn;
use std::sync::Arc;

use super::desk::{Desk, Settling, Sorted};
use super::held::Key;
use crate::decide::{Dispatch, classify};
use crate::handler::{
    Context, Failure, HandlerFuture, Outcome, Turn, caught, clear_away, discard, poll_caught,
};
use crate::transport::Delivery;

/// What a task tells the worker's loop of its delivery.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) queue: usize,
    pub(super) key: Key,
    pub(super) news: News,
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

/// One delivery's task. Whatever happens to it, it reports: dropped half-way, that it was aborted.
pub(super) struct Task {
    desk: Arc<Desk>,
    key: Key,
    delivery: Arc<Delivery>,
    /// Of a handler that blocks.
    turn: Option<Arc<Turn>>,
    reported: bool,
}

impl Task {
    pub(super) fn new(desk: Arc<Desk>, key: Key, delivery: Arc<Delivery>) -> Self {
        Self {
            desk,
            key,
            delivery,
            turn: None,
            reported: false,
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
            let news = match self.open() {
                Opened::Ended(news) => news,
                Opened::Handling(mut handling, sorted) => {
                    let result = poll_fn(|cx| poll_caught(&mut handling, cx)).await;
                    let result = clear_away(handling, result);
                    self.conclude(&sorted, result)
                }
            };
            self.reported = true;
            self.report(news);
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
            self.report(News::Blocking);
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

    fn report(&self, news: News) {
        let report = Report {
            queue: self.desk.queue,
            key: self.key,
            news,
        };
        // Nobody listens any more only where the worker was dropped.
        let _ = self.desk.reports.send(report);
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.reported {
            // What the handler had left is dropped by now.
            let given_up = self.turn.as_ref().is_some_and(|turn| turn.is_given_up());
            self.report(if given_up {
                News::GivenUp
            } else {
                News::Aborted
            });
        }
    }
}

/// What a delivery is once it has been opened.
enum Opened {
    Ended(News),
    Handling(HandlerFuture, Sorted),
}
