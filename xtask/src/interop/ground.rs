//! The cells that are the same over every broker, and where they are played.

use std::time::{SystemTime, UNIX_EPOCH};

use babelqueue_conformance::{Json, json};

use super::matrix::{Cell, Matrix, expect, same};
use super::side::Side;
use crate::Result;

/// What the messages are.
pub(super) const URN: &str = "urn:babel:orders:created";

pub(super) const TRACE: &str = "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b";

/// What every JSON library has to carry: text, an empty object, an empty list, a number beyond a
/// double's.
pub(super) const DATA: &str = r#"{"order_id":1042,"text":"é ☃ \"q\" a/b","half":0.5,"big":9007199254740993,"empty":{},"list":[]}"#;

/// An envelope with members that no SDK knows, and spellings that no parser keeps.
pub(super) const ODD: &str = r#"{"job":"urn:babel:orders:created","trace_id":"7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b","data":{"order_id":1042,"huge":123456789012345678901234567890,"spelled":1e2,"empty":{},"list":[]},"meta":{"id":"f1e2d3c4-b5a6-4789-90ab-cdef01234567","queue":"orders","lang":"cobol","schema_version":1,"created_at":1749132727000,"ext":{"acme":{"tier":"gold"}}},"attempts":0,"x_flag":true,"x_nested":{"k":[1,2.5,null]}}"#;

/// A name that no other cell uses.
pub(super) fn unique() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("interop-{}", now.as_nanos())
}

/// A broker in one of its shapes, as both sides see it.
pub(super) trait Ground {
    /// As the matrix names it.
    fn title(&self) -> &str;

    fn url(&self) -> &str;

    /// A queue that no other cell uses, with its dead-letter queue.
    fn queue(&self) -> Result<Queue>;

    /// What lies in a queue: a line each, with the `body` and the `headers`.
    fn lying(&self, queue: &str) -> Result<Vec<Json>>;

    /// How many attempts the body of a first retry tells of: 0 where the broker counts and the body
    /// stays as it was.
    fn attempts_in_a_retry(&self) -> u64;

    /// Whether what `from` loses of the headers in a retry is known of it.
    fn loses_headers(&self, from: &Side) -> Option<&'static str>;

    /// How the side that begins a retry has it wait until it has stopped itself.
    fn backoff(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether it is known of `by` that its worker ends at poison.
    fn ends_at_poison(&self, by: &Side) -> Option<&'static str> {
        let _ = by;
        None
    }

    /// Whether it is known of `by` that what it redrives is lost.
    fn loses_redriven(&self, by: &Side) -> Option<&'static str> {
        let _ = by;
        None
    }
}

/// The names of a queue and its dead-letter queue.
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) dead_letters: String,
}

/// Us and a peer over one ground.
pub(super) struct Pairing<'a> {
    pub(super) ours: &'a Side,
    pub(super) peer: &'a Side,
    pub(super) ground: &'a dyn Ground,
}

/// Plays a cell from one side to the other.
type Play<'a> = fn(&Pairing<'a>, &Side, &Side) -> Result<Cell>;

impl<'a> Pairing<'a> {
    /// Plays all cells, both ways.
    pub(super) fn cells(&self, matrix: &mut Matrix) {
        let cells: [(&str, Play<'a>); 6] = [
            ("published, handled", Self::published),
            ("a retry begun, finished", Self::retried),
            ("unknown keys and big numbers through a retry", Self::odd),
            ("headers, through a retry", Self::headers),
            ("dead-lettered, redriven", Self::dead_lettered),
            ("poison, dead-lettered with its bytes", Self::poisoned),
        ];
        for (from, to) in [(self.ours, self.peer), (self.peer, self.ours)] {
            for (what, play) in cells {
                let ground = self.ground.title();
                let name = format!("{ground:21} {:7} → {:7} {what}", from.name, to.name);
                matrix.cell(&name, || play(self, from, to));
            }
        }
    }

    fn published(&self, from: &Side, to: &Side) -> Result<Cell> {
        let (url, queue) = (self.ground.url(), self.ground.queue()?);
        let given = ["--urn", URN, "--data", DATA, "--trace", TRACE];
        let id = from.produce(url, &queue.name, &given)?;
        expect(
            &to.consume(url, &queue.name, &[])?,
            &[
                ("urn", URN.into()),
                ("id", (&*id).into()),
                ("trace_id", TRACE.into()),
                ("attempts", 0.into()),
                ("data", json::parse(DATA)?),
                ("lang", from.name.into()),
                ("ok", true.into()),
            ],
        )?;
        self.all_settled(&queue)
    }

    fn retried(&self, from: &Side, to: &Side) -> Result<Cell> {
        let (url, queue) = (self.ground.url(), self.ground.queue()?);
        let id = to.produce(url, &queue.name, &["--urn", URN, "--trace", TRACE])?;
        expect(
            &from.fail(url, &queue.name, self.ground.backoff())?,
            &[("attempts", 0.into()), ("ok", false.into())],
        )?;
        expect(
            &to.consume(url, &queue.name, &[])?,
            &[
                ("id", (&*id).into()),
                ("trace_id", TRACE.into()),
                ("attempts", 1.into()),
                ("ok", true.into()),
            ],
        )?;
        self.all_settled(&queue)
    }

    fn odd(&self, from: &Side, to: &Side) -> Result<Cell> {
        let (url, queue) = (self.ground.url(), self.ground.queue()?);
        to.produce(url, &queue.name, &["--body", ODD])?;
        from.fail(url, &queue.name, self.ground.backoff())?;
        let lying = self.ground.lying(&queue.name)?;
        let [retry] = &lying[..] else {
            return Err(format!("{} retries lie there", lying.len()).into());
        };
        let retry = text(retry, "body")?;
        let attempts = self.ground.attempts_in_a_retry();
        let wanted = ODD.replace(r#""attempts":0"#, &format!(r#""attempts":{attempts}"#));
        let kept = if retry == wanted {
            Cell::Met
        } else if from.name == self.ours.name {
            return Err(format!("our retry is {retry}").into());
        } else {
            // As a double it is the same number, and that is how the SDK writes it.
            let spelled =
                |json: &Json| json.with("data", |data| data.with("spelled", |_| Json::Null));
            let (found, expected) = (json::parse(&retry)?, json::parse(&wanted)?);
            same("the retry", &spelled(&found), &spelled(&expected))?;
            Cell::Deviates(format!(
                "{}: 1e2 comes back as 100.0, the rest as it was",
                from.name
            ))
        };
        let line = to.consume(url, &queue.name, &[])?;
        expect(&line, &[("lang", "cobol".into()), ("ok", true.into())])?;
        self.all_settled(&queue)?;
        Ok(kept)
    }

    fn headers(&self, from: &Side, to: &Side) -> Result<Cell> {
        let (url, queue) = (self.ground.url(), self.ground.queue()?);
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let header = format!("traceparent={parent}");
        let given = ["--header", &header, "--header", "note=é \"q\""];
        to.produce(url, &queue.name, &given)?;
        let expected = Json::Object(vec![
            ("traceparent".to_owned(), parent.into()),
            ("note".to_owned(), "é \"q\"".into()),
        ]);
        expect(
            &from.fail(url, &queue.name, self.ground.backoff())?,
            &[("headers", expected.clone())],
        )?;
        let line = to.consume(url, &queue.name, &[])?;
        expect(&line, &[("attempts", 1.into())])?;
        self.all_settled(&queue)?;
        match self.ground.loses_headers(from) {
            None => {
                expect(&line, &[("headers", expected)])?;
                Ok(Cell::Met)
            }
            Some(how) => {
                expect(&line, &[("headers", Json::Object(Vec::new()))])?;
                Ok(Cell::Deviates(how.to_owned()))
            }
        }
    }

    fn dead_lettered(&self, from: &Side, to: &Side) -> Result<Cell> {
        let (url, queue) = (self.ground.url(), self.ground.queue()?);
        let given = ["--urn", URN, "--data", DATA, "--trace", TRACE];
        let id = to.produce(url, &queue.name, &given)?;
        from.fail(url, &queue.name, &["--max-attempts", "1", "--dlq"])?;
        let records = self.ground.lying(&queue.dead_letters)?;
        let [record] = &records[..] else {
            return Err(format!("{} dead letters", records.len()).into());
        };
        let record = json::parse(&text(record, "body")?)?;
        let block = record.get("dead_letter").cloned().unwrap_or(Json::Null);
        expect(
            &block,
            &[
                ("reason", "failed".into()),
                ("original_queue", (&*queue.name).into()),
                ("attempts", 1.into()),
            ],
        )?;

        let printed = to.run("redrive", url, &queue.dead_letters, &["--count", "1"])?;
        expect(
            &printed.lines.first().cloned().unwrap_or(Json::Null),
            &[
                ("redriven", (&*id).into()),
                ("to", (&*queue.name).into()),
                ("ok", true.into()),
            ],
        )?;
        if let Some(how) = self.ground.loses_redriven(to) {
            self.all_settled(&queue)?;
            return Ok(Cell::Deviates(how.to_owned()));
        }
        expect(
            &from.consume(url, &queue.name, &[])?,
            &[
                ("id", (&*id).into()),
                ("trace_id", TRACE.into()),
                ("attempts", 0.into()),
                ("data", json::parse(DATA)?),
                ("ok", true.into()),
            ],
        )?;
        self.all_settled(&queue)
    }

    fn poisoned(&self, from: &Side, to: &Side) -> Result<Cell> {
        // Dead-lettered by `from`; an ordinary message of `to` behind it has to come through.
        let (url, queue) = (self.ground.url(), self.ground.queue()?);
        let poison = r#"{"job":"urn:a","data":[1e400],"attempts":0}"#;
        self.ours
            .run("produce", url, &queue.name, &["--body", poison])?;
        let id = to.produce(url, &queue.name, &["--urn", URN])?;
        let consumed = from.consume(url, &queue.name, &["--dlq"]);
        if let Some(known) = self.ground.ends_at_poison(from) {
            let left = self.ground.lying(&queue.name)?.len();
            return match (consumed, left) {
                (Err(_), 2) => Ok(Cell::Deviates(known.into())),
                (Ok(line), _) => Err(format!("{known}: not so, it got {line}").into()),
                (Err(_), left) => Err(format!("{left} of 2 are left in the queue").into()),
            };
        }
        expect(&consumed?, &[("id", (&*id).into())])?;
        let records = self.ground.lying(&queue.dead_letters)?;
        let [record] = &records[..] else {
            return Err(format!("{} dead letters", records.len()).into());
        };
        let record = text(record, "body")?;
        // A splice keeps every byte; a wrapper quotes them.
        let spliced = record.starts_with(poison.trim_end_matches('}'));
        let wrapped = json::parse(&record)?.get("raw").and_then(Json::as_str) == Some(poison);
        if !spliced && !wrapped {
            return Err(format!("the record is {record}").into());
        }
        let left = self.ground.lying(&queue.name)?.len();
        if left == 0 {
            return Ok(Cell::Met);
        }
        Err(format!("{left} left in the queue").into())
    }

    /// Nothing lies in either queue.
    fn all_settled(&self, queue: &Queue) -> Result<Cell> {
        for name in [&queue.name, &queue.dead_letters] {
            let left = self.ground.lying(name)?;
            if !left.is_empty() {
                return Err(format!("{} left in {name}", left.len()).into());
            }
        }
        Ok(Cell::Met)
    }
}

fn text(line: &Json, name: &str) -> Result<String> {
    let text = line.get(name).and_then(Json::as_str);
    Ok(text
        .ok_or_else(|| format!("no {name} in {line}"))?
        .to_owned())
}
