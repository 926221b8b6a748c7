//! One pass over a body: its grammar, the types of the members that the contract knows, and where
//! each of them lies.

use std::ops::Range;

use crate::json::{self, Expected, Fault, FaultKind, Key, Kind, NAME_MAX, Scanner, Span};

/// Where the known members of a body lie. Of a repeated member the last one counts, and objects are
/// never merged (contract §2.2). An absent member and an absent body object are empty spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Members {
    /// The body's object; absent where the body is `null`.
    pub(crate) root: Span,
    pub(crate) job: Span,
    pub(crate) urn: Span,
    pub(crate) trace_id: Span,
    pub(crate) data: Span,
    pub(crate) meta: Span,
    pub(crate) attempts: Span,
    pub(crate) dead_letter: Span,
    pub(crate) id: Span,
    pub(crate) queue: Span,
    pub(crate) lang: Span,
    pub(crate) schema_version: Span,
    pub(crate) created_at: Span,
    pub(crate) forbidden: Forbidden,
}

impl Members {
    /// Scans a body and holds it against the trigger set of contract §2A, identity apart.
    pub(crate) fn checked(body: &[u8]) -> Result<Self, Fault> {
        scan::<true>(body)
    }

    /// Scans a body for its grammar alone: known members may have any type.
    pub(crate) fn lenient(body: &[u8]) -> Result<Self, Fault> {
        scan::<false>(body)
    }

    /// The value that names the message: `job`, else `urn`, whichever is a string that is not blank
    /// (contract §2.6).
    pub(crate) fn identity(&self, body: &[u8]) -> Option<Span> {
        [self.job, self.urn]
            .into_iter()
            .find(|span| is_identity(span.of(body)))
    }

    /// Whether the body holds what no envelope may hold, so that its canonical form differs.
    pub(crate) const fn needs_rewrite(&self) -> bool {
        !self.urn.is_absent() || !self.forbidden.is_empty()
    }

    /// Follows a change of the body in which `replaced` gave way to `len` bytes. What begins after it
    /// moves, what spans it grows; an insertion belongs to neither of the values that it touches.
    pub(crate) fn shift(&mut self, replaced: &Range<usize>, len: usize) {
        let moved = |offset: usize| offset - replaced.len() + len;
        for span in self.spans_mut() {
            let Range { mut start, mut end } = span.range();
            if start >= replaced.end {
                start = moved(start);
            }
            if end > replaced.start {
                end = moved(end);
            }
            if !span.is_absent() {
                *span = Span::new(start, end);
            }
        }
    }

    fn spans_mut(&mut self) -> [&mut Span; 13] {
        [
            &mut self.root,
            &mut self.job,
            &mut self.urn,
            &mut self.trace_id,
            &mut self.data,
            &mut self.meta,
            &mut self.attempts,
            &mut self.dead_letter,
            &mut self.id,
            &mut self.queue,
            &mut self.lang,
            &mut self.schema_version,
            &mut self.created_at,
        ]
    }

    fn forget_meta(&mut self) {
        self.id = Span::default();
        self.queue = Span::default();
        self.lang = Span::default();
        self.schema_version = Span::default();
        self.created_at = Span::default();
        self.forbidden.forget_meta();
    }
}

/// Whether a value's text is a string that is not blank.
pub(crate) fn is_identity(value: &[u8]) -> bool {
    content(value).is_some_and(|content| !json::is_blank(content))
}

/// What stands between the quotes, where the value is a string.
pub(crate) fn content(value: &[u8]) -> Option<&[u8]> {
    match value {
        [b'"', content @ .., b'"'] => Some(content),
        _ => None,
    }
}

/// Which forbidden keys a body carries (contract §2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Forbidden(u8);

impl Forbidden {
    /// Every forbidden key: its place and its pointer. The first one is at the top, the rest in
    /// `meta`.
    const KEYS: [(&'static str, &'static str); 5] = [
        ("timestamp", "/timestamp"),
        ("max_retries", "/meta/max_retries"),
        ("attempts", "/meta/attempts"),
        ("source", "/meta/source"),
        ("ts", "/meta/ts"),
    ];

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The pointers of those that are there.
    pub(crate) fn pointers(self) -> impl Iterator<Item = &'static str> {
        Self::KEYS
            .iter()
            .enumerate()
            .filter(move |(bit, _)| self.0 & 1 << bit != 0)
            .map(|(_, (_, pointer))| *pointer)
    }

    pub(crate) fn is_at_top(name: &str) -> bool {
        name == Self::KEYS[0].0
    }

    pub(crate) fn in_meta(name: &str) -> Option<&'static str> {
        Self::KEYS[1..]
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, pointer)| *pointer)
    }

    fn note(&mut self, bit: u8) {
        self.0 |= 1 << bit;
    }

    fn forget_meta(&mut self) {
        self.0 &= 1;
    }
}

#[inline]
fn scan<const TYPED: bool>(body: &[u8]) -> Result<Members, Fault> {
    if u32::try_from(body.len()).is_err() {
        return Err(Fault::new(FaultKind::TooLarge, 0));
    }
    let text = std::str::from_utf8(body)
        .map_err(|error| Fault::new(FaultKind::Utf8, error.valid_up_to()))?;
    let mut members = Members::default();
    let mut scanner = Scanner::new(text);
    scanner.blanks();
    let start = scanner.at();
    match scanner.peek() {
        Some(b'{') => {
            scanner.object(|scanner, key| member::<TYPED>(scanner, key, &mut members))?;
            members.root = Span::new(start, scanner.at());
            scanner.end()?;
        }
        None => return Err(Fault::new(FaultKind::Empty, start)),
        Some(first) => {
            scanner.value::<false>()?;
            scanner.end()?;
            match Kind::starting(first) {
                // `null` is an envelope without identity (contract §2A, class 5).
                None | Some(Kind::Null) => {}
                Some(kind) => return Err(Fault::new(FaultKind::NotAnObject(kind), start)),
            }
        }
    }
    Ok(members)
}

#[inline]
fn member<const TYPED: bool>(
    scanner: &mut Scanner<'_>,
    key: Key<'_>,
    members: &mut Members,
) -> Result<(), Fault> {
    match key.name(&mut [0; NAME_MAX]) {
        b"job" => members.job = any(scanner)?,
        b"trace_id" => members.trace_id = string::<TYPED>(scanner)?,
        b"data" => members.data = data::<TYPED>(scanner)?,
        b"meta" => {
            members.forget_meta();
            members.meta = object::<TYPED>(scanner, |scanner, key| {
                meta_member::<TYPED>(scanner, key, members)
            })?;
        }
        b"attempts" => members.attempts = integer::<TYPED>(scanner)?,
        b"dead_letter" => {
            members.dead_letter = object::<TYPED>(scanner, dead_letter_member::<TYPED>)?;
        }
        b"urn" => members.urn = any(scanner)?,
        b"timestamp" => {
            members.forbidden.note(0);
            any(scanner)?;
        }
        _ => drop(any(scanner)?),
    }
    Ok(())
}

#[inline]
fn meta_member<const TYPED: bool>(
    scanner: &mut Scanner<'_>,
    key: Key<'_>,
    members: &mut Members,
) -> Result<(), Fault> {
    match key.name(&mut [0; NAME_MAX]) {
        b"id" => members.id = string::<TYPED>(scanner)?,
        b"queue" => members.queue = string::<TYPED>(scanner)?,
        b"lang" => members.lang = string::<TYPED>(scanner)?,
        b"schema_version" => members.schema_version = integer::<TYPED>(scanner)?,
        b"created_at" => members.created_at = integer::<TYPED>(scanner)?,
        name => {
            match name {
                b"max_retries" => members.forbidden.note(1),
                b"attempts" => members.forbidden.note(2),
                b"source" => members.forbidden.note(3),
                b"ts" => members.forbidden.note(4),
                _ => {}
            }
            any(scanner)?;
        }
    }
    Ok(())
}

fn dead_letter_member<const TYPED: bool>(
    scanner: &mut Scanner<'_>,
    key: Key<'_>,
) -> Result<(), Fault> {
    match key.name(&mut [0; NAME_MAX]) {
        b"reason" | b"error" | b"exception" | b"original_queue" | b"lang" => {
            string::<TYPED>(scanner)
        }
        b"failed_at" | b"attempts" => integer::<TYPED>(scanner),
        _ => any(scanner),
    }
    .map(drop)
}

#[inline]
fn any(scanner: &mut Scanner<'_>) -> Result<Span, Fault> {
    let start = scanner.at();
    scanner.value::<false>()?;
    Ok(Span::new(start, scanner.at()))
}

#[inline]
fn string<const TYPED: bool>(scanner: &mut Scanner<'_>) -> Result<Span, Fault> {
    let start = scanner.at();
    match scanner.peek() {
        Some(b'"') => drop(scanner.string()?),
        Some(b'n') => scanner.word("null")?,
        _ if TYPED => return Err(scanner.unexpected(Expected::StringOrNull)),
        _ => scanner.value::<false>()?,
    }
    Ok(Span::new(start, scanner.at()))
}

#[inline]
fn integer<const TYPED: bool>(scanner: &mut Scanner<'_>) -> Result<Span, Fault> {
    let start = scanner.at();
    match scanner.peek() {
        Some(b'-' | b'0'..=b'9') => {
            let literal = scanner.number()?;
            if TYPED && !(literal.is_integer() && literal.fits_int64(scanner.since(start))) {
                return Err(Fault::new(FaultKind::NotInt64, start));
            }
        }
        Some(b'n') => scanner.word("null")?,
        _ if TYPED => return Err(scanner.unexpected(Expected::IntegerOrNull)),
        _ => scanner.value::<false>()?,
    }
    Ok(Span::new(start, scanner.at()))
}

#[inline]
fn data<const TYPED: bool>(scanner: &mut Scanner<'_>) -> Result<Span, Fault> {
    let start = scanner.at();
    match scanner.peek() {
        Some(b'{') if TYPED => scanner.value::<true>()?,
        Some(b'n') => scanner.word("null")?,
        _ if TYPED => return Err(scanner.unexpected(Expected::ObjectOrNull)),
        _ => scanner.value::<false>()?,
    }
    Ok(Span::new(start, scanner.at()))
}

#[inline]
fn object<'a, const TYPED: bool>(
    scanner: &mut Scanner<'a>,
    member: impl FnMut(&mut Scanner<'a>, Key<'a>) -> Result<(), Fault>,
) -> Result<Span, Fault> {
    let start = scanner.at();
    match scanner.peek() {
        Some(b'{') => scanner.object(member)?,
        Some(b'n') => scanner.word("null")?,
        _ if TYPED => return Err(scanner.unexpected(Expected::ObjectOrNull)),
        _ => scanner.value::<false>()?,
    }
    Ok(Span::new(start, scanner.at()))
}
