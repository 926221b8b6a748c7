//! The files of the repository, as far as they are text of ours.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::Result;
use crate::root::root;

/// Data that is held against checksums, and what cargo writes itself.
const NOT_OURS: &[&str] = &["conformance/suite/", "Cargo.lock", "fuzz/Cargo.lock"];

/// Text by path from the root.
#[derive(Debug, Default)]
pub(super) struct Files {
    texts: BTreeMap<String, String>,
}

impl Files {
    /// All that git tracks, or would if it were added.
    pub(super) fn of_repository() -> Result<Self> {
        let output = Command::new("git")
            .current_dir(root())
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .output()
            .map_err(|e| format!("git: {e}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        let mut files = Self::default();
        for path in String::from_utf8(output.stdout)?.split_terminator('\0') {
            let ours = !NOT_OURS.iter().any(|other| path.starts_with(other));
            // Tracked, but deleted in the working tree; or not text.
            if ours && let Ok(text) = fs::read_to_string(root().join(path)) {
                files.texts.insert(path.to_owned(), text);
            }
        }
        Ok(files)
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    pub(super) fn get(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Paths and texts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The same of files with this ending.
    pub(super) fn ending(&self, ending: &'static str) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter(move |(path, _)| path.ends_with(ending))
    }

    /// Every line, with `path:number` before it.
    pub(super) fn lines(&self) -> impl Iterator<Item = (String, &str)> {
        self.iter().flat_map(|(path, text)| {
            let numbered = text.lines().enumerate();
            numbered.map(move |(i, line)| (format!("{path}:{}", i + 1), line))
        })
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Files {
    fn from(texts: [(&str, &str); N]) -> Self {
        let texts = texts.map(|(path, text)| (path.to_owned(), text.to_owned()));
        Self {
            texts: texts.into(),
        }
    }
}
