//! What a message costs a worker in allocations, from receive to acknowledgement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allocation_counter::measure;
use babelqueue_core::envelope::Envelope;
use babelqueue_core::memory::Memory;
use babelqueue_core::prelude::*;
use babelqueue_core::transport::{Outgoing, Transport};
use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;
use tokio::sync::Notify;

#[derive(Serialize, Deserialize)]
struct OrderCreated {
    order_id: u64,
}

impl Message for OrderCreated {
    const URN: &'static str = "urn:babel:orders:created";
}

/// The delivery, the task and the handler's future are one each; what a batch costs is shared.
#[test]
fn a_message_takes_at_most_four_allocations() {
    const MESSAGES: u64 = 20_000;
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let memory = Memory::new();
    runtime.block_on(fill(&memory, MESSAGES));
    let handled = Arc::new(AtomicU64::new(0));
    let counted =
        measure(|| runtime.block_on(empty(memory.clone(), Arc::clone(&handled), MESSAGES)));
    assert_eq!(handled.load(Ordering::Relaxed), MESSAGES);
    assert_eq!(memory.depth("orders").total(), 0);
    let allocations = counted.count_total;
    assert!(
        allocations <= 4 * MESSAGES,
        "{allocations} allocations for {MESSAGES} messages"
    );
}

async fn fill(memory: &Memory, messages: u64) {
    let order = OrderCreated { order_id: 1042 };
    let body = Envelope::of(&order)
        .build()
        .expect("an envelope")
        .into_bytes();
    for _ in 0..messages / 100 {
        let batch = (0..100).map(|_| Outgoing::new("orders", body.clone()));
        for result in memory.publish(batch.collect()).await {
            result.expect("published");
        }
    }
}

async fn empty(memory: Memory, handled: Arc<AtomicU64>, messages: u64) {
    let done = Arc::new(Notify::new());
    let is_done = Arc::clone(&done);
    Worker::new(memory)
        .queue("orders")
        .concurrency(64)
        .handle(move |order: Incoming<OrderCreated>| {
            assert_eq!(order.order_id, 1042);
            if handled.fetch_add(1, Ordering::Relaxed) + 1 == messages {
                done.notify_one();
            }
            async { Ok(()) }
        })
        .run_until(is_done.notified())
        .await
        .expect("a stop in good order");
}
