use std::borrow::Cow;

use super::number::{self, Literal};
use super::{Expected, Fault, FaultKind, Kind, text};

/// The longest name that the contract knows fits: `schema_version`, `original_queue`.
pub(crate) const NAME_MAX: usize = 16;

/// A cursor over a body that is known to be UTF-8. Each method takes one piece of the grammar of
/// RFC 8259 or says what stands in its place.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

/// A member's name as it stands in the body, without its quotes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) raw: &'a [u8],
    pub(crate) escaped: bool,
    /// Offset of the opening quote.
    pub(crate) start: usize,
}

impl<'a> Key<'a> {
    /// The name that the text means, for a comparison with names that the contract knows: byte for
    /// byte, after unescaping, as every JSON parser compares them. A name that does not fit `buffer`
    /// is none of those; what is left of it then matches nothing either.
    #[inline]
    pub(crate) fn name<'n>(&self, buffer: &'n mut [u8; NAME_MAX]) -> &'n [u8]
    where
        'a: 'n,
    {
        if self.escaped {
            text::unescape_name(self.raw, buffer)
        } else {
            self.raw
        }
    }

    /// The name that the text means.
    pub(crate) fn text(&self) -> Cow<'a, str> {
        text::unescape(self.raw)
    }
}

impl<'a> Scanner<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self::starting_at(text, 0)
    }

    pub(crate) const fn starting_at(text: &'a str, at: usize) -> Self {
        Self {
            text: text.as_bytes(),
            at,
        }
    }

    /// Offset of the next byte.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// The text from `start` up to the next byte.
    pub(crate) fn since(&self, start: usize) -> &'a [u8] {
        &self.text[start..self.at]
    }

    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Skips JSON whitespace.
    #[inline]
    pub(crate) fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Nothing but whitespace may follow.
    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        self.blanks();
        if self.at == self.text.len() {
            Ok(())
        } else {
            Err(Fault::syntax(Expected::EndOfBody, self.at))
        }
    }

    /// An object, from its brace to its brace; `member` is called at each value and has to take it.
    #[inline]
    pub(crate) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Key<'a>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.at += 1;
        self.blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.key()?;
            member(self, key)?;
            self.blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(Fault::syntax(Expected::CommaOrBrace, self.at)),
            }
            self.blanks();
        }
    }

    /// Any value. With `FINITE`, each number in it has to be a finite double.
    #[inline]
    pub(crate) fn value<const FINITE: bool>(&mut self) -> Result<(), Fault> {
        match self.peek() {
            Some(b'{' | b'[') => self.nested::<FINITE>(),
            _ => self.scalar::<FINITE>(),
        }
    }

    /// A string, from quote to quote; tells whether it holds an escape.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<bool, Fault> {
        let start = self.at + 1;
        let end = start + text::plain_run(self.text, start);
        if self.text.get(end) == Some(&b'"') {
            self.at = end + 1;
            return Ok(false);
        }
        self.string_from(end)
    }

    /// The rest of a string whose plain beginning ends at `at`.
    fn string_from(&mut self, mut at: usize) -> Result<bool, Fault> {
        loop {
            match self.text.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Ok(true);
                }
                Some(b'\\') => at = text::escape(self.text, at)?,
                Some(_) => return Err(Fault::syntax(Expected::NoControl, at)),
                None => return Err(Fault::syntax(Expected::EndOfString, at)),
            }
            at += text::plain_run(self.text, at);
        }
    }

    /// A number; tells what its text looks like.
    #[inline]
    pub(crate) fn number(&mut self) -> Result<Literal, Fault> {
        let literal = number::scan(self.text, self.at)?;
        self.at = literal.end;
        Ok(literal)
    }

    /// The fault of a value that is there and of another kind than `expected`, or of no value.
    #[cold]
    pub(crate) fn unexpected(&self, expected: Expected) -> Fault {
        match self.peek().and_then(Kind::starting) {
            Some(found) => Fault::new(FaultKind::WrongType { found, expected }, self.at),
            None => Fault::syntax(Expected::Value, self.at),
        }
    }

    /// One of the three words.
    #[inline]
    pub(crate) fn word(&mut self, word: &'static str) -> Result<(), Fault> {
        let end = self.at + word.len();
        if self.text.get(self.at..end) == Some(word.as_bytes()) {
            self.at = end;
            Ok(())
        } else {
            Err(Fault::syntax(Expected::Value, self.at))
        }
    }

    /// A member's name and the colon after it; stops at the value.
    #[inline]
    fn key(&mut self) -> Result<Key<'a>, Fault> {
        let start = self.at;
        let escaped = self.name()?;
        let raw = self.text.get(start + 1..self.at - 1).unwrap_or_default();
        self.colon()?;
        Ok(Key {
            raw,
            escaped,
            start,
        })
    }

    #[inline]
    fn name(&mut self) -> Result<bool, Fault> {
        if self.peek() != Some(b'"') {
            return Err(Fault::syntax(Expected::Name, self.at));
        }
        self.string()
    }

    #[inline]
    fn colon(&mut self) -> Result<(), Fault> {
        self.blanks();
        if self.peek() != Some(b':') {
            return Err(Fault::syntax(Expected::Colon, self.at));
        }
        self.at += 1;
        self.blanks();
        Ok(())
    }

    #[inline]
    fn scalar<const FINITE: bool>(&mut self) -> Result<(), Fault> {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'-' | b'0'..=b'9') => {
                let start = self.at;
                let literal = self.number()?;
                if FINITE && !literal.is_finite(self.text, start) {
                    return Err(Fault::new(FaultKind::NotFinite, start));
                }
                Ok(())
            }
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            _ => Err(Fault::syntax(Expected::Value, self.at)),
        }
    }

    /// An object or array with all that is in it. One bit for each open container is all the state
    /// there is, so that no depth overflows anything.
    fn nested<const FINITE: bool>(&mut self) -> Result<(), Fault> {
        let mut open = OpenContainers::default();
        loop {
            // At a value.
            match self.peek() {
                Some(b'{') => {
                    self.at += 1;
                    self.blanks();
                    open.push(true);
                    if self.peek() != Some(b'}') {
                        self.name()?;
                        self.colon()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    self.blanks();
                    open.push(false);
                    if self.peek() != Some(b']') {
                        continue;
                    }
                }
                _ => self.scalar::<FINITE>()?,
            }
            // After a value, or at the end of an empty container.
            loop {
                self.blanks();
                match (self.peek(), open.innermost_is_object()) {
                    (Some(b','), true) => {
                        self.at += 1;
                        self.blanks();
                        self.name()?;
                        self.colon()?;
                        break;
                    }
                    (Some(b','), false) => {
                        self.at += 1;
                        self.blanks();
                        break;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        self.at += 1;
                        open.pop();
                        if open.is_empty() {
                            return Ok(());
                        }
                    }
                    (_, true) => return Err(Fault::syntax(Expected::CommaOrBrace, self.at)),
                    (_, false) => return Err(Fault::syntax(Expected::CommaOrBracket, self.at)),
                }
            }
        }
    }
}

/// A stack of bits, `true` for an object: 64 levels in place, the rest on the heap.
#[derive(Debug, Default)]
struct OpenContainers {
    /// The innermost levels, the last one in the lowest bit.
    word: u64,
    /// How many levels `word` holds; 0 only when nothing is open.
    held: u32,
    outer: Vec<u64>,
}

impl OpenContainers {
    #[inline]
    fn push(&mut self, object: bool) {
        if self.held == u64::BITS {
            self.outer.push(self.word);
            self.held = 0;
        }
        self.word = self.word << 1 | u64::from(object);
        self.held += 1;
    }

    #[inline]
    fn pop(&mut self) {
        self.word >>= 1;
        self.held -= 1;
        if self.held == 0
            && let Some(word) = self.outer.pop()
        {
            self.word = word;
            self.held = u64::BITS;
        }
    }

    #[inline]
    const fn innermost_is_object(&self) -> bool {
        self.word & 1 == 1
    }

    #[inline]
    const fn is_empty(&self) -> bool {
        self.held == 0
    }
}
