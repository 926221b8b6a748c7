//! Remembering handled messages in Redis.

use std::time::Duration;

use async_trait::async_trait;
use babelqueue_core::Error;
use babelqueue_core::idempotency::{Claim, ClaimToken, Store};
use redis::{Cmd, Value};

use crate::Redis;
use crate::error::{Failure, unexpected};
use crate::scripts::{CLAIM, REMEMBER, Script, Size, UNCLAIM};

/// A [`Store`] in Redis: what several workers have handled (contract §17A).
///
/// An id is remembered as `bq:idemp:<id>`, as the other SDKs do, for 24 hours unless told otherwise;
/// that has to be longer than a message can take from its first delivery to its last. A claim lies
/// beside it under a key of its own, so that a peer does not take it for a message that is done.
///
/// ```no_run
/// use std::sync::Arc;
/// use babelqueue_core::idempotency::Idempotent;
/// use babelqueue_redis::{Redis, RedisStore};
///
/// # async fn example() -> Result<(), babelqueue_core::Error> {
/// let redis = Redis::connect("redis://127.0.0.1").await?;
/// let once = Idempotent::new(Arc::new(RedisStore::new(redis)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RedisStore {
    redis: Redis,
    time_to_live: Duration,
}

impl RedisStore {
    /// A store in the database of `redis`.
    pub fn new(redis: Redis) -> Self {
        Self {
            redis,
            time_to_live: Duration::from_hours(24),
        }
    }

    /// Remembers each id for this long, in whole milliseconds, at least 1.
    #[must_use]
    pub fn time_to_live(mut self, time_to_live: Duration) -> Self {
        self.time_to_live = time_to_live;
        self
    }

    /// Runs a script. It is sent once more where the connection broke: each gives the same the second
    /// time.
    async fn run(
        &self,
        script: &Script,
        write: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Value, Error> {
        let link = &self.redis.shared().link;
        let answer = match link.run(script, Size::SMALL, &write).await {
            Err(failure) if failure.may_have_run => link.run(script, Size::SMALL, &write).await,
            answer => answer,
        };
        answer.map_err(|failure| self.error(failure))
    }

    async fn query(&self, command: &Cmd) -> Result<Value, Error> {
        let link = &self.redis.shared().link;
        let answer = match link.query(command).await {
            Err(failure) if failure.may_have_run => link.query(command).await,
            answer => answer,
        };
        answer.map_err(|failure| self.error(failure))
    }

    fn error(&self, failure: Failure) -> Error {
        failure.into_error("idempotency", self.redis.shared().link.address())
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn seen(&self, id: &str) -> Result<bool, Error> {
        let mut command = Cmd::new();
        command.arg("EXISTS").arg(key(id));
        match self.query(&command).await? {
            Value::Int(count) => Ok(count > 0),
            answer => Err(unexpected("idempotency", &answer)),
        }
    }

    async fn remember(&self, id: &str) -> Result<(), Error> {
        let write = |command: &mut Cmd| {
            command.arg(2).arg(key(id)).arg(claim_key(id));
            command.arg(millis(self.time_to_live));
        };
        self.run(&REMEMBER, write).await.map(drop)
    }

    async fn forget(&self, id: &str) -> Result<(), Error> {
        let mut command = Cmd::new();
        command.arg("DEL").arg(key(id)).arg(claim_key(id));
        self.query(&command).await.map(drop)
    }

    async fn claim(&self, id: &str, lease: Duration) -> Result<Claim, Error> {
        let token = ClaimToken::new(uuid::Uuid::new_v4().as_u128());
        let write = |command: &mut Cmd| {
            command.arg(2).arg(key(id)).arg(claim_key(id));
            command.arg(token_text(token)).arg(millis(lease));
        };
        match self.run(&CLAIM, write).await? {
            Value::BulkString(word) if word == b"seen" => Ok(Claim::Seen),
            Value::BulkString(word) if word == b"held" => Ok(Claim::Held),
            Value::BulkString(word) if word == b"granted" => Ok(Claim::Granted(token)),
            answer => Err(unexpected("idempotency", &answer)),
        }
    }

    async fn release(&self, id: &str, token: ClaimToken) -> Result<(), Error> {
        let write = |command: &mut Cmd| {
            command.arg(1).arg(claim_key(id)).arg(token_text(token));
        };
        self.run(&UNCLAIM, write).await.map(drop)
    }
}

fn key(id: &str) -> String {
    format!("bq:idemp:{id}")
}

/// In braces stands the other key, whole: in a cluster both lie in one slot.
fn claim_key(id: &str) -> String {
    format!("bq:idemp-claim:{{bq:idemp:{id}}}")
}

fn token_text(token: ClaimToken) -> String {
    format!("{:032x}", token.get())
}

/// Redis refuses a time to live of nothing.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis())
        .unwrap_or(u64::MAX)
        .clamp(1, i64::MAX.unsigned_abs() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::check_one;

    #[test]
    fn an_id_and_its_claim_lie_in_one_slot() {
        let id = "f1e2d3c4-b5a6-4789-90ab-cdef01234567";
        assert_eq!(key(id), "bq:idemp:f1e2d3c4-b5a6-4789-90ab-cdef01234567");
        assert!(check_one([&*key(id), &*claim_key(id)]).is_ok());
    }

    #[test]
    fn a_time_to_live_is_never_nothing() {
        assert_eq!(millis(Duration::ZERO), 1);
        assert_eq!(millis(Duration::from_micros(2_500)), 2);
    }
}
