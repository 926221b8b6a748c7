//! The headers of a record: as received, and on their way out.

use std::fmt;

use bytes::{BufMut as _, BytesMut};
use rdkafka::message::{Header, Headers as _, OwnedHeaders};

/// The headers of a record as they were received: in order, with repeated names, and null, empty
/// and binary values.
///
/// Most records are acknowledged and their headers never looked at again, so they are packed into
/// one piece of memory: for each its name's length, the name, its value's length, the value.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RecordHeaders {
    packed: BytesMut,
}

/// Stands in the place of a value's length for a null value.
const NULL: u32 = u32::MAX;

impl RecordHeaders {
    /// None yet, to be packed into this memory, which is empty.
    pub(crate) fn packed_into(memory: BytesMut) -> Self {
        Self { packed: memory }
    }

    /// The memory, as it was packed.
    pub(crate) fn into_packed(self) -> BytesMut {
        self.packed
    }

    /// Appends a header; null (`None`) and empty differ. A name or value of 4 GiB, which no broker
    /// takes, is left out.
    pub fn push(&mut self, name: &str, value: Option<&[u8]>) {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).ok().filter(|len| *len < NULL);
        let (Some(name_length), Some(value_length)) =
            (length(name.as_bytes()), value.map_or(Some(NULL), length))
        else {
            return;
        };
        self.packed.put_u32_le(name_length);
        self.packed.put_slice(name.as_bytes());
        self.packed.put_u32_le(value_length);
        self.packed.put_slice(value.unwrap_or_default());
    }

    /// The headers in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.fields()
            .map_while(|(name, value)| Some((std::str::from_utf8(name).ok()?, value)))
    }

    /// The headers in order, with the names as bytes, which saves a check of each that it is text.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut rest: &[u8] = &self.packed;
        std::iter::from_fn(move || {
            let name = take(&mut rest)??;
            let value = take(&mut rest)?;
            Some((name, value))
        })
    }

    /// The value of the first header of this name; `None` also where it is null.
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(known, _)| *known == name)?.1
    }
}

/// Names only: a value may be a secret of the user's.
impl fmt::Debug for RecordHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(|(name, _)| name))
            .finish()
    }
}

impl<'h> FromIterator<(&'h str, Option<&'h [u8]>)> for RecordHeaders {
    fn from_iter<I: IntoIterator<Item = (&'h str, Option<&'h [u8]>)>>(headers: I) -> Self {
        let mut packed = Self::default();
        for (name, value) in headers {
            packed.push(name, value);
        }
        packed
    }
}

/// The headers of a record on its way out: in order, with repeated names, and null, empty and binary
/// values.
///
/// They are in the client's own memory from the first: kept elsewhere before, each would be copied
/// twice.
#[derive(Clone)]
pub struct NewHeaders {
    native: OwnedHeaders,
}

/// The six of the contract, and two more, before the client takes more memory.
const ROOM: usize = 8;

impl NewHeaders {
    /// None yet.
    pub fn new() -> Self {
        Self::from_native(OwnedHeaders::new_with_capacity(ROOM))
    }

    /// These, and one more at the end; null (`None`) and empty differ. Readers end a name at its first
    /// NUL: [`publish`](crate::project::publish) refuses one.
    #[must_use]
    pub fn with(self, name: &str, value: Option<&[u8]>) -> Self {
        let header = Header { key: name, value };
        Self::from_native(self.native.insert(header))
    }

    /// The headers in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.native.iter().map(|header| (header.key, header.value))
    }

    /// The value of the first header of this name; `None` also where it is null.
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(known, _)| *known == name)?.1
    }

    pub(crate) fn from_native(native: OwnedHeaders) -> Self {
        Self { native }
    }

    pub(crate) fn into_native(self) -> OwnedHeaders {
        self.native
    }
}

impl Default for NewHeaders {
    fn default() -> Self {
        Self::new()
    }
}

/// Names only: a value may be a secret of the user's.
impl fmt::Debug for NewHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(|(name, _)| name))
            .finish()
    }
}

impl PartialEq for NewHeaders {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for NewHeaders {}

impl<'h> FromIterator<(&'h str, Option<&'h [u8]>)> for NewHeaders {
    fn from_iter<I: IntoIterator<Item = (&'h str, Option<&'h [u8]>)>>(headers: I) -> Self {
        headers
            .into_iter()
            .fold(Self::new(), |all, (name, value)| all.with(name, value))
    }
}

/// A header's value, which may be null.
type Value<'p> = Option<&'p [u8]>;

/// The next name or value; `None` at the end.
fn take<'p>(rest: &mut &'p [u8]) -> Option<Value<'p>> {
    let (length, after) = rest.split_first_chunk()?;
    *rest = after;
    let length = u32::from_le_bytes(*length);
    if length == NULL {
        return Some(None);
    }
    let (field, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(Some(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(&str, Option<&[u8]>); 6] = [
        ("bq-job", Some(b"urn:a")),
        ("null", None),
        ("empty", Some(b"")),
        ("", Some(b"no name")),
        ("bq-job", Some(b"urn:b")),
        ("binary", Some(&[0xFF, 0, 0xFF])),
    ];

    #[test]
    fn received_headers_come_back_as_they_were() {
        let headers = RecordHeaders::from_iter(ALL);
        assert_eq!(headers.iter().collect::<Vec<_>>(), ALL);
        assert_eq!(headers.first("bq-job"), Some(&b"urn:a"[..]));
        assert_eq!(headers.first("null"), None);
        assert_eq!(headers.first("absent"), None);
    }

    #[test]
    fn new_headers_are_as_they_were_given() {
        let headers = NewHeaders::from_iter(ALL);
        assert_eq!(headers.iter().collect::<Vec<_>>(), ALL);
        assert_eq!(headers.first("bq-job"), Some(&b"urn:a"[..]));
        assert_eq!(headers.first("null"), None);
        assert_eq!(headers.first("absent"), None);
        assert_eq!(headers.clone(), headers);
        assert_ne!(NewHeaders::new(), headers);
    }

    #[test]
    fn debug_shows_no_value() {
        let secret = [("token", Some(&b"secret"[..]))];
        let received = RecordHeaders::from_iter(secret);
        assert_eq!(format!("{received:?}"), r#"["token"]"#);
        let new = NewHeaders::from_iter(secret);
        assert_eq!(format!("{new:?}"), r#"["token"]"#);
    }
}
