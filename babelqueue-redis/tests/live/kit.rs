//! What every transport must do, in both layouts. Each test has a server of its own, which keeps every
//! write on the disk, so that some can kill it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use babelqueue_core::BoxError;
use babelqueue_core::test_kit::{Fixture, tests};
use babelqueue_core::transport::{Capabilities, Transport};
use babelqueue_redis::{Config, Layout, Redis};
use libtest_mimic::Trial;
use redis::AsyncCommands as _;
use tokio::sync::Mutex;

use crate::server::{DURABLE, Private, bare};
use crate::{Fault, Outcome, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (layout, name) in [(Layout::Sdk, "sdk"), (Layout::Laravel, "laravel")] {
        for test in tests(Server::not_started(layout)) {
            let test = test.name();
            trials.push(trial(&format!("kit-{name}/{test}"), move || {
                run(layout, test)
            }));
        }
    }
    trials
}

async fn run(layout: Layout, name: &str) -> Outcome {
    let server = Private::start(&DURABLE).await?;
    let fixture = Server {
        layout,
        server: Some(Mutex::new(server)),
    };
    let test = tests(fixture).into_iter().find(|test| test.name() == name);
    let test = test.ok_or("the kit has no such test any more")?;
    test.run()
        .await
        .map_err(|failed| Fault::from(&*failed.to_string()))
}

struct Server {
    layout: Layout,
    /// None only while the tests are listed.
    server: Option<Mutex<Private>>,
}

impl Server {
    fn not_started(layout: Layout) -> Self {
        Self {
            layout,
            server: None,
        }
    }

    async fn url(&self) -> Result<String, BoxError> {
        let server = self.server.as_ref().ok_or("not started")?;
        Ok(server.lock().await.url(""))
    }

    fn configured(&self, url: &str) -> Result<Config, babelqueue_core::Error> {
        Config::from_url(url)?
            .with_layout(self.layout)
            .connect_timeout(Duration::from_secs(2))?
            .retry_after(Some(Duration::from_secs(2)))
    }
}

#[async_trait]
impl Fixture for Server {
    fn capabilities(&self) -> Capabilities {
        let config = self.configured("redis://127.0.0.1").expect("a good URL");
        let unconnected = Redis::open(config).expect("a good configuration");
        unconnected.capabilities().clone()
    }

    async fn connect(&self) -> Result<Arc<dyn Transport>, BoxError> {
        let redis = Redis::open(self.configured(&self.url().await?)?)?;
        redis.ping().await?;
        Ok(Arc::new(redis))
    }

    fn can_restart(&self) -> bool {
        true
    }

    async fn restart(&self) -> Result<(), BoxError> {
        let server = self.server.as_ref().ok_or("not started")?;
        let mut server = server.lock().await;
        server.kill().map_err(words)?;
        server.run().await.map_err(words)
    }

    fn can_fill(&self) -> bool {
        true
    }

    /// Something that is no list lies under the key. (Out of memory, a move still has room: it frees
    /// what it takes.)
    async fn set_full(&self, queue: &str, full: bool) -> Result<(), BoxError> {
        let key = self
            .configured("redis://127.0.0.1")?
            .keys(queue)
            .ready()
            .to_owned();
        let mut bare = bare(&self.url().await?).await.map_err(words)?;
        if full {
            let () = bare.set(key, "no list").await?;
        } else {
            let _: u64 = bare.del(key).await?;
        }
        Ok(())
    }
}

fn words(fault: Fault) -> BoxError {
    match fault {
        Fault::NoServer(why) => why.into(),
        Fault::Failed(failed) => failed.message().unwrap_or("failed").into(),
    }
}
