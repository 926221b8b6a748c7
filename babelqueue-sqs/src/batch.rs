//! Requests that carry up to ten entries, each with a result of its own.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry,
    DeleteMessageBatchRequestEntry, SendMessageBatchRequestEntry,
};
use babelqueue_core::random::Random;
use futures_util::future::join_all;
use tokio::time::sleep;

use crate::client::Link;
use crate::content::MAX_ENTRIES;
use crate::failure::Undone;
use crate::project::Attributes;
use crate::queues::Queue;

/// How often an entry is sent that fails in a way that passes.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);

/// What becomes of one entry.
pub(crate) type Carried = Result<(), Undone>;

/// One message, ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Parcel {
    pub(crate) body: Arc<str>,
    pub(crate) attributes: Arc<Attributes>,
    pub(crate) group: Option<Arc<str>>,
    pub(crate) deduplication_id: Option<Arc<str>>,
    pub(crate) delay_seconds: Option<i32>,
    /// What it takes of the limits, in bytes.
    pub(crate) size: usize,
}

/// A change of a received message's visibility.
#[derive(Debug, Clone)]
pub(crate) struct Visibility {
    pub(crate) handle: Arc<str>,
    pub(crate) seconds: i32,
}

/// Sends what fits into one request.
pub(crate) async fn send(link: &Link, queue: &Queue, parcels: Vec<Parcel>) -> Vec<Carried> {
    retried(&link.random, parcels, |parcels| {
        send_once(link, queue, parcels)
    })
    .await
}

/// Deletes the messages of these receipt handles, ten a request, side by side.
pub(crate) async fn delete(link: &Link, queue: &Queue, handles: Vec<Arc<str>>) -> Vec<Carried> {
    in_chunks(&link.random, handles, |handles| {
        delete_once(link, queue, handles)
    })
    .await
}

/// Changes visibilities, ten a request, side by side.
pub(crate) async fn change(link: &Link, queue: &Queue, changes: Vec<Visibility>) -> Vec<Carried> {
    in_chunks(&link.random, changes, |changes| {
        change_once(link, queue, changes)
    })
    .await
}

async fn in_chunks<T: Clone, F: Future<Output = Vec<Carried>>>(
    random: &Random,
    entries: Vec<T>,
    call: impl Fn(Vec<T>) -> F,
) -> Vec<Carried> {
    let chunks = entries.chunks(MAX_ENTRIES);
    let calls = chunks.map(|chunk| retried(random, chunk.to_vec(), &call));
    join_all(calls).await.concat()
}

/// Sends those entries again that failed in a way that passes. A request that failed as a whole the
/// client has tried again itself.
async fn retried<T: Clone, F: Future<Output = Vec<Carried>>>(
    random: &Random,
    entries: Vec<T>,
    call: impl Fn(Vec<T>) -> F,
) -> Vec<Carried> {
    let mut results = call(entries.clone()).await;
    results.resize_with(entries.len(), || Err(Undone::unmentioned()));
    for round in 1..TRIES {
        let open = |result: &Carried| result.as_ref().is_err_and(Undone::passes);
        let again: Vec<usize> = (0..entries.len())
            .filter(|at| open(&results[*at]))
            .collect();
        if again.is_empty() {
            break;
        }
        sleep(random.jittered(PAUSE * 2_u32.pow(round - 1))).await;
        let second = call(again.iter().map(|at| entries[*at].clone()).collect()).await;
        for (at, result) in again.into_iter().zip(second) {
            results[at] = result;
        }
    }
    results
}

async fn send_once(link: &Link, queue: &Queue, parcels: Vec<Parcel>) -> Vec<Carried> {
    let count = parcels.len();
    let entries = parcels.into_iter().enumerate().map(|(at, parcel)| {
        let attributes = Arc::unwrap_or_clone(parcel.attributes);
        let attributes = (!attributes.is_empty()).then(|| attributes.into_iter().collect());
        SendMessageBatchRequestEntry::builder()
            .id(at.to_string())
            .message_body(&*parcel.body)
            .set_message_attributes(attributes)
            .set_message_group_id(parcel.group.as_deref().map(str::to_owned))
            .set_message_deduplication_id(parcel.deduplication_id.as_deref().map(str::to_owned))
            .set_delay_seconds(parcel.delay_seconds)
            .build()
    });
    let sent = async {
        let entries = entries
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| Undone::unfit(&error))?;
        let client = link.client().await.map_err(|error| Undone::unfit(&error))?;
        let request = client.send_message_batch().queue_url(&queue.url);
        let sent = request.set_entries(Some(entries)).send().await;
        let sent = sent.map_err(|error| Undone::request(&error))?;
        let done = sent.successful.iter().map(|entry| entry.id.as_str());
        Ok(per_entry(count, done, &sent.failed))
    };
    sent.await.unwrap_or_else(|undone| vec![Err(undone); count])
}

async fn delete_once(link: &Link, queue: &Queue, handles: Vec<Arc<str>>) -> Vec<Carried> {
    let count = handles.len();
    let entries = handles.iter().enumerate().map(|(at, handle)| {
        let entry = DeleteMessageBatchRequestEntry::builder().id(at.to_string());
        entry.receipt_handle(&**handle).build()
    });
    let deleted = async {
        let entries = entries
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| Undone::unfit(&error))?;
        let client = link.client().await.map_err(|error| Undone::unfit(&error))?;
        let request = client.delete_message_batch().queue_url(&queue.url);
        let deleted = request.set_entries(Some(entries)).send().await;
        let deleted = deleted.map_err(|error| Undone::request(&error))?;
        let done = deleted.successful.iter().map(|entry| entry.id.as_str());
        Ok(per_entry(count, done, &deleted.failed))
    };
    deleted
        .await
        .unwrap_or_else(|undone| vec![Err(undone); count])
}

async fn change_once(link: &Link, queue: &Queue, changes: Vec<Visibility>) -> Vec<Carried> {
    let count = changes.len();
    let entries = changes.iter().enumerate().map(|(at, change)| {
        ChangeMessageVisibilityBatchRequestEntry::builder()
            .id(at.to_string())
            .receipt_handle(&*change.handle)
            .visibility_timeout(change.seconds)
            .build()
    });
    let answer = async {
        let entries = entries
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| Undone::unfit(&error))?;
        let client = link.client().await.map_err(|error| Undone::unfit(&error))?;
        let request = client
            .change_message_visibility_batch()
            .queue_url(&queue.url);
        let answer = request.set_entries(Some(entries)).send().await;
        let answer = answer.map_err(|error| Undone::request(&error))?;
        let done = answer.successful.iter().map(|entry| entry.id.as_str());
        Ok(per_entry(count, done, &answer.failed))
    };
    answer
        .await
        .unwrap_or_else(|undone| vec![Err(undone); count])
}

/// Each entry's result, by the ids that it was sent with.
fn per_entry<'a>(
    count: usize,
    done: impl Iterator<Item = &'a str>,
    failed: &[BatchResultErrorEntry],
) -> Vec<Carried> {
    let mut results = vec![Err(Undone::unmentioned()); count];
    let mut set = |id: &str, result: Carried| {
        let at = id.parse::<usize>().ok();
        if let Some(place) = at.and_then(|at| results.get_mut(at)) {
            *place = result;
        }
    };
    for id in done {
        set(id, Ok(()));
    }
    for entry in failed {
        set(entry.id(), Err(Undone::entry(entry)));
    }
    results
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn failed(id: &str, code: &str, ours: bool) -> BatchResultErrorEntry {
        let entry = BatchResultErrorEntry::builder().id(id).code(code);
        entry.sender_fault(ours).build().unwrap()
    }

    #[test]
    fn each_entry_has_the_result_of_its_id() {
        let failures = [failed("1", "InternalError", false), failed("7", "x", true)];
        let results = per_entry(4, ["2", "0", "none"].into_iter(), &failures);
        let done: Vec<_> = results.iter().map(Result::is_ok).collect();
        assert_eq!(done, [true, false, true, false]);
        assert!(results[3].as_ref().is_err_and(Undone::passes));
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_passes_is_sent_again() {
        let calls = Mutex::new(Vec::new());
        let results = in_chunks(&Random::seeded(1), (0..12).collect(), |chunk: Vec<u32>| {
            calls.lock().unwrap().push(chunk.clone());
            async move {
                let carried = chunk.iter().enumerate().map(|(at, number)| match number {
                    3 => Err(Undone::entry(&failed(
                        &at.to_string(),
                        "InternalError",
                        false,
                    ))),
                    5 => Err(Undone::entry(&failed(&at.to_string(), "Unfit", true))),
                    _ => Ok(()),
                });
                carried.collect()
            }
        })
        .await;
        assert!(
            results
                .iter()
                .enumerate()
                .all(|(at, r)| r.is_err() == (at == 3 || at == 5))
        );
        let calls = calls.into_inner().unwrap();
        assert_eq!(
            calls.iter().filter(|call| **call == [3]).count(),
            2,
            "{calls:?}"
        );
        assert_eq!(calls.len(), 4, "{calls:?}");
    }
}
