use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::envelope::Envelope;
use crate::handler::{Context, Failure, Function, Handler, Incoming, Layer, Outcome, Panicked};
use crate::idempotency::{Idempotent, MemoryStore, Store};
use crate::schema::{InvalidPayload, Schema, Schemas};
use crate::transport::Delivery;

fn message(body: &'static str) -> Context {
    let body = Bytes::from_static(body.as_bytes());
    let envelope = Envelope::decode(body.clone()).unwrap().envelope;
    Context::new(envelope, Arc::new(Delivery::new("orders".into(), body)), 0)
}

fn order() -> Context {
    message(r#"{"job":"urn:a","meta":{"id":"id-1"},"data":{}}"#)
}

/// A handler that counts its calls, waits, and gives `result`.
fn counted(
    calls: &Arc<AtomicU32>,
    waits: Duration,
    result: fn() -> Result<Outcome, Failure>,
) -> Arc<dyn Handler> {
    let calls = Arc::clone(calls);
    Arc::new(Function::new(move |_: Incoming<serde_json::Value>| {
        calls.fetch_add(1, Ordering::SeqCst);
        async move {
            tokio::time::sleep(waits).await;
            result()
        }
    }))
}

fn calls() -> Arc<AtomicU32> {
    Arc::default()
}

fn number(calls: &AtomicU32) -> u32 {
    calls.load(Ordering::SeqCst)
}

#[tokio::test]
async fn the_first_layer_may_answer_for_the_handler() {
    let calls = calls();
    let refuse = from_fn(|_, _| async { Ok(Outcome::Reject) });
    let handler = refuse.layer(counted(&calls, Duration::ZERO, || Ok(Outcome::Done)));
    assert_eq!(handler.call(order()).await.unwrap(), Outcome::Reject);
    assert_eq!(number(&calls), 0);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_ends_a_handler_where_it_waits() {
    let limit = Duration::from_secs(5);
    let timeout = Timeout::after(limit);
    let calls = calls();
    let slow = timeout.layer(counted(&calls, limit * 2, || Ok(Outcome::Done)));
    let failure = slow.call(order()).await.unwrap_err();
    assert_eq!(failure.downcast_ref(), Some(&TimedOut { after: limit }));
    assert_eq!(failure.exception(), "TimedOut");
    assert_eq!(failure.outcome(), Outcome::Retry);

    let fast = timeout.layer(counted(&calls, limit / 2, || Ok(Outcome::Drop)));
    assert_eq!(fast.call(order()).await.unwrap(), Outcome::Drop);
}

#[tokio::test]
async fn a_panic_becomes_a_failure() {
    fn panics(_: Context, _: Arc<dyn Handler>) -> std::future::Ready<Result<Outcome, Failure>> {
        panic!("in the call")
    }
    let never = counted(&calls(), Duration::ZERO, || panic!("in the future"));
    for (handler, said) in [
        (never.clone(), "in the future"),
        (from_fn(panics).layer(never), "in the call"),
    ] {
        let failure = CatchPanic.layer(handler).call(order()).await.unwrap_err();
        assert!(failure.downcast_ref::<Panicked>().is_some());
        assert!(failure.to_string().ends_with(said), "{failure}");
    }
}

#[tokio::test]
async fn a_handled_message_is_done_without_its_handler() {
    for (result, runs) in [
        ((|| Ok(Outcome::Done)) as fn() -> _, 1),
        (|| Ok(Outcome::Drop), 1),
        (|| Ok(Outcome::Retry), 2),
        (|| Ok(Outcome::RetryAfter(Duration::ZERO)), 2),
        (|| Ok(Outcome::Reject), 2),
        (|| Err(Failure::msg("no stock")), 2),
        (|| panic!("no stock"), 2),
    ] {
        let calls = calls();
        let once = Idempotent::new(Arc::new(MemoryStore::new()));
        let handler = once.layer(counted(&calls, Duration::ZERO, result));
        let first = handler.call(order()).await;
        let second = handler.call(order()).await;
        assert_eq!(number(&calls), runs, "{first:?}");
        if runs == 1 {
            assert_eq!(second.unwrap(), Outcome::Done);
        }
    }
}

#[tokio::test]
async fn the_id_is_the_messages_own() {
    let calls = calls();
    let store = Arc::new(MemoryStore::new());
    let once = Idempotent::new(store.clone());
    let handler = once.layer(counted(&calls, Duration::ZERO, || Ok(Outcome::Done)));
    handler.call(order()).await.unwrap();
    assert!(store.seen("id-1").await.unwrap());
    for body in [
        r#"{"job":"urn:a","data":{}}"#,
        r#"{"job":"urn:a","meta":{"id":""},"data":{}}"#,
        r#"{"job":"urn:a","meta":{"id":"id-2"},"data":{}}"#,
    ] {
        handler.call(message(body)).await.unwrap();
        handler.call(message(body)).await.unwrap();
    }
    // Two without an id run each time, and two with another one once.
    assert_eq!(number(&calls), 1 + 2 + 2 + 1);
}

#[tokio::test]
async fn a_panic_gives_its_claim_up() {
    let calls = calls();
    let store = Arc::new(MemoryStore::new());
    let once = Idempotent::new(store).exclusive(Duration::from_hours(1));
    let handler = once.layer(counted(&calls, Duration::ZERO, || panic!("no stock")));
    for _ in 0..2 {
        let failure = handler.call(order()).await.unwrap_err();
        assert!(failure.downcast_ref::<Panicked>().is_some());
    }
    assert_eq!(number(&calls), 2);
}

/// The order that the page of the layers gives.
#[tokio::test(start_paused = true)]
async fn a_handler_that_timed_out_gives_its_claim_up() {
    let calls = calls();
    let handler = counted(&calls, Duration::from_mins(1), || Ok(Outcome::Done));
    let handler = Timeout::after(Duration::from_secs(5)).layer(handler);
    let once = Idempotent::new(Arc::new(MemoryStore::new())).exclusive(Duration::from_hours(1));
    let handler = once.layer(handler);
    for _ in 0..2 {
        let failure = handler.call(order()).await.unwrap_err();
        assert!(failure.downcast_ref::<TimedOut>().is_some());
    }
    assert_eq!(number(&calls), 2);
}

#[tokio::test]
async fn a_payload_that_breaks_its_schema_does_not_reach_the_handler() {
    let calls = calls();
    let schema = Schema::parse(r#"{"type":"object","required":["order_id"]}"#).unwrap();
    let check = ValidatePayload::new(Arc::new(Schemas::new().with("urn:a", schema)));
    let handler = check.layer(counted(&calls, Duration::ZERO, || Ok(Outcome::Done)));

    let failure = handler.call(order()).await.unwrap_err();
    let invalid = failure.downcast_ref::<InvalidPayload>().expect("invalid");
    assert_eq!(invalid.violation.to_string(), "order_id: missing_required");
    assert_eq!(failure.exception(), "InvalidPayload");
    assert_eq!(number(&calls), 0);

    let valid = r#"{"job":"urn:a","data":{"order_id":1}}"#;
    assert_eq!(handler.call(message(valid)).await.unwrap(), Outcome::Done);
    let other = r#"{"job":"urn:b","data":{}}"#;
    assert_eq!(handler.call(message(other)).await.unwrap(), Outcome::Done);
}

#[cfg(feature = "tower")]
mod tower_services {
    use std::convert::Infallible;

    use ::tower::service_fn;
    use ::tower::timeout::{TimeoutLayer, error::Elapsed};

    use super::*;

    #[tokio::test]
    async fn a_service_is_a_handler() {
        let service = service_fn(|context: Context| async move {
            assert_eq!(context.id().as_deref(), Some("id-1"));
            Ok::<_, Infallible>(())
        });
        let outcome = TowerHandler::new(service).call(order()).await;
        assert_eq!(outcome.unwrap(), Outcome::Done);
    }

    #[tokio::test]
    async fn a_services_error_is_a_failure_of_its_type() {
        let service = service_fn(|_| async {
            let error = "x".parse::<i32>().unwrap_err();
            Err::<Outcome, _>(error)
        });
        let failure = TowerHandler::new(service).call(order()).await.unwrap_err();
        assert!(failure.downcast_ref::<std::num::ParseIntError>().is_some());
        assert!(failure.exception().ends_with("ParseIntError"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tower_layer_wraps_a_handler() {
        let limit = Duration::from_secs(5);
        let timeout = Tower::new(TimeoutLayer::new(limit));
        let slow = counted(&calls(), limit * 2, || Ok(Outcome::Done));
        let failure = timeout.layer(slow).call(order()).await.unwrap_err();
        assert!(failure.downcast_ref::<Elapsed>().is_some(), "{failure:?}");

        let fast = counted(&calls(), limit / 2, || Ok(Outcome::Drop));
        let outcome = timeout.layer(fast).call(order()).await;
        assert_eq!(outcome.unwrap(), Outcome::Drop);
    }

    #[tokio::test]
    async fn a_failure_comes_through_a_tower_layer_as_it_was() {
        let timeout = Tower::new(TimeoutLayer::new(Duration::from_secs(5)));
        let rejects = counted(&calls(), Duration::ZERO, || {
            Err(Failure::from("x".parse::<i32>().unwrap_err()).reject())
        });
        let failure = timeout.layer(rejects).call(order()).await.unwrap_err();
        assert_eq!(failure.outcome(), Outcome::Reject);
        assert!(failure.exception().ends_with("ParseIntError"));
    }
}
