//! A folder's files in memory, by their path from its top.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::Result;

/// Paths are relative, with `/` between their parts, and never leave the folder.
pub(super) type Tree = BTreeMap<String, Vec<u8>>;

/// Reads every file of `folder`. A link anywhere in it is an error, whatever it points at.
pub(super) fn read(folder: &Path) -> Result<Tree> {
    let mut tree = Tree::new();
    let mut open = vec![PathBuf::new()];
    while let Some(at) = open.pop() {
        let entries = fs::read_dir(folder.join(&at))
            .map_err(|e| format!("{}: {e}", folder.join(&at).display()))?;
        for entry in entries {
            let entry = entry?;
            let path = at.join(entry.file_name());
            // Of the entry itself: `metadata` would follow a link.
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() {
                tree.insert(inside(&path)?, fs::read(entry.path())?);
            } else {
                return Err(format!("{} is a link or a special file", path.display()).into());
            }
        }
    }
    Ok(tree)
}

/// Makes `folder` hold these files and no others.
pub(super) fn write(folder: &Path, tree: &Tree) -> Result {
    let old = if folder.is_dir() {
        read(folder)?
    } else {
        Tree::new()
    };
    for path in old.keys().filter(|path| !tree.contains_key(*path)) {
        fs::remove_file(folder.join(path))?;
    }
    for (path, bytes) in tree {
        if old.get(path) == Some(bytes) {
            continue;
        }
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, bytes)?;
    }
    Ok(())
}

/// `path` with `/` between its parts, if it is relative and stays where it is put.
pub(super) fn inside(path: &Path) -> Result<String> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(
                part.to_str()
                    .ok_or_else(|| format!("{} is not UTF-8", path.display()))?,
            ),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(format!("{} leads out of the archive", path.display()).into());
            }
        }
    }
    Ok(parts.join("/"))
}

/// What differs, one line each: `missing`, `not in the suite` or `differs`, and the path.
pub(super) fn differences(found: &Tree, wanted: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, bytes) in wanted {
        match found.get(path) {
            None => lines.push(format!("missing: {path}")),
            Some(other) if other != bytes => lines.push(format!("differs: {path}")),
            Some(_) => {}
        }
    }
    let unknown = found.keys().filter(|path| !wanted.contains_key(*path));
    lines.extend(unknown.map(|path| format!("not in the suite: {path}")));
    lines
}
