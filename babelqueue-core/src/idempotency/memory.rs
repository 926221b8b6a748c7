use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::expiring::Expiring;
use super::{Claim, ClaimToken, Store};
use crate::Error;
use crate::clock::{Clock, SystemClock};

/// A [`Store`] in this process's memory: for tests, and for a single worker whose messages may run
/// again after a restart.
///
/// It remembers up to 100,000 ids for 24 hours each, unless told otherwise; past that the oldest go
/// first.
#[derive(Debug)]
pub struct MemoryStore {
    capacity: usize,
    time_to_live: Duration,
    clock: Arc<dyn Clock>,
    tokens: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    seen: Expiring<()>,
    // Apart from the ids that were seen: a full store must not drop a claim that holds.
    claims: Expiring<ClaimToken>,
}

impl MemoryStore {
    /// A store with the default bounds and the machine's clock.
    pub fn new() -> Self {
        Self {
            capacity: 100_000,
            time_to_live: Duration::from_hours(24),
            clock: Arc::new(SystemClock),
            tokens: AtomicU64::new(0),
            state: Mutex::new(State {
                seen: Expiring::new(),
                claims: Expiring::new(),
            }),
        }
    }

    /// Remembers at most this many ids; at least 1.
    #[must_use]
    pub fn capacity(mut self, ids: usize) -> Self {
        self.capacity = ids.max(1);
        self
    }

    /// Remembers each id for this long.
    #[must_use]
    pub fn time_to_live(mut self, time_to_live: Duration) -> Self {
        self.time_to_live = time_to_live;
        self
    }

    /// Goes by this clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The state as of now, without what has ended.
    fn state(&self) -> (MutexGuard<'_, State>, Duration) {
        let now = self.clock.unix_time();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.seen.drop_ended(now);
        state.claims.drop_ended(now);
        (state, now)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn seen(&self, id: &str) -> Result<bool, Error> {
        let (state, now) = self.state();
        Ok(state.seen.get(id, now).is_some())
    }

    async fn remember(&self, id: &str) -> Result<(), Error> {
        let (mut state, now) = self.state();
        let end = now.saturating_add(self.time_to_live);
        state.seen.insert(id, (), end);
        if state.seen.len() > self.capacity {
            state.seen.drop_first();
        }
        state.claims.remove(id);
        Ok(())
    }

    async fn forget(&self, id: &str) -> Result<(), Error> {
        let (mut state, _) = self.state();
        state.seen.remove(id);
        state.claims.remove(id);
        Ok(())
    }

    async fn claim(&self, id: &str, lease: Duration) -> Result<Claim, Error> {
        let (mut state, now) = self.state();
        if state.seen.get(id, now).is_some() {
            return Ok(Claim::Seen);
        }
        if state.claims.get(id, now).is_some() {
            return Ok(Claim::Held);
        }
        let token = ClaimToken::new(self.tokens.fetch_add(1, Ordering::Relaxed).into());
        state.claims.insert(id, token, now.saturating_add(lease));
        Ok(Claim::Granted(token))
    }

    async fn release(&self, id: &str, token: ClaimToken) -> Result<(), Error> {
        let (mut state, now) = self.state();
        if state.claims.get(id, now) == Some(&token) {
            state.claims.remove(id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    const HOUR: Duration = Duration::from_hours(1);

    fn store() -> (MemoryStore, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(HOUR));
        let store = MemoryStore::new().time_to_live(HOUR).clock(clock.clone());
        (store, clock)
    }

    async fn granted(store: &MemoryStore, id: &str) -> ClaimToken {
        match store.claim(id, HOUR).await {
            Ok(Claim::Granted(token)) => token,
            other => panic!("expected a grant, got {other:?}"),
        }
    }

    async fn seen(store: &MemoryStore, id: &str) -> bool {
        store.seen(id).await.expect("memory does not fail")
    }

    #[tokio::test]
    async fn an_id_is_remembered_for_its_time() {
        let (store, clock) = store();
        store.remember("a").await.unwrap();
        clock.set(Duration::new(7_199, 999_999_999));
        assert!(seen(&store, "a").await);
        clock.advance(Duration::from_nanos(1));
        assert!(!seen(&store, "a").await);
    }

    #[tokio::test]
    async fn remembering_again_starts_its_time_anew() {
        let (store, clock) = store();
        store.remember("a").await.unwrap();
        clock.advance(HOUR / 2);
        store.remember("a").await.unwrap();
        clock.advance(HOUR / 2);
        assert!(seen(&store, "a").await);
    }

    #[tokio::test]
    async fn the_oldest_id_makes_room() {
        let (store, clock) = store();
        let store = store.capacity(2);
        for id in ["a", "b", "c"] {
            store.remember(id).await.unwrap();
            clock.advance(Duration::from_secs(1));
        }
        assert!(!seen(&store, "a").await);
        assert!(seen(&store, "b").await && seen(&store, "c").await);
    }

    #[tokio::test]
    async fn what_has_ended_is_not_kept() {
        let (store, clock) = store();
        for n in 0..100 {
            store.remember(&n.to_string()).await.unwrap();
            let _ = store.claim(&format!("claim {n}"), HOUR).await.unwrap();
        }
        clock.advance(HOUR);
        assert!(!seen(&store, "0").await);
        let (state, _) = store.state();
        assert_eq!((state.seen.len(), state.claims.len()), (0, 0));
    }

    #[tokio::test]
    async fn one_claim_at_a_time_until_it_ends() {
        let (store, clock) = store();
        let first = granted(&store, "a").await;
        assert_eq!(store.claim("a", HOUR).await.unwrap(), Claim::Held);
        granted(&store, "b").await;

        clock.advance(HOUR);
        let second = granted(&store, "a").await;
        // The first comes late: the claim is not its own any more.
        store.release("a", first).await.unwrap();
        assert_eq!(store.claim("a", HOUR).await.unwrap(), Claim::Held);
        store.release("a", second).await.unwrap();
        granted(&store, "a").await;
    }

    #[tokio::test]
    async fn remembering_and_forgetting_end_a_claim() {
        let (store, _) = store();
        granted(&store, "a").await;
        store.remember("a").await.unwrap();
        assert_eq!(store.claim("a", HOUR).await.unwrap(), Claim::Seen);
        store.forget("a").await.unwrap();
        granted(&store, "a").await;
        store.forget("a").await.unwrap();
        granted(&store, "a").await;
    }

    #[tokio::test]
    async fn a_full_store_keeps_its_claims() {
        let (store, _) = store();
        let store = store.capacity(1);
        granted(&store, "a").await;
        store.remember("b").await.unwrap();
        store.remember("c").await.unwrap();
        assert_eq!(store.claim("a", HOUR).await.unwrap(), Claim::Held);
    }
}
