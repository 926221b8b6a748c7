//! `peer produce`.

use std::time::Duration;

use babelqueue_core::envelope::Envelope;
use babelqueue_core::producer::Producer;
use babelqueue_core::transport::{Outgoing, Transport};
use clap::Args;
use serde_json::value::RawValue;

use crate::{Error, broker};

#[derive(Args)]
pub(crate) struct Options {
    /// The broker's URL
    #[arg(long)]
    broker: String,

    /// The queue
    #[arg(long)]
    queue: String,

    /// What the messages are
    #[arg(long, default_value = "urn:babel:peer:test")]
    urn: String,

    /// How many
    #[arg(long, default_value_t = 1)]
    count: u64,

    /// Their data; `{"n": 0}`, `{"n": 1}` and so on by default
    #[arg(long, value_name = "JSON")]
    data: Option<String>,

    /// Their trace id; a new one each by default
    #[arg(long)]
    trace: Option<String>,

    /// A header, `name=value`; may be repeated
    #[arg(long = "header", value_name = "K=V", value_parser = pair)]
    headers: Vec<(String, String)>,

    /// Deliver no sooner than in so many seconds
    #[arg(long, value_name = "SECONDS")]
    delay: Option<f64>,

    /// Send these bytes as they are, in place of an envelope that is made
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["data", "trace", "urn"])]
    body: Option<String>,
}

pub(crate) async fn run(options: Options) -> Result<(), Error> {
    let transport = broker::connect(&options.broker).await?;
    if let Some(body) = &options.body {
        for _ in 0..options.count {
            send_as_it_is(&*transport, &options, body).await?;
        }
        return Ok(());
    }
    let producer = Producer::shared(transport).queue(&*options.queue);
    for n in 0..options.count {
        let data = match &options.data {
            Some(data) => RawValue::from_string(data.clone())?,
            None => RawValue::from_string(format!(r#"{{"n":{n}}}"#))?,
        };
        let mut draft = producer.message_urn(&options.urn, &data);
        if let Some(trace) = &options.trace {
            draft = draft.trace_id(trace);
        }
        for (name, value) in &options.headers {
            draft = draft.header(name, value);
        }
        if let Some(delay) = options.delay {
            draft = draft.delay(Duration::try_from_secs_f64(delay)?);
        }
        let id = draft.send().await?;
        print(id.as_str(), &options.urn);
    }
    Ok(())
}

async fn send_as_it_is(
    transport: &dyn Transport,
    options: &Options,
    body: &str,
) -> Result<(), Error> {
    let mut message = Outgoing::new(&*options.queue, body.to_owned());
    message.headers = options.headers.iter().cloned().collect();
    message.options.delay = options.delay.map(Duration::try_from_secs_f64).transpose()?;
    for result in transport.publish(vec![message]).await {
        result?;
    }
    let envelope = Envelope::decode(body.to_owned())
        .ok()
        .map(|decoded| decoded.envelope);
    let id = envelope.as_ref().and_then(Envelope::id).unwrap_or_default();
    let urn = envelope.as_ref().map(Envelope::urn).unwrap_or_default();
    print(&id, &urn);
    Ok(())
}

fn print(id: &str, urn: &str) {
    println!("{}", serde_json::json!({"published": id, "urn": urn}));
}

fn pair(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("`{text}` is not `name=value`"))
}
