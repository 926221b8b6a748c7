//! What the envelope allocates: nothing to decode an ordinary body, once to rewrite it, and within a
//! bound whatever a hostile body looks like. On a stack that any recursion over the body would end.

use std::fmt::Write as _;

use allocation_counter::measure;
use babelqueue_core::dead_letter::{DeadLetter, Reason};
use babelqueue_core::envelope::{self, Envelope, Projection};
use babelqueue_core::verdict::{self, Verdict};
use babelqueue_core::{poison_record, urn::Message};
use bytes::Bytes;
use serde::Serialize;
use serde::de::IgnoredAny;

const MIB: usize = 1 << 20;

/// 251 bytes.
const ORDER: &str = r#"{"job":"urn:babel:orders:created","trace_id":"7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b","data":{"order_id":1042},"meta":{"id":"f1e2d3c4-b5a6-4789-90ab-cdef01234567","queue":"orders","lang":"php","schema_version":1,"created_at":1749132727000},"attempts":0}"#;

fn block() -> DeadLetter {
    DeadLetter::new(Reason::Poison, "orders", 0, 1)
}

#[test]
fn an_ordinary_body_is_decoded_without_an_allocation() {
    let body = Bytes::from_static(ORDER.as_bytes());
    assert_eq!(body.len(), 251);
    let counted = measure(|| {
        let envelope = Envelope::decode(body.clone()).unwrap().envelope;
        assert!(envelope.accepts() && envelope::accepts(&body));
        assert_eq!(envelope.urn(), "urn:babel:orders:created");
        assert!(envelope.trace_id().is_some() && envelope.id().is_some());
        assert_eq!(envelope.attempts(), Some(0));
        assert_eq!(verdict::of(&body), Verdict::Ok);
        assert!(Projection::of(&body).queue.is_some());
        let _: IgnoredAny = envelope.data().unwrap();
        let _ = envelope.encode();
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn a_refused_body_costs_a_verdict_nothing() {
    for poison in [
        "",
        "[]",
        "{",
        r#"{"job":5}"#,
        r#"{"data":{"n":1e400}}"#,
        r#"{"a":"\ud800"}"#,
    ] {
        assert_eq!(
            measure(|| assert!(verdict::of(poison.as_bytes()).is_poison())).count_total,
            0
        );
    }
}

#[test]
fn a_retry_is_one_allocation() {
    let envelope = Envelope::decode(ORDER).unwrap().envelope;
    let counted = measure(|| drop(envelope.with_attempts(12)));
    assert_eq!(counted.count_total, 1);
    assert_eq!(counted.bytes_total, 252, "no more than the new body");
}

#[test]
fn building_allocates_for_data_and_body_only() {
    #[derive(Serialize)]
    struct OrderCreated {
        order_id: u64,
    }
    impl Message for OrderCreated {
        const URN: &'static str = "urn:babel:orders:created";
    }
    let order = OrderCreated { order_id: 1042 };
    let build = || Envelope::of(&order).queue("orders").build();
    drop(build());
    assert_eq!(measure(|| drop(build())).count_total, 2);
}

#[test]
fn depth_is_no_matter() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":[", "]}]")] {
        let deep = format!("{}0{}", open.repeat(100_000), close.repeat(100_000));
        hostile(
            Verdict::Ok,
            format!(r#"{{"job":"j","data":{{"deep":{deep}}}}}"#),
        );
        hostile(
            Verdict::Ok,
            format!(r#"{{"job":"j","x":{deep},"timestamp":1}}"#),
        );
        hostile(
            Verdict::Poison,
            format!(r#"{{"job":"j","data":{{"deep":{}"#, open.repeat(100_000)),
        );
        let bad = deep.replacen('0', "1e400", 1);
        hostile(
            Verdict::Poison,
            format!(r#"{{"job":"j","data":{{"deep":{bad}}}}}"#),
        );
        hostile(Verdict::Poison, format!("[{deep}]"));
    }
}

#[test]
fn a_body_of_64_mib_is_taken() {
    let text = "x".repeat(64 * MIB - 40);
    hostile(
        Verdict::Ok,
        format!(r#"{{"job":"j","data":{{"text":"{text}"}}}}"#),
    );
}

#[test]
fn size_is_no_matter_whatever_it_is_made_of() {
    let size = 2 * MIB;
    let run = |text: &str| text.repeat(size / text.len());
    hostile(Verdict::Poison, run(" "));
    hostile(Verdict::Poison, run("["));
    hostile(Verdict::Poison, run("{\"a\":"));
    hostile(Verdict::Poison, run("\u{fffd}"));
    hostile(Verdict::Poison, vec![0xff; size]);
    hostile(
        Verdict::Poison,
        format!(r#"{{"job":"j","data":{{"{}":1e400}}}}"#, run("k")),
    );
    hostile(Verdict::Ok, format!(r#"{{"job":"{}","x":1}}"#, run("j")));
    hostile(
        Verdict::Ok,
        format!(r#"{{"job":5,"urn":"{}"}}"#, run(r"\u0041")),
    );
    hostile(
        Verdict::NoIdentity,
        format!(r#"{{"job":"{}"}}"#, run(r"\t")),
    );
    hostile(
        Verdict::Ok,
        format!(r#"{{"job":"j","meta":{{"ts":"{}"}}}}"#, run("t")),
    );
    hostile(
        Verdict::Ok,
        format!("{}{{\"job\":\"j\"}}{0}", " ".repeat(size / 2)),
    );
}

#[test]
fn a_million_members_are_no_matter() {
    let (million, more) = (members(1_000_000), members(100_000));
    hostile(
        Verdict::Ok,
        format!(r#"{{{million}"job":"j","timestamp":1}}"#),
    );
    hostile(
        Verdict::Ok,
        format!(r#"{{"job":"j","data":{{{more}"z":0}},"attempts":1}}"#),
    );
    hostile(
        Verdict::Ok,
        format!(r#"{{"job":"j","meta":{{{more}"ts":0}}}}"#),
    );
    hostile(
        Verdict::Ok,
        format!(r#"{{{}"job":"j"}}"#, r#""urn":"u","#.repeat(300_000)),
    );
    hostile(
        Verdict::Poison,
        format!(r#"{{"job":"j","data":{{{more}"z":-1e309}}}}"#),
    );
}

#[test]
fn a_number_of_10_mb_is_judged_exactly() {
    let zeros = "0".repeat(10_000_000);
    let data = |number: &str| format!(r#"{{"job":"j","data":{{"n":{number}}}}}"#);
    hostile(Verdict::Poison, data(&format!("1{zeros}")));
    hostile(Verdict::Ok, data(&format!("1{zeros}e-10000000")));
    let zeros = "0".repeat(1_000_000);
    hostile(Verdict::Ok, data(&format!("-0.{zeros}1")));
    hostile(Verdict::Poison, data(&format!("1e1{zeros}")));
    hostile(
        Verdict::Poison,
        format!(r#"{{"job":"j","attempts":1{zeros}}}"#),
    );
    hostile(Verdict::Ok, format!(r#"{{"job":"j","x":1{zeros}}}"#));
}

#[test]
fn every_byte_at_every_place_of_an_envelope() {
    for at in 0..ORDER.len() {
        for byte in 0..=u8::MAX {
            let mut body = ORDER.as_bytes().to_vec();
            body[at] = byte;
            everything(verdict::of(&body), Bytes::from(body));
        }
    }
}

/// `count` members, each with a comma after it.
fn members(count: u32) -> String {
    let mut text = String::new();
    for at in 0..count {
        let _ = write!(text, "\"k{at}\":{at},");
    }
    text
}

/// Does everything there is to do to a body, on 64 KiB of stack, and holds the peak of the memory,
/// the body included, against three times the body and 1 MiB.
fn hostile(verdict: Verdict, body: impl Into<Vec<u8>>) {
    let body = body.into();
    let len = body.len();
    let peak = std::thread::Builder::new()
        .stack_size(64 << 10)
        .spawn(move || {
            measure(move || {
                // A copy, since what was made outside is not counted.
                let body = Bytes::from(Vec::from(&*body));
                everything(verdict, body);
            })
            .bytes_max
        })
        .expect("a thread starts")
        .join()
        .expect("the thread neither panics nor runs out of stack");
    let bound = (3 * len + MIB) as u64;
    assert!(peak <= bound, "{peak} B for a body of {len} B");
}

fn everything(verdict: Verdict, body: Bytes) {
    assert_eq!(verdict::of(&body), verdict);
    assert!(!envelope::accepts(&body) || verdict == Verdict::Ok);
    let _ = Projection::of(&body);
    drop(poison_record::write(&body, &block()));
    match Envelope::decode(body) {
        Ok(decoded) => {
            assert_eq!(verdict, Verdict::Ok);
            let envelope = decoded.envelope;
            assert!(envelope.encode().is_ok());
            assert!(!envelope.urn().is_empty());
            let _ = envelope.data::<IgnoredAny>();
            drop(envelope.data::<serde_json::Number>());
            let retried = envelope.with_attempts(i64::MAX);
            drop(envelope);
            assert_eq!(retried.attempts(), Some(i64::MAX));
            drop(retried.with_dead_letter(&block()));
            drop(retried.without_dead_letter());
        }
        Err(error) => {
            assert_eq!(error.verdict(), verdict);
            assert!(error.to_string().len() < 20_000);
        }
    }
}
