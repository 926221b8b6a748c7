//! The results file of a package (contract §17B.4).

use chrono::{SecondsFormat, Utc};

use super::outcomes::Outcomes;
use crate::{Json, Met, Section, Suite, Unmet};

/// The file's text: every case of every section in scope.
///
/// An error where a case was not run at all, or for want of a broker: such a file would not be
/// valid.
pub(super) fn text(
    package: &str,
    version: &str,
    bindings: &[&str],
    suite: &Suite,
    outcomes: &Outcomes,
) -> Result<String, String> {
    let sections = suite
        .in_scope(bindings)
        .map(|section| Ok((section.name.to_string(), cases(section, outcomes)?)))
        .collect::<Result<Vec<_>, String>>()?;
    let member = |name: &str, value: Json| (name.to_owned(), value);
    let results = Json::Object(vec![
        member("sdk", Json::from(identity(package).as_str())),
        member("version", Json::from(version)),
        member("conformance_version", Json::from(suite.version())),
        member(
            "generated_at",
            Json::from(
                Utc::now()
                    .to_rfc3339_opts(SecondsFormat::Secs, true)
                    .as_str(),
            ),
        ),
        member(
            "bindings",
            Json::Array(bindings.iter().map(|name| Json::from(*name)).collect()),
        ),
        member("sections", Json::Object(sections)),
    ]);
    Ok(format!("{results}\n"))
}

/// `babelqueue-redis` is `babelqueue-rust/redis` among the SDKs.
fn identity(package: &str) -> String {
    let name = package.strip_prefix("babelqueue-").unwrap_or(package);
    format!("babelqueue-rust/{name}")
}

fn cases(section: &Section, outcomes: &Outcomes) -> Result<Json, String> {
    let cases = section.cases.iter().map(|case| {
        let name = format!("{}/{}", case.section, case.id);
        let met = outcomes
            .of(case)
            .ok_or_else(|| format!("{name} was not run"))?;
        Ok((
            case.id.clone(),
            status(met).map_err(|e| format!("{name}: {e}"))?,
        ))
    });
    Ok(Json::Object(cases.collect::<Result<_, String>>()?))
}

fn status(met: Met) -> Result<Json, String> {
    let (status, reason) = match met {
        Ok(()) => ("pass", None),
        Err(Unmet::Failed(reason)) => ("fail", Some(reason)),
        Err(Unmet::Skipped(reason)) => ("skip", Some(reason)),
        Err(Unmet::NoBroker(reason)) => return Err(reason),
    };
    let mut members = vec![("status".to_owned(), Json::from(status))];
    if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
        members.push(("reason".to_owned(), Json::String(reason)));
    }
    Ok(Json::Object(members))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::json;

    /// The outcomes of a run in which every case came to `met`.
    fn outcomes(suite: &Suite, bindings: &[&str], met: &Met) -> Outcomes {
        let outcomes = Outcomes::default();
        for case in suite.in_scope(bindings).flat_map(|section| &section.cases) {
            outcomes.note(case, met);
        }
        outcomes
    }

    fn schema() -> jsonschema::Validator {
        let path = Suite::vendored_at().join("schema/results.schema.json");
        let schema: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        jsonschema::options()
            .should_validate_formats(true)
            .build(&schema)
            .unwrap()
    }

    #[test]
    fn a_file_fits_the_suites_schema_and_holds_every_case() {
        let suite = Suite::vendored().unwrap();
        for met in [
            Ok(()),
            Err(Unmet::failed("red")),
            Err(Unmet::failed("")),
            Err(Unmet::Skipped("ADR-0037 decision 4".to_owned())),
        ] {
            for (bindings, cases) in [(&[][..], 268), (&["redis"], 336), (&["kafka"], 414)] {
                let outcomes = outcomes(&suite, bindings, &met);
                let text = text("babelqueue-x", "0.1.0", bindings, &suite, &outcomes).unwrap();
                let errors: Vec<_> = schema()
                    .iter_errors(&serde_json::from_str(&text).unwrap())
                    .map(|error| error.to_string())
                    .collect();
                assert_eq!(errors, [""; 0], "{met:?}");

                let results = json::parse(&text).unwrap();
                let sections = results.get("sections").unwrap().as_object().unwrap();
                let found: usize = sections
                    .iter()
                    .map(|(_, cases)| cases.as_object().unwrap().len())
                    .sum();
                assert_eq!(found, cases);
            }
        }
    }

    #[test]
    fn a_run_with_a_gap_or_without_its_broker_leaves_no_file() {
        let suite = Suite::vendored().unwrap();
        let core_only = outcomes(&suite, &[], &Ok(()));
        assert!(text("x", "0.1.0", &["sqs"], &suite, &core_only).is_err());
        let away = outcomes(&suite, &[], &Err(Unmet::NoBroker("away".to_owned())));
        assert!(text("x", "0.1.0", &[], &suite, &away).is_err());
    }
}
