use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A store that fails where it is told to.
#[derive(Default)]
struct Faulty {
    inner: MemoryStore,
    seen: bool,
    remember: bool,
}

impl Faulty {
    fn fault(on: bool) -> Result<(), Error> {
        if on {
            return Err(Error::transient("seen", "the store is down"));
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Faulty {
    async fn seen(&self, id: &str) -> Result<bool, Error> {
        Self::fault(self.seen)?;
        self.inner.seen(id).await
    }

    async fn remember(&self, id: &str) -> Result<(), Error> {
        Self::fault(self.remember)?;
        self.inner.remember(id).await
    }

    async fn forget(&self, id: &str) -> Result<(), Error> {
        self.inner.forget(id).await
    }

    async fn claim(&self, id: &str, lease: Duration) -> Result<Claim, Error> {
        self.inner.claim(id, lease).await
    }

    async fn release(&self, id: &str, token: ClaimToken) -> Result<(), Error> {
        self.inner.release(id, token).await
    }
}

fn idempotent() -> (Idempotent, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    (Idempotent::new(store.clone()), store)
}

async fn ok(once: &Idempotent, id: Option<&str>) -> Effect<()> {
    once.run(id, || async { Ok::<_, Error>(()) })
        .await
        .expect("nothing fails")
}

#[tokio::test]
async fn a_second_delivery_is_skipped() {
    let (once, _) = idempotent();
    assert_eq!(ok(&once, Some("a")).await, Effect::Ran(()));
    assert_eq!(ok(&once, Some("a")).await, Effect::Skipped);
    assert_eq!(ok(&once, Some("b")).await, Effect::Ran(()));
}

#[tokio::test]
async fn the_id_is_taken_verbatim() {
    let (once, _) = idempotent();
    for id in ["a", "A", " a", "a ", " "] {
        assert_eq!(ok(&once, Some(id)).await, Effect::Ran(()), "{id:?}");
    }
    assert_eq!(ok(&once, Some(" ")).await, Effect::Skipped);
}

#[tokio::test]
async fn a_failure_leaves_the_id_unmarked() {
    let (once, store) = idempotent();
    let failed = once
        .run(Some("a"), || async {
            Err::<(), _>(Error::message("no such order"))
        })
        .await;
    assert!(matches!(failed, Err(Error::Message { .. })));
    assert!(!store.seen("a").await.unwrap());
    assert_eq!(ok(&once, Some("a")).await, Effect::Ran(()));
}

#[tokio::test]
async fn only_what_is_done_is_remembered() {
    let (once, store) = idempotent();
    let effect = once
        .run_remembering_if(Some("a"), |done| *done, || async { Ok::<_, Error>(false) })
        .await;
    assert_eq!(effect.unwrap(), Effect::Ran(false));
    assert!(!store.seen("a").await.unwrap());
}

#[tokio::test]
async fn without_an_id_it_always_runs() {
    let (once, store) = idempotent();
    for id in [None, Some("")] {
        assert_eq!(ok(&once, id).await, Effect::Ran(()));
        assert_eq!(ok(&once, id).await, Effect::Ran(()));
    }
    assert!(!store.seen("").await.unwrap());
}

#[tokio::test]
async fn a_forgotten_id_runs_again() {
    let (once, store) = idempotent();
    ok(&once, Some("a")).await;
    store.forget("a").await.unwrap();
    assert_eq!(ok(&once, Some("a")).await, Effect::Ran(()));
}

#[tokio::test]
async fn a_store_that_cannot_be_asked_fails_the_message_before_it_runs() {
    let once = Idempotent::new(Arc::new(Faulty {
        seen: true,
        ..Faulty::default()
    }));
    let ran = AtomicU32::new(0);
    let result = once
        .run(Some("a"), || async {
            ran.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Error>(())
        })
        .await;
    assert!(matches!(result, Err(error) if error.is_transient()));
    assert_eq!(ran.into_inner(), 0);
}

#[tokio::test]
async fn a_success_that_cannot_be_remembered_is_a_success() {
    let once = Idempotent::new(Arc::new(Faulty {
        remember: true,
        ..Faulty::default()
    }));
    assert_eq!(ok(&once, Some("a")).await, Effect::Ran(()));
}

#[tokio::test(start_paused = true)]
async fn deliveries_side_by_side_run_one_after_another() {
    let (once, _) = idempotent();
    let once = once.exclusive(Duration::from_mins(1));
    let running = AtomicU32::new(0);
    let slow = || async {
        assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "side by side");
        tokio::time::sleep(Duration::from_secs(5)).await;
        running.fetch_sub(1, Ordering::SeqCst);
        Err::<(), _>(Error::message("once more"))
    };
    let (first, second) = tokio::join!(once.run(Some("a"), slow), once.run(Some("a"), slow));
    assert!(first.is_err() && second.is_err());
    // Both gave their claim up when they failed.
    assert_eq!(ok(&once, Some("a")).await, Effect::Ran(()));
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_waited_for_a_success_is_skipped() {
    let (once, _) = idempotent();
    let once = once.exclusive(Duration::from_mins(1));
    let slow = || async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok::<_, Error>(())
    };
    let (first, second) = tokio::join!(once.run(Some("a"), slow), once.run(Some("a"), slow));
    assert_eq!(first.unwrap(), Effect::Ran(()));
    assert_eq!(second.unwrap(), Effect::Skipped);
}
