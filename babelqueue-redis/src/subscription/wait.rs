//! Waiting at an empty queue.
//!
//! SDK layout: `BLMOVE q q LEFT LEFT` moves the head onto its own place. It blocks while the list is
//! empty and changes nothing when it is not, so nothing is lost whoever dies; the reserve script
//! takes the message. A blocking move into `:processing` would leave what it moved without a deadline,
//! and nothing brings that back. Laravel layout: `BLPOP` on the notify list.
//!
//! One receiver of a process has the turn and waits at the server, over a connection of its own. The
//! blocking call outlives a dropped `receive`: the next turn takes it up.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use babelqueue_core::Error;
use redis::{Cmd, RedisError};
use tokio::sync::{Mutex, MutexGuard, Notify};
use tokio::time::sleep;

use crate::connection::{Connection, query_dedicated};
use crate::error::Failure;
use crate::layout::Keys;
use crate::queue::Queue;

/// How long the server lets a call block.
const BLOCK: Duration = Duration::from_secs(5);

/// How long the Laravel layout waits before it looks for what became due: that comes without a wake-up
/// (contract §11B.9).
const LARAVEL_SLICE: Duration = Duration::from_secs(1);

/// The wait at one ready list, shared by the receivers of a process.
pub(crate) struct Wait {
    peek: Mutex<Peek>,
    nudge: Notify,
    slice: Duration,
}

impl Wait {
    /// The wait at `queue`.
    pub(crate) fn at(queue: &Queue) -> Self {
        Self {
            peek: Mutex::new(Peek {
                queue: queue.clone(),
                connection: None,
                call: None,
            }),
            nudge: Notify::new(),
            slice: match &*queue.keys {
                Keys::Sdk { .. } => BLOCK,
                Keys::Laravel { .. } => LARAVEL_SLICE,
            },
        }
    }

    /// Waits for its turn at the server.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        Turn {
            peek: self.peek.lock().await,
            wait: self,
        }
    }

    /// Makes whoever has the turn look again.
    pub(crate) fn nudge(&self) {
        self.nudge.notify_one();
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").finish_non_exhaustive()
    }
}

/// The right to wait at the server, until it is dropped.
pub(crate) struct Turn<'w> {
    peek: MutexGuard<'w, Peek>,
    wait: &'w Wait,
}

impl Turn<'_> {
    /// Waits until there may be something: a push, something due, or a nudge. May wake for nothing.
    pub(crate) async fn wait(&mut self, due_in: Option<Duration>) -> Result<(), Error> {
        let longest = due_in.unwrap_or(Duration::MAX).min(self.wait.slice);
        tokio::select! {
            biased;
            woken = self.peek.wait() => woken,
            () = self.wait.nudge.notified() => Ok(()),
            () = sleep(longest) => Ok(()),
        }
    }
}

type Call = Pin<Box<dyn Future<Output = Result<Connection, RedisError>> + Send>>;

/// The blocking call, and the connection for it.
struct Peek {
    queue: Queue,
    connection: Option<Connection>,
    call: Option<Call>,
}

impl Peek {
    /// Waits until the blocking call ends; begins one where there is none.
    async fn wait(&mut self) -> Result<(), Error> {
        let call = self
            .call
            .get_or_insert_with(|| Box::pin(call(self.queue.clone(), self.connection.take())));
        let ended = call.await;
        self.call = None;
        match ended {
            Ok(connection) => {
                self.connection = Some(connection);
                Ok(())
            }
            Err(error) => {
                Err(Failure::of_call(error).into_error("receive", &self.queue.describe()))
            }
        }
    }
}

/// One blocking call. A server that has not answered some time after it should have is gone: a half
/// open connection says nothing by itself.
async fn call(queue: Queue, connection: Option<Connection>) -> Result<Connection, RedisError> {
    let link = &queue.shared.link;
    let connection = match connection {
        Some(connection) => connection,
        None => link.dedicated().await?,
    };
    let limit = BLOCK + link.response_timeout();
    match query_dedicated(connection, command(&queue.keys), limit).await {
        (Some(connection), answer) => {
            answer?;
            Ok(connection)
        }
        (None, answer) => Err(answer.err().unwrap_or_else(|| {
            RedisError::from((redis::ErrorKind::Io, "the connection cannot be used again"))
        })),
    }
}

fn command(keys: &Keys) -> Cmd {
    let mut command = Cmd::new();
    match keys {
        Keys::Sdk { ready, .. } => {
            command
                .arg("BLMOVE")
                .arg(ready)
                .arg(ready)
                .arg("LEFT")
                .arg("LEFT");
        }
        Keys::Laravel { notify, .. } => {
            command.arg("BLPOP").arg(notify);
        }
    }
    command.arg(BLOCK.as_secs());
    command
}
