//! A worker over Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use babelqueue_core::prelude::{Incoming, Message};
use babelqueue_core::worker::Worker;
use babelqueue_redis::Layout;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::common::unique;
use crate::server::{publish, shared};
use crate::{Outcome, trials};

trials![a_worker_settles_each_message_once];

#[derive(Serialize, Deserialize)]
struct Order {
    order_id: u64,
}

impl Message for Order {
    const URN: &'static str = "urn:babel:orders:created";
}

async fn a_worker_settles_each_message_once() -> Outcome {
    const COUNT: u64 = 3_000;
    for layout in [Layout::Sdk, Layout::Laravel] {
        let redis = shared(layout).await?;
        let queue = unique("worker");
        let bodies: Vec<String> = (0..COUNT)
            // Identical ones too: each has a reservation of its own in the SDK layout.
            .map(|n| if layout == Layout::Sdk { n / 3 } else { n })
            .map(|n| format!(r#"{{"job":"urn:babel:orders:created","trace_id":"t","data":{{"order_id":{n}}},"meta":{{"id":"m{n}","queue":"q","lang":"rust","schema_version":1,"created_at":1}},"attempts":0}}"#))
            .collect();
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        publish(&redis, &queue, &bodies).await?;

        let books = Arc::new((AtomicU64::new(0), AtomicU64::new(0), Notify::new()));
        let (ours, theirs) = (Arc::clone(&books), Arc::clone(&books));
        let stopped = Worker::new(redis.clone())
            .queue(&*queue)
            .concurrency(64)
            .handle(move |order: Incoming<Order>| {
                let books = Arc::clone(&ours);
                async move {
                    books.1.fetch_add(order.order_id, Ordering::Relaxed);
                    if books.0.fetch_add(1, Ordering::AcqRel) + 1 == COUNT {
                        books.2.notify_one();
                    }
                    Ok(())
                }
            })
            .run_until(async move { theirs.2.notified().await })
            .await?;
        assert_eq!(stopped.counts.handled, COUNT, "{layout:?}: {stopped:?}");
        assert_eq!(redis.counts().fenced, 0, "{layout:?}");
    }
    Ok(())
}
