//! `peer redrive`: brings dead-lettered messages back to where they came from.

use std::sync::Arc;
use std::time::Duration;

use babelqueue_core::envelope::Envelope;
use babelqueue_core::transport::{Delivery, Outgoing, Settlement, SubscribeOptions, Transport};
use clap::Args;
use tokio::time::timeout;

use crate::{Error, broker};

#[derive(Args)]
pub(crate) struct Options {
    /// The broker's URL
    #[arg(long)]
    broker: String,

    /// The dead-letter queue
    #[arg(long)]
    queue: String,

    /// How many messages
    #[arg(long, default_value_t = 1)]
    count: usize,
}

/// Brings the first messages back, and says whether there were as many.
pub(crate) async fn run(options: Options) -> Result<bool, Error> {
    let transport = broker::connect(&options.broker).await?;
    let subscribe = SubscribeOptions::with_prefetch(options.count).without_retries();
    let mut subscription = transport.subscribe(&options.queue, subscribe).await?;
    let mut redriven = 0;
    while redriven < options.count {
        let left = options.count - redriven;
        // A consumer group takes seconds to form.
        let patience = Duration::from_secs(if redriven == 0 { 10 } else { 2 });
        let Ok(taken) = timeout(patience, subscription.receiver.receive(left)).await else {
            break;
        };
        for delivery in taken? {
            redriven += usize::from(send_back(&*transport, &delivery).await?);
            // The copy is confirmed; only now the dead letter goes.
            let ack = vec![(delivery, Settlement::Ack)];
            for answer in subscription.settler.settle(ack).await {
                answer?;
            }
        }
    }
    subscription.receiver.close(Duration::from_secs(5)).await?;
    Ok(redriven >= options.count)
}

async fn send_back(transport: &dyn Transport, delivery: &Arc<Delivery>) -> Result<bool, Error> {
    let envelope = Envelope::decode(delivery.body.clone())?.envelope;
    let recorded = envelope
        .dead_letter()
        .and_then(|block| block.original_queue);
    let target = recorded.ok_or("the record does not say where it came from")?;
    let fresh = envelope.without_dead_letter().with_attempts(0);
    let mut message = Outgoing::new(&*target, fresh.encode()?);
    message.headers = delivery.headers.clone();
    for result in transport.publish(vec![message]).await {
        result?;
    }
    let id = envelope.id().unwrap_or_default();
    println!(
        "{}",
        serde_json::json!({"redriven": id, "to": target, "ok": true})
    );
    Ok(true)
}
