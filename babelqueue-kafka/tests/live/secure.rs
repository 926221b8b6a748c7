//! TLS and passwords, at the listener that has both.

use std::time::Duration;

use babelqueue_core::Error;
use babelqueue_core::transport::{Outgoing, SubscribeOptions, Transport as _};
use babelqueue_kafka::{Config, Kafka};

use crate::{Fault, Outcome, broker};

crate::trials!(
    scram_over_tls_works,
    plain_over_tls_works,
    a_wrong_password_is_refused_in_clear_words,
    a_certificate_that_nobody_vouches_for_is_refused_in_clear_words,
);

/// Where it listens, with the user, the password and the certificate to trust.
const VARIABLE: &str = "BQ_KAFKA_SECURE_URL";

fn config() -> Result<Config, Fault> {
    let url = std::env::var(VARIABLE)
        .map_err(|_| Fault::NoBroker(format!("no Kafka with TLS: {VARIABLE} is not set")))?;
    let config: Config = url.parse()?;
    Ok(config.connect_timeout(Duration::from_mins(1)))
}

async fn scram_over_tls_works() -> Outcome {
    there_and_back(config()?).await
}

async fn plain_over_tls_works() -> Outcome {
    there_and_back(config()?.property("sasl.mechanism", "PLAIN")).await
}

async fn there_and_back(config: Config) -> Outcome {
    let unique = broker::unique();
    let topic = format!("secure-{unique}");
    broker::create(&topic, 1).await?;
    let kafka = Kafka::open(config.group(format!("g-{unique}"))).await?;
    for answer in kafka
        .publish(vec![Outgoing::new(topic.as_str(), "{}")])
        .await
    {
        answer?;
    }
    let mut subscription = kafka
        .subscribe(&topic, SubscribeOptions::with_prefetch(1))
        .await?;
    let received = subscription.receiver.receive(1);
    let received = tokio::time::timeout(Duration::from_mins(1), received).await;
    let received = received.map_err(|_| Fault::from("nothing came for a minute"))??;
    if *received[0].body != *b"{}" {
        return Err("another message came".into());
    }
    subscription.receiver.close(Duration::ZERO).await?;
    broker::remove(&[&topic]).await
}

async fn a_wrong_password_is_refused_in_clear_words() -> Outcome {
    const WRONG: &str = "not-the-password";
    let opened = Kafka::open(config()?.property("sasl.password", WRONG)).await;
    let text = refusal(opened)?;
    if !text.contains("login refused") || text.contains(WRONG) {
        return Err(format!("it says: {text}").into());
    }
    Ok(())
}

async fn a_certificate_that_nobody_vouches_for_is_refused_in_clear_words() -> Outcome {
    // The authorities that the machine knows. It is tried until the time is up, and a busy machine is
    // slow to get as far as the certificate.
    let config = config()?.property("ssl.ca.location", "probe");
    let opened = Kafka::open(config.connect_timeout(Duration::from_secs(30))).await;
    let text = refusal(opened)?;
    if !text.contains("TLS failed") || !text.contains("certificate") {
        return Err(format!("it says: {text}").into());
    }
    Ok(())
}

/// What an error says that no retry mends.
fn refusal(opened: Result<Kafka, Error>) -> Result<String, Fault> {
    match opened {
        Ok(_) => Err("it was let in".into()),
        Err(error @ Error::Refused { .. }) => Ok(error.to_string()),
        Err(other) => Err(format!("it could be mended: {other}").into()),
    }
}
