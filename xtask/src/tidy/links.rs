//! Rules for the pages.

use std::path::{Component, Path};

use super::files::Files;
use crate::root::root;

/// A link to a file of the repository leads to one.
pub(super) fn lead_somewhere(files: &Files) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in files.ending(".md") {
        for target in targets(text) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let known = resolved(path, file).is_some_and(|file| root().join(file).exists());
            if !known {
                complaints.push(format!("{path}: the link to {target} leads nowhere"));
            }
        }
    }
    complaints
}

/// The page and the machine run the same tests: `.ci/run` calls the command that the README gives.
pub(super) fn one_test_command(files: &Files) -> Vec<String> {
    const COMMAND: &str = "cargo xtask test";
    [".ci/run", "README.md"]
        .iter()
        .filter(|path| {
            let text = files.get(path).unwrap_or_default();
            !text.lines().any(|line| line.trim().ends_with(COMMAND))
        })
        .map(|path| format!("{path}: does not call `{COMMAND}`"))
        .collect()
}

/// The targets of a page's inline links, code aside.
fn targets(text: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for (at, opening) in line.match_indices("](") {
            let rest = &line[at + opening.len()..];
            targets.extend(rest.split([')', ' ']).next());
        }
    }
    targets
}

/// `target` as seen from the page at `page`, from the root; `None` where it leaves the repository.
fn resolved(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for component in Path::new(target).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::ParentDir => {
                parts.pop()?;
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_resolved_from_their_page() {
        assert_eq!(resolved("a/b.md", "../c.md").as_deref(), Some("c.md"));
        assert_eq!(resolved("b.md", "./c/d.md").as_deref(), Some("c/d.md"));
        assert_eq!(resolved("b.md", "../c.md"), None);
    }

    #[test]
    fn a_dead_link_is_found() {
        let page = "[ok](Cargo.toml) [out](https://a.example/x) [here](#part)\n\
                    ```\n[code](nowhere)\n```\n[dead](nowhere.md \"title\")\n";
        let complaints = lead_somewhere(&Files::from([("a.md", page)]));
        assert_eq!(complaints, ["a.md: the link to nowhere.md leads nowhere"]);
    }

    #[test]
    fn a_page_without_the_command_is_found() {
        let with = "    cargo xtask test\n";
        let files = Files::from([(".ci/run", with), ("README.md", with)]);
        assert_eq!(one_test_command(&files), [""; 0]);
        let files = Files::from([(".ci/run", "cargo test\n"), ("README.md", with)]);
        assert_eq!(one_test_command(&files).len(), 1);
    }
}
