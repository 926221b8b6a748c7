//! Publishing many in one trip.

use std::time::Duration;

use babelqueue_core::Error;
use babelqueue_core::transport::{Outgoing, PublishOptions};
use bytes::Bytes;
use redis::Cmd;

use super::Queue;
use crate::error::{Failure, unexpected};
use crate::layout::Keys;
use crate::project::{frame, whole_seconds};
use crate::reply;
use crate::scripts::{LARAVEL_DELAY, LARAVEL_PUSH};

/// The most that Redis stores in one string.
const MOST_STORED: usize = 512 << 20;

/// Messages that go to one queue by one call.
#[derive(Debug)]
pub(crate) struct Group {
    queue: Queue,
    delay: Duration,
    /// The place of each in the batch.
    pub(crate) places: Vec<usize>,
    stored: Vec<Bytes>,
    bytes: usize,
}

impl Group {
    /// A group for `delay`, still empty.
    pub(crate) fn new(queue: Queue, delay: Duration) -> Self {
        Self {
            queue,
            delay,
            places: Vec::new(),
            stored: Vec::new(),
            bytes: 0,
        }
    }

    /// Its queue.
    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Whether it is for this queue.
    pub(crate) fn is_for(&self, queue: &str) -> bool {
        *self.queue.name == *queue
    }

    /// Whether one more message, with this delay and of this size, goes by the same call.
    pub(crate) fn takes(&self, delay: Duration, size: usize) -> bool {
        const MOST_BYTES: usize = 8 << 20;
        self.delay == delay
            && self.stored.len() < crate::scripts::MOST_PER_CALL
            && self.bytes + size <= MOST_BYTES
    }

    pub(crate) fn push(&mut self, place: usize, stored: Bytes) {
        self.bytes += stored.len();
        self.places.push(place);
        self.stored.push(stored);
    }

    /// Sends them: all are stored, in order, or none is.
    pub(crate) async fn send(&self) -> Result<(), Failure> {
        let link = &self.queue.shared.link;
        let answer = match &*self.queue.keys {
            Keys::Sdk { ready, .. } => {
                let mut command = Cmd::new();
                command.arg("RPUSH").arg(ready);
                self.write_stored(&mut command);
                link.query(&command).await?
            }
            Keys::Laravel { ready, notify, .. } if self.delay.is_zero() => {
                link.run(&LARAVEL_PUSH, |command| {
                    command.arg(2).arg(ready).arg(notify);
                    self.write_stored(command);
                })
                .await?
            }
            Keys::Laravel { delayed, .. } => {
                let now = self.queue.now();
                link.run(&LARAVEL_DELAY, |command| {
                    command.arg(1).arg(delayed).arg(&now.text).arg("");
                    command.arg(whole_seconds(self.delay));
                    self.write_stored(command);
                })
                .await?
            }
        };
        match reply::count(&answer) {
            Some(_) => Ok(()),
            None => Err(Failure::of_call(
                (
                    redis::ErrorKind::UnexpectedReturnType,
                    "the server confirmed a push with something else than a count",
                    unexpected("publish", &answer).to_string(),
                )
                    .into(),
            )),
        }
    }

    /// The error for one of them.
    pub(crate) fn error(&self, failure: &Failure) -> Error {
        failure
            .clone()
            .into_error("publish", &self.queue.describe())
    }

    fn write_stored(&self, command: &mut Cmd) {
        for stored in &self.stored {
            command.arg(&stored[..]);
        }
    }
}

impl Queue {
    /// What is stored for a message, and after what delay, or why it cannot be sent.
    pub(crate) fn prepare(&self, message: &Outgoing) -> Result<(Bytes, Duration), Error> {
        check_options(&message.options)?;
        let delay = message.options.delay.unwrap_or_default();
        let stored = match &*self.keys {
            Keys::Sdk { .. } if !delay.is_zero() => {
                return Err(unsupported(
                    "delay",
                    "the SDK layout has no delayed set; the Laravel layout has one (`layout=laravel`)",
                ));
            }
            Keys::Sdk { .. } => frame(&message.body, &message.headers).unwrap_or_else(|| {
                self.shared.warn_of_headers_once("the body is not UTF-8");
                message.body.clone()
            }),
            Keys::Laravel { .. } => {
                if !message.headers.is_empty() {
                    self.shared
                        .warn_of_headers_once("the Laravel layout has no place for them");
                }
                message.body.clone()
            }
        };
        check_size(&stored)?;
        Ok((stored, delay))
    }
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
