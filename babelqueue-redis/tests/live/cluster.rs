//! A real cluster of three nodes.

use std::process::Command;
use std::time::Duration;

use babelqueue_core::Error;
use babelqueue_core::transport::{Settled, Settlement, SubscribeOptions, Transport as _};
use babelqueue_redis::{Config, Redis};
use redis::AsyncCommands as _;

use crate::server::{
    Private, bare, eventually, handle, publish, receive, stays_empty, subscribe, texts,
};
use crate::{Fault, Outcome, trials};

trials![
    a_queue_in_braces_works_on_every_node,
    keys_in_several_slots_are_told
];

struct Cluster {
    nodes: Vec<Private>,
}

impl Cluster {
    async fn start() -> Result<Self, Fault> {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            let bus = std::net::TcpListener::bind("127.0.0.1:0")?
                .local_addr()?
                .port()
                .to_string();
            let arguments = [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                "2000",
                "--cluster-port",
                &bus,
            ];
            nodes.push(Private::start(&arguments).await?);
        }
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]);
        for node in &nodes {
            create.arg(node.address().to_string());
        }
        let created = create
            .args(["--cluster-replicas", "0", "--cluster-yes"])
            .output();
        let created = created.map_err(|error| Fault::NoServer(format!("no redis-cli: {error}")))?;
        if !created.status.success() {
            return Err((&*String::from_utf8_lossy(&created.stdout)).into());
        }
        for node in &nodes {
            let url = node.url("");
            let is_ok = || async {
                let Ok(mut bare) = bare(&url).await else {
                    return false;
                };
                let mut info = redis::cmd("CLUSTER");
                let info = info.arg("INFO").query_async::<String>(&mut bare).await;
                info.is_ok_and(|info| info.contains("cluster_state:ok"))
            };
            if !eventually(is_ok).await {
                return Err("the cluster does not come up".into());
            }
        }
        Ok(Self { nodes })
    }

    async fn connect(&self, query: &str) -> Result<Redis, Fault> {
        let [first, second, third] = &self.nodes[..] else {
            return Err("not three nodes".into());
        };
        let (second, third) = (second.address(), third.address());
        let url = first.url(&format!("cluster=1&node={second}&node={third}&{query}"));
        handle(Config::from_url(&url)?).await
    }
}

async fn a_queue_in_braces_works_on_every_node() -> Outcome {
    let cluster = Cluster::start().await?;
    for query in ["layout=sdk&retry_after=2", "layout=laravel&retry_after=2"] {
        let redis = cluster.connect(query).await?;
        let mut nodes_used = 0;
        for tag in ["{a}", "{b}", "{c}", "{d}", "{e}", "{f}"] {
            let queue = format!("{tag}-{}", query.len());
            let mut subscription = subscribe(&redis, &queue).await?;
            assert!(stays_empty(&mut subscription, Duration::from_millis(50)).await);
            publish(&redis, &queue, &["1", "2", "3", "4"]).await?;
            let held = receive(&mut subscription, 4).await?;
            assert_eq!(texts(&held), ["1", "2", "3", "4"]);
            for end in subscription.settler.extend(&held).await {
                end?;
            }
            let letter = Settlement::DeadLetter {
                queue: format!("{queue}.dlq").into(),
                record: "{}".into(),
                verbatim: false,
                attempts: 1,
            };
            let retry = Settlement::Retry {
                body: "2b".into(),
                attempts: 1,
                delay: Duration::ZERO,
            };
            let ways = [Settlement::Ack, retry, letter, Settlement::Abandon];
            let batch = held.into_iter().zip(ways).collect();
            for answer in subscription.settler.settle(batch).await {
                assert_eq!(answer?, Settled::Done);
            }
            // Retried at once, and recovered at its deadline.
            for expected in ["2b", "4"] {
                let again = receive(&mut subscription, 1).await?;
                assert_eq!(texts(&again), [expected]);
                let batch = again.into_iter().map(|d| (d, Settlement::Ack)).collect();
                assert_eq!(
                    subscription.settler.settle(batch).await.remove(0)?,
                    Settled::Done
                );
            }
        }
        for node in &cluster.nodes {
            let keys: Vec<String> = bare(&node.url("")).await?.keys("*.dlq").await?;
            nodes_used += usize::from(!keys.is_empty());
        }
        assert!(nodes_used >= 2, "all tags on one node");
    }
    Ok(())
}

async fn keys_in_several_slots_are_told() -> Outcome {
    let cluster = Cluster::start().await?;
    let redis = cluster.connect("").await?;
    let error = publish(&redis, "orders", &["a"])
        .await
        .err()
        .ok_or("taken")?;
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    assert!(error.to_string().contains("{orders}"), "{error}");
    let error = subscribe(&redis, "orders").await.err().ok_or("taken")?;
    assert!(matches!(error, Error::Config { .. }), "{error:?}");

    let mut options = SubscribeOptions::with_prefetch(1);
    options.dead_letter = Some("elsewhere".into());
    let error = redis
        .subscribe("{orders}", options)
        .await
        .err()
        .ok_or("taken")?;
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    Ok(())
}
