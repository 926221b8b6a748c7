//! The suite's bodies and fixtures, broken in small ways from a seed, against what holds for every
//! body. The fuzz targets in `fuzz/` go further, and are run by hand.

#[path = "support/invariants.rs"]
mod invariants;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use babelqueue_conformance::{Suite, base64};
use babelqueue_core::random::Random;
use babelqueue_core::verdict::{self, Verdict};
use serde_json::Value;

/// Pieces that turn one kind of body into another.
const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\",
    b" ",
    b"\n",
    b"null",
    b"true",
    b"-0",
    b"1.0",
    b"1e400",
    b"\\u0000",
    b"\\ud83d\\ude00",
    b"\\ud800",
    b"\xff",
    "é☕".as_bytes(),
    b"9223372036854775808",
];

/// Members, for after a brace.
const MEMBERS: &[&[u8]] = &[
    b"\"job\":\"j\",",
    b"\"job\":5 ,",
    b"\"urn\":\"u\",",
    b" \"urn\" : 5,",
    b"\"attempts\":7,",
    b"\"attempts\":null,",
    b"\"meta\":{\"ts\":1},",
    b"\"timestamp\":{},",
    b"\"dead_letter\":{},",
    b"\"dead_\\u006cetter\":null,",
    b"\"ts\":[1],",
    b"\"id\":\"i\",",
    b"\"x\":1e400,",
    b"\"data\":{\"a\":[]},",
];

#[test]
fn every_mutation_of_the_suite_s_bodies_keeps_the_invariants() {
    let bodies = bodies();
    assert!(bodies.len() > 150, "{} bodies", bodies.len());
    for body in &bodies {
        check(body);
    }
    let random = Random::seeded(0x0BAB_E100);
    let envelopes: Vec<_> = bodies
        .iter()
        .filter(|body| verdict::of(body) == Verdict::Ok)
        .cloned()
        .collect();
    let mut decoded = 0;
    for _ in 0..12_000 {
        let from = if below(&random, 2) == 0 {
            &bodies
        } else {
            &envelopes
        };
        let mut body = from[below(&random, from.len())].clone();
        for _ in 0..=below(&random, 3) {
            mutate(&random, &mut body, &bodies);
        }
        check(&body);
        decoded += usize::from(verdict::of(&body) == Verdict::Ok);
    }
    assert!((2_000..10_000).contains(&decoded), "{decoded} decoded");
}

/// Each body of the manifest's cases, and each fixture; the very deep ones left out.
fn bodies() -> Vec<Vec<u8>> {
    let folder = Suite::vendored_at();
    let manifest = fs::read(folder.join("manifest.json")).expect("the suite is there");
    let manifest = serde_json::from_slice(&manifest).expect("the manifest is JSON");
    let mut bodies = Vec::new();
    collect(&manifest, &mut bodies);
    for entry in fs::read_dir(folder.join("fixtures")).expect("the fixtures are there") {
        let path = entry.expect("a fixture is listed").path();
        bodies.push(fs::read(path).expect("a fixture is read"));
    }
    bodies.retain(|body| body.len() < 1_000);
    bodies.sort();
    bodies.dedup();
    bodies
}

fn collect(value: &Value, bodies: &mut Vec<Vec<u8>>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, bodies)),
        Value::Object(members) => {
            if let Some(Value::String(body)) = members.get("body") {
                bodies.push(body.as_bytes().to_vec());
            }
            if let Some(Value::String(body)) = members.get("body_base64") {
                bodies.push(base64::decode(body).expect("the suite's base64 is right"));
            }
            members.values().for_each(|value| collect(value, bodies));
        }
        _ => {}
    }
}

fn mutate(random: &Random, body: &mut Vec<u8>, bodies: &[Vec<u8>]) {
    let at = below(random, body.len() + 1);
    let end = (at + below(random, 12)).min(body.len());
    match below(random, 10) {
        0 => drop(body.drain(at..end)),
        1 if at < body.len() => body[at] ^= 1 << below(random, 8),
        2 => {
            let again = body[at..end].to_vec();
            body.splice(at..at, again);
        }
        3 => {
            let other = &bodies[below(random, bodies.len())];
            body.splice(at..end, other.iter().copied());
        }
        4 => insert(random, body, at, PIECES),
        _ => {
            let braces = body.iter().enumerate().filter(|(_, byte)| **byte == b'{');
            let braces: Vec<usize> = braces.map(|(at, _)| at + 1).collect();
            match braces.len() {
                0 => insert(random, body, at, PIECES),
                count => insert(random, body, braces[below(random, count)], MEMBERS),
            }
        }
    }
}

fn insert(random: &Random, body: &mut Vec<u8>, at: usize, pieces: &[&[u8]]) {
    let piece = pieces[below(random, pieces.len())];
    body.splice(at..at, piece.iter().copied());
}

fn check(body: &[u8]) {
    let held = catch_unwind(AssertUnwindSafe(|| {
        invariants::decode(body);
        invariants::verdict(body);
        invariants::poison_record(body);
    }));
    assert!(
        held.is_ok(),
        "broken by {:?}",
        String::from_utf8_lossy(body)
    );
}

fn below(random: &Random, end: usize) -> usize {
    usize::try_from(random.next_u64() % end as u64).unwrap_or_default()
}
