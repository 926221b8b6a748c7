//! Headers that travel beside the envelope, never in it (contract §10).
//!
//! `traceparent`, `tracestate` and `bq-replay-bypass` ride here, and whatever a producer adds. A
//! binding's own contract properties (`bq-…`, `x-…`, `bq_…`) are not headers: they win every
//! collision and are not surfaced to a handler.

use std::fmt;

/// A small ordered map of text to text. Names are unique; blank names and values are not kept
/// (contract §10.2). An empty map takes no allocation.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers {
    entries: Vec<(String, String)>,
}

impl Headers {
    /// An empty map.
    pub const fn new() -> Self {
        Self {
            entries: Vec::new(),
        }
    }

    /// Sets `name` to `value`, in place where the name is there already. A blank name or value is
    /// dropped, as the contract asks (§10.2); blank means empty or only ASCII whitespace.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        if is_blank(&name) || is_blank(&value) {
            return;
        }
        match self.entries.iter_mut().find(|(known, _)| *known == name) {
            Some(entry) => entry.1 = value,
            None => self.entries.push((name, value)),
        }
    }

    /// The value of `name`; names are case-sensitive.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.entries
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Removes `name`, and gives back what it held.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        let at = self.entries.iter().position(|(known, _)| known == name)?;
        Some(self.entries.remove(at).1)
    }

    /// The entries in the order in which they were first set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Names only: a value may be a secret of the user's.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.entries.iter().map(|(name, _)| name))
            .finish()
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(entries: I) -> Self {
        let mut headers = Self::new();
        for (name, value) in entries {
            headers.insert(name, value);
        }
        headers
    }
}

/// Empty, or nothing but the contract's ASCII blanks: space, `\t`, `\n`, `\v`, `\f`, `\r`.
pub(crate) fn is_blank(text: &str) -> bool {
    trim_blanks(text).is_empty()
}

/// `text` without the contract's ASCII blanks at both ends; Unicode spaces are content
/// (contract §5.2). `str::trim` would take those too, and `is_ascii_whitespace` lacks `\v`.
pub(crate) fn trim_blanks(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\x0B', '\x0C', '\r'])
}
