//! `peer redrive`: brings dead-lettered messages back to where they came from.

use std::time::Duration;

use babelqueue_core::redrive::Redrive;
use clap::Args;

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
    let report = Redrive::shared(transport, &*options.queue)
        .max(options.count)
        .idle(Duration::from_secs(2))
        .first_idle(Duration::from_secs(10))
        .run()
        .await?;
    for item in &report.items {
        let (id, to) = (item.message_id.as_deref(), item.to.as_deref());
        println!(
            "{}",
            serde_json::json!({"redriven": id, "to": to, "ok": item.redriven()})
        );
    }
    let redriven = report.items.iter().filter(|item| item.redriven()).count();
    Ok(redriven >= options.count)
}
