//! What the transport keeps of a record beside what the core sees of it.

use std::sync::atomic::{AtomicU8, Ordering};

use babelqueue_core::transport::Delivery;
use bytes::{BufMut as _, BytesMut};

use crate::project::Received;

/// Where a record came from, what it carried, and how far its delivery has got.
#[derive(Debug)]
pub(crate) struct Record {
    /// The partition's number in this subscription, which is also the lane's scope.
    pub(crate) scope: u64,
    pub(crate) offset: i64,
    /// Milliseconds since the Unix epoch, where the record has a time.
    pub(crate) timestamp: Option<i64>,
    pub(crate) headers: RecordHeaders,
    stage: AtomicU8,
}

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const TAKEN_BACK: u8 = 2;

impl Record {
    pub(crate) fn new(
        scope: u64,
        offset: i64,
        timestamp: Option<i64>,
        headers: RecordHeaders,
    ) -> Self {
        Self {
            scope,
            offset,
            timestamp,
            headers,
            stage: AtomicU8::new(WAITING),
        }
    }

    /// The record of a delivery of this transport; `None` for a delivery of another one.
    pub(crate) fn of(delivery: &Delivery) -> Option<&Self> {
        delivery.native()
    }

    /// What a copy of the record is made from; `delivery` is this record's.
    pub(crate) fn received<'r>(&'r self, delivery: &'r Delivery) -> Received<'r> {
        Received {
            topic: &delivery.queue,
            key: delivery.key.as_ref(),
            headers: &self.headers,
        }
    }

    /// The same record for another delivery of it.
    pub(crate) fn again(&self) -> Self {
        Self::new(
            self.scope,
            self.offset,
            self.timestamp,
            self.headers.clone(),
        )
    }

    /// Whether its handler may start; from then on it cannot be taken back.
    pub(crate) fn begin(&self) -> bool {
        self.leave_waiting(BEGUN)
    }

    /// Whether its handler has not started, and now will not.
    pub(crate) fn take_back(&self) -> bool {
        self.leave_waiting(TAKEN_BACK)
    }

    fn leave_waiting(&self, stage: u8) -> bool {
        self.stage
            .compare_exchange(WAITING, stage, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

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
    /// None yet, with room for so many bytes of names and values.
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            packed: BytesMut::with_capacity(bytes),
        }
    }

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
impl std::fmt::Debug for RecordHeaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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

    #[test]
    fn headers_come_back_as_they_were() {
        let all: [(&str, Option<&[u8]>); 6] = [
            ("bq-job", Some(b"urn:a")),
            ("null", None),
            ("empty", Some(b"")),
            ("", Some(b"no name")),
            ("bq-job", Some(b"urn:b")),
            ("binary", Some(&[0xFF, 0, 0xFF])),
        ];
        let headers = RecordHeaders::from_iter(all);
        assert_eq!(headers.iter().collect::<Vec<_>>(), all);
        assert_eq!(headers.first("bq-job"), Some(&b"urn:a"[..]));
        assert_eq!(headers.first("null"), None);
        assert_eq!(headers.first("absent"), None);
    }

    #[test]
    fn a_record_begins_or_is_taken_back_but_not_both() {
        let record = Record::new(0, 1, None, RecordHeaders::default());
        assert!(record.begin());
        assert!(!record.take_back());
        let again = record.again();
        assert!(again.take_back());
        assert!(!again.begin());
    }

    #[test]
    fn debug_shows_no_value() {
        let headers = RecordHeaders::from_iter([("token", Some(&b"secret"[..]))]);
        assert_eq!(format!("{headers:?}"), r#"["token"]"#);
    }
}
