//! The suite without its prose.
//!
//! `description` and `source` strings go where they document: at the manifest's top, in a section,
//! in a sub-key, in a case; and the `description` strings of a schema. What is called so *inside* a
//! body, an input or an expected value is data, and stays. Members are cut out of the text, so that
//! every other byte (layout, order, spelling of numbers) stays as it was published.

use std::ops::Range;

use crate::Result;

/// `manifest` without its documentation.
pub(super) fn manifest(text: &str) -> Result<String> {
    strip(text, Place::Manifest)
}

/// A JSON schema without its descriptions.
pub(super) fn schema(text: &str) -> Result<String> {
    strip(text, Place::Schema)
}

fn strip(text: &str, place: Place) -> Result<String> {
    let mut scanner = Scanner {
        text,
        at: 0,
        cuts: Vec::new(),
    };
    scanner.value(place)?;
    scanner.whitespace();
    if scanner.at != text.len() {
        return Err(scanner.error("the end"));
    }

    let mut stripped = String::with_capacity(text.len());
    let mut from = 0;
    scanner.cuts.sort_by_key(|cut| cut.start);
    for cut in scanner.cuts {
        stripped.push_str(&text[from..cut.start]);
        from = cut.end;
    }
    stripped.push_str(&text[from..]);
    Ok(stripped)
}

/// What a value is, by where it stands.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// The manifest itself.
    Manifest,
    /// A section, or a sub-key of one.
    Section { nested: bool },
    /// The array `cases`.
    Cases,
    /// An element of it.
    Case,
    /// A schema, or a list of them.
    Schema,
    /// A schema's map from names to schemas.
    SchemaMap,
    /// An input or an expected value: not ours to touch.
    Data,
}

impl Place {
    /// Where the member `name` of an object at this place stands.
    fn member(self, name: &str) -> Self {
        match self {
            Self::Manifest | Self::Section { .. } if name == "cases" => Self::Cases,
            Self::Section { .. } if name == "schema" => Self::Schema,
            Self::Manifest => Self::Section { nested: false },
            Self::Section { nested: false } => Self::Section { nested: true },
            Self::Schema => match name {
                "properties" | "patternProperties" | "$defs" | "definitions" => Self::SchemaMap,
                "const" | "enum" | "default" | "examples" => Self::Data,
                _ => Self::Schema,
            },
            Self::SchemaMap => Self::Schema,
            _ => Self::Data,
        }
    }

    fn element(self) -> Self {
        match self {
            Self::Cases => Self::Case,
            Self::Schema => Self::Schema,
            _ => Self::Data,
        }
    }

    /// Whether a string member called `name` is documentation here.
    fn is_prose(self, name: &str) -> bool {
        match self {
            Self::Manifest | Self::Section { .. } | Self::Case => {
                matches!(name, "description" | "source")
            }
            Self::Schema => name == "description",
            Self::Cases | Self::SchemaMap | Self::Data => false,
        }
    }
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    cuts: Vec<Range<usize>>,
}

impl<'a> Scanner<'a> {
    fn value(&mut self, place: Place) -> Result {
        self.whitespace();
        match self.peek() {
            Some(b'{') => self.object(place),
            Some(b'[') => self.array(place),
            Some(b'"') => self.string().map(|_| ()),
            Some(_) => self.literal(),
            None => Err(self.error("a value")),
        }
    }

    fn object(&mut self, place: Place) -> Result {
        self.at += 1;
        let open = self.at;
        let mut members = Vec::new();
        self.whitespace();
        while !self.skip(b'}') {
            if !members.is_empty() && !self.skip(b',') {
                return Err(self.error("a comma or a brace"));
            }
            self.whitespace();
            let start = self.at;
            let name = self.string()?;
            if !self.skip(b':') {
                return Err(self.error("a colon"));
            }
            self.whitespace();
            let is_string = self.peek() == Some(b'"');
            self.value(place.member(name))?;
            members.push(Member {
                span: start..self.at,
                prose: is_string && place.is_prose(name),
            });
        }
        self.cut_prose(open, &members);
        Ok(())
    }

    /// Cuts each prose member with the comma that it needs no longer: the one behind it, or, at the
    /// end of the object, the one before.
    fn cut_prose(&mut self, open: usize, members: &[Member]) {
        let kept = members.iter().rposition(|member| !member.prose);
        let tail = kept.map_or(0, |last| last + 1);
        for (i, member) in members[..tail].iter().enumerate() {
            if member.prose {
                self.cuts.push(member.span.start..members[i + 1].span.start);
            }
        }
        if let Some(last) = members[tail..].last() {
            let from = kept.map_or(open, |last| members[last].span.end);
            self.cuts.push(from..last.span.end);
        }
    }

    fn array(&mut self, place: Place) -> Result {
        self.at += 1;
        let mut first = true;
        while !self.skip(b']') {
            if !first && !self.skip(b',') {
                return Err(self.error("a comma or a bracket"));
            }
            first = false;
            self.value(place.element())?;
        }
        Ok(())
    }

    /// A string's text, escapes as they stand.
    fn string(&mut self) -> Result<&'a str> {
        if !self.skip(b'"') {
            return Err(self.error("a string"));
        }
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
                None => return Err(self.error("a closing quote")),
            }
        }
        self.at += 1;
        Ok(&self.text[start..self.at - 1])
    }

    fn literal(&mut self) -> Result {
        let start = self.at;
        while let Some(b'a'..=b'z' | b'E' | b'0'..=b'9' | b'+' | b'-' | b'.') = self.peek() {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.error("a value"));
        }
        Ok(())
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

    fn error(&self, expected: &str) -> crate::Error {
        format!("not JSON: expected {expected} at byte {}", self.at).into()
    }
}

struct Member {
    span: Range<usize>,
    prose: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_goes_and_data_of_the_same_name_stays() {
        let text = r#"{
  "description": "about the suite",
  "sections": { "a": { "scope": "core" } },
  "a": {
    "description": "about a",
    "schema": { "type": "object", "description": "about the schema" },
    "sub": {
      "expected": { "description": "data", "source": "data" },
      "source": "about sub",
      "description": "about sub"
    },
    "rows": { "cases": [ { "source": "a row", "source_of": "x", "n": 1e400 } ] },
    "cases": [
      {
        "name": "one", "description": "with a \" quote",
        "meta": { "source": "billing", "description": "data" },
        "expect": { "source": "traceparent" },
        "description": { "not": "a string" }
      },
      { "description": "alone" }
    ]
  }
}
"#;
        let stripped = r#"{
  "sections": { "a": { "scope": "core" } },
  "a": {
    "schema": { "type": "object" },
    "sub": {
      "expected": { "description": "data", "source": "data" }
    },
    "rows": { "cases": [ { "source_of": "x", "n": 1e400 } ] },
    "cases": [
      {
        "name": "one", "meta": { "source": "billing", "description": "data" },
        "expect": { "source": "traceparent" },
        "description": { "not": "a string" }
      },
      { }
    ]
  }
}
"#;
        assert_eq!(manifest(text).unwrap(), stripped);
        assert_eq!(manifest(stripped).unwrap(), stripped, "stripping twice");
    }

    #[test]
    fn a_schemas_property_called_description_is_not_its_description() {
        let text = r#"{"description":"x","properties":{"description":{"type":"string","description":"y"}},"enum":[{"description":"data"}]}"#;
        let stripped =
            r#"{"properties":{"description":{"type":"string"}},"enum":[{"description":"data"}]}"#;
        assert_eq!(schema(text).unwrap(), stripped);
    }

    #[test]
    fn what_is_not_json_is_an_error() {
        for text in [
            "",
            "{",
            "[1 2]",
            r#"{"a" 1}"#,
            r#"{"a":}"#,
            "{} x",
            "\"a",
            "{,}",
        ] {
            assert!(manifest(text).is_err(), "{text:?} was taken");
        }
    }
}
