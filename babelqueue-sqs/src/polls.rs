use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use babelqueue_core::Error;
use babelqueue_core::transport::{Delivery, Lane};
use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::batch::{self, Visibility};
use crate::client::Link;
use crate::out::Out;
use crate::project::{self, Attributes};
use crate::queues::Queue;
use crate::{delay, failure};

/// What a delivery of ours carries for its own settlement.
pub(crate) struct Receipt {
    /// Good for this one receive.
    pub(crate) handle: Arc<str>,
    /// As received: a copy of the message carries them on.
    pub(crate) attributes: Arc<Attributes>,
    pub(crate) group: Option<Arc<str>>,
    /// The service's own name of the message. It has no other one for as long as it is in its queue.
    pub(crate) message_id: Arc<str>,
}

/// Where one subscription gets its messages.
pub(crate) struct Source {
    pub(crate) link: Arc<Link>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) out: Arc<Out>,
    /// For how long a received message is ours.
    pub(crate) visibility: Duration,
    pub(crate) missing: Missing,
}

/// For how long the service may say of a queue that was there that it is not. One that has just started
/// may not have its queues again, and a worker that a single answer ends would not come back.
const GRACE: Duration = Duration::from_secs(5);

/// Since when the service has said, with no other answer between, that there is no such queue.
#[derive(Default)]
pub(crate) struct Missing(Mutex<Option<Instant>>);

impl Missing {
    /// Whether it has said so for long enough to be believed.
    fn is_certain(&self, now: Instant) -> bool {
        let mut since = self.since();
        now.saturating_duration_since(*since.get_or_insert(now)) >= GRACE
    }

    fn answered_otherwise(&self) {
        *self.since() = None;
    }

    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer to a receive that asked for `size` messages.
pub(crate) struct Answer {
    pub(crate) size: usize,
    pub(crate) received: Result<Vec<Arc<Delivery>>, Error>,
}

impl Source {
    /// Receives up to `size`, and says what came to whoever holds the other end of `answers`; gives it
    /// back where nobody does.
    ///
    /// A task of its own, which ends with its one request: a request that is dropped may have been
    /// answered with messages, which nobody would see until their visibility has passed.
    pub(crate) async fn poll(self: Arc<Self>, size: usize, answers: mpsc::UnboundedSender<Answer>) {
        // A poll that never answered would keep its place for ever.
        let receiving = AssertUnwindSafe(self.receive(size)).catch_unwind();
        let received = receiving
            .await
            .unwrap_or_else(|_| Err(Error::transient("receive", "the client panicked")));
        if let Err(unread) = answers.send(Answer { size, received })
            && let Ok(deliveries) = unread.0.received
        {
            self.give_back(&deliveries).await;
        }
    }

    /// Makes messages visible again.
    pub(crate) async fn give_back(&self, deliveries: &[Arc<Delivery>]) {
        let of = |delivery: &Arc<Delivery>| {
            let receipt = delivery.native::<Receipt>()?;
            let handle = receipt.handle.clone();
            Some(Visibility { handle, seconds: 0 })
        };
        let changes: Vec<_> = deliveries.iter().filter_map(of).collect();
        if changes.is_empty() {
            return;
        }
        for changed in batch::change(&self.link, &self.queue, changes).await {
            if let Err(undone) = changed
                && !undone.has_ended()
            {
                let error = undone.into_error("release", self.queue.describe());
                tracing::warn!(%error, "what was not handled comes back at its visibility timeout");
            }
        }
    }

    async fn receive(&self, size: usize) -> Result<Vec<Arc<Delivery>>, Error> {
        let client = self.link.client().await?;
        let seconds = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
        let wait = self.link.config.wait_time;
        let request = client
            .receive_message()
            .queue_url(&self.queue.url)
            .max_number_of_messages(i32::try_from(size).unwrap_or(i32::MAX))
            .wait_time_seconds(seconds(wait))
            .visibility_timeout(seconds(self.visibility))
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
            .message_system_attribute_names(MessageSystemAttributeName::MessageGroupId);
        let request = if self.queue.is_fifo {
            // A try whose answer was lost would lock its groups; with this the next gets the same.
            request.receive_request_attempt_id(uuid::Uuid::new_v4().to_string())
        } else {
            request
        };
        let received = if self.link.config.client.is_some() {
            request.send().await
        } else {
            let patient = request.customize();
            let patient = patient.config_override(self.link.of_a_receive());
            patient.send().await
        };
        match received {
            Err(error) if failure::is_missing_queue(&error) => {
                let context = format!("there is no queue `{}`", self.queue.name);
                let error_of = if self.missing.is_certain(Instant::now()) {
                    Error::refused
                } else {
                    Error::transient
                };
                Err(error_of("receive", context).with_source(error))
            }
            other => {
                self.missing.answered_otherwise();
                let received =
                    other.map_err(|error| failure::of("receive", self.queue.describe(), error))?;
                Ok(self.deliveries(received.messages.unwrap_or_default()))
            }
        }
    }

    fn deliveries(&self, messages: Vec<Message>) -> Vec<Arc<Delivery>> {
        let received = Instant::now();
        let messages = messages.into_iter();
        messages
            .filter_map(|message| self.delivery(message, received))
            .collect()
    }

    fn delivery(&self, message: Message, received: Instant) -> Option<Arc<Delivery>> {
        let Some(handle) = message.receipt_handle else {
            tracing::warn!(
                queue = &*self.queue.name,
                "a message without a receipt handle cannot be settled; it comes again"
            );
            return None;
        };
        let system = message.attributes.unwrap_or_default();
        let count = system.get(&MessageSystemAttributeName::ApproximateReceiveCount);
        let group = system.get(&MessageSystemAttributeName::MessageGroupId);
        let attributes: Attributes = message
            .message_attributes
            .unwrap_or_default()
            .into_iter()
            .collect();

        let body = Bytes::from(message.body.unwrap_or_default());
        let mut delivery = Delivery::received_at(self.queue.name.clone(), body, received);
        delivery.headers = project::surfaced(&attributes);
        delivery.facts = project::facts(count.map(String::as_str), &attributes);
        delivery.lane = group
            .filter(|_| self.queue.is_fifo)
            .map(|group| lane(group));
        delivery.fence = self.out.fence();
        let receipt = Receipt {
            handle: handle.into(),
            attributes: Arc::new(attributes),
            group: group.map(|group| group.as_str().into()),
            message_id: message.message_id.unwrap_or_default().into(),
        };
        let end = lease_end(received, self.visibility);
        Some(Arc::new(delivery.with_native(receipt).with_lease(end)))
    }
}

/// Each group is a lane and a scope of its own.
fn lane(group: &str) -> Lane {
    // FNV-1a: the same in every run.
    let scope = group
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    Lane {
        scope,
        key: Bytes::copy_from_slice(group.as_bytes()),
    }
}

/// The end of a lease that began at `start`, by our clock: a little before the service's, so that
/// nothing is settled that somebody else has already.
pub(crate) fn lease_end(start: Instant, visibility: Duration) -> Instant {
    start + visibility - (visibility / 20).min(Duration::from_secs(1))
}

/// The visibility that a lease is renewed to, in whole seconds: all of it, or what is left of the 12
/// hours of a message. `None` where nothing is left.
pub(crate) fn renewal(visibility: Duration, received: Instant) -> Option<Duration> {
    // One second less: the service began to count before we did.
    let left = delay::MAX_VISIBILITY
        .checked_sub(received.elapsed())?
        .as_secs()
        .checked_sub(1)?;
    let seconds = visibility.as_secs().min(left);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_message_is_renewed_for_12_hours_and_no_longer() {
        let received = Instant::now();
        let seconds = Duration::from_secs;
        assert_eq!(renewal(seconds(30), received), Some(seconds(30)));
        tokio::time::advance(seconds(43_180)).await;
        assert_eq!(renewal(seconds(30), received), Some(seconds(19)));
        tokio::time::advance(seconds(19)).await;
        assert_eq!(renewal(seconds(30), received), None);
    }

    #[test]
    fn groups_are_lanes_with_scopes_of_their_own() {
        assert_eq!(lane("a"), lane("a"));
        assert_ne!(lane("a").scope, lane("b").scope);
        assert_eq!(lane("a").key, "a");
    }
}
