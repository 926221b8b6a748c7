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
