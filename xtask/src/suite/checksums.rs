//! `SHA256SUMS` files: a hex digest, two spaces, a path, a line.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::tree::Tree;
use crate::Result;

/// The file's name.
pub(super) const FILE: &str = "SHA256SUMS";

/// The checksums of every file in `tree` but the checksum file itself.
pub(super) fn of(tree: &Tree) -> String {
    let mut text = String::new();
    for (path, bytes) in tree.iter().filter(|(path, _)| *path != FILE) {
        _ = writeln!(text, "{}  {path}", hex(bytes));
    }
    text
}

/// Holds `tree` against the checksum file in it, if there is one: every listed file is there and
/// unchanged, and every file is listed. Gives the files that are not as listed, one line each.
pub(super) fn verify(tree: &Tree) -> Result<Vec<String>> {
    let Some(text) = tree.get(FILE) else {
        return Ok(Vec::new());
    };
    let listed = parse(std::str::from_utf8(text)?)?;
    let mut lines = Vec::new();
    for (path, digest) in &listed {
        match tree.get(path) {
            None => lines.push(format!("missing: {path}")),
            Some(bytes) if hex(bytes) != *digest => lines.push(format!("differs: {path}")),
            Some(_) => {}
        }
    }
    for path in tree.keys().filter(|path| *path != FILE) {
        if !listed.iter().any(|(known, _)| known == path) {
            lines.push(format!("not listed: {path}"));
        }
    }
    Ok(lines)
}

/// Holds one file's bytes against the line for `name` in a checksum file's text.
pub(super) fn verify_one(text: &str, name: &str, bytes: &[u8]) -> Result {
    let listed = parse(text)?;
    let Some((_, digest)) = listed.iter().find(|(known, _)| known == name) else {
        return Err(format!("{FILE} has no line for {name}").into());
    };
    if hex(bytes) != *digest {
        return Err(format!("{name} does not have the checksum of {FILE}").into());
    }
    Ok(())
}

fn parse(text: &str) -> Result<Vec<(String, String)>> {
    let mut listed = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let parts = line.split_once(' ').filter(|(digest, _)| {
            digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit())
        });
        let Some((digest, path)) = parts else {
            return Err(format!("{FILE}: not a checksum line: {line}").into());
        };
        // `*` marks binary mode; `./` is how `find` spells paths.
        let path = path.trim_start_matches([' ', '*']);
        let path = path.strip_prefix("./").unwrap_or(path);
        listed.push((path.to_owned(), digest.to_ascii_lowercase()));
    }
    Ok(listed)
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        _ = write!(text, "{byte:02x}");
    }
    text
}
