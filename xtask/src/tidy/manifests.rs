//! Rules for the packages' manifests.

use super::files::Files;
use crate::packages;

/// What every package takes from the workspace, so that it is said once.
const SHARED: &[&str] = &["version", "edition", "rust-version", "license"];

/// What a published package says besides.
const PUBLISHED: &[&str] = &["repository", "homepage", "keywords", "categories"];

/// Every package keeps the workspace's lints and metadata; a published one has a page and the licences.
pub(super) fn metadata(files: &Files) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in files.ending("/Cargo.toml") {
        // Not a member: cargo-fuzz wants a workspace of its own.
        if path.starts_with("fuzz/") {
            continue;
        }
        let mut want = |condition: bool, what: &str| {
            if !condition {
                complaints.push(format!("{path}: no {what}"));
            }
        };
        let inherits = |key: &str| text.contains(&format!("\n{key}.workspace = true\n"));
        want(
            text.contains("\n[lints]\nworkspace = true\n"),
            "[lints] workspace = true",
        );
        want(text.contains("\ndescription = \""), "description");
        for key in SHARED {
            want(inherits(key), &format!("{key}.workspace = true"));
        }
        if text.contains("\npublish = false\n") {
            continue;
        }
        for key in PUBLISHED {
            want(inherits(key), &format!("{key}.workspace = true"));
        }
        want(text.contains("\nreadme = \"README.md\"\n"), "readme");
        let page = path.replace("Cargo.toml", "README.md");
        want(files.get(&page).is_some(), "README.md beside it");
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let beside = files.get(&path.replace("Cargo.toml", licence));
            want(beside == files.get(licence), licence);
        }
    }
    complaints
}

/// Every published package is known to the xtask, and runs the suite.
pub(super) fn packages(files: &Files) -> Vec<String> {
    let known = packages::all();
    let mut complaints = Vec::new();
    for (path, text) in files.ending("/Cargo.toml") {
        let name = path.trim_end_matches("/Cargo.toml");
        if text.contains("\npublish = false\n") || name == "fuzz" {
            continue;
        }
        if !known.iter().any(|package| package.name == name) {
            complaints.push(format!("{path}: not in the xtask's list of packages"));
        }
        let suite = ["conformance.rs", "conformance/main.rs"];
        if !suite
            .iter()
            .any(|file| files.get(&format!("{name}/tests/{file}")).is_some())
        {
            complaints.push(format!("{name}: no tests/conformance.rs"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"a\"\ndescription = \"b\"\nversion.workspace = true\n\
        edition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\n\
        repository.workspace = true\nhomepage.workspace = true\nkeywords.workspace = true\n\
        categories.workspace = true\nreadme = \"README.md\"\n\n[lints]\nworkspace = true\n";

    fn complaints(text: &str) -> Vec<String> {
        metadata(&Files::from([
            ("a/Cargo.toml", text),
            ("a/README.md", "# a\n"),
        ]))
    }

    #[test]
    fn what_a_manifest_lacks_is_found() {
        assert_eq!(complaints(GOOD), [""; 0]);
        let own_version = GOOD.replace("version.workspace = true", "version = \"1.0.0\"");
        assert_eq!(
            complaints(&own_version).len(),
            2,
            "version and rust-version"
        );
        assert_eq!(complaints(&GOOD.replace("[lints]", "[other]")).len(), 1);
        let hidden = GOOD.replace("keywords.workspace = true\n", "publish = false\n");
        assert_eq!(complaints(&hidden), [""; 0]);
        let alone = Files::from([("a/Cargo.toml", GOOD)]);
        assert_eq!(metadata(&alone).len(), 1, "no page");
    }

    #[test]
    fn an_unknown_package_is_found() {
        let files = Files::from([("babelqueue-new/Cargo.toml", GOOD)]);
        assert_eq!(packages(&files).len(), 2, "unknown, and without the suite");
    }
}
