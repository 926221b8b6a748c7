//! Publishing.

use std::sync::Arc;

use babelqueue_core::transport::{Outgoing, Transport as _};
use babelqueue_redis::{Layout, Redis};
use bytes::Bytes;
use futures_util::future::join_all;
use redis::{Cmd, Script};

use crate::bare::Bare;
use crate::pairs::Pair;
use crate::{TEMPLATE, in_turn, timed};

const QUEUE: &str = "bench-publish";

/// One caller, 256 messages a call.
pub(crate) async fn batches(redis: &Redis, bare: &Bare, name: &str) -> [Pair; 2] {
    const BATCH: u32 = 256;
    const BATCHES: u32 = 400;
    let queue: Arc<str> = QUEUE.into();
    let body = Bytes::from_static(TEMPLATE.as_bytes());
    let keys = redis.config().keys(QUEUE);
    let ours = || async {
        bare.delete(&keys).await;
        timed(async {
            for _ in 0..BATCHES {
                let batch = (0..BATCH)
                    .map(|_| Outgoing::new(queue.clone(), body.clone()))
                    .collect();
                let results = redis.publish(batch).await;
                assert!(results.iter().all(Result::is_ok));
            }
        })
        .await
    };
    let push = Push::of(redis);
    let rival = || async {
        bare.delete(&keys).await;
        timed(async {
            for _ in 0..BATCHES {
                push.send(bare, BATCH).await;
            }
        })
        .await
    };
    let figure = in_turn(name, BATCH * BATCHES, ours, rival).await;
    bare.delete(&keys).await;
    figure
}

/// Many callers, a message a call, all over one connection.
pub(crate) async fn tasks(redis: &Redis, bare: &Bare, name: &str) -> [Pair; 2] {
    const TASKS: u32 = 256;
    const EACH: u32 = 400;
    let queue: Arc<str> = QUEUE.into();
    let keys = redis.config().keys(QUEUE);
    let ours = || async {
        bare.delete(&keys).await;
        let tasks = (0..TASKS).map(|_| {
            let (redis, queue) = (redis.clone(), queue.clone());
            tokio::spawn(async move {
                for _ in 0..EACH {
                    let message =
                        Outgoing::new(queue.clone(), Bytes::from_static(TEMPLATE.as_bytes()));
                    assert!(redis.publish(vec![message]).await.remove(0).is_ok());
                }
            })
        });
        timed(async {
            for task in join_all(tasks).await {
                task.expect("no panic");
            }
        })
        .await
    };
    let push = Arc::new(Push::of(redis));
    let rival = || async {
        bare.delete(&keys).await;
        let tasks = (0..TASKS).map(|_| {
            let (bare, push) = (bare.clone(), Arc::clone(&push));
            tokio::spawn(async move {
                for _ in 0..EACH {
                    push.send(&bare, 1).await;
                }
            })
        });
        timed(async {
            for task in join_all(tasks).await {
                task.expect("no panic");
            }
        })
        .await
    };
    let figure = in_turn(name, TASKS * EACH, ours, rival).await;
    bare.delete(&keys).await;
    figure
}

/// The bare client's push in a layout.
struct Push {
    script: Option<Script>,
    keys: Vec<String>,
}

impl Push {
    fn of(redis: &Redis) -> Self {
        let keys = redis.config().keys(QUEUE);
        match redis.config().layout() {
            Layout::Laravel => Self {
                script: Some(Script::new(include_str!(
                    "../../src/scripts/laravel_push.lua"
                ))),
                keys: vec![keys.ready().to_owned(), format!("{}:notify", keys.ready())],
            },
            _ => Self {
                script: None,
                keys: vec![keys.ready().to_owned()],
            },
        }
    }

    async fn send(&self, bare: &Bare, count: u32) {
        let mut connection = bare.connection.clone();
        if let Some(script) = &self.script {
            let mut call = script.prepare_invoke();
            for key in &self.keys {
                call.key(key);
            }
            for _ in 0..count {
                call.arg(TEMPLATE);
            }
            let () = call.invoke_async(&mut connection).await.expect("a server");
            return;
        }
        let mut command = Cmd::new();
        command.arg("RPUSH").arg(&self.keys);
        for _ in 0..count {
            command.arg(TEMPLATE);
        }
        let () = command
            .query_async(&mut connection)
            .await
            .expect("a server");
    }
}
