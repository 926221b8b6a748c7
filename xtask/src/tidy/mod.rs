//! `cargo xtask tidy`: the rules of this house, as plain functions. Each gives its complaints, one
//! line each; no complaint is the pass.

mod files;
mod links;
mod manifests;
mod source;
mod text;

use crate::Result;
use files::Files;

/// A rule: what it complains of in these files.
type Rule = fn(&Files) -> Vec<String>;

const RULES: &[Rule] = &[
    text::no_machine_paths,
    text::no_registry_hosts,
    text::clean_lines,
    text::citations,
    source::no_stubs,
    source::reasons,
    source::names,
    source::sizes,
    manifests::metadata,
    manifests::packages,
    links::lead_somewhere,
    links::one_test_command,
];

pub(crate) fn run() -> Result {
    let files = Files::of_repository()?;
    let complaints: Vec<String> = RULES.iter().flat_map(|rule| rule(&files)).collect();
    if complaints.is_empty() {
        println!("tidy: {} rules hold in {} files", RULES.len(), files.len());
        return Ok(());
    }
    Err(format!("tidy:\n{}", complaints.join("\n")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_house_rules_hold() {
        let files = Files::of_repository().unwrap();
        let complaints: Vec<String> = RULES.iter().flat_map(|rule| rule(&files)).collect();
        assert_eq!(complaints, [""; 0]);
    }
}
