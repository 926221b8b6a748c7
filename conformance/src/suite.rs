//! The manifest: which sections there are, which cases they hold, and what each is called
//! (contract §17B.1–3).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs};

use crate::json::{self, Json};
use crate::{Case, Unreadable};

/// A conformance suite, read from a folder.
#[derive(Debug, Clone)]
pub struct Suite {
    version: String,
    sections: Vec<Section>,
}

/// One section of the manifest.
#[derive(Debug, Clone)]
pub struct Section {
    /// Its name, as in `manifest.sections`.
    pub name: Arc<str>,
    /// Who has to run it.
    pub scope: Scope,
    /// Its cases, in the order of the manifest.
    pub cases: Vec<Case>,
}

/// Who has to run a section: every package, or those that carry a binding.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Every package.
    Core,
    /// The packages that carry this binding: `redis`, `amqp`, `otel` …
    Binding(Box<str>),
}

impl Scope {
    fn named(name: &str) -> Self {
        match name {
            "core" => Self::Core,
            binding => Self::Binding(binding.into()),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Core => f.write_str("core"),
            Self::Binding(name) => f.write_str(name),
        }
    }
}

impl Suite {
    /// The folder of the suite that is vendored in this repository.
    pub fn vendored_at() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("suite")
    }

    /// The suite that is vendored in this repository.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn vendored() -> Result<Self, Unreadable> {
        Self::read(&Self::vendored_at())
    }

    /// Reads the suite in `folder`: `CONFORMANCE_VERSION`, `manifest.json`; the fixtures when they
    /// are asked for.
    ///
    /// # Errors
    ///
    /// A file is missing, the manifest is not JSON, or lacks what the contract says of its shape.
    pub fn read(folder: &Path) -> Result<Self, Unreadable> {
        let text = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).map_err(|e| Unreadable(format!("{}: {e}", path.display())))
        };
        let version = text("CONFORMANCE_VERSION")?.trim().to_owned();
        let manifest = json::parse(&text("manifest.json")?)
            .map_err(|e| Unreadable(format!("manifest: {e}")))?;
        match manifest.get("conformance_version").and_then(Json::as_str) {
            Some(known) if known == version => {}
            other => {
                return Err(Unreadable(format!(
                    "the manifest is of version {other:?}, CONFORMANCE_VERSION says {version}"
                )));
            }
        }
        let sections = sections(&manifest, &Arc::from(folder))?;
        Ok(Self { version, sections })
    }

    /// The suite's version, as `CONFORMANCE_VERSION` has it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// All sections, in the order of the manifest; also those of newer suites that nobody here
    /// knows.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The section of that name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| &*s.name == name)
    }

    /// The sections that a package with these bindings has to run: the core's and theirs.
    pub fn in_scope<'a>(&'a self, bindings: &'a [&str]) -> impl Iterator<Item = &'a Section> {
        self.sections.iter().filter(|section| match &section.scope {
            Scope::Core => true,
            Scope::Binding(name) => bindings.contains(&&**name),
        })
    }
}

fn sections(manifest: &Json, folder: &Arc<Path>) -> Result<Vec<Section>, Unreadable> {
    let listed = manifest
        .get("sections")
        .and_then(Json::as_object)
        .ok_or_else(|| Unreadable("the manifest has no object `sections`".to_owned()))?;
    listed
        .iter()
        .map(|(name, entry)| {
            let scope = entry
                .get("scope")
                .and_then(Json::as_str)
                .ok_or_else(|| Unreadable(format!("section `{name}` has no string `scope`")))?;
            let body = manifest
                .get(name)
                .ok_or_else(|| Unreadable(format!("section `{name}` is listed, but not there")))?;
            let name: Arc<str> = name.as_str().into();
            Ok(Section {
                cases: cases(&name, body, folder),
                name,
                scope: Scope::named(scope),
            })
        })
        .collect()
}

/// The cases of a section, named as contract §17B.2 says.
fn cases(section: &Arc<str>, body: &Json, folder: &Arc<Path>) -> Vec<Case> {
    let case = |id: String, fields: &Json, block: &Json| Case {
        section: Arc::clone(section),
        id,
        fields: fields.clone(),
        block: Arc::new(block.without("cases")),
        folder: Arc::clone(folder),
    };
    let mut cases = Vec::new();

    // The manifest's top-level array `cases` is the section of that name.
    let own = body
        .as_array()
        .or(body.get("cases").and_then(Json::as_array));
    for (i, fields) in own.unwrap_or_default().iter().enumerate() {
        let id = named(fields).unwrap_or_else(|| format!("{section}#{i}"));
        cases.push(case(id, fields, body));
    }

    for (key, value) in body.as_object().unwrap_or_default() {
        if key == "schema" || value.as_object().is_none() {
            continue;
        }
        match value.get("cases").and_then(Json::as_array) {
            Some(rows) => cases.extend(rows.iter().enumerate().map(|(i, fields)| {
                let row = named(fields).unwrap_or_else(|| i.to_string());
                case(format!("{key}/{row}"), fields, value)
            })),
            None => cases.push(case(key.clone(), value, body)),
        }
    }
    cases
}

fn named(fields: &Json) -> Option<String> {
    Some(fields.get("name")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_vendored_suite_has_the_contracts_counts() {
        let suite = Suite::vendored().unwrap();
        let mut counts = BTreeMap::new();
        for section in suite.sections() {
            *counts.entry(section.scope.to_string()).or_insert(0) += section.cases.len();
        }
        let expected = [
            ("amqp", 1),
            ("artemis", 43),
            ("asb", 48),
            ("core", 268),
            ("kafka", 146),
            ("otel", 14),
            ("pulsar", 71),
            ("redis", 68),
            ("sqs", 51),
        ];
        assert_eq!(
            counts,
            expected
                .map(|(name, count)| (name.to_owned(), count))
                .into()
        );
        assert_eq!(suite.version(), "1.8.0");
        assert_eq!(suite.sections().len(), 32);
    }

    #[test]
    fn no_two_cases_of_a_section_share_an_id() {
        for section in Suite::vendored().unwrap().sections() {
            let mut ids: Vec<_> = section.cases.iter().map(|case| &case.id).collect();
            ids.sort_unstable();
            let all = ids.len();
            ids.dedup();
            assert_eq!(ids.len(), all, "section {}", section.name);
        }
    }

    #[test]
    fn ids_follow_the_manifests_shape() {
        let suite = Suite::vendored().unwrap();
        let ids = |section: &str| -> Vec<String> {
            let section = suite.section(section).unwrap();
            section.cases.iter().map(|case| case.id.clone()).collect()
        };
        assert!(ids("sqs").contains(&"schema_version_gate/7".to_owned()));
        assert!(ids("sqs").contains(&"attribute_projection".to_owned()));
        assert!(ids("redis_layout").contains(&"simple-queue".to_owned()));
        assert!(ids("redis_layout").contains(&"release/attempts-0-to-1".to_owned()));
        assert!(ids("idempotency").contains(&"dedup_key".to_owned()));
        assert!(!ids("payload_schema").contains(&"schema".to_owned()));
    }
}
