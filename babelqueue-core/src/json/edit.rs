use std::borrow::Cow;
use std::ops::Range;

use super::scanner::{Key, Scanner};
use super::{Fault, Span};

/// What becomes of a member.
#[derive(Debug)]
pub(crate) enum Edit<'a> {
    Keep,
    Drop,
    /// Keeps the name, writes another value.
    Value(Cow<'a, [u8]>),
    /// Keeps the value, writes another name (plain text that needs no escape).
    Name(&'static str),
}

/// Writes `text` again with some members changed of the valid object that begins at `at`. What is
/// kept comes back byte for byte: what stands around the object, and the blanks around each member.
pub(crate) fn edit_object<'a>(
    text: &'a str,
    at: usize,
    mut edit: impl FnMut(Key<'a>, Span) -> Edit<'a>,
) -> Result<Vec<u8>, Fault> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    // Where the next member's text begins: after the brace, or after the comma before it.
    let mut begin = at + 1;
    out.extend_from_slice(&bytes[..begin]);
    let mut kept = false;
    let mut scanner = Scanner::starting_at(text, at);
    scanner.object(|scanner, key| {
        let start = scanner.at();
        scanner.value::<false>()?;
        let value = start..scanner.at();
        scanner.blanks();
        let member = Member {
            whole: begin..scanner.at(),
            name: key.start..key.start + key.raw.len() + 2,
            value: value.clone(),
        };
        begin = scanner.at() + 1;
        let edit = edit(key, Span::new(value.start, value.end));
        if matches!(edit, Edit::Drop) {
            return Ok(());
        }
        if kept {
            out.push(b',');
        }
        kept = true;
        member.write(&mut out, bytes, &edit);
        Ok(())
    })?;
    out.extend_from_slice(&bytes[scanner.at() - 1..]);
    Ok(out)
}

/// The value of the last member of that name in `object`, a valid one with nothing around it.
pub(crate) fn last_member(object: &str, name: &str) -> Option<Span> {
    let mut found = None;
    let mut scanner = Scanner::new(object);
    let _ = scanner.object(|scanner, key| {
        let start = scanner.at();
        scanner.value::<false>()?;
        if key.text() == name {
            found = Some(Span::new(start, scanner.at()));
        }
        Ok(())
    });
    found
}

struct Member {
    whole: Range<usize>,
    name: Range<usize>,
    value: Range<usize>,
}

impl Member {
    fn write(&self, out: &mut Vec<u8>, text: &[u8], edit: &Edit<'_>) {
        match edit {
            Edit::Keep | Edit::Drop => out.extend_from_slice(&text[self.whole.clone()]),
            Edit::Value(value) => {
                out.extend_from_slice(&text[self.whole.start..self.value.start]);
                out.extend_from_slice(value);
                out.extend_from_slice(&text[self.value.end..self.whole.end]);
            }
            Edit::Name(name) => {
                out.extend_from_slice(&text[self.whole.start..self.name.start]);
                out.push(b'"');
                out.extend_from_slice(name.as_bytes());
                out.push(b'"');
                out.extend_from_slice(&text[self.name.end..self.whole.end]);
            }
        }
    }
}
