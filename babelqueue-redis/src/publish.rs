//! Publishing many in one trip.

use std::sync::Arc;
use std::time::Duration;

use babelqueue_core::Error;
use babelqueue_core::transport::{Outgoing, PublishOptions};
use bytes::Bytes;
use futures_util::future::join_all;
use redis::{Cmd, Value};

use crate::Layout;
use crate::error::{Failure, unexpected};
use crate::layout::Keys;
use crate::project::{frame, whole_seconds};
use crate::reply;
use crate::scripts::{LARAVEL_DELAY, LARAVEL_PUSH, MOST_PER_CALL, Size};
use crate::transport::Shared;

/// The most that Redis stores in one string.
const MOST_STORED: usize = 512 << 20;

/// The most bytes of one call.
const MOST_BYTES: usize = 8 << 20;

/// Publishes in order: the order of each queue is kept. One result each.
pub(crate) async fn publish(shared: &Shared, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
    let mut results: Vec<Result<(), Error>> = Vec::with_capacity(batch.len());
    let mut groups: Vec<Group> = Vec::with_capacity(1);
    for (place, message) in batch.into_iter().enumerate() {
        let prepared = prepare(shared, &message);
        results.push(prepared.map(|(stored, delay)| {
            sort(&mut groups, message.queue, place, stored, delay);
        }));
    }
    if let [group] = &groups[..] {
        group.note(shared, group.send(shared).await, &mut results);
        return results;
    }
    // Written to one connection in this order, and all on their way at once.
    let sent = join_all(groups.iter().map(|group| group.send(shared))).await;
    for (group, sent) in groups.iter().zip(sent) {
        group.note(shared, sent, &mut results);
    }
    results
}

/// Puts a message into the last group of its queue, or into a new one.
fn sort(groups: &mut Vec<Group>, queue: Arc<str>, place: usize, stored: Bytes, delay: Duration) {
    let last = groups.iter_mut().rev().find(|group| group.queue == queue);
    match last.filter(|group| group.takes(delay, stored.len())) {
        Some(group) => group.push(place, stored),
        None => groups.push(Group::new(queue, delay, place, stored)),
    }
}

/// Messages that go to one queue by one call.
#[derive(Debug)]
struct Group {
    queue: Arc<str>,
    delay: Duration,
    /// The place of each in the batch.
    places: Vec<usize>,
    stored: Vec<Bytes>,
    bytes: usize,
}

impl Group {
    fn new(queue: Arc<str>, delay: Duration, place: usize, stored: Bytes) -> Self {
        Self {
            queue,
            delay,
            places: vec![place],
            bytes: stored.len(),
            stored: vec![stored],
        }
    }

    /// Whether one more message, with this delay and of this size, goes by the same call.
    fn takes(&self, delay: Duration, size: usize) -> bool {
        self.delay == delay && self.stored.len() < MOST_PER_CALL && self.bytes + size <= MOST_BYTES
    }

    fn push(&mut self, place: usize, stored: Bytes) {
        self.bytes += stored.len();
        self.places.push(place);
        self.stored.push(stored);
    }

    /// Sends them: all are stored, in order, or none is.
    async fn send(&self, shared: &Shared) -> Result<Value, Failure> {
        let link = &shared.link;
        if shared.config.layout == Layout::Sdk {
            // The ready list has the queue's own name.
            let mut command = Cmd::with_capacity(2 + self.stored.len(), self.bytes + 64);
            command.arg("RPUSH").arg(&*self.queue);
            self.write_stored(&mut command);
            return link.query(&command).await;
        }
        let Keys::Laravel {
            ready,
            delayed,
            notify,
            ..
        } = &shared.config.keys(&self.queue)
        else {
            return Ok(Value::Nil);
        };
        let size = Size::with(self.stored.len(), self.bytes);
        if self.delay.is_zero() {
            return link
                .run(&LARAVEL_PUSH, size, |command| {
                    command.arg(2).arg(ready).arg(notify);
                    self.write_stored(command);
                })
                .await;
        }
        let now = shared.now();
        link.run(&LARAVEL_DELAY, size, |command| {
            command.arg(1).arg(delayed).arg(now.text()).arg("");
            command.arg(whole_seconds(self.delay));
            self.write_stored(command);
        })
        .await
    }

    fn write_stored(&self, command: &mut Cmd) {
        for stored in &self.stored {
            command.arg(&stored[..]);
        }
    }

    /// Notes what became of them. A push is confirmed by a count; they are taken as sent already.
    fn note(
        &self,
        shared: &Shared,
        sent: Result<Value, Failure>,
        results: &mut [Result<(), Error>],
    ) {
        let error: Box<dyn Fn() -> Error> = match sent {
            Ok(answer) if reply::count(&answer).is_some() => return,
            Ok(answer) => Box::new(move || unexpected("publish", &answer)),
            Err(failure) => {
                let on = shared.describe(&self.queue);
                Box::new(move || failure.clone().into_error("publish", &on))
            }
        };
        for place in &self.places {
            results[*place] = Err(error());
        }
    }
}

/// What is stored for a message, and after what delay, or why it cannot be sent.
fn prepare(shared: &Shared, message: &Outgoing) -> Result<(Bytes, Duration), Error> {
    check_options(&message.options)?;
    if shared.config.cluster {
        crate::slot::check_one(shared.config.keys(&message.queue).iter())?;
    }
    let delay = message.options.delay.unwrap_or_default();
    let stored = match shared.config.layout {
        Layout::Sdk if !delay.is_zero() => {
            return Err(unsupported(
                "delay",
                "the SDK layout has no delayed set; the Laravel layout has one (`layout=laravel`)",
            ));
        }
        Layout::Sdk => frame(&message.body, &message.headers).unwrap_or_else(|| {
            shared.warn_of_headers_once("the body is not UTF-8");
            message.body.clone()
        }),
        Layout::Laravel => {
            if !message.headers.is_empty() {
                shared.warn_of_headers_once("the Laravel layout has no place for them");
            }
            message.body.clone()
        }
    };
    check_size(&stored)?;
    Ok((stored, delay))
}

/// Redis ends the connection, and all that is in flight on it, over a longer string.
pub(crate) fn check_size(stored: &Bytes) -> Result<(), Error> {
    if stored.len() > MOST_STORED {
        return Err(Error::message(format_args!(
            "it is {} bytes long; Redis stores at most {MOST_STORED}",
            stored.len()
        )));
    }
    Ok(())
}

fn check_options(options: &PublishOptions) -> Result<(), Error> {
    for (is_set, feature) in [
        (options.key.is_some(), "partition key"),
        (options.partition.is_some(), "partition"),
        (options.group.is_some(), "message group"),
        (options.deduplication_id.is_some(), "deduplication id"),
        (options.priority.is_some(), "priority"),
        (options.time_to_live.is_some(), "time to live"),
    ] {
        if is_set {
            return Err(unsupported(feature, "leave the option out"));
        }
    }
    Ok(())
}

fn unsupported(feature: &'static str, context: &str) -> Error {
    Error::Unsupported {
        broker: "redis",
        feature,
        context: context.to_owned(),
    }
}
