//! The server is ended with SIGKILL twice under load, while messages are published, handled and retried;
//! what was confirmed is not lost, and what comes twice is counted.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use babelqueue_amqp::QueueArguments;
use babelqueue_amqp::prelude::*;
use babelqueue_core::transport::{Outgoing, Transport as _};
use babelqueue_core::worker::Stopped;
use tokio::time::{sleep, timeout};

use crate::Numbered;
use crate::common::{Failed, Server, Test, body, ensure, test, unique};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(a_classic_queue_survives_two_kills, ctl),
        test!(a_quorum_queue_survives_two_kills, ctl),
    ]
}

async fn a_classic_queue_survives_two_kills(server: Server) -> Result<(), Failed> {
    survives_two_kills(server, QueueArguments::new()).await
}

async fn a_quorum_queue_survives_two_kills(server: Server) -> Result<(), Failed> {
    survives_two_kills(server, QueueArguments::quorum()).await
}

/// How many messages at least: `BQ_SOAK`, or a few.
fn at_least() -> Result<u64, Failed> {
    match std::env::var("BQ_SOAK") {
        Ok(messages) => Ok(messages.parse()?),
        Err(_) => Ok(6_000),
    }
}

/// How many handlers run at once.
const HANDLERS: usize = 64;

/// How many of them are sure to run when the server dies.
const CAUGHT: u64 = 8;

/// How long the worker may make no progress before what has not come is taken for lost.
const SILENCE: Duration = Duration::from_mins(2);

/// At a third of the messages and at two thirds the server is killed, while publishers and handlers go
/// on. Every 50th message fails once.
async fn survives_two_kills(server: Server, arguments: QueueArguments) -> Result<(), Failed> {
    let messages = at_least()?;
    let queue = unique("killed");
    let amqp = Amqp::open(server.config()?.queue_arguments(arguments))?;
    let handled = Arc::new(Handled::default());
    let worker = tokio::spawn(consume(amqp.clone(), queue.clone(), handled.clone()));
    let mut published = Published::new(amqp, queue.clone());
    published.more().await?;
    server.write_down_its_queues().await?;
    for third in 1..=2 {
        while published.count < messages * third / 3 {
            published.more().await?;
        }
        let (kill, unknown, interrupted) = (
            tokio::spawn(kill_under_load(server.clone(), handled.clone())),
            published.unknown.len(),
            handled.interrupted.load(Ordering::SeqCst),
        );
        // However long it takes to come, the kill falls into the publishing.
        while !kill.is_finished() {
            published.more().await?;
        }
        kill.await??;
        let unknown = published.unknown.len() - unknown;
        let interrupted = handled.interrupted.load(Ordering::SeqCst) - interrupted;
        println!(
            "{}: kill {third}: {unknown} on their way in, {interrupted} handlers running",
            server.name
        );
        ensure!(unknown > 0, "nothing was being published at the kill");
        ensure!(
            interrupted >= CAUGHT,
            "{interrupted} handlers ran at the kill"
        );
    }
    while published.count < messages {
        published.more().await?;
    }
    let lost = handled.all_of(published.count).await;
    handled.enough.store(true, Ordering::SeqCst);
    let stopped = worker.await??;
    let (twice, twice_sent) = handled.twice(&published.unknown);
    println!(
        "{}: {} messages, {lost} lost; {} published again after an unknown outcome; {} handled twice or \
         more, {twice_sent} of them published again; {:?}",
        server.name,
        published.count,
        published.unknown.len(),
        twice,
        stopped.counts
    );
    ensure!(lost == 0, "{lost} lost");
    server.bare().await?.delete(&queue).await
}

/// Kills the server when handlers are sure to run, and starts it again.
async fn kill_under_load(server: Server, handled: Arc<Handled>) -> Result<(), Failed> {
    handled.kill_is_due.store(true, Ordering::SeqCst);
    let deadline = Instant::now() + Duration::from_mins(2);
    while handled.caught.load(Ordering::SeqCst) < CAUGHT {
        ensure!(Instant::now() < deadline, "no handlers run");
        sleep(Duration::from_millis(1)).await;
    }
    let killed = server.kill().await;
    handled.kill_is_due.store(false, Ordering::SeqCst);
    handled.caught.store(0, Ordering::SeqCst);
    killed?;
    server.start().await
}

/// What has been published so far: the numbers from 0.
struct Published {
    amqp: Amqp,
    queue: String,
    count: u64,
    /// Those that were sent again, since it was unknown whether the broker had them.
    unknown: HashSet<u64>,
}

impl Published {
    fn new(amqp: Amqp, queue: String) -> Self {
        Self {
            amqp,
            queue,
            count: 0,
            unknown: HashSet::new(),
        }
    }

    /// Publishes some more until each is confirmed, in two calls that overlap.
    async fn more(&mut self) -> Result<(), Failed> {
        let (from, middle, to) = (self.count, self.count + 250, self.count + 500);
        let (first, second) = tokio::try_join!(self.all(from..middle), self.all(middle..to))?;
        self.unknown.extend(first);
        self.unknown.extend(second);
        self.count = to;
        Ok(())
    }

    async fn all(&self, numbers: std::ops::Range<u64>) -> Result<HashSet<u64>, Failed> {
        let mut open: Vec<_> = numbers.collect();
        let mut unknown = HashSet::new();
        let deadline = Instant::now() + Duration::from_mins(6);
        loop {
            let batch = open
                .iter()
                .map(|number| Outgoing::new(&*self.queue, numbered(*number)));
            let results = self.amqp.publish(batch.collect()).await;
            let mut failed = Vec::new();
            for (number, result) in open.into_iter().zip(results) {
                let Err(error) = result else {
                    continue;
                };
                ensure!(error.is_transient(), "{error}");
                if error.to_string().contains("outcome unknown") {
                    unknown.insert(number);
                }
                failed.push(number);
            }
            if failed.is_empty() {
                return Ok(unknown);
            }
            ensure!(Instant::now() < deadline, "the broker did not come back");
            open = failed;
            sleep(Duration::from_millis(200)).await;
        }
    }
}

fn numbered(number: u64) -> bytes::Bytes {
    let text = String::from_utf8_lossy(&body(number)).into_owned();
    text.replace("urn:babel:test:made", Numbered::URN).into()
}

/// What the handlers have seen.
#[derive(Default)]
struct Handled {
    books: Mutex<Books>,
    /// Set while a kill is coming: some handlers then wait for it.
    kill_is_due: AtomicBool,
    caught: AtomicU64,
    /// How many handlers were still running when their connection was lost.
    interrupted: AtomicU64,
    enough: AtomicBool,
}

#[derive(Default)]
struct Books {
    failed: HashSet<u64>,
    /// How often each was handled with success.
    succeeded: std::collections::HashMap<u64, u64>,
}

impl Handled {
    async fn handle(&self, message: Incoming<Numbered>) -> Result<(), Failure> {
        sleep(Duration::from_millis(5)).await;
        let due = self.kill_is_due.load(Ordering::SeqCst);
        if due && self.caught.fetch_add(1, Ordering::SeqCst) < CAUGHT {
            // Without a limit, a kill that never comes would look like a hung worker.
            _ = timeout(Duration::from_mins(2), message.context().lost()).await;
        }
        if message.context().is_lost() {
            self.interrupted.fetch_add(1, Ordering::SeqCst);
        }
        let mut books = self.books();
        if message.n.is_multiple_of(50) && books.failed.insert(message.n) {
            return Err(Failure::msg("on purpose"));
        }
        *books.succeeded.entry(message.n).or_default() += 1;
        Ok(())
    }

    /// Waits until all of so many have been handled; says how many have not, when nothing more comes.
    async fn all_of(&self, count: u64) -> usize {
        let (mut before, mut since) = (0, Instant::now());
        loop {
            let (different, times) = {
                let books = self.books();
                let times: u64 = books.succeeded.values().sum();
                (books.succeeded.len() as u64, times)
            };
            if times != before {
                (before, since) = (times, Instant::now());
            }
            // Those that come twice may come after the last.
            let silence = if different == count {
                Duration::from_secs(2)
            } else {
                SILENCE
            };
            if since.elapsed() > silence {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        let books = self.books();
        (0..count)
            .filter(|number| !books.succeeded.contains_key(number))
            .count()
    }

    /// How many were handled more than once, and how many of those are among `unknown`.
    fn twice(&self, unknown: &HashSet<u64>) -> (usize, usize) {
        let books = self.books();
        let twice = books.succeeded.iter().filter(|(_, times)| **times > 1);
        let twice: Vec<_> = twice.map(|(number, _)| number).collect();
        let sent = twice.iter().filter(|number| unknown.contains(number));
        (twice.len(), sent.count())
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn consume(amqp: Amqp, queue: String, handled: Arc<Handled>) -> Result<Stopped, Failed> {
    let until = handled.clone();
    let worker = Worker::new(amqp)
        .queue(queue)
        .concurrency(HANDLERS)
        .retry(Retry::attempts(100))
        .handle(move |message: Incoming<Numbered>| {
            let handled = handled.clone();
            async move { handled.handle(message).await }
        });
    let enough = async move {
        while !until.enough.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    Ok(worker.run_until(enough).await?)
}
