//! What handlers write down before they settle, in a file that several processes append to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Fault;

/// One handler that finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) worker: u32,
    pub(crate) key: String,
    pub(crate) sequence: u64,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) at: Duration,
}

/// The file's writing end.
#[derive(Debug)]
pub(crate) struct Writer(File);

impl Writer {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self(file))
    }

    /// In one write, so that lines of several processes do not mix, and of a length that no page
    /// ends within, so that a killed process leaves none by halves.
    pub(crate) fn write(&self, line: &Line) -> std::io::Result<()> {
        let Line {
            worker,
            key,
            sequence,
            partition,
            offset,
            at,
        } = line;
        let at = at.as_micros();
        let text = format!("{worker} {key} {sequence} {partition} {offset} {at}");
        (&self.0).write_all(format!("{text:<63}\n").as_bytes())
    }
}

/// Now, as lines have it.
pub(crate) fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// The log of one test, removed with it.
#[derive(Debug)]
pub(crate) struct Log(pub(crate) PathBuf);

impl Log {
    pub(crate) fn new(unique: &str) -> Self {
        Self(std::env::temp_dir().join(format!("bq-kafka-{unique}.log")))
    }

    /// All that was written so far.
    pub(crate) fn lines(&self) -> Result<Vec<Line>, Fault> {
        let text = match std::fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error.into()),
        };
        // The last line may be half read.
        let end = text.rfind('\n').unwrap_or_default();
        text[..end]
            .lines()
            .map(|line| parse(line).ok_or_else(|| format!("a damaged line: {line}").into()))
            .collect()
    }

    /// How many different records were handled.
    pub(crate) fn handled(&self) -> Result<usize, Fault> {
        Ok(distinct(&self.lines()?).len())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The records that were handled, as partition and offset.
pub(crate) fn distinct(lines: &[Line]) -> BTreeSet<(i32, i64)> {
    lines
        .iter()
        .map(|line| (line.partition, line.offset))
        .collect()
}

/// Whether the first completions of each key are in order.
pub(crate) fn first_completions_in_order(lines: &[Line]) -> Result<(), Fault> {
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for line in lines {
        if !seen.insert((line.key.as_str(), line.sequence)) {
            continue;
        }
        let before = last.insert(&line.key, line.sequence);
        if before.is_some_and(|before| before > line.sequence) {
            return Err(format!("{line:?} was first done after {before:?}").into());
        }
    }
    Ok(())
}

fn parse(line: &str) -> Option<Line> {
    let mut fields = line.split_whitespace();
    Some(Line {
        worker: fields.next()?.parse().ok()?,
        key: fields.next()?.to_owned(),
        sequence: fields.next()?.parse().ok()?,
        partition: fields.next()?.parse().ok()?,
        offset: fields.next()?.parse().ok()?,
        at: Duration::from_micros(fields.next()?.parse().ok()?),
    })
}
