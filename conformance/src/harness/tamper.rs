//! The harness's own proof: a case that cannot turn red proves nothing.

use crate::{Case, Json, Met, Section, Unmet};

/// Cases whose expectation is their input, so that there is nothing to alter: a fixture has to come
/// back as it went in.
const INPUT_IS_EXPECTATION: &[(&str, &str)] = &[("redis", "payload_identity")];

/// Alters each expectation of each case in turn, in memory, and fails if a case stays green through
/// all of it.
pub(super) fn every_case_can_fail(section: &Section, run: impl Fn(&Case) -> Met) -> Met {
    for case in &section.cases {
        if INPUT_IS_EXPECTATION.contains(&(&*section.name, &*case.id)) {
            continue;
        }
        let mut turned_red = false;
        for fields in altered(&case.fields, false) {
            let mutant = Case {
                fields,
                ..case.clone()
            };
            match run(&mutant) {
                Err(Unmet::Failed(_)) => {
                    turned_red = true;
                    break;
                }
                Err(unmet) => return Err(unmet),
                Ok(()) => {}
            }
        }
        if !turned_red {
            return Err(Unmet::Failed(format!(
                "{}/{} stays green whichever of its expectations is altered",
                case.section, case.id
            )));
        }
    }
    Ok(())
}

/// Every variant of `json` in which one expected value is another. `expected` says whether `json`
/// itself stands under an expectation.
fn altered(json: &Json, expected: bool) -> Vec<Json> {
    match json {
        Json::Object(members) if !members.is_empty() => {
            let projection = members.iter().any(|(name, _)| name == "envelope_file");
            let mut variants = Vec::new();
            for (i, (name, value)) in members.iter().enumerate() {
                let expected = expected || is_expectation(name, projection);
                for value in altered(value, expected) {
                    let mut members = members.clone();
                    members[i].1 = value;
                    variants.push(Json::Object(members));
                }
            }
            variants
        }
        Json::Array(items) if !items.is_empty() => {
            let mut variants = Vec::new();
            for (i, item) in items.iter().enumerate() {
                for item in altered(item, expected) {
                    let mut items = items.clone();
                    items[i] = item;
                    variants.push(Json::Array(items));
                }
            }
            variants
        }
        leaf if expected => vec![another(leaf)],
        _ => Vec::new(),
    }
}

/// Whether a member states what has to come out. A projection states it in every member but the
/// file that it projects.
fn is_expectation(name: &str, projection: bool) -> bool {
    name.starts_with("expect")
        || matches!(name, "valid" | "forbidden_key")
        || (projection && !matches!(name, "envelope_file" | "key_field" | "name"))
}

fn another(leaf: &Json) -> Json {
    match leaf {
        Json::Null => Json::from("tampered"),
        Json::Bool(value) => Json::Bool(!value),
        Json::Number(literal) => match literal.parse::<i64>() {
            Ok(value) => Json::from(value.wrapping_add(1)),
            Err(_) => Json::Number(format!("1{literal}").into()),
        },
        Json::String(text) => Json::String(format!("{text}~")),
        Json::Array(_) => Json::Array(vec![Json::from("tampered")]),
        Json::Object(_) => Json::Object(vec![("tampered".to_owned(), Json::Bool(true))]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Suite, json};

    #[test]
    fn only_expectations_are_altered_one_at_a_time() {
        let fields = json::parse(
            r#"{"name":"a","valid":true,"input":{"n":1},"expect":{"urn":"u","list":[1,{}]}}"#,
        )
        .unwrap();
        let variants: Vec<String> = altered(&fields, false)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            variants,
            [
                r#"{"name":"a","valid":false,"input":{"n":1},"expect":{"urn":"u","list":[1,{}]}}"#,
                r#"{"name":"a","valid":true,"input":{"n":1},"expect":{"urn":"u~","list":[1,{}]}}"#,
                r#"{"name":"a","valid":true,"input":{"n":1},"expect":{"urn":"u","list":[2,{}]}}"#,
                r#"{"name":"a","valid":true,"input":{"n":1},"expect":{"urn":"u","list":[1,{"tampered":true}]}}"#,
            ]
        );
    }

    #[test]
    fn every_case_of_the_suite_states_an_expectation() {
        for section in Suite::vendored().unwrap().sections() {
            for case in &section.cases {
                let exempt = INPUT_IS_EXPECTATION.contains(&(&*section.name, &*case.id));
                assert_eq!(
                    altered(&case.fields, false).is_empty(),
                    exempt,
                    "{}/{}",
                    section.name,
                    case.id
                );
            }
        }
    }

    #[test]
    fn a_runner_that_looks_at_nothing_is_found_out() {
        let suite = Suite::vendored().unwrap();
        let section = suite.section("trim").unwrap();
        assert!(every_case_can_fail(section, |_| Ok(())).is_err());
        assert!(every_case_can_fail(section, |_| Err(Unmet::failed("red"))).is_ok());
    }
}
