//! A strict RFC 8259 parser over text.

use std::fmt;

use super::Json;

/// The deepest nesting that is read; deeper text is refused, not overflowed on.
const MAX_DEPTH: usize = 1_024;

/// Reads one JSON value with nothing but JSON whitespace around it.
///
/// # Errors
///
/// The text is not strict JSON, holds an unpaired surrogate escape, or is nested deeper than 1,024.
pub fn parse(text: &str) -> Result<Json, ParseError> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
    };
    let value = parser.value()?;
    parser.whitespace();
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(parser.error("nothing more")),
    }
}

/// Where a text stops being JSON, and what was expected there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The byte offset.
    pub at: usize,
    /// What was expected, in words.
    pub expected: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not JSON: expected {} at byte {}",
            self.expected, self.at
        )
    }
}

impl std::error::Error for ParseError {}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn value(&mut self) -> Result<Json, ParseError> {
        self.whitespace();
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => self.string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            _ => Err(self.error("a value")),
        }
    }

    fn nested(
        &mut self,
        read: fn(&mut Self) -> Result<Json, ParseError>,
    ) -> Result<Json, ParseError> {
        if self.depth == MAX_DEPTH {
            return Err(self.error("less nesting"));
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn object(&mut self) -> Result<Json, ParseError> {
        let mut members = Vec::new();
        if self.skip(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.whitespace();
            if self.peek() != Some(b'"') {
                return Err(self.error("a member name"));
            }
            let name = self.string()?;
            if !self.skip(b':') {
                return Err(self.error("a colon"));
            }
            members.push((name, self.value()?));
            if self.skip(b'}') {
                return Ok(Json::Object(members));
            }
            if !self.skip(b',') {
                return Err(self.error("a comma or a brace"));
            }
        }
    }

    fn array(&mut self) -> Result<Json, ParseError> {
        let mut items = Vec::new();
        if self.skip(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value()?);
            if self.skip(b']') {
                return Ok(Json::Array(items));
            }
            if !self.skip(b',') {
                return Err(self.error("a comma or a bracket"));
            }
        }
    }

    fn string(&mut self) -> Result<String, ParseError> {
        let mut text = String::new();
        self.at += 1;
        loop {
            let Some(c) = self.text[self.at..].chars().next() else {
                return Err(self.error("a closing quote"));
            };
            match c {
                '"' => {
                    self.at += 1;
                    return Ok(text);
                }
                '\\' => text.push(self.escape()?),
                c if c < ' ' => return Err(self.error("an escaped control character")),
                c => {
                    text.push(c);
                    self.at += c.len_utf8();
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, ParseError> {
        self.at += 1;
        let c = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\x08',
            Some(b'f') => '\x0C',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.error("an escape")),
        };
        self.at += 1;
        Ok(c)
    }

    fn unicode_escape(&mut self) -> Result<char, ParseError> {
        let first = self.hex4()?;
        let code = match first {
            0xD800..0xDC00 if self.text[self.at..].starts_with("\\u") => {
                self.at += 1;
                match self.hex4()? {
                    low @ 0xDC00..0xE000 => 0x1_0000 + ((first - 0xD800) << 10) + (low - 0xDC00),
                    _ => return Err(self.error("the other half of a surrogate pair")),
                }
            }
            code => code,
        };
        char::from_u32(code).ok_or_else(|| self.error("a paired surrogate"))
    }

    /// The four digits after the `u` that the parser stands on.
    fn hex4(&mut self) -> Result<u32, ParseError> {
        self.at += 1;
        let digits = self
            .text
            .get(self.at..self.at + 4)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .ok_or_else(|| self.error("four hex digits"))?;
        let code = u32::from_str_radix(digits, 16).map_err(|_| self.error("four hex digits"))?;
        self.at += 4;
        Ok(code)
    }

    fn number(&mut self) -> Result<Json, ParseError> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Ok(Json::Number(self.text[start..self.at].into()))
    }

    fn digits(&mut self) -> Result<(), ParseError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.error("a digit"));
        }
        Ok(())
    }

    fn word(&mut self, word: &'static str, value: Json) -> Result<Json, ParseError> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.error("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    /// Skips whitespace, then `byte` if it is next; says whether it was.
    fn skip(&mut self, byte: u8) -> bool {
        self.whitespace();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn whitespace(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn error(&self, expected: &'static str) -> ParseError {
        ParseError {
            at: self.at,
            expected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_strict_json_is_refused() {
        for text in [
            "",
            " ",
            "{} {}",
            "\u{FEFF}{}",
            "01",
            "1.",
            ".5",
            "+1",
            "-",
            "1e",
            "NaN",
            "Infinity",
            "'a'",
            "[1,]",
            r#"{"a":1,}"#,
            "{a:1}",
            r#"{"a" 1}"#,
            "\"\n\"",
            r#""\x""#,
            r#""\u12""#,
            r#""\ud800""#,
            r#""\ud800\u0041""#,
            r#""\udc00""#,
            "tru",
            "{",
        ] {
            assert!(parse(text).is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn depth_is_bounded_and_enough() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&nested(MAX_DEPTH)).is_ok());
        assert!(parse(&nested(MAX_DEPTH + 1)).is_err());
        assert!(parse(&"[".repeat(1_000_000)).is_err());
    }

    #[test]
    fn surrogate_pairs_make_one_character() {
        let Ok(Json::String(text)) = parse(r#""\ud83d\ude00 \u00e9""#) else {
            panic!("not read as a string");
        };
        assert_eq!(text, "😀 é");
    }
}
