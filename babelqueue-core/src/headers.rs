//! Headers that travel beside the envelope, never in it (contract §10).
//!
//! `traceparent`, `tracestate` and `bq-replay-bypass` ride here, and whatever a producer adds. A
//! binding's own contract properties (`bq-…`, `x-…`, `bq_…`) are not headers: they win every
//! collision and are not surfaced to a handler. Which names a binding keeps for itself is its
//! [`Reserved`].

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

impl<N: Into<String>, V: Into<String>> Extend<(N, V)> for Headers {
    /// Sets each entry in turn; a later value replaces an earlier one.
    fn extend<I: IntoIterator<Item = (N, V)>>(&mut self, entries: I) {
        for (name, value) in entries {
            self.insert(name, value);
        }
    }
}

/// The names that a binding keeps for itself: its contract properties, its control properties, and
/// what the broker adds on its own (contract §10.2).
///
/// `bq-replay-bypass` is a header on every binding, whatever is reserved.
///
/// ```
/// use babelqueue_core::Headers;
/// use babelqueue_core::headers::Reserved;
///
/// const RABBITMQ: Reserved = Reserved::new(&["x-attempts"], &["x-death"]);
///
/// let received = [("x-attempts", "2"), ("x-death-count", "1"), ("x-tenant", "acme")];
/// let headers = RABBITMQ.surfaced(received);
/// assert_eq!(headers.iter().collect::<Vec<_>>(), [("x-tenant", "acme")]);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Reserved {
    names: &'static [&'static str],
    prefixes: &'static [&'static str],
}

impl Reserved {
    /// Reserves `names`, and every name that begins with one of `prefixes`.
    pub const fn new(names: &'static [&'static str], prefixes: &'static [&'static str]) -> Self {
        Self { names, prefixes }
    }

    /// Whether `name` is the binding's, not the user's. Names are case-sensitive.
    pub fn contains(&self, name: &str) -> bool {
        name != crate::replay::HEADER
            && (self.names.contains(&name)
                || self.prefixes.iter().any(|prefix| name.starts_with(prefix)))
    }

    /// The headers that a message carries beside the binding's own properties, which win every
    /// collision: also where a property is left out because the envelope lacks its member, or a
    /// consumer would take the header for it.
    pub fn carried<'h>(&self, headers: &'h Headers) -> impl Iterator<Item = (&'h str, &'h str)> {
        headers.iter().filter(|(name, _)| !self.contains(name))
    }

    /// The headers that a handler sees and a retry carries forward, of all the properties of a
    /// received message.
    pub fn surfaced<N: AsRef<str> + Into<String>, V: Into<String>>(
        &self,
        properties: impl IntoIterator<Item = (N, V)>,
    ) -> Headers {
        properties
            .into_iter()
            .filter(|(name, _)| !self.contains(name.as_ref()))
            .collect()
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
        headers.extend(entries);
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

#[cfg(test)]
mod tests {
    use super::*;

    const BINDING: Reserved = Reserved::new(&["bq-job", "bq-attempts"], &["bq-", "x-death"]);

    #[test]
    fn blank_names_and_values_are_dropped() {
        let headers = Headers::from_iter([
            ("", "v"),
            (" \t", "v"),
            ("empty", ""),
            ("blank", "\x0B\x0C"),
            ("nbsp", "\u{A0}"),
        ]);
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("nbsp", "\u{A0}")]);
    }

    #[test]
    fn a_name_is_kept_once_with_its_last_value_in_its_first_place() {
        let mut headers = Headers::from_iter([("a", "1"), ("b", "2")]);
        headers.extend([("a", "3"), ("A", "4"), ("b", " ")]);
        assert_eq!(
            headers.iter().collect::<Vec<_>>(),
            [("a", "3"), ("b", "2"), ("A", "4")]
        );
        assert_eq!(headers.remove("a").as_deref(), Some("3"));
        assert_eq!(headers.get("a"), None);
    }

    #[test]
    fn contract_properties_win_on_the_way_out() {
        let headers = Headers::from_iter([
            ("bq-job", "urn:forged"),
            ("traceparent", "00-…"),
            ("bq-replay-bypass", "1"),
        ]);
        assert_eq!(
            BINDING.carried(&headers).collect::<Vec<_>>(),
            [("traceparent", "00-…"), ("bq-replay-bypass", "1")]
        );
    }

    #[test]
    fn a_handler_sees_neither_contract_nor_broker_properties() {
        let received = [
            ("bq-attempts", "2"),
            ("bq-delay", "5000"),
            ("x-death-count", "1"),
            ("x-tenant", "acme"),
            ("bq-replay-bypass", "1"),
            ("blank", " "),
        ];
        assert_eq!(
            BINDING.surfaced(received).iter().collect::<Vec<_>>(),
            [("x-tenant", "acme"), ("bq-replay-bypass", "1")]
        );
    }

    #[test]
    fn values_stay_out_of_debug_output() {
        let headers = Headers::from_iter([("authorization", "secret")]);
        assert_eq!(format!("{headers:?}"), r#"{"authorization"}"#);
    }
}
