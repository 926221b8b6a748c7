//! The README's first command does what it says.

#[path = "../examples/quickstart.rs"]
#[expect(dead_code, reason = "its `main`")]
mod quickstart;

#[tokio::test]
async fn every_order_is_paid_in_the_end() {
    let broker = quickstart::tour().await.unwrap();
    for queue in ["orders", "orders.dlq"] {
        assert_eq!(broker.depth(queue).total(), 0, "{queue}");
    }
}
