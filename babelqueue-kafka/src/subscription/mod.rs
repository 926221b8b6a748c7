//! A subscription: one member of a consumer group.
//!
//! One thread drives the client (`poll`); what it has read and what has become of it lives under
//! one lock (`assignment`), which the receiver and the settler share with it.

pub(crate) mod assignment;
mod commits;
pub(crate) mod context;
mod intake;
mod offsets;
mod poll;
mod queues;
mod rebalance;
mod receiver;
mod settler;
mod shared;

use std::sync::Arc;
use std::sync::mpsc::channel;

use babelqueue_core::Error;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::config::{Config, Order};
use crate::error::classified;

pub(crate) use receiver::GroupReceiver;
pub(crate) use settler::{GroupSettler, Writes};
pub(crate) use shared::Shared;

/// What a member joins, and how it reads.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) group: String,
    pub(crate) topics: Vec<Arc<str>>,
    pub(crate) order: Order,
    /// The most that is given out of one partition.
    pub(crate) share: usize,
}

/// Joins the group.
pub(crate) fn join(config: &Config, membership: Membership) -> Result<GroupReceiver, Error> {
    let Membership {
        group,
        topics,
        order,
        share,
    } = membership;
    let failed = |cause| classified("subscribe", &format!("group `{group}`"), cause);
    let consumer: BaseConsumer<context::Context> = config
        .consumer(&group)
        .create_with_context(context::Context::default())
        .map_err(failed)?;
    let names: Vec<&str> = topics.iter().map(|topic| &**topic).collect();
    consumer.subscribe(&names).map_err(failed)?;

    let shared = Arc::new(Shared::new(share, order));
    let (close, closed) = channel();
    let for_thread = Arc::clone(&shared);
    let config = config.clone();
    std::thread::Builder::new()
        .name("bq-kafka-poll".to_owned())
        .spawn(move || {
            let polled = Arc::clone(&for_thread);
            let _end = End(Arc::clone(&for_thread));
            match poll::PollThread::new(consumer, for_thread, closed, topics, order, &config) {
                Ok(thread) => thread.run(),
                Err(cause) => polled.refuse(format!("a thread could not be started: {cause}")),
            }
        })
        .map_err(|cause| Error::transient("subscribe", "no thread").with_source(cause))?;
    Ok(GroupReceiver::new(shared, close))
}

/// Tells the receiver where its thread has panicked.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.refuse("the polling thread has panicked".to_owned());
        }
    }
}
