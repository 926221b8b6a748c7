use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use babelqueue_core::Error;

use crate::client::Link;
use crate::config::MIN_VISIBILITY;
use crate::content::MAX_BYTES;
use crate::failure;

/// Where SQS's own default is not known to be another.
const VISIBILITY: Duration = Duration::from_secs(30);

/// A queue that is there, and what it says of itself.
#[derive(Debug)]
pub(crate) struct Queue {
    /// As it was asked for: a name, or a URL.
    pub(crate) name: Arc<str>,
    pub(crate) url: String,
    pub(crate) is_fifo: bool,
    /// The largest message that it takes, in bytes.
    pub(crate) max_message: usize,
    /// Its own visibility timeout.
    pub(crate) visibility: Duration,
    /// Whether it makes up deduplication ids by itself.
    pub(crate) dedups_by_content: bool,
}

impl Queue {
    /// It as part of an error's text.
    pub(crate) fn describe(&self) -> String {
        format!("queue `{}`", self.name)
    }
}

/// The queues that were used, by what they were asked for.
#[derive(Default)]
pub(crate) struct Queues {
    known: Mutex<HashMap<Arc<str>, Arc<Queue>>>,
}

impl Queues {
    /// The queue, looked up where it was not used before.
    ///
    /// # Errors
    ///
    /// A refusal where there is no such queue, or no right to it; a bad name.
    pub(crate) async fn get(
        &self,
        link: &Link,
        name: &str,
        operation: &'static str,
    ) -> Result<Arc<Queue>, Error> {
        if let Some(known) = self.lock().get(name) {
            return Ok(known.clone());
        }
        check_name(name)?;
        let client = link.client().await?;
        let url = find(link, client, name, operation).await?;
        let queue = Arc::new(read(client, name, url, operation).await?);
        self.lock().insert(queue.name.clone(), queue.clone());
        Ok(queue)
    }

    /// Has the queue looked up again when it is used next.
    pub(crate) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Arc<Queue>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn find(
    link: &Link,
    client: &Client,
    name: &str,
    operation: &'static str,
) -> Result<String, Error> {
    if is_url(name) {
        return Ok(name.to_owned());
    }
    if let Some(prefix) = &link.config.prefix {
        return Ok(format!("{prefix}/{name}"));
    }
    let found = client.get_queue_url().queue_name(name).send().await;
    let found = found.map_err(|error| missing_or(operation, name, error))?;
    let no_url = || {
        Error::transient(
            operation,
            format!("queue `{name}`: an answer without a URL"),
        )
    };
    found.queue_url.ok_or_else(no_url)
}

/// Reads what the queue says of itself. Who may not read that has the service's defaults, and SQS
/// refuses what does not fit.
async fn read(
    client: &Client,
    name: &str,
    url: String,
    operation: &'static str,
) -> Result<Queue, Error> {
    let request = client.get_queue_attributes().queue_url(&url);
    // One that a standard queue lacks is an error when asked for by name.
    let read = request.attribute_names(QueueAttributeName::All);
    let attributes = match read.send().await {
        Ok(read) => read.attributes.unwrap_or_default(),
        Err(error) if failure::is_denied(&error) => {
            tracing::info!(
                queue = name,
                "no right to GetQueueAttributes: SQS's defaults are taken"
            );
            HashMap::new()
        }
        Err(error) => return Err(missing_or(operation, name, error)),
    };
    let number = |name| attributes.get(&name)?.parse::<u64>().ok();
    let max_message = number(QueueAttributeName::MaximumMessageSize);
    let visibility = number(QueueAttributeName::VisibilityTimeout).map(Duration::from_secs);
    let dedups = attributes.get(&QueueAttributeName::ContentBasedDeduplication);
    Ok(Queue {
        name: name.into(),
        is_fifo: is_fifo(name),
        max_message: max_message
            .and_then(|bytes| usize::try_from(bytes).ok())
            .unwrap_or(MAX_BYTES),
        visibility: leasable(visibility, name),
        dedups_by_content: dedups.is_some_and(|text| text == "true"),
        url,
    })
}

fn leasable(visibility: Option<Duration>, name: &str) -> Duration {
    match visibility {
        Some(visibility) if visibility >= MIN_VISIBILITY => visibility,
        Some(visibility) => {
            tracing::warn!(
                queue = name,
                ?visibility,
                taken = ?VISIBILITY,
                "the queue's visibility timeout is too short to be renewed in time"
            );
            VISIBILITY
        }
        None => VISIBILITY,
    }
}

fn missing_or<E>(
    operation: &'static str,
    name: &str,
    error: aws_sdk_sqs::error::SdkError<E, aws_sdk_sqs::config::http::HttpResponse>,
) -> Error
where
    E: aws_sdk_sqs::error::ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    if failure::is_missing_queue(&error) {
        return Error::refused(operation, format!("there is no queue `{name}`")).with_source(error);
    }
    failure::of(operation, format!("queue `{name}`"), error)
}

fn is_url(name: &str) -> bool {
    name.starts_with("https://") || name.starts_with("http://")
}

#[expect(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "the service compares so"
)]
fn is_fifo(name: &str) -> bool {
    name.ends_with(".fifo")
}

/// A name that SQS can hold, or a URL.
fn check_name(name: &str) -> Result<(), Error> {
    if is_url(name) {
        return Ok(());
    }
    let stem = name.strip_suffix(".fifo").unwrap_or(name);
    let is_known = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let problem = if stem.is_empty() {
        "is empty".to_owned()
    } else if name.len() > 80 {
        format!("has {} characters, limit 80", name.len())
    } else if !stem.bytes().all(is_known) {
        format!("`{name}` has more than letters, digits, `-`, `_` and a last `.fifo`")
    } else {
        return Ok(());
    };
    Err(Error::config("queue", problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_a_name_that_sqs_can_hold_or_a_url() {
        for name in ["orders", "or-ders_2.fifo", "http://h:9324/000/or.ders"] {
            check_name(name).unwrap();
        }
        let long = "q".repeat(81);
        for name in ["", ".fifo", "orders.dlq", "a b", "ä", "a.fifo.b", &long] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_visibility_that_cannot_be_renewed_in_time_is_not_taken() {
        let seconds = Duration::from_secs;
        assert_eq!(leasable(Some(seconds(2)), "q"), seconds(2));
        assert_eq!(leasable(Some(seconds(1)), "q"), VISIBILITY);
        assert_eq!(leasable(None, "q"), VISIBILITY);
    }

    #[test]
    fn a_fifo_queue_is_known_by_its_name() {
        assert!(is_fifo("orders.fifo") && is_fifo("https://h/1/orders.fifo"));
        assert!(!is_fifo("orders"));
    }
}
