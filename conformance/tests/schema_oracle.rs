//! The payload schema against the `jsonschema` crate: where both have a keyword they agree on what
//! is valid, over random schemas and payloads.
//!
//! Only schemas on which the contract's subset means what draft-07 means are drawn: keywords stand
//! beside the one type that they belong to (the subset ignores them elsewhere).

use babelqueue_core::random::Random;
use babelqueue_core::schema::Schema;
use serde_json::{Value, json};

const ROUNDS: u32 = 20_000;

#[test]
fn the_subset_and_draft_7_agree() {
    let random = Draw(Random::seeded(7));
    let (mut valid, mut invalid) = (0, 0);
    for round in 0..ROUNDS {
        let schema = random.schema(3);
        let oracle = jsonschema::draft7::new(&schema).expect("a schema of draft 7");
        let ours = Schema::parse(&schema.to_string()).expect("a schema of the subset");
        for _ in 0..4 {
            let data = random.payload(&schema, 3);
            let expected = oracle.is_valid(&data);
            let checked = ours.check(&data.to_string());
            assert_eq!(
                checked.is_ok(),
                expected,
                "round {round}: {schema} on {data} gave {checked:?}"
            );
            if expected {
                valid += 1;
            } else {
                invalid += 1;
            }
        }
    }
    // Neither side has it easy.
    let least = ROUNDS / 2;
    assert!(valid > least && invalid > least, "{valid} and {invalid}");
}

struct Draw(Random);

impl Draw {
    fn below(&self, end: usize) -> usize {
        usize::try_from(self.0.next_u64() % end as u64).expect("small")
    }

    fn one_in(&self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Clone>(&self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn name(&self) -> &'static str {
        self.pick(&["a", "b", "é", ""])
    }

    fn schema(&self, depth: usize) -> Value {
        let mut schema = match self.below(if depth == 0 { 6 } else { 8 }) {
            0 => json!({"type": "null"}),
            1 => json!({"type": "boolean"}),
            2 => {
                json!({"type": "integer", "minimum": self.pick(&[json!(-1), json!(0.5), json!(2)])})
            }
            3 => json!({"type": "number", "minimum": self.pick(&[json!(0), json!(1.5)])}),
            4 => json!({"type": "string", "minLength": self.below(4)}),
            5 => json!({}),
            6 => json!({"type": "array", "items": self.schema(depth - 1)}),
            _ => self.object_schema(depth),
        };
        if self.one_in(8) {
            schema["const"] = self.payload(&schema, depth);
        }
        if self.one_in(8) {
            let choices: Vec<_> = (0..=self.below(3))
                .map(|_| self.payload(&schema, depth))
                .collect();
            // Draft 7 wants them unlike one another, as the oracle sees it.
            if (1..choices.len()).all(|at| !choices[..at].contains(&choices[at])) {
                schema["enum"] = choices.into();
            }
        }
        schema
    }

    fn object_schema(&self, depth: usize) -> Value {
        let mut schema = json!({"type": "object", "properties": {}});
        for _ in 0..self.below(4) {
            schema["properties"][self.name()] = self.schema(depth - 1);
        }
        if self.one_in(2) {
            schema["required"] = json!([self.name()]);
        }
        if self.one_in(2) {
            schema["additionalProperties"] = self.one_in(4).into();
        }
        schema
    }

    /// Something that has a chance to be valid.
    fn payload(&self, schema: &Value, depth: usize) -> Value {
        if self.one_in(6) {
            return self.scalar();
        }
        if let Some(constant) = schema.get("const").filter(|_| self.one_in(2)) {
            return constant.clone();
        }
        match schema["type"].as_str() {
            Some("null") => Value::Null,
            Some("boolean") => self.one_in(2).into(),
            Some("integer") => self.pick(&[json!(-1), json!(0), json!(2), json!(2.0), json!(0.5)]),
            Some("number") => self.pick(&[json!(-0.0), json!(1), json!(1.5), json!(1e3)]),
            Some("string") => self.pick(&["", "é", "a\u{301}", "😀😀", "abc"]).into(),
            Some("array") if depth > 0 => (0..self.below(4))
                .map(|_| self.payload(&schema["items"], depth - 1))
                .collect(),
            Some("object") if depth > 0 => self.object(&schema["properties"], depth),
            _ => self.scalar(),
        }
    }

    fn object(&self, properties: &Value, depth: usize) -> Value {
        let mut object = json!({});
        for _ in 0..self.below(4) {
            let name = self.name();
            object[name] = self.payload(&properties[name], depth - 1);
        }
        object
    }

    fn scalar(&self) -> Value {
        self.pick(&[
            Value::Null,
            true.into(),
            json!(0),
            json!(1.0),
            json!(1),
            "".into(),
            json!([]),
            json!({}),
        ])
    }
}
