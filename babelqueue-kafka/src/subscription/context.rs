use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaRespErr;

use crate::log;

/// A topic's name and a partition of it.
pub(crate) type Partition = (String, i32);

/// What the group's coordinator asks of this member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rebalance {
    Assign(Vec<Partition>),
    Revoke(Vec<Partition>),
}

/// What the client calls back with.
///
/// A rebalance is only noted here, and answered by the polling thread when it is ready: running
/// handlers may finish first. Waiting inside the callback would stop the thread that lets them.
#[derive(Debug, Default)]
pub(crate) struct Context {
    noted: Mutex<VecDeque<Rebalance>>,
    closing: AtomicBool,
    complaints: Mutex<Complaints>,
}

/// What the client has complained of.
#[derive(Debug, Default)]
struct Complaints {
    last: Option<String>,
    login: Option<String>,
    tls: Option<String>,
}

impl Context {
    /// The next rebalance that was noted.
    pub(crate) fn next(&self) -> Option<Rebalance> {
        self.noted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    }

    /// From now on every rebalance is answered at once.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// The last thing that the client complained of.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.complaints().last.clone()
    }

    /// What a broker has against the credentials.
    pub(crate) fn login_error(&self) -> Option<String> {
        self.complaints().login.clone()
    }

    /// What went wrong with TLS: a certificate that nobody here vouches for, for one.
    pub(crate) fn tls_error(&self) -> Option<String> {
        self.complaints().tls.clone()
    }

    fn complaints(&self) -> MutexGuard<'_, Complaints> {
        let complaints = self.complaints.lock();
        complaints.unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log::line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(target: "babelqueue_kafka", %error, reason, "the Kafka consumer met an error");
        let mut complaints = self.complaints();
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::Authentication) => complaints.login = Some(reason.to_owned()),
            Some(RDKafkaErrorCode::SSL) => complaints.tls = Some(reason.to_owned()),
            _ => {}
        }
        complaints.last = Some(reason.to_owned());
    }
}

impl ConsumerContext for Context {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        kind: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        if self.closing.load(Ordering::Acquire) {
            answer_revoke(consumer, partitions);
            return;
        }
        let listed = partitions
            .elements()
            .iter()
            .map(|element| (element.topic().to_owned(), element.partition()))
            .collect();
        let rebalance = match kind {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => Rebalance::Assign(listed),
            _ => Rebalance::Revoke(listed),
        };
        tracing::debug!(target: "babelqueue_kafka", ?rebalance, "the group rebalances");
        self.noted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(rebalance);
    }
}

/// Tells the group that these partitions are taken on, from where the list says.
pub(crate) fn answer_assign(consumer: &BaseConsumer<Context>, partitions: &TopicPartitionList) {
    let answered = match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_assign(partitions),
        RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.assign(partitions),
    };
    // The client refuses where the group has moved on since; the next rebalance says how.
    if let Err(error) = answered {
        tracing::warn!(target: "babelqueue_kafka", %error, "an assignment came too late");
    }
}

/// Tells the group that these partitions are given up; all of them where the protocol knows no
/// less.
pub(crate) fn answer_revoke(consumer: &BaseConsumer<Context>, partitions: &TopicPartitionList) {
    let answered = match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_unassign(partitions),
        RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.unassign(),
    };
    if let Err(error) = answered {
        tracing::warn!(target: "babelqueue_kafka", %error, "a revocation came too late");
    }
}
