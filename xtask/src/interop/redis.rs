//! Redis, in both layouts.

use std::ffi::OsString;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use babelqueue_conformance::{Json, json};

use super::ground::{DATA, ODD, TRACE, URN};
use super::install;
use super::matrix::{Cell, Matrix, expect, same};
use super::side::Side;
use crate::{Result, brokers, packages, python};

pub(super) fn run() -> Result {
    let package = packages::find("redis")?;
    let servers = brokers::up_for(&[package])?;
    let environment = servers.environment();
    let url = environment.iter().find(|(name, _)| *name == "BQ_REDIS_URL");
    let (_, url) = url.ok_or("no Redis was started")?;

    let ours = Side::new("rust", &[install::our_peer()?.into()]);
    let python = Side::new(
        "python",
        &[
            python::interpreter(&[package])?.into(),
            install::driver("redis/peer.py").into(),
        ],
    );
    install::laravel()?;
    let laravel = Side::new(
        "laravel",
        &[
            OsString::from("php"),
            install::driver("redis/laravel.php").into(),
        ],
    );

    let mut matrix = Matrix::default();
    for (layout, peer) in [
        ("sdk", &python),
        ("laravel", &python),
        ("laravel", &laravel),
    ] {
        let server = Server::new(url, layout);
        Pairing {
            ours: &ours,
            peer,
            server: &server,
        }
        .cells(&mut matrix);
    }
    matrix.close()
}

/// A Redis in a layout.
struct Server {
    url: String,
    port: String,
    layout: &'static str,
}

impl Server {
    fn new(url: &str, layout: &'static str) -> Self {
        Self {
            url: format!("{url}?layout={layout}&retry_after=90"),
            port: url.rsplit(':').next().unwrap_or_default().to_owned(),
            layout,
        }
    }

    fn is_laravel(&self) -> bool {
        self.layout == "laravel"
    }

    /// A name that no other cell uses.
    fn queue(&self) -> String {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        format!("interop-{}-{}", self.layout, now.as_nanos())
    }

    /// What lies ready or waits for its retry, as bytes: what a consumer will be handed.
    fn waiting(&self, queue: &str) -> Result<Vec<String>> {
        if !self.is_laravel() {
            return self.cli(&["LRANGE", queue, "0", "-1"]);
        }
        let ready = format!("queues:{queue}");
        let mut waiting = self.cli(&["LRANGE", &ready, "0", "-1"])?;
        waiting.extend(self.cli(&["ZRANGE", &format!("{ready}:delayed"), "0", "-1"])?);
        Ok(waiting)
    }

    /// How many are in flight.
    fn in_flight(&self, queue: &str) -> Result<String> {
        let count = if self.is_laravel() {
            self.cli(&["ZCARD", &format!("queues:{queue}:reserved")])?
        } else {
            self.cli(&["LLEN", &format!("{queue}:processing")])?
        };
        Ok(count.concat())
    }

    fn cli(&self, command: &[&str]) -> Result<Vec<String>> {
        let output = Command::new("redis-cli")
            .args(["-p", &self.port])
            .args(command)
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        Ok(text
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect())
    }
}

/// Us and a peer over a server.
struct Pairing<'a> {
    ours: &'a Side,
    peer: &'a Side,
    server: &'a Server,
}

impl Pairing<'_> {
    fn cells(&self, matrix: &mut Matrix) {
        let (ours, peer) = (self.ours, self.peer);
        for (from, to) in [(ours, peer), (peer, ours)] {
            let name = |what: &str| {
                format!(
                    "redis {:8} {:7} → {:7} {what}",
                    self.server.layout, from.name, to.name
                )
            };
            matrix.cell(&name("published, handled"), || self.published(from, to));
            matrix.cell(&name("a retry begun, finished"), || self.retried(from, to));
            matrix.cell(
                &name("unknown keys and big numbers through a retry"),
                || self.odd(from, to),
            );
            if self.server.is_laravel() {
                if self.peer.name == "laravel" {
                    matrix.cell(&name("delayed"), || self.delayed(from, to));
                }
            } else {
                matrix.cell(&name("headers, through a retry"), || self.headers(from, to));
            }
            if self.peer.name != "laravel" {
                matrix.cell(&name("dead-lettered, redriven"), || {
                    self.dead_lettered(from, to)
                });
                matrix.cell(&name("poison, dead-lettered with its bytes"), || {
                    self.poisoned(from, to)
                });
            }
        }
        if self.server.is_laravel() && self.peer.name == "python" {
            matrix.cell(
                "redis laravel  python            ?laravel=1 in the URL",
                || self.url_form(),
            );
        }
    }

    fn published(&self, from: &Side, to: &Side) -> Result<Cell> {
        let (url, queue) = (&*self.server.url, &*self.server.queue());
        let id = from.produce(
            url,
            queue,
            &["--urn", URN, "--data", DATA, "--trace", TRACE],
        )?;
        let line = to.consume(url, queue, &[])?;
        expect(
            &line,
            &[
                ("urn", URN.into()),
                ("id", (&*id).into()),
                ("trace_id", TRACE.into()),
                ("attempts", 0.into()),
                ("data", json::parse(DATA)?),
                ("lang", lang(from).into()),
                ("ok", true.into()),
            ],
        )?;
        self.all_settled(queue)
    }

    fn retried(&self, from: &Side, to: &Side) -> Result<Cell> {
        let (url, queue) = (&*self.server.url, &*self.server.queue());
        let id = to.produce(url, queue, &["--urn", URN, "--trace", TRACE])?;
        expect(
            &from.fail(url, queue, &[])?,
            &[("attempts", 0.into()), ("ok", false.into())],
        )?;
        let line = to.consume(url, queue, &[])?;
        expect(
            &line,
            &[
                ("id", (&*id).into()),
                ("trace_id", TRACE.into()),
                ("attempts", 1.into()),
                ("ok", true.into()),
            ],
        )?;
        self.all_settled(queue)
    }

    fn odd(&self, from: &Side, to: &Side) -> Result<Cell> {
        let (url, queue) = (&*self.server.url, &*self.server.queue());
        to.produce(url, queue, &["--body", ODD])?;
        from.fail(url, queue, &[])?;
        let waiting = self.server.waiting(queue)?;
        let [retry] = &waiting[..] else {
            return Err(format!("{} retries wait", waiting.len()).into());
        };
        let wanted = ODD.replace(r#""attempts":0"#, r#""attempts":1"#);
        let kept = if *retry == wanted {
            Ok(Cell::Met)
        } else if from.name == "rust" {
            Err(format!("our retry is {retry}").into())
        } else {
            Ok(Cell::Deviates(known_change(from, retry, &wanted)?))
        };
        let line = to.consume(url, queue, &[])?;
        expect(
            &line,
            &[
                ("attempts", 1.into()),
                ("lang", "cobol".into()),
                ("ok", true.into()),
            ],
        )?;
        self.all_settled(queue).and(kept)
    }

    fn headers(&self, from: &Side, to: &Side) -> Result<Cell> {
        let (url, queue) = (&*self.server.url, &*self.server.queue());
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let header = format!("traceparent={parent}");
        to.produce(
            url,
            queue,
            &["--header", &header, "--header", "note=é \"q\""],
        )?;
        let expected = Json::Object(vec![
            ("traceparent".to_owned(), parent.into()),
            ("note".to_owned(), "é \"q\"".into()),
        ]);
        expect(
            &from.fail(url, queue, &[])?,
            &[("headers", expected.clone())],
        )?;
        let line = to.consume(url, queue, &[])?;
        expect(&line, &[("headers", expected), ("attempts", 1.into())])?;
        self.all_settled(queue)
    }

    fn delayed(&self, from: &Side, to: &Side) -> Result<Cell> {
        let (url, queue) = (&*self.server.url, &*self.server.queue());
        let id = from.produce(url, queue, &["--urn", URN, "--delay", "2"])?;
        let early = to.run("consume", url, queue, &["--count", "1", "--timeout", "0.5"])?;
        if early.reached {
            return Err("it came at once".into());
        }
        expect(
            &to.consume(url, queue, &[])?,
            &[("id", (&*id).into()), ("attempts", 0.into())],
        )?;
        self.all_settled(queue)
    }

    fn dead_lettered(&self, from: &Side, to: &Side) -> Result<Cell> {
        let (url, queue) = (&*self.server.url, &*self.server.queue());
        let dead = format!("{queue}.dlq");
        let id = to.produce(
            url,
            queue,
            &["--urn", URN, "--data", DATA, "--trace", TRACE],
        )?;
        from.fail(url, queue, &["--max-attempts", "1", "--dlq"])?;
        let records = self.server.waiting(&dead)?;
        let [record] = &records[..] else {
            return Err(format!("{} dead letters", records.len()).into());
        };
        let record = json::parse(record)?;
        let block = record.get("dead_letter").cloned().unwrap_or(Json::Null);
        expect(
            &block,
            &[
                ("reason", "failed".into()),
                ("original_queue", queue.into()),
                ("attempts", 1.into()),
            ],
        )?;

        let printed = to.run("redrive", url, &dead, &["--count", "1"])?;
        let redriven = printed.lines.first().cloned().unwrap_or(Json::Null);
        expect(
            &redriven,
            &[
                ("redriven", (&*id).into()),
                ("to", queue.into()),
                ("ok", true.into()),
            ],
        )?;
        let line = from.consume(url, queue, &[])?;
        expect(
            &line,
            &[
                ("id", (&*id).into()),
                ("trace_id", TRACE.into()),
                ("attempts", 0.into()),
                ("data", json::parse(DATA)?),
                ("ok", true.into()),
            ],
        )?;
        self.all_settled(&dead)?;
        self.all_settled(queue)
    }

    fn poisoned(&self, from: &Side, to: &Side) -> Result<Cell> {
        // Made by `to`, dead-lettered by `from`; an ordinary message behind it has to come through.
        let (url, queue) = (&*self.server.url, &*self.server.queue());
        let poison = r#"{"job":"urn:a","data":[1e400],"attempts":0}"#;
        let key = if self.server.is_laravel() {
            format!("queues:{queue}")
        } else {
            queue.to_owned()
        };
        self.server.cli(&["RPUSH", &key, poison])?;
        let id = to.produce(url, queue, &["--urn", URN])?;
        expect(&from.consume(url, queue, &[])?, &[("id", (&*id).into())])?;
        let records = self.server.waiting(&format!("{queue}.dlq"))?;
        let [record] = &records[..] else {
            return Err(format!("{} dead letters", records.len()).into());
        };
        // A splice keeps every byte; a wrapper quotes them.
        let spliced = record.starts_with(poison.trim_end_matches('}'));
        let wrapped = json::parse(record)?.get("raw").and_then(Json::as_str) == Some(poison);
        if spliced || wrapped {
            return self.all_settled(queue);
        }
        Err(format!("the record is {record}").into())
    }

    /// The peers' spelling of the layout is read by us, and refused by the Python SDK's own client.
    fn url_form(&self) -> Result<Cell> {
        let queue = &*self.server.queue();
        let base = self.server.url.split('?').next().unwrap_or_default();
        self.ours
            .produce(&format!("{base}?laravel=1"), queue, &[])?;
        let there = self.server.cli(&["LLEN", &format!("queues:{queue}")])?;
        same("the length", &Json::from(&*there.concat()), &"1".into())?;
        Ok(Cell::Deviates(
            "python: the SDK hands ?laravel=1 on to its client, which refuses it; driven by option"
                .to_owned(),
        ))
    }

    /// Nothing is in flight, and nothing waits.
    fn all_settled(&self, queue: &str) -> Result<Cell> {
        let (in_flight, waiting) = (self.server.in_flight(queue)?, self.server.waiting(queue)?);
        if in_flight == "0" && waiting.is_empty() {
            return Ok(Cell::Met);
        }
        Err(format!("{in_flight} in flight, {} waiting", waiting.len()).into())
    }
}

fn lang(side: &Side) -> &'static str {
    match side.name {
        "laravel" => "php",
        name => name,
    }
}

/// How a peer's rewrite of an envelope differs from the envelope; an error where it is not one of the
/// changes that are known of it.
fn known_change(peer: &Side, retry: &str, wanted: &str) -> Result<String> {
    let (found, expected) = (json::parse(retry)?, json::parse(wanted)?);
    match peer.name {
        // As a double it is the same number, and that is how the SDK writes it.
        "python" => {
            let spelled =
                |json: &Json| json.with("data", |data| data.with("spelled", |_| Json::Null));
            same("the retry", &spelled(&found), &spelled(&expected))?;
            Ok("python: 1e2 comes back as 100.0, the rest as it was".to_owned())
        }
        "laravel" => {
            for name in ["job", "trace_id", "attempts", "x_flag"] {
                same(
                    name,
                    found.get(name).unwrap_or(&Json::Null),
                    expected.get(name).unwrap_or(&Json::Null),
                )?;
            }
            let data = found.get("data").cloned().unwrap_or(Json::Null);
            let empty = Json::Object(Vec::new());
            same("data.list", data.get("list").unwrap_or(&Json::Null), &empty)?;
            Ok(
                "laravel: its release writes what cjson made: [] is {}, big numbers are rounded"
                    .to_owned(),
            )
        }
        other => Err(format!("{other} changed it to {retry}").into()),
    }
}
