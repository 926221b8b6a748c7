//! Running a handler once for a message that is delivered twice (contract §17A).
//!
//! Every broker delivers at least once. An [`Idempotent`] remembers the ids of the messages whose
//! handler has succeeded, in a [`Store`], and skips a message that it has seen; the worker then
//! acknowledges it like any other. A handler that fails leaves the id unmarked, so that the retry
//! runs it again.
//!
//! ```
//! use std::sync::Arc;
//! use babelqueue_core::Error;
//! use babelqueue_core::idempotency::{Effect, Idempotent, MemoryStore};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let once = Idempotent::new(Arc::new(MemoryStore::new()));
//! let charge = || async { Ok::<_, Error>("charged") };
//!
//! assert_eq!(once.run(Some("f1e2"), charge).await?, Effect::Ran("charged"));
//! assert_eq!(once.run(Some("f1e2"), charge).await?, Effect::Skipped);
//! # Ok::<_, Error>(())
//! # }).unwrap();
//! ```
//!
//! # What it does not do
//!
//! It is not exactly-once delivery: a process that dies after the effect and before the id is
//! remembered runs the effect again. It is no lock either, unless it is made one with
//! [`exclusive`](Idempotent::exclusive).

mod expiring;
mod memory;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
pub use memory::MemoryStore;

use crate::Error;

/// Where ids of handled messages are kept. The id is `meta.id` verbatim, never the trace id.
///
/// Each call has to end in a time of its own, with an error if need be: no timeout stands around it
/// (the order in [`layers`](crate::handler::layers)), and a handler that has succeeded waits for it.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Whether `id` is remembered.
    ///
    /// # Errors
    ///
    /// The store cannot be asked. The message then counts as failed, and is tried again.
    async fn seen(&self, id: &str) -> Result<bool, Error>;

    /// Remembers `id`, and ends any claim on it.
    ///
    /// # Errors
    ///
    /// The store cannot be told.
    async fn remember(&self, id: &str) -> Result<(), Error>;

    /// Forgets `id` and any claim on it, so that the next delivery runs.
    ///
    /// # Errors
    ///
    /// The store cannot be told.
    async fn forget(&self, id: &str) -> Result<(), Error>;

    /// In one atomic step: says that `id` is remembered, or that somebody else's claim on it holds,
    /// or claims it for `lease`, after which others may claim it too.
    ///
    /// # Errors
    ///
    /// The store cannot be asked.
    async fn claim(&self, id: &str, lease: Duration) -> Result<Claim, Error>;

    /// Gives a claim up; without effect where it is no longer this `token`'s.
    ///
    /// # Errors
    ///
    /// The store cannot be told; the claim ends with its lease.
    async fn release(&self, id: &str, token: ClaimToken) -> Result<(), Error>;
}

/// The answer to [`Store::claim`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It is the caller's, who gives it up with the token, or ends it with [`Store::remember`].
    Granted(ClaimToken),
    /// Somebody else has it.
    Held,
    /// The id is remembered: there is nothing to do.
    Seen,
}

/// What tells one claim on an id from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimToken(u128);

impl ClaimToken {
    /// The token with this value; a store makes them up, unique for each claim on an id.
    pub const fn new(value: u128) -> Self {
        Self(value)
    }

    /// Its value.
    pub const fn get(self) -> u128 {
        self.0
    }
}

/// What [`Idempotent::run`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect<T> {
    /// The handler ran, and gave this.
    Ran(T),
    /// The message has been handled before; the handler did not run.
    Skipped,
}

/// Skips a message whose id was handled before. Two deliveries of one message that come at the same
/// time both run, unless [`exclusive`](Self::exclusive) has the second wait.
#[derive(Clone)]
pub struct Idempotent {
    store: Arc<dyn Store>,
    lease: Option<Duration>,
}

impl Idempotent {
    /// Skips what `store` has seen.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, lease: None }
    }

    /// Also keeps two deliveries of one message from running side by side: the second waits until
    /// the first is done. Should the first die, the second starts after `lease`, so a handler must
    /// not take longer than that. A future that is dropped dies in this sense: bound the handler's
    /// time inside (the order in [`layers`](crate::handler::layers)), not around this.
    #[must_use]
    pub fn exclusive(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Runs `handler` unless the message with this `meta.id` has been handled. A message without an
    /// id, or with an empty one, cannot be recognised and always runs.
    ///
    /// A store that cannot be told of the success is logged, not an error: the effect is there.
    ///
    /// # Errors
    ///
    /// The handler's own, which leaves the id unmarked; or the store's, before the handler has run.
    pub async fn run<T, E, F>(
        &self,
        id: Option<&str>,
        handler: impl FnOnce() -> F,
    ) -> Result<Effect<T>, E>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.run_remembering_if(id, |_| true, handler).await
    }

    /// [`run`](Self::run) for a handler whose `Ok` is not always a success: the id is remembered
    /// only where `done` says so of what it gave.
    ///
    /// # Errors
    ///
    /// As with [`run`](Self::run).
    pub async fn run_remembering_if<T, E, F>(
        &self,
        id: Option<&str>,
        done: impl FnOnce(&T) -> bool,
        handler: impl FnOnce() -> F,
    ) -> Result<Effect<T>, E>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return handler().await.map(Effect::Ran);
        };
        let token = match self.begin(id).await? {
            Begin::Skip => return Ok(Effect::Skipped),
            Begin::Run(token) => token,
        };
        let result = handler().await;
        if result.as_ref().is_ok_and(done) {
            self.succeeded(id).await;
        } else if let Some(token) = token {
            self.failed(id, token).await;
        }
        result.map(Effect::Ran)
    }

    async fn begin(&self, id: &str) -> Result<Begin, Error> {
        let Some(lease) = self.lease else {
            let seen = self.store.seen(id).await?;
            return Ok(if seen { Begin::Skip } else { Begin::Run(None) });
        };
        let mut pause = Duration::from_millis(20);
        loop {
            match self.store.claim(id, lease).await? {
                Claim::Granted(token) => return Ok(Begin::Run(Some(token))),
                Claim::Seen => return Ok(Begin::Skip),
                Claim::Held => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    async fn succeeded(&self, id: &str) {
        if let Err(error) = self.store.remember(id).await {
            tracing::warn!(id, %error, "a handled message could not be remembered; a second delivery would run again");
        }
    }

    async fn failed(&self, id: &str, token: ClaimToken) {
        if let Err(error) = self.store.release(id, token).await {
            tracing::warn!(id, %error, "a claim could not be given up; a retry waits for its lease");
        }
    }
}

impl fmt::Debug for Idempotent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotent")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

enum Begin {
    Skip,
    Run(Option<ClaimToken>),
}

#[cfg(test)]
mod tests;
