//! Topics of a bench, and what is in them.

use std::sync::Arc;
use std::time::Duration;

use babelqueue_core::transport::{Outgoing, Transport as _};
use babelqueue_kafka::{Config, Kafka};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;

use crate::BODY;

/// The partitions of each.
pub(crate) const PARTITIONS: i32 = 6;

/// A topic that is removed at the end.
pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    admin: AdminClient<DefaultClientContext>,
}

impl Topic {
    /// One that no other run knows.
    pub(crate) async fn new(servers: &str) -> Self {
        let unique = uuid::Uuid::new_v4().simple().to_string();
        Self::named(servers, &format!("bench-{}", &unique[..12])).await
    }

    pub(crate) async fn named(servers: &str, name: &str) -> Self {
        let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
            .set("bootstrap.servers", servers)
            .create()
            .expect("an admin client");
        let topic = NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1));
        let made = admin.create_topics([&topic], &options()).await;
        made.expect("an answer")[0].as_ref().expect("a topic");
        // Not known everywhere at once.
        tokio::time::sleep(Duration::from_millis(300)).await;
        Self {
            name: name.into(),
            admin,
        }
    }

    /// The same with so many records, which have the keys of a hundred.
    pub(crate) async fn filled(servers: &str, count: usize) -> Self {
        let topic = Self::new(servers).await;
        let kafka = Kafka::open(Config::new(servers)).await.expect("a broker");
        for batch in 0..count.div_ceil(10_000) {
            let size = (count - batch * 10_000).min(10_000);
            let answers = kafka.publish(topic.outgoing(size)).await;
            assert!(answers.iter().all(Result::is_ok), "not all were published");
        }
        topic
    }

    /// Messages for it.
    pub(crate) fn outgoing(&self, count: usize) -> Vec<Outgoing> {
        (0..count)
            .map(|at| {
                let mut outgoing = Outgoing::new(Arc::clone(&self.name), BODY);
                outgoing.options.key = Some(key(at).into());
                outgoing
            })
            .collect()
    }

    pub(crate) async fn remove(self) {
        let removed = self.admin.delete_topics(&[&self.name], &options()).await;
        removed.expect("an answer");
    }
}

/// The key of the record of this number.
pub(crate) fn key(at: usize) -> String {
    format!("customer-{}", at % 100)
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(Duration::from_secs(10)))
}
