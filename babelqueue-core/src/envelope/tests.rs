//! Decoding: the verdict of contract §2A by construction, identity, forbidden keys, warnings.

use std::fmt::Write as _;

use serde_json::Value;

use super::*;
use crate::random::Random;
use crate::verdict::{self, Verdict};

fn decoded(body: &str) -> Decoded {
    Envelope::decode(body.to_owned()).unwrap()
}

fn canonical(body: &str) -> String {
    String::from_utf8(decoded(body).envelope.into_bytes().to_vec()).unwrap()
}

fn pointers(body: &str) -> Vec<&'static str> {
    let warnings = decoded(body).warnings;
    warnings.iter().map(Warning::pointer).collect()
}

fn refusal(body: impl Into<Bytes>) -> DecodeError {
    Envelope::decode(body).unwrap_err()
}

#[test]
fn members_are_read_where_they_lie() {
    let body = r#" {"attempts":3,"data":{"n":1e3, "e":{}},"job":"urn:\u0062abel:a","x":[ ],
        "meta":{"created_at":1749132727001,"ext":{"v":1},"lang":"php","queue":"or\/ders","id":"i","schema_version":1},
        "trace_id":" t\t"} "#;
    let Decoded {
        envelope,
        warnings,
        rewritten,
    } = decoded(body);
    assert_eq!((warnings.len(), rewritten), (0, false));
    assert_eq!(envelope.bytes(), body.as_bytes());
    assert_eq!(envelope.urn(), "urn:babel:a");
    assert_eq!(envelope.trace_id().unwrap(), " t\t");
    assert_eq!(envelope.id().unwrap(), "i");
    assert_eq!(envelope.queue().unwrap(), "or/ders");
    assert_eq!(envelope.lang().unwrap(), "php");
    assert_eq!(envelope.schema_version(), Some(1));
    assert_eq!(envelope.created_at_ms(), Some(1_749_132_727_001));
    assert_eq!(
        envelope.created_at().unwrap().to_rfc3339(),
        "2025-06-05T14:12:07.001+00:00"
    );
    assert_eq!(envelope.attempts(), Some(3));
    assert_eq!(envelope.data_json(), Some(r#"{"n":1e3, "e":{}}"#));
    assert_eq!(envelope.meta_json("ext"), Some(r#"{"v":1}"#));
    assert_eq!(envelope.meta_json("Ext"), None);
    assert_eq!(envelope.extra_json("x"), Some("[ ]"));
    assert_eq!(envelope.dead_letter(), None);
    assert!(envelope.accepts());
}

#[test]
fn absent_and_null_members_read_as_none() {
    let envelope =
        decoded(r#"{"job":"a","trace_id":null,"meta":null,"attempts":null,"dead_letter":null}"#)
            .envelope;
    assert_eq!(envelope.trace_id(), None);
    assert_eq!(envelope.id(), None);
    assert_eq!(envelope.attempts(), None);
    assert_eq!(envelope.data_json(), None);
    assert_eq!(envelope.dead_letter(), None);
    assert!(!envelope.accepts());
}

#[test]
fn names_are_compared_after_unescaping_and_case_counts() {
    let body = r#"{"\u006aob":"urn:a","JOB":5,"Attempts":"x","met\u0061":{"i\u0064":"i","ID":7}}"#;
    let envelope = decoded(body).envelope;
    assert_eq!(envelope.urn(), "urn:a");
    assert_eq!(envelope.id().unwrap(), "i");
    assert_eq!(
        refusal(r#"{"job":"a","\u0061ttempts":"1"}"#).pointer(),
        "/attempts"
    );
    assert_eq!(
        pointers(r#"{"job":"a","meta":{"\u0074s":1}}"#),
        ["/meta/ts"]
    );
    // Longer than any known name, and its beginning is one.
    assert_eq!(
        decoded(r#"{"job":"a","job\u0000000000000000000000":5}"#)
            .envelope
            .urn(),
        "a"
    );
}

#[test]
fn of_a_repeated_member_the_last_counts_and_objects_are_not_merged() {
    let envelope = decoded(
        r#"{"job":"a","job":"b","attempts":1,"attempts":2,"meta":{"id":"x","ts":1},"meta":{"queue":"q"}}"#,
    );
    assert!(
        envelope.warnings.is_empty(),
        "the forbidden key is in a meta that does not count"
    );
    let envelope = envelope.envelope;
    assert_eq!(envelope.urn(), "b");
    assert_eq!(envelope.attempts(), Some(2));
    assert_eq!(envelope.id(), None);
    assert_eq!(envelope.queue().unwrap(), "q");
    assert_eq!(
        decoded(r#"{"job":"a","meta":{"id":"x"},"meta":null}"#)
            .envelope
            .id(),
        None
    );
}

#[test]
fn every_occurrence_of_a_known_member_is_typed() {
    for body in [
        r#"{"job":"a","attempts":"1","attempts":1}"#,
        r#"{"job":"a","attempts":1,"attempts":"1"}"#,
        r#"{"job":"a","meta":{"id":5},"meta":{"id":"x"}}"#,
        r#"{"job":"a","meta":[],"meta":{}}"#,
        r#"{"job":"a","data":{"n":1e400},"data":{}}"#,
        r#"{"job":"a","dead_letter":{"attempts":1.0},"dead_letter":null}"#,
    ] {
        assert_eq!(verdict::of(body.as_bytes()), Verdict::Poison, "{body}");
    }
    // `job` and `urn` have no type to be wrong in.
    assert_eq!(verdict::of(br#"{"job":5,"urn":[],"job":"a"}"#), Verdict::Ok);
}

#[test]
fn only_data_has_to_hold_finite_numbers() {
    assert_eq!(
        verdict::of(br#"{"job":"a","x":1e400,"meta":{"x":-1e400},"urn":1e400}"#),
        Verdict::Ok
    );
    let error = refusal(r#"{"job":"a","data":{"a":[{"b":[0,-1e400]}]}}"#);
    assert_eq!(error.pointer(), "/data/a/0/b/1");
    assert_eq!(error.cause(), Cause::NotFinite);
    assert_eq!(
        canonical(r#"{"job":"a","x":1e400,"timestamp":1}"#),
        r#"{"job":"a","x":1e400}"#
    );
}

#[test]
fn urn_is_folded_into_job() {
    for (body, expected, warnings) in [
        (r#"{"urn":" u "}"#, r#"{"job":" u "}"#, &[][..]),
        (
            r#"{"a":1,"urn":"u" ,"b":2}"#,
            r#"{"a":1,"job":"u" ,"b":2}"#,
            &[],
        ),
        (r#"{"job":"","urn":"u"}"#, r#"{"job":"u"}"#, &[]),
        (r#"{"job":"\t\u0020","urn":"u"}"#, r#"{"job":"u"}"#, &[]),
        (
            r#"{"urn":"u","job":null,"x":1}"#,
            r#"{"job":"u","x":1}"#,
            &["/job"],
        ),
        (
            r#"{"job":{"a":1},"urn":"\u0075"}"#,
            r#"{"job":"\u0075"}"#,
            &["/job"],
        ),
        (r#"{"job":"j","urn":"u"}"#, r#"{"job":"j"}"#, &["/urn"]),
        (
            r#"{"job":"\u2003","urn":"u"}"#,
            r#"{"job":"\u2003"}"#,
            &["/urn"],
        ),
        (r#"{"job":"j","urn":5}"#, r#"{"job":"j"}"#, &["/urn"]),
        (r#"{"urn":1,"urn":"u","urn":"v"}"#, r#"{"job":"v"}"#, &[]),
        (
            r#"{"job":"old","urn":"u","job":5}"#,
            r#"{"job":"old","job":"u"}"#,
            &["/job"],
        ),
        (r#"{"job":5,"job":"x"}"#, r#"{"job":5,"job":"x"}"#, &[]),
    ] {
        assert_eq!(canonical(body), expected);
        assert_eq!(pointers(body), warnings, "{body}");
        assert_eq!(decoded(body).rewritten, canonical(body) != body);
    }
}

#[test]
fn forbidden_keys_are_dropped_with_one_warning_each() {
    let body = r#"{"timestamp":1,"job":"j","timestamp":"2","meta":{"ts":1,"id":"i","max_retries":{},
        "attempts":"x", "source":[1] ,"keep":1,"ts":2},"data":{"ts":1,"timestamp":2},"attempts":0}"#;
    assert_eq!(
        canonical(body),
        "{\"job\":\"j\",\"meta\":{\"id\":\"i\",\"keep\":1},\"data\":{\"ts\":1,\"timestamp\":2},\"attempts\":0}"
    );
    assert_eq!(
        pointers(body),
        [
            "/timestamp",
            "/meta/max_retries",
            "/meta/attempts",
            "/meta/source",
            "/meta/ts"
        ]
    );
    // Only an object has keys, and only at their place are they forbidden.
    assert!(
        decoded(r#"{"job":"j","meta":null,"x":{"timestamp":1},"ts":1,"source":2}"#)
            .warnings
            .is_empty()
    );
}

#[test]
fn a_canonical_body_is_left_alone() {
    let body = Bytes::from_static(b"{\"job\":\"j\"}");
    let decoded = Envelope::decode(body.clone()).unwrap();
    assert!(!decoded.rewritten);
    assert_eq!(
        decoded.envelope.bytes().as_ptr(),
        body.as_ptr(),
        "the very bytes"
    );
}

#[test]
fn an_error_says_what_and_where() {
    for (body, message) in [
        (
            &b""[..],
            "the body is empty, expected a JSON object (at byte 0)",
        ),
        (
            b"[1]",
            "the body is an array, expected an object (at byte 0)",
        ),
        (
            b"{} x",
            "the body is not JSON: expected the end of the body (at byte 3)",
        ),
        (b"{\"a\":\"\xff\"}", "`/a` is not UTF-8 (at byte 6)"),
        (
            b"{\"data\":{\"k\":[0,\"\\ud800\"]}}",
            "`/data/k/1` has a surrogate escape without its other half (at byte 17)",
        ),
        (
            b"{\"meta\":{\"id\":5}}",
            "`/meta/id` is a number, expected a string or null (at byte 14)",
        ),
        (
            b"{\"attempts\":1.0}",
            "`/attempts` is a number, expected a 64-bit integer literal (at byte 12)",
        ),
        (
            b"{\"job\":5,\"urn\":\" \"}",
            "the message has no identity: `job` is a number, `urn` is blank",
        ),
        (
            b"null",
            "the message has no identity: `job` is absent, `urn` is absent",
        ),
    ] {
        assert_eq!(refusal(body).to_string(), message);
    }
    assert_eq!(refusal("null").verdict(), Verdict::NoIdentity);
    assert_eq!(refusal("nul").verdict(), Verdict::Poison);
    assert_eq!(
        refusal("{\"job\":7}").cause(),
        Cause::NoIdentity {
            job: Some(Kind::Number),
            urn: None
        }
    );
}

#[test]
fn accepts_asks_for_more_than_decode() {
    let full = r#"{"job":"j","trace_id":"t","data":{},"meta":{"schema_version":1},"attempts":-1}"#;
    assert!(accepts(full.as_bytes()));
    assert_eq!(decoded(full).envelope.unaccepted(), None);
    for (from, to, pointer) in [
        ("\"t\"", "\" \\t\"", "/trace_id"),
        ("\"t\"", "null", "/trace_id"),
        ("{}", "null", "/data"),
        ("-1", "null", "/attempts"),
        (":1}", ":2}", "/meta/schema_version"),
        (":1}", ":null}", "/meta/schema_version"),
        ("{\"schema_version\":1}", "null", "/meta/schema_version"),
        ("\"data\":{},", "", "/data"),
        ("\"trace_id\":\"t\",", "", "/trace_id"),
    ] {
        let body = full.replace(from, to);
        assert_ne!(body, full);
        let envelope = decoded(&body).envelope;
        assert!(!envelope.accepts(), "{body}");
        assert_eq!(envelope.unaccepted(), Some(pointer), "{body}");
        assert!(!accepts(body.as_bytes()), "{body}");
    }
    for poison in ["", "[]", "{}", "null", "{\"job\":\"j\",\"data\":[]}"] {
        assert!(!accepts(poison.as_bytes()));
    }
}

#[test]
fn debug_shows_no_payload() {
    let shown = format!(
        "{:?}",
        decoded(r#"{"job":"j","data":{"card":"4111"},"x":"secret"}"#).envelope
    );
    assert!(
        shown.contains("\"j\"") && !shown.contains("4111") && !shown.contains("secret"),
        "{shown}"
    );
}

/// A body made of random members, and what §2A says of it by how it was made.
struct Made {
    body: String,
    verdict: Verdict,
}

fn made(random: &Random) -> Made {
    let pick = |from: &[&'static str]| {
        from[usize::try_from(random.next_u64() % from.len() as u64).unwrap()]
    };
    let right = |kind: &str| match kind {
        "string" => pick(&[r#""t""#, r#"" \t""#, "null", r#""é""#]),
        "integer" => pick(&["0", "-0", "1", "null", "-7", "9223372036854775807"]),
        "object" => pick(&["{}", "null", r#"{"n":[1e308,{}]}"#]),
        _ => pick(&["[]", "1e400", "true", r#"{"meta":5}"#]),
    };
    let wrong = |kind: &str| match kind {
        "string" => pick(&["5", "{}", "true", "[]"]),
        "integer" => pick(&["1.0", "1e0", "\"1\"", "9223372036854775808", "[]", "false"]),
        _ => pick(&["[]", "\"x\"", "0", "true"]),
    };
    let mut poison = false;
    let mut value = |kind: &'static str| {
        if kind != "any" && random.next_u64().is_multiple_of(24) {
            poison = true;
            wrong(kind)
        } else {
            right(kind)
        }
    };
    let members = |known: &[(&'static str, &'static str)],
                   value: &mut dyn FnMut(&'static str) -> &'static str| {
        let mut text = String::from("{");
        for at in 0..random.next_u64() % 7 {
            let (name, kind) =
                known[usize::try_from(random.next_u64() % known.len() as u64).unwrap()];
            text.push_str(if at > 0 { "," } else { "" });
            let _ = write!(text, "{name:?}:{}", value(kind));
        }
        text.push('}');
        text
    };
    let meta = members(
        &[
            ("id", "string"),
            ("queue", "string"),
            ("lang", "string"),
            ("schema_version", "integer"),
            ("created_at", "integer"),
            ("ID", "any"),
            ("ts", "any"),
            ("attempts", "any"),
            ("ext", "any"),
        ],
        &mut value,
    );
    let dead_letter = members(
        &[
            ("reason", "string"),
            ("error", "string"),
            ("exception", "string"),
            ("failed_at", "integer"),
            ("original_queue", "string"),
            ("attempts", "integer"),
            ("lang", "string"),
            ("x", "any"),
        ],
        &mut value,
    );
    let rest = members(
        &[
            ("trace_id", "string"),
            ("attempts", "integer"),
            ("data", "object"),
            ("timestamp", "any"),
            ("JOB", "any"),
            ("x", "any"),
        ],
        &mut value,
    );
    let job = pick(&[
        "",
        r#""job":"j","#,
        r#""job":5,"#,
        r#""job":" ","#,
        r#""job":null,"job":"j","#,
    ]);
    let urn = pick(&["", "", r#","urn":"u""#, r#","urn":7"#, r#","urn":"""#]);
    let rest = rest.strip_prefix('{').unwrap();
    let comma = if rest == "}" { "" } else { "," };
    let body = format!("{{{job}\"meta\":{meta}{urn},\"dead_letter\":{dead_letter}{comma}{rest}");
    let identity = job.contains("\"j\"") || urn.contains("\"u\"");
    let verdict = match (poison, identity) {
        (true, _) => Verdict::Poison,
        (false, true) => Verdict::Ok,
        (false, false) => Verdict::NoIdentity,
    };
    Made { body, verdict }
}

#[test]
fn the_verdict_is_what_the_body_was_made_for() {
    let random = Random::seeded(6);
    let mut seen = [0; 3];
    for _ in 0..10_000 {
        let Made { body, verdict } = made(&random);
        assert_eq!(verdict::of(body.as_bytes()), verdict, "{body}");
        seen[verdict as usize] += 1;
    }
    assert!(seen.iter().all(|count| *count > 1_000), "{seen:?}");
}

#[test]
fn what_is_decoded_is_canonical_and_a_rewrite_changes_one_member() {
    let random = Random::seeded(7);
    for _ in 0..10_000 {
        let Made { body, verdict } = made(&random);
        if verdict != Verdict::Ok {
            continue;
        }
        let envelope = decoded(&body).envelope;
        let again = Envelope::decode(envelope.bytes().clone()).unwrap();
        assert!(again.warnings.is_empty() && !again.rewritten, "{body}");
        assert_eq!(again.envelope, envelope);

        let retried = envelope.with_attempts(12_345);
        assert_eq!(
            Ok(retried.members),
            Members::checked(retried.bytes()),
            "{body}"
        );
        assert_eq!(retried.attempts(), Some(12_345));
        let mut expected = without_huge(&envelope);
        expected["attempts"] = 12_345.into();
        assert_eq!(without_huge(&retried), expected, "{body}");
    }
}

/// The envelope as a `Value`, which holds no `1e400`.
fn without_huge(envelope: &Envelope) -> Value {
    let text = std::str::from_utf8(envelope.bytes()).unwrap();
    serde_json::from_str(&text.replace("1e400", "7e77")).unwrap()
}
