//! `cargo xtask conformance sync`: vendor a release of the suite, or check the vendored copy.

use std::collections::BTreeMap;
use std::path::Path;

use babelqueue_conformance::Suite;
use clap::Args;

use super::tree::{self, Tree};
use super::{checksums, source, strip};
use crate::Result;

const VERSION_FILE: &str = "CONFORMANCE_VERSION";
const MANIFEST: &str = "manifest.json";

#[derive(Args)]
pub(super) struct Options {
    /// The version to vendor; the one in the source, or, without a source, the vendored one
    version: Option<String>,

    /// A folder, a .tar.gz archive, or the address of one (https://, file://); by default the
    /// release asset of VERSION, under `BQ_CONFORMANCE_BASE_URL` where that is set
    #[arg(long, value_name = "DIR|TARBALL|URL")]
    from: Option<String>,

    /// Change nothing: hold the vendored files against their checksums and, with --from, against
    /// that source, stripped in the same way
    #[arg(long)]
    check: bool,
}

pub(super) fn run(options: &Options) -> Result {
    let vendored = Suite::vendored_at();
    if options.check {
        return check(&vendored, options);
    }
    let tree = stripped(&fetch(options)?, options.version.as_deref())?;
    tree::write(&vendored, &tree)?;
    println!("suite {}: {} files", version_of(&tree)?, tree.len());
    Ok(())
}

fn check(vendored: &Path, options: &Options) -> Result {
    let found = tree::read(vendored).map_err(|e| format!("{}: {e}", vendored.display()))?;
    if !found.contains_key(checksums::FILE) {
        return Err(format!("the vendored suite has no {}", checksums::FILE).into());
    }
    let mut lines = checksums::verify(&found)?;
    if options.from.is_some() {
        let wanted = stripped(&fetch(options)?, options.version.as_deref())?;
        lines.extend(tree::differences(&found, &wanted));
        lines.sort();
        lines.dedup();
    } else if let Some(version) = &options.version {
        same_version(version, version_of(&found)?)?;
    }
    if lines.is_empty() {
        println!("suite {}: as it should be", version_of(&found)?);
        return Ok(());
    }
    Err(format!("the vendored suite differs:\n{}", lines.join("\n")).into())
}

fn fetch(options: &Options) -> Result<Tree> {
    match (&options.from, &options.version) {
        (Some(from), _) => source::read(from),
        (None, Some(version)) => source::read(&source::release(version)),
        (None, None) => Err("which version? Name one, or give --from".into()),
    }
}

/// The suite in data form: what the runner needs, without prose, with checksums over the result.
fn stripped(release: &Tree, version: Option<&str>) -> Result<Tree> {
    let text = |path: &str| -> Result<&str> {
        let bytes = release
            .get(path)
            .ok_or_else(|| format!("the release has no {path}"))?;
        Ok(std::str::from_utf8(bytes).map_err(|e| format!("{path}: {e}"))?)
    };
    if let Some(version) = version {
        same_version(version, text(VERSION_FILE)?)?;
    }
    text("LICENSE")?;

    let mut tree: Tree = BTreeMap::new();
    for (path, bytes) in release {
        let kept = match path.as_str() {
            MANIFEST => strip::manifest(text(path)?)
                .map_err(|e| format!("{path}: {e}"))?
                .into_bytes(),
            VERSION_FILE | "LICENSE" => bytes.clone(),
            _ if path.starts_with("fixtures/") => bytes.clone(),
            _ if path.starts_with("schema/") && path.ends_with(".schema.json") => {
                strip::schema(text(path)?)
                    .map_err(|e| format!("{path}: {e}"))?
                    .into_bytes()
            }
            _ if path.starts_with("schema/") => bytes.clone(),
            // Pages for readers, scripts, the release's own checksums.
            _ => continue,
        };
        tree.insert(path.clone(), kept);
    }
    tree.insert(
        checksums::FILE.to_owned(),
        checksums::of(&tree).into_bytes(),
    );
    Ok(tree)
}

fn version_of(tree: &Tree) -> Result<&str> {
    let bytes = tree
        .get(VERSION_FILE)
        .ok_or_else(|| format!("there is no {VERSION_FILE}"))?;
    Ok(std::str::from_utf8(bytes)?.trim())
}

fn same_version(wanted: &str, found: &str) -> Result {
    if wanted != found.trim() {
        return Err(format!("this is suite {}, not {wanted}", found.trim()).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release() -> Tree {
        [
            ("CONFORMANCE_VERSION", "9.9.9\n"),
            ("LICENSE", "free"),
            ("README.md", "prose"),
            (
                "manifest.json",
                r#"{"description":"x","cases":[{"source":"y","n":1e400}]}"#,
            ),
            ("fixtures/a.json", r#"{"description":"data"}"#),
            (
                "schema/r.schema.json",
                r#"{"description":"x","type":"object"}"#,
            ),
            ("schema/r.example.json", r#"{"description":"x"}"#),
        ]
        .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))
        .into()
    }

    #[test]
    fn prose_is_left_out_and_the_rest_kept_byte_for_byte() {
        let tree = stripped(&release(), Some("9.9.9")).unwrap();
        let text = |path: &str| std::str::from_utf8(&tree[path]).unwrap();
        assert_eq!(text("manifest.json"), r#"{"cases":[{"n":1e400}]}"#);
        assert_eq!(text("fixtures/a.json"), r#"{"description":"data"}"#);
        assert_eq!(text("schema/r.schema.json"), r#"{"type":"object"}"#);
        assert_eq!(text("schema/r.example.json"), r#"{"description":"x"}"#);
        assert!(!tree.contains_key("README.md"));
        assert!(checksums::verify(&tree).unwrap().is_empty());
    }

    #[test]
    fn another_version_or_a_missing_licence_is_an_error() {
        assert!(stripped(&release(), Some("9.9.8")).is_err());
        let mut unlicensed = release();
        unlicensed.remove("LICENSE");
        assert!(stripped(&unlicensed, None).is_err());
    }

    #[test]
    fn a_check_names_what_differs() {
        let wanted = stripped(&release(), None).unwrap();
        let mut found = wanted.clone();
        found.insert("fixtures/a.json".to_owned(), b"{}".to_vec());
        found.insert("fixtures/b.json".to_owned(), b"{}".to_vec());
        found.remove("LICENSE");
        assert_eq!(
            checksums::verify(&found).unwrap(),
            [
                "missing: LICENSE",
                "differs: fixtures/a.json",
                "not listed: fixtures/b.json"
            ]
        );
        assert_eq!(
            tree::differences(&found, &wanted),
            [
                "missing: LICENSE",
                "differs: fixtures/a.json",
                "not in the suite: fixtures/b.json"
            ]
        );
    }

    #[test]
    fn the_vendored_suite_is_as_its_checksums_say() {
        let vendored = tree::read(&Suite::vendored_at()).unwrap();
        assert!(vendored.contains_key(checksums::FILE));
        assert_eq!(checksums::verify(&vendored).unwrap(), [""; 0]);
        let manifest = std::str::from_utf8(&vendored[MANIFEST]).unwrap();
        assert_eq!(
            strip::manifest(manifest).unwrap(),
            manifest,
            "prose was left in the vendored manifest"
        );
    }
}
