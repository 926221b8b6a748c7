//! What holds for every body, whatever its bytes. The fuzz targets (`fuzz/`) and the seeded
//! mutations (`tests/envelope_mutations.rs`) both hold bodies against these.

use babelqueue_core::dead_letter::{DeadLetter, Reason};
use babelqueue_core::envelope::{self, Envelope, Projection};
use babelqueue_core::poison_record;
use babelqueue_core::verdict::{self, Verdict};
use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Decoding: what comes out is canonical, and a rewrite changes what it says and nothing else.
pub(crate) fn decode(body: &[u8]) {
    let decoded = Envelope::decode(Bytes::copy_from_slice(body));
    let Ok(decoded) = decoded else {
        assert!(!envelope::accepts(body));
        return;
    };
    let envelope = decoded.envelope;
    assert_eq!(envelope.bytes() != body, decoded.rewritten);
    assert!(decoded.rewritten || decoded.warnings.is_empty());
    assert_eq!(envelope.accepts(), envelope::accepts(body));
    assert_eq!(envelope.encode().as_ref(), Ok(envelope.bytes()));
    let projection = Projection::of(body);
    assert_eq!(projection, Projection::of(envelope.bytes()));
    assert_eq!(projection.urn.as_deref(), Some(&*envelope.urn()));

    let again = Envelope::decode(envelope.bytes().clone()).expect("canonical bytes decode");
    assert!(!again.rewritten && again.warnings.is_empty());
    assert_eq!(again.envelope, envelope);

    let _ = envelope.data::<Value>();
    retry(&envelope);
    dead_letter(&envelope);
}

fn retry(envelope: &Envelope) {
    let retried = envelope.with_attempts(1_000_003);
    assert_eq!(decoded(&retried).attempts(), Some(1_000_003));
    let without = |envelope: &Envelope| envelope.with_attempts(0).into_bytes();
    assert_eq!(
        without(&retried),
        without(envelope),
        "only `attempts` changed"
    );
    if let (Some(mut before), Some(after)) = (value(envelope), value(&retried)) {
        before["attempts"] = 1_000_003.into();
        assert_eq!(before, after);
    }
}

fn dead_letter(envelope: &Envelope) {
    let dead = envelope.with_dead_letter(&block().error("\u{1}\"é"));
    let read = decoded(&dead);
    let recorded = read.dead_letter().expect("the block is there");
    assert_eq!(recorded.reason.as_deref(), Some("poison"));
    assert_eq!(recorded.error.as_deref(), Some("\u{1}\"é"));
    let back = dead.without_dead_letter();
    assert_eq!(decoded(&back).dead_letter(), None);
    assert_eq!(back, envelope.without_dead_letter());
}

/// The envelope, decoded anew, after a check that it is what the bytes give.
fn decoded(envelope: &Envelope) -> Envelope {
    let again = Envelope::decode(envelope.bytes().clone()).expect("a rewritten envelope decodes");
    assert!(!again.rewritten);
    let again = again.envelope;
    assert_eq!(again.urn(), envelope.urn());
    assert_eq!(again.attempts(), envelope.attempts());
    assert_eq!(again.id(), envelope.id());
    assert_eq!(again.trace_id(), envelope.trace_id());
    assert_eq!(again.data_json(), envelope.data_json());
    assert_eq!(again.created_at_ms(), envelope.created_at_ms());
    assert_eq!(again.dead_letter(), envelope.dead_letter());
    again
}

/// The verdict: it is decode's, and where `serde_json` can tell, it agrees.
pub(crate) fn verdict(body: &[u8]) {
    let verdict = verdict::of(body);
    match Envelope::decode(Bytes::copy_from_slice(body)) {
        Ok(_) => assert_eq!(verdict, Verdict::Ok),
        Err(error) => {
            assert_eq!(error.verdict(), verdict);
            assert!(error.offset() <= body.len());
            assert!(!error.to_string().is_empty());
        }
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(members)) => {
            let names =
                |key| matches!(members.get(key), Some(Value::String(text)) if !is_blank(text));
            // Types are judged on each occurrence of a member, which a `Value` does not show.
            let ways = if names("job") || names("urn") {
                [Verdict::Ok, Verdict::Poison]
            } else {
                [Verdict::NoIdentity, Verdict::Poison]
            };
            assert!(ways.contains(&verdict));
        }
        Ok(Value::Null) => assert_eq!(verdict, Verdict::NoIdentity),
        Ok(_) => assert_eq!(verdict, Verdict::Poison),
        // Beyond what a `Value` holds (1e400, a depth of 128), `IgnoredAny` still knows the grammar.
        Err(_) if serde_json::from_slice::<IgnoredAny>(body).is_err() => {
            assert_eq!(verdict, Verdict::Poison);
        }
        Err(_) => {}
    }
}

/// The poison record: JSON that holds the block, and the body byte for byte.
pub(crate) fn poison_record(body: &[u8]) {
    let block = block();
    let record = poison_record::write(body, &block);
    let tail = [b"\"dead_letter\":", &*block.to_json(), b"}"].concat();
    let before = record.strip_suffix(&*tail).expect("the block comes last");
    let text = std::str::from_utf8(&record).expect("a record is text");
    serde_json::from_str::<IgnoredAny>(text).expect("a record is JSON");

    let object = body.trim_ascii().strip_suffix(b"}");
    if object.is_some_and(|object| before == object || before == [object, b","].concat()) {
        let recorded = Projection::of(&record);
        assert_eq!(
            recorded,
            Projection::of(body),
            "a splice shows the same members"
        );
        assert!(std::str::from_utf8(body).is_ok());
        return;
    }
    let wrapper: Value = serde_json::from_str(text).expect("a wrapper is flat");
    let raw = wrapper["raw"].as_str().expect("a wrapper has the body");
    if let Ok(body) = std::str::from_utf8(body) {
        assert_eq!(raw, body);
        assert_eq!(wrapper.get("raw_encoding"), None);
    } else {
        assert_eq!(wrapper["raw_encoding"], "base64");
        assert_eq!(raw.len(), body.len().div_ceil(3) * 4);
    }
}

fn block() -> DeadLetter {
    DeadLetter::new(Reason::Poison, "orders", 3, 1_749_132_730_000)
}

fn value(envelope: &Envelope) -> Option<Value> {
    serde_json::from_slice(envelope.bytes()).ok()
}

fn is_blank(text: &str) -> bool {
    text.chars()
        .all(|char| matches!(char, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r'))
}
