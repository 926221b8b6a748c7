//! The bare client: the same scripts, by hand.

use babelqueue_redis::{Keys, Layout};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Script};

use crate::body;

/// A connection, and the scripts of both layouts.
#[derive(Clone)]
pub(crate) struct Bare {
    pub(crate) connection: MultiplexedConnection,
}

/// What settles a reservation.
pub(crate) type Member = Vec<u8>;

macro_rules! script {
    ($($part:literal),*) => {
        concat!($(include_str!(concat!("../../src/scripts/", $part))),*)
    };
}

impl Bare {
    pub(crate) async fn connect(url: &str) -> Self {
        let client = redis::Client::open(url).expect("a good URL");
        Self {
            connection: Self::open(&client).await,
        }
    }

    async fn open(client: &redis::Client) -> MultiplexedConnection {
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .expect("a server")
    }

    pub(crate) async fn delete(&self, keys: &Keys) {
        let mut connection = self.connection.clone();
        let mut command = Cmd::new();
        command.arg("DEL");
        for key in keys.iter() {
            command.arg(key);
        }
        let () = command
            .query_async(&mut connection)
            .await
            .expect("a server");
    }

    /// Fills a ready list.
    pub(crate) async fn fill(&self, keys: &Keys, count: u32) {
        self.fill_with(keys, count, body).await;
    }

    /// Fills one with what the Python SDK's handler wants to see, in as many bytes.
    pub(crate) async fn fill_for_python(&self, keys: &Keys, count: u32) {
        let expected = |_| body(0).replace("10000000", "    1042");
        self.fill_with(keys, count, expected).await;
    }

    async fn fill_with(&self, keys: &Keys, count: u32, body: impl Fn(u32) -> String) {
        let mut connection = self.connection.clone();
        let numbers: Vec<u32> = (0..count).collect();
        for chunk in numbers.chunks(1000) {
            let mut command = Cmd::new();
            command.arg("RPUSH").arg(keys.ready());
            for number in chunk {
                command.arg(body(*number));
            }
            let () = command
                .query_async(&mut connection)
                .await
                .expect("a server");
        }
    }

    /// Reserves up to `most`, with the script of the layout.
    pub(crate) async fn reserve(&self, queue: &Queue, most: usize) -> Vec<Member> {
        let mut connection = self.connection.clone();
        let mut call = queue.reserve.prepare_invoke();
        match &queue.keys {
            Keys::Sdk {
                ready,
                processing,
                deadlines,
                ..
            } => {
                call.key(ready)
                    .key(processing)
                    .key(deadlines)
                    .arg(now())
                    .arg(90)
                    .arg(-1);
                let tokens: Vec<String> = (0..most)
                    .map(|_| uuid::Uuid::new_v4().simple().to_string())
                    .collect();
                for token in &tokens {
                    call.arg(token);
                }
                let answer: redis::Value =
                    call.invoke_async(&mut connection).await.expect("a server");
                let raws = second(answer);
                tokens
                    .iter()
                    .zip(raws)
                    .map(|(token, raw)| [token.as_bytes(), b":", &raw[..]].concat())
                    .collect()
            }
            Keys::Laravel {
                ready,
                delayed,
                reserved,
                notify,
                ..
            } => {
                call.key(ready).key(reserved).key(notify).key(delayed);
                call.arg(now()).arg(90).arg(-1).arg(most);
                let answer: redis::Value =
                    call.invoke_async(&mut connection).await.expect("a server");
                third(answer)
            }
            _ => Vec::new(),
        }
    }

    /// Acknowledges them all.
    pub(crate) async fn ack(&self, queue: &Queue, members: &[Member]) {
        if members.is_empty() {
            return;
        }
        let mut connection = self.connection.clone();
        let mut call = queue.settle.prepare_invoke();
        match &queue.keys {
            Keys::Sdk {
                ready,
                processing,
                deadlines,
                ..
            } => {
                call.key(processing).key(deadlines).key(ready);
                call.arg(members.len());
                for member in members {
                    call.arg(member);
                }
            }
            Keys::Laravel {
                delayed, reserved, ..
            } => {
                call.key(reserved).key(delayed).arg(now()).arg("");
                for member in members {
                    call.arg("ack").arg(member);
                }
            }
            _ => return,
        }
        let _: redis::Value = call.invoke_async(&mut connection).await.expect("a server");
    }
}

/// A queue, and its layout's scripts.
pub(crate) struct Queue {
    pub(crate) keys: Keys,
    reserve: Script,
    settle: Script,
}

impl Queue {
    pub(crate) fn new(layout: Layout, name: &str) -> Self {
        let (reserve, settle) = match layout {
            Layout::Laravel => (
                script!("clock.lua", "migrate.lua", "laravel_reserve.lua"),
                script!("clock.lua", "copy.lua", "laravel_settle.lua"),
            ),
            _ => (
                script!("clock.lua", "sweep.lua", "sdk_reserve.lua"),
                script!("copy.lua", "sdk_settle.lua"),
            ),
        };
        Self {
            keys: Keys::new(layout, "queues:", name),
            reserve: Script::new(reserve),
            settle: Script::new(settle),
        }
    }
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn second(answer: redis::Value) -> Vec<Vec<u8>> {
    part(answer, 1)
}

fn third(answer: redis::Value) -> Vec<Vec<u8>> {
    part(answer, 2)
}

fn part(answer: redis::Value, at: usize) -> Vec<Vec<u8>> {
    let redis::Value::Array(mut parts) = answer else {
        return Vec::new();
    };
    if parts.len() <= at {
        return Vec::new();
    }
    let redis::Value::Array(items) = parts.swap_remove(at) else {
        return Vec::new();
    };
    items
        .into_iter()
        .filter_map(|item| match item {
            redis::Value::BulkString(bytes) => Some(bytes),
            _ => None,
        })
        .collect()
}
