use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde::{Deserialize, Serialize};

use super::*;
use crate::envelope::Envelope;
use crate::transport::Delivery;
use crate::{Headers, replay};

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    order_id: u64,
    amount: f64,
}

fn context(data: &impl Serialize, headers: Headers) -> Context {
    let envelope = Envelope::builder("urn:babel:orders:created")
        .trace_id("trace-1")
        .id("id-1")
        .data(data)
        .build()
        .unwrap();
    let mut delivery = Delivery::new(Arc::from("orders"), envelope.bytes().clone());
    delivery.headers = headers;
    Context::new(envelope, Arc::new(delivery), 2)
}

fn order() -> Context {
    let order = Order {
        order_id: 1042,
        amount: 99.9,
    };
    context(&order, Headers::new())
}

#[tokio::test]
async fn a_closure_takes_its_own_type_and_what_came_with_it() {
    let handler = Function::new(|order: Incoming<Order>| async move {
        assert_eq!(order.order_id, 1042);
        assert_eq!(order.attempt(), 3);
        assert_eq!(order.queue(), "orders");
        assert_eq!(order.id().as_deref(), Some("id-1"));
        assert_eq!(order.trace_id().as_deref(), Some("trace-1"));
        assert!(!order.is_replay());
        Ok(())
    });
    assert_eq!(handler.call(order()).await.unwrap(), Outcome::Done);
}

#[tokio::test]
async fn an_async_closure_and_an_async_function_are_handlers_too() {
    async fn function(order: Incoming<Order>) -> Result<Outcome, Failure> {
        Ok(if order.amount > 50.0 {
            Outcome::RetryAfter(Duration::from_secs(5))
        } else {
            Outcome::Drop
        })
    }
    let later = Ok(Outcome::RetryAfter(Duration::from_secs(5)));
    let outcome = |result: Result<Outcome, Failure>| result.map_err(|failure| failure.report());
    assert_eq!(outcome(Function::new(function).call(order()).await), later);
    let closure = Function::new(async |order: Incoming<Order>| {
        tokio::task::yield_now().await;
        function(order).await
    });
    assert_eq!(outcome(closure.call(order()).await), later);
}

#[tokio::test]
async fn data_of_another_shape_is_a_failure_that_names_the_field() {
    let handler = Function::new(|_: Incoming<Order>| async { Ok(()) });
    let wrong = serde_json::json!({"order_id": 1042, "amount": "much"});
    let failure = handler
        .call(context(&wrong, Headers::new()))
        .await
        .unwrap_err();
    assert_eq!(failure.exception(), "DataError");
    assert_eq!(failure.outcome(), Outcome::Retry);
    assert!(failure.to_string().contains("/data/amount"), "{failure}");
    assert!(!failure.to_string().contains("much"), "{failure}");
}

#[tokio::test]
async fn a_blocking_function_runs_on_a_thread_of_its_own() {
    let here = std::thread::current().id();
    let handler = Blocking::new(move |order: Incoming<Order>| {
        assert_ne!(std::thread::current().id(), here);
        if order.order_id == 1042 {
            return Err(Failure::msg("sold out").reject());
        }
        Ok(())
    });
    assert!(handler.is_blocking());
    let failure = handler.call(order()).await.unwrap_err();
    assert_eq!(failure.to_string(), "sold out");
    assert_eq!(failure.outcome(), Outcome::Reject);
}

#[tokio::test]
#[should_panic(expected = "out of stock")]
async fn a_panic_on_the_thread_comes_through() {
    let handler = Blocking::new(|_: Incoming<Order>| -> Result<(), Failure> {
        panic!("out of stock");
    });
    let _ = handler.call(order()).await;
}

#[test]
fn a_blocking_function_that_has_not_started_never_starts_when_nobody_waits() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let (release, hold) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || hold.recv());
        let (start, started) = std::sync::mpsc::channel();
        let handler =
            Blocking::new(move |_: Incoming<Order>| start.send(()).map_err(Failure::from));
        let mut call = handler.call(order());
        assert!((&mut call).now_or_never().is_none());
        drop(call);
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
        // The one thread takes its work in order: this runs after the call would have.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert!(started.try_recv().is_err());
    });
}

#[tokio::test]
async fn a_handler_sees_its_state_and_says_what_is_missing() {
    let handler = Function::new(|order: Incoming<Order>| async move {
        assert_eq!(order.state::<u8>()?, &7);
        order.state::<String>()?;
        Ok(())
    });
    let failure = handler.call(order().with_state(7_u8)).await.unwrap_err();
    assert!(failure.downcast_ref::<MissingState>().is_some());
    assert!(failure.to_string().contains("alloc::string::String"));
}

#[tokio::test]
async fn a_handler_learns_that_its_delivery_is_lost() {
    let context = order();
    assert!(!context.is_lost());
    let delivery = Arc::clone(context.delivery());
    let waiting = tokio::spawn(async move { context.lost().await });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    delivery.mark_lost();
    waiting.await.unwrap();
}

#[test]
fn a_redriven_message_shows_its_mark() {
    let headers = Headers::from_iter([(replay::HEADER, replay::MARK), ("tenant", "acme")]);
    let context = context(&serde_json::json!({}), headers);
    assert!(context.is_replay());
    assert_eq!(context.headers().get("tenant"), Some("acme"));
}
