//! `peer consume`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use babelqueue_core::decide::UnknownUrn;
use babelqueue_core::handler::{Context, Failure, Handler, HandlerFuture, Outcome};
use babelqueue_core::retry::Retry;
use babelqueue_core::worker::Worker;
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::{Error, broker};

/// What is handled by default.
const URNS: [&str; 2] = ["urn:babel:orders:created", "urn:babel:peer:test"];

#[derive(Args)]
pub(crate) struct Options {
    /// The broker's URL
    #[arg(long)]
    broker: String,

    /// The queue
    #[arg(long)]
    queue: String,

    /// How many messages to handle
    #[arg(long)]
    count: u64,

    /// How long to try
    #[arg(long, value_name = "SECONDS")]
    timeout: f64,

    /// What to handle; may be repeated
    #[arg(long = "urn", value_name = "URN")]
    urns: Vec<String>,

    /// Fail the first so many deliveries
    #[arg(long, value_name = "K", default_value_t = 0)]
    fail_first: u64,

    /// How many deliveries a message gets
    #[arg(long, value_name = "M", default_value_t = 3)]
    max_attempts: u32,

    /// How long a retry waits
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    backoff: f64,

    /// Stop after so many deliveries, with a retry left on the wire
    #[arg(long, value_name = "D")]
    deliveries: Option<u64>,

    /// Dead-letter what has used up its deliveries
    #[arg(long)]
    dlq: bool,

    /// What becomes of a message that nobody here handles
    #[arg(long, value_enum, default_value_t = Unknown::Fail)]
    unknown: Unknown,

    /// The consumer group, where the broker has them
    #[arg(long)]
    group: Option<String>,

    /// How many handlers run at once
    #[arg(long, default_value_t = 1)]
    concurrency: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Unknown {
    Fail,
    Delete,
    Release,
    #[value(name = "dead_letter")]
    DeadLetter,
}

/// Handles until the count is reached, and says whether it was.
pub(crate) async fn run(options: Options) -> Result<bool, Error> {
    if options.group.is_some() {
        return Err("this broker has no consumer groups".into());
    }
    let transport = broker::connect(&options.broker).await?;
    let run = Arc::new(Run {
        fail_first: options.fail_first,
        most: options.deliveries.unwrap_or(u64::MAX),
        count: options.count,
        deliveries: AtomicU64::new(0),
        handled: AtomicU64::new(0),
        enough: Notify::new(),
    });
    let backoff = Duration::try_from_secs_f64(options.backoff)?;
    let mut worker = Worker::shared(transport)
        .queue(&*options.queue)
        .concurrency(options.concurrency)
        // Reads nothing ahead: what is not handled here is for the other side.
        .prefetch(options.concurrency)
        .shutdown_timeout(Duration::from_millis(200))
        .retry(Retry::attempts(options.max_attempts).backoff(backoff, 1.0))
        .dead_letter(options.dlq)
        .on_unknown_urn(options.unknown.into());
    let urns = if options.urns.is_empty() {
        URNS.map(str::to_owned).into()
    } else {
        options.urns
    };
    for urn in urns {
        worker = worker.handler(urn, Printing(Arc::clone(&run)));
    }
    let timeout = Duration::try_from_secs_f64(options.timeout)?;
    let enough = Arc::clone(&run);
    worker
        .run_until(async move {
            tokio::select! {
                () = enough.enough.notified() => {}
                () = sleep(timeout) => {}
            }
        })
        .await?;
    Ok(run.handled.load(Ordering::Acquire) >= options.count)
}

/// The books of one run.
struct Run {
    fail_first: u64,
    most: u64,
    count: u64,
    deliveries: AtomicU64,
    handled: AtomicU64,
    enough: Notify,
}

impl Run {
    /// The number of this delivery, from 1, and what to do with it; `None` for one too many.
    fn next(&self) -> Option<(u64, bool)> {
        let number = self.deliveries.fetch_add(1, Ordering::AcqRel) + 1;
        if number > self.most {
            return None;
        }
        let ok = number > self.fail_first;
        let handled = u64::from(ok) + self.handled.fetch_add(u64::from(ok), Ordering::AcqRel);
        if handled > self.count {
            return None;
        }
        if number == self.most || handled == self.count {
            self.enough.notify_one();
        }
        Some((number, ok))
    }
}

/// Prints what it is given.
struct Printing(Arc<Run>);

impl Handler for Printing {
    fn call(&self, context: Context) -> HandlerFuture {
        let Some((number, ok)) = self.0.next() else {
            // The run is over; the stop gives this one back.
            return Box::pin(std::future::pending());
        };
        let printed = line(&context, number, ok);
        Box::pin(async move {
            println!("{}", printed?);
            if ok {
                Ok(Outcome::Done)
            } else {
                Err(Failure::msg("failed as it was told to"))
            }
        })
    }
}

/// A delivery, as the matrix reads it.
#[derive(Serialize)]
struct Line<'a> {
    urn: Cow<'a, str>,
    trace_id: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
    attempts: u32,
    data: Option<&'a RawValue>,
    lang: Option<Cow<'a, str>>,
    ok: bool,
    delivery: u64,
    headers: BTreeMap<&'a str, &'a str>,
    /// The bytes as received.
    body: Cow<'a, str>,
}

fn line(context: &Context, number: u64, ok: bool) -> Result<String, serde_json::Error> {
    let envelope = context.envelope();
    let data = envelope.data_json().map(serde_json::from_str).transpose()?;
    let line = Line {
        urn: envelope.urn(),
        trace_id: envelope.trace_id(),
        id: envelope.id(),
        attempts: context.attempts(),
        data,
        lang: envelope.lang(),
        ok,
        delivery: number,
        headers: context.headers().iter().collect(),
        body: String::from_utf8_lossy(&context.delivery().body),
    };
    serde_json::to_string(&line)
}

impl From<Unknown> for UnknownUrn {
    fn from(unknown: Unknown) -> Self {
        match unknown {
            Unknown::Fail => Self::Fail,
            Unknown::Delete => Self::Delete,
            Unknown::Release => Self::Release,
            Unknown::DeadLetter => Self::DeadLetter,
        }
    }
}
