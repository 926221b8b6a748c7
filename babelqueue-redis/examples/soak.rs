//! `cargo xtask soak redis`: messages through a worker while the server is killed twice and the worker
//! three times, all by SIGKILL. Nothing may be lost, and every message that was handled twice has to lie
//! around a kill.
//!
//! The server keeps every write on the disk before it answers. The worker is this program again, in a
//! process of its own; it prints the number of each message that it handles.

#![expect(clippy::print_stdout, reason = "a command-line program")]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use babelqueue_core::prelude::{Incoming, Message, Producer};
use babelqueue_core::worker::Worker;
use babelqueue_redis::{Config, Redis};
use serde::{Deserialize, Serialize};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// How many messages, unless the first argument says otherwise.
const MESSAGES: u64 = 100_000;
const BATCH: u64 = 200;

/// How far the publishing may be ahead of the handling.
const AHEAD: u64 = 2_000;

const QUEUE: &str = "soak";

/// When who is killed, in hundredths of the messages that were handled.
const KILLS: [(u64, Victim); 5] = [
    (15, Victim::Worker),
    (30, Victim::Server),
    (45, Victim::Worker),
    (60, Victim::Server),
    (75, Victim::Worker),
];

/// How long before a kill a message may have been handled without its settlement having arrived.
const IN_THE_AIR: Duration = Duration::from_secs(5);

/// How long after a kill the server may be away.
const AWAY: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Victim {
    Server,
    Worker,
}

#[derive(Serialize, Deserialize)]
struct Numbered {
    number: u64,
}

impl Message for Numbered {
    const URN: &'static str = "urn:babel:soak:numbered";
}

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [role, url] if role == "work" => work(url).await,
        [count] => soak(count.parse()?).await,
        _ => soak(MESSAGES).await,
    }
}

/// The worker's process.
async fn work(url: &str) -> Outcome {
    let redis = Redis::open(Config::from_url(url)?)?;
    Worker::new(redis)
        .queue(QUEUE)
        .concurrency(32)
        .reconnect(Duration::from_millis(50), Duration::from_millis(500))
        .handle(|message: Incoming<Numbered>| async move {
            println!("{}", message.number);
            Ok(())
        })
        .run_until(std::future::pending::<()>())
        .await?;
    Ok(())
}

async fn soak(count: u64) -> Outcome {
    let mut server = Server::start()?;
    let url = format!("redis://{}?retry_after=3", server.address);
    let (tell, handled) = channel();
    let mut worker = start_worker(&url, &tell)?;

    let done = Arc::new(AtomicU64::new(0));
    let publishing = tokio::spawn(publish(url.clone(), count, Arc::clone(&done)));
    let mut books = Books::new(handled);
    let mut kills = KILLS.iter().peekable();
    let stuck = Duration::from_mins(3);
    let mut last_news = Instant::now();
    while books.distinct() < count {
        if books.take_in() {
            last_news = Instant::now();
            done.store(books.distinct(), Ordering::Relaxed);
        } else if last_news.elapsed() > stuck {
            break;
        }
        if let Some((at, victim)) = kills.next_if(|(at, _)| books.distinct() * 100 >= at * count) {
            println!("at {at} %: the {victim:?} is killed");
            books.kills.push(Instant::now());
            match victim {
                Victim::Server => server.kill_and_restart()?,
                Victim::Worker => {
                    worker.kill()?;
                    worker.wait()?;
                    worker = start_worker(&url, &tell)?;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let published_again = publishing.await??;
    // What comes a second time comes by its deadline.
    tokio::time::sleep(Duration::from_secs(6)).await;
    books.take_in();
    let left = what_is_left(&url).await?;
    worker.kill()?;
    worker.wait()?;
    server.child.kill()?;
    server.child.wait()?;
    std::fs::remove_dir_all(&server.folder)?;
    books.report(count, &published_again, &left)
}

/// Publishes all, and gives those that were published again because the first answer was lost.
async fn publish(url: String, count: u64, done: Arc<AtomicU64>) -> Outcome<BTreeSet<u64>> {
    let producer = Producer::new(Redis::open(Config::from_url(&url)?)?).queue(QUEUE);
    let mut again = BTreeSet::new();
    for first in (0..count).step_by(usize::try_from(BATCH)?) {
        // Not too far ahead, so that kills hit the publishing as well.
        while first > done.load(Ordering::Relaxed) + AHEAD {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let mut open: Vec<u64> = (first..count.min(first + BATCH)).collect();
        while !open.is_empty() {
            let batch: Vec<Numbered> = open.iter().map(|n| Numbered { number: *n }).collect();
            let results = producer.publish_all(&batch).await;
            open = open
                .into_iter()
                .zip(results)
                .filter_map(|(number, result)| result.is_err().then_some(number))
                .collect();
            if !open.is_empty() {
                again.extend(&open);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    Ok(again)
}

fn start_worker(url: &str, tell: &Sender<(u64, Instant)>) -> Outcome<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["work", url])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("no output")?;
    let tell = tell.clone();
    // Ends with the child's output.
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // A line cut short by the kill was not handled to its end.
            if let Ok(number) = line.parse() {
                let _ = tell.send((number, Instant::now()));
            }
        }
    });
    Ok(child)
}

async fn what_is_left(url: &str) -> Outcome<String> {
    let address = url.split('?').next().unwrap_or_default();
    let mut connection = redis::Client::open(address)?
        .get_multiplexed_async_connection()
        .await?;
    let mut lengths = Vec::new();
    for key in [QUEUE.to_owned(), format!("{QUEUE}:processing")] {
        let length: u64 = redis::cmd("LLEN")
            .arg(key)
            .query_async(&mut connection)
            .await?;
        lengths.push(length);
    }
    Ok(format!("{} ready, {} in flight", lengths[0], lengths[1]))
}

/// What was handled, and when.
struct Books {
    news: Receiver<(u64, Instant)>,
    handled: BTreeMap<u64, Vec<Instant>>,
    kills: Vec<Instant>,
}

impl Books {
    fn new(news: Receiver<(u64, Instant)>) -> Self {
        Self {
            news,
            handled: BTreeMap::new(),
            kills: Vec::new(),
        }
    }

    /// Notes what the workers have printed; whether there was anything.
    fn take_in(&mut self) -> bool {
        let mut any = false;
        while let Ok((number, at)) = self.news.try_recv() {
            self.handled.entry(number).or_default().push(at);
            any = true;
        }
        any
    }

    fn distinct(&self) -> u64 {
        self.handled.len() as u64
    }

    fn report(&self, count: u64, published_again: &BTreeSet<u64>, left: &str) -> Outcome {
        let lost = (0..count).filter(|n| !self.handled.contains_key(n)).count();
        let (mut again, mut around, mut unexplained) = (0, 0, 0);
        for (number, times) in self.handled.iter().filter(|(_, times)| times.len() > 1) {
            if published_again.contains(number) {
                again += 1;
            } else if self.lies_around_a_kill(times) {
                around += 1;
            } else {
                unexplained += 1;
            }
        }
        println!("{count} messages, {} kills: {lost} lost", self.kills.len());
        println!(
            "{} handled more than once: {again} published again after a lost answer, {around} around a \
             kill, {unexplained} unexplained",
            again + around + unexplained
        );
        println!("left in the server: {left}");
        if lost == 0 && unexplained == 0 {
            return Ok(());
        }
        Err("messages were lost, or handled twice without a reason".into())
    }

    /// Each handling but the last was shortly before a kill, or while the server was away, and the next
    /// one after that kill.
    fn lies_around_a_kill(&self, times: &[Instant]) -> bool {
        times.windows(2).all(|pair| {
            self.kills.iter().any(|kill| {
                pair[0] + IN_THE_AIR > *kill && pair[0] < *kill + AWAY && pair[1] > *kill
            })
        })
    }
}

/// A `redis-server` of our own.
struct Server {
    child: Child,
    address: SocketAddr,
    folder: PathBuf,
}

impl Server {
    fn start() -> Outcome<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let folder = std::env::temp_dir().join(format!("babelqueue-soak-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self {
            child: Self::spawn(address, &folder)?,
            address,
            folder,
        })
    }

    fn kill_and_restart(&mut self) -> Outcome {
        self.child.kill()?;
        self.child.wait()?;
        self.child = Self::spawn(self.address, &self.folder)?;
        Ok(())
    }

    fn spawn(address: SocketAddr, folder: &PathBuf) -> Outcome<Child> {
        let child = Command::new("redis-server")
            .args(["--bind", &address.ip().to_string()])
            .args(["--port", &address.port().to_string()])
            .args([
                "--save",
                "",
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--dir",
            ])
            .arg(folder)
            .stdout(Stdio::null())
            .spawn()?;
        Ok(child)
    }
}
