//! What lies in Redis: set before a case, and held against what it expects. Over a connection of the
//! bare client's, so that the crate does not judge itself.

use std::fmt::{self, Debug};

use babelqueue_conformance::{Json, Met, Unmet, Unreadable, holds, json, same, unknown};
use babelqueue_redis::{Keys, Queue};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;

use crate::common;

/// The keys of one queue and of its dead-letter queue.
pub(crate) struct Keyspace {
    connection: MultiplexedConnection,
    keys: Keys,
}

impl Keyspace {
    pub(crate) async fn of(queue: &Queue) -> Result<Self, Unmet> {
        let client = redis::Client::open(common::url())?;
        Ok(Self {
            connection: client.get_multiplexed_async_connection().await?,
            keys: queue.keys().clone(),
        })
    }

    /// Writes the state that a case begins with.
    pub(crate) async fn set(&mut self, state: &Json) -> Met {
        for (name, value) in state.as_object().unwrap_or_default() {
            match &**name {
                "ready" | "processing" => {
                    let key = self.key(name)?;
                    for member in value.as_array().unwrap_or_default() {
                        let _: i64 = self.connection.rpush(&key, text(member)?).await?;
                    }
                }
                "notify" => {
                    let key = self.key(name)?;
                    for _ in 0..count(value)? {
                        let _: i64 = self.connection.rpush(&key, 1).await?;
                    }
                }
                "delayed" | "reserved" | "deadlines" => {
                    for entry in value.as_array().unwrap_or_default() {
                        let (member, score) = (member(entry)?, score(entry)?);
                        self.add(name, &member, score).await?;
                    }
                }
                "delayed_generate" => {
                    for member in generated(value)? {
                        self.add("delayed", &member, score(value)?).await?;
                    }
                }
                word => return Err(unknown("state", word).into()),
            }
        }
        Ok(())
    }

    /// Holds every key that a step speaks of against it.
    pub(crate) async fn check(&mut self, expected: &Json) -> Met {
        for (name, value) in expected.as_object().unwrap_or_default() {
            match &**name {
                "ready" | "processing" => {
                    let members = value.as_array().unwrap_or_default();
                    let members = members.iter().map(text).collect::<Result<Vec<_>, _>>()?;
                    self.check_list(name, &members).await?;
                }
                "ready_generate" => self.check_list("ready", &generated(value)?).await?,
                "delayed" | "reserved" | "deadlines" => {
                    let entries = value.as_array().unwrap_or_default();
                    self.check_set(name, entries).await?;
                }
                "notify" | "ready_count" | "dlq_count" => {
                    let key = self.key(name)?;
                    let length: u64 = self.connection.llen(key).await?;
                    same(name, &length, &count(value)?)?;
                }
                "tokens_distinct" => self.check_tokens(value.as_bool()).await?,
                "outcome" | "handler_body" | "reported_attempts" => {}
                word => return Err(unknown("expectation", word).into()),
            }
        }
        Ok(())
    }

    /// Deletes them all.
    pub(crate) async fn clean(&mut self) -> Met {
        let mut keys: Vec<String> = self.keys.iter().map(str::to_owned).collect();
        keys.push(format!("{}.dlq", self.keys.ready()));
        let _: u64 = self.connection.del(keys).await?;
        Ok(())
    }

    async fn check_list(&mut self, name: &str, expected: &[Vec<u8>]) -> Met {
        let key = self.key(name)?;
        let found: Vec<Vec<u8>> = self.connection.lrange(key, 0, -1).await?;
        same(name, &Members(&found), &Members(expected))
    }

    /// As multisets: each entry is found once, and nothing is left over.
    async fn check_set(&mut self, name: &str, expected: &[Json]) -> Met {
        let mut left = self.entries(name).await?;
        for entry in expected {
            let wanted = score(entry)?;
            let place = left.iter().position(|(member, score)| {
                // Infinity equals infinity; the others are whole numbers.
                score.total_cmp(&wanted).is_eq() && matches_member(entry, member)
            });
            let Some(place) = place else {
                let found: Vec<_> = left
                    .iter()
                    .map(|(m, s)| (m.escape_ascii().to_string(), s))
                    .collect();
                return Err(Unmet::failed(format_args!(
                    "{name}: {entry} is not in {found:?}"
                )));
            };
            left.remove(place);
        }
        holds(
            left.is_empty(),
            format_args!("{name}: {} too many", left.len()),
        )
    }

    async fn check_tokens(&mut self, expected: Option<bool>) -> Met {
        let entries = self.entries("deadlines").await?;
        let mut tokens: Vec<_> = entries.iter().map(|(member, _)| member.get(..32)).collect();
        tokens.sort_unstable();
        tokens.dedup();
        let distinct = tokens.len() == entries.len();
        same("tokens_distinct", &Some(distinct), &expected)
    }

    async fn entries(&mut self, name: &str) -> Result<Vec<(Vec<u8>, f64)>, Unmet> {
        let key = self.key(name)?;
        Ok(self.connection.zrange_withscores(key, 0, -1).await?)
    }

    async fn add(&mut self, name: &str, member: &[u8], score: f64) -> Met {
        let key = self.key(name)?;
        let _: i64 = self.connection.zadd(key, member, score).await?;
        Ok(())
    }

    fn key(&self, name: &str) -> Result<String, Unreadable> {
        let key = match (&self.keys, name) {
            (Keys::Sdk { ready, .. } | Keys::Laravel { ready, .. }, "ready" | "ready_count") => {
                ready
            }
            (Keys::Sdk { processing, .. }, "processing") => processing,
            (Keys::Sdk { deadlines, .. }, "deadlines") => deadlines,
            (Keys::Sdk { ready, .. }, "dlq_count") => return Ok(format!("{ready}.dlq")),
            (Keys::Laravel { delayed, .. }, "delayed") => delayed,
            (Keys::Laravel { reserved, .. }, "reserved") => reserved,
            (Keys::Laravel { notify, .. }, "notify") => notify,
            _ => return Err(unknown("key in this layout", name)),
        };
        Ok(key.clone())
    }
}

/// Whether `found` is the member that an entry speaks of: byte for byte, as JSON, or behind a token.
fn matches_member(entry: &Json, found: &[u8]) -> bool {
    for name in ["member_json", "body_json"] {
        if let Some(expected) = entry.get(name) {
            let parsed = std::str::from_utf8(found)
                .ok()
                .and_then(|text| json::parse(text).ok());
            return parsed.is_some_and(|parsed| parsed == *expected);
        }
    }
    if entry.get("token").and_then(Json::as_str) == Some("<any>") {
        let raw = entry.get("raw").and_then(Json::as_str).map(str::as_bytes);
        let (token, rest) = found.split_at_checked(32).unwrap_or_default();
        return token.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            && rest.strip_prefix(b":") == raw;
    }
    member(entry).is_ok_and(|member| member == found)
}

fn member(entry: &Json) -> Result<Vec<u8>, Unreadable> {
    if let Some(member) = entry.get("member") {
        return text(member);
    }
    let part = |name| entry.get(name).and_then(Json::as_str);
    match (part("token"), part("raw")) {
        (Some(token), Some(raw)) => Ok(format!("{token}:{raw}").into_bytes()),
        _ => Err(unknown("entry", entry)),
    }
}

fn score(entry: &Json) -> Result<f64, Unreadable> {
    match entry.get("score") {
        Some(Json::String(text)) if text == "+inf" => Ok(f64::INFINITY),
        score => score
            .and_then(Json::as_f64)
            .ok_or_else(|| unknown("score", entry)),
    }
}

fn generated(spec: &Json) -> Result<Vec<Vec<u8>>, Unreadable> {
    let count = count(spec.get("count").unwrap_or(&Json::Null))?;
    let pattern = spec
        .get("member")
        .and_then(Json::as_str)
        .unwrap_or_default();
    let (before, after) = pattern
        .split_once("%03d")
        .ok_or_else(|| unknown("pattern", pattern))?;
    Ok((0..count)
        .map(|n| format!("{before}{n:03}{after}").into_bytes())
        .collect())
}

fn text(value: &Json) -> Result<Vec<u8>, Unreadable> {
    let text = value.as_str().ok_or_else(|| unknown("member", value))?;
    Ok(text.as_bytes().to_vec())
}

fn count(value: &Json) -> Result<u64, Unreadable> {
    value
        .as_i64()
        .and_then(|count| u64::try_from(count).ok())
        .ok_or_else(|| unknown("count", value))
}

/// Shown as text.
#[derive(PartialEq)]
struct Members<'a>(&'a [Vec<u8>]);

impl Debug for Members<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self
            .0
            .iter()
            .map(|member| member.escape_ascii().to_string());
        f.debug_list().entries(shown).finish()
    }
}
