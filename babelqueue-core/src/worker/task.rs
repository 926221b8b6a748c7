//! What happens to one delivery between the buffer and its settlement, in a task of its own.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use super::desk::{Desk, Settling};
use super::held::Key;
use super::routes::Route;
use crate::decide::{Dispatch, classify};
use crate::handler::{Context, Failure, Outcome};
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
}

/// One delivery's task. Whatever happens to it, it reports: dropped half-way, that it was aborted.
pub(super) struct Task {
    desk: Arc<Desk>,
    key: Key,
    delivery: Arc<Delivery>,
    reported: bool,
}

impl Task {
    pub(super) fn new(desk: Arc<Desk>, key: Key, delivery: Arc<Delivery>) -> Self {
        Self {
            desk,
            key,
            delivery,
            reported: false,
        }
    }

    pub(super) async fn run(mut self) {
        let news = if self.desk.settler.begin(&self.delivery) {
            News::Done(self.handle().await)
        } else {
            News::Refused
        };
        self.reported = true;
        self.report(news);
    }

    /// Gate, verdict, decode, route, handler, decision: the same order on every binding
    /// (contract §7.2).
    async fn handle(&self) -> Settling {
        let desk = &*self.desk;
        let dispatch = match classify(&self.delivery, desk.shared.rules) {
            Ok(dispatch) => dispatch,
            Err(refused) => return desk.refuse(&self.delivery, &refused),
        };
        let urn = dispatch.route(&self.delivery.facts);
        match desk.shared.routes.find(&urn) {
            None => desk.unknown(&self.delivery, &dispatch),
            Some(route) => {
                let result = self.call(route, &dispatch).await;
                desk.conclude(&self.delivery, &dispatch, &result)
            }
        }
    }

    async fn call(&self, route: &Route, dispatch: &Dispatch) -> Result<Outcome, Failure> {
        if route.blocking {
            self.report(News::Blocking);
        }
        let context = Context::within(
            Arc::clone(&self.desk.shared.surroundings),
            dispatch.envelope.clone(),
            Arc::clone(&self.delivery),
            u32::try_from(dispatch.attempts).unwrap_or(u32::MAX),
        );
        let mut handling = caught(|| route.handler.call(context))?;
        let result = poll_fn(|cx| match caught(|| handling.as_mut().poll(cx)) {
            Ok(poll) => poll,
            Err(failure) => Poll::Ready(Err(failure)),
        })
        .await;
        // What a handler leaves behind can panic as well.
        caught(|| drop(handling))?;
        result
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
            self.report(News::Aborted);
        }
    }
}

/// What `run` gives, or its panic as a failure. Nothing that a panic left half-done is looked at
/// again.
fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| Failure::panicked(&*payload))
}
