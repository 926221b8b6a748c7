//! Where a release of the suite comes from: a folder, an archive, or an address.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use flate2::read::GzDecoder;
use tar::EntryType;

use super::checksums;
use super::tree::{self, Tree};
use crate::Result;

/// Where releases are published; `BQ_CONFORMANCE_BASE_URL` takes its place (contract §17B.9).
const RELEASES: &str = "https://github.com/BabelQueue/conformance/releases/download";
const BASE_VARIABLE: &str = "BQ_CONFORMANCE_BASE_URL";

/// No release is near this size; a file that unpacks to more is not one.
const MAX_UNPACKED: u64 = 64 << 20;

/// The address of the release asset of `version`.
pub(super) fn release(version: &str) -> String {
    let base = std::env::var(BASE_VARIABLE).unwrap_or_else(|_| RELEASES.to_owned());
    let base = base.trim_end_matches('/');
    format!("{base}/v{version}/babelqueue-conformance-{version}.tar.gz")
}

/// Reads a release from a folder, an archive, or an address (`https://`, `http://`, `file://`) of
/// either; of an archive only with the checksum that stands beside it, where there is one.
pub(super) fn read(from: &str) -> Result<Tree> {
    let tree = if let Some(path) = from.strip_prefix("file://") {
        read_path(Path::new(path))
    } else if from.starts_with("https://") || from.starts_with("http://") {
        download(from)
    } else {
        read_path(Path::new(from))
    };
    let tree = tree.map_err(|e| format!("{from}: {e}"))?;
    let wrong = checksums::verify(&tree)?;
    if !wrong.is_empty() {
        return Err(format!("{from} is not as its checksums say:\n{}", wrong.join("\n")).into());
    }
    Ok(tree)
}

fn read_path(path: &Path) -> Result<Tree> {
    if path.is_dir() {
        return tree::read(path);
    }
    let archive = fs::read(path)?;
    let beside = path.with_file_name(checksums::FILE);
    if beside.is_file() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        checksums::verify_one(&fs::read_to_string(beside)?, &name, &archive)?;
    }
    unpack(&archive)
}

/// A release over the network is never taken without its checksum.
fn download(url: &str) -> Result<Tree> {
    let (folder, name) = url
        .rsplit_once('/')
        .ok_or("an address without a file name")?;
    let sums = fetch(&format!("{folder}/{}", checksums::FILE))?;
    let archive = fetch(url)?;
    checksums::verify_one(std::str::from_utf8(&sums)?, name, &archive)?;
    unpack(&archive)
}

fn fetch(url: &str) -> Result<Vec<u8>> {
    let output = Command::new("curl")
        .args(["--fail", "--silent", "--show-error", "--location"])
        .args(["--max-filesize", &MAX_UNPACKED.to_string(), url])
        .output()
        .map_err(|e| format!("curl: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{url}: {}", said.trim()).into());
    }
    Ok(output.stdout)
}

/// The files of a gzipped tar archive, without the one folder that they may all lie in. A link, a
/// special file or a path that leads out of the archive is an error.
fn unpack(archive: &[u8]) -> Result<Tree> {
    let mut archive = tar::Archive::new(GzDecoder::new(archive).take(MAX_UNPACKED));
    let mut tree = Tree::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let inside = tree::inside(&path)?;
        match entry.header().entry_type() {
            EntryType::Regular => {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes)?;
                if tree.insert(inside, bytes).is_some() {
                    return Err(format!("{} is there twice", path.display()).into());
                }
            }
            EntryType::Directory | EntryType::XGlobalHeader => {}
            other => {
                return Err(format!("{} is a {other:?}, not a file", path.display()).into());
            }
        }
    }
    Ok(without_common_folder(tree))
}

fn without_common_folder(tree: Tree) -> Tree {
    let mut folders = tree
        .keys()
        .map(|path| path.split_once('/').map(|(top, _)| top));
    let Some(Some(top)) = folders.next() else {
        return tree;
    };
    if !folders.all(|folder| folder == Some(top)) {
        return tree;
    }
    let skip = top.len() + 1;
    tree.iter()
        .map(|(path, bytes)| (path[skip..].to_owned(), bytes.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::suite::scratch::Scratch;

    fn archive(fill: impl FnOnce(&mut tar::Builder<GzEncoder<Vec<u8>>>)) -> Vec<u8> {
        let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        fill(&mut builder);
        builder.into_inner().unwrap().finish().unwrap()
    }

    fn entry(kind: EntryType, size: u64) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o644);
        header.set_cksum();
        header
    }

    #[test]
    fn files_come_out_without_their_common_folder() {
        let archive = archive(|tar| {
            for path in ["suite-1/manifest.json", "suite-1/fixtures/a.json"] {
                let mut header = entry(EntryType::Regular, 2);
                tar.append_data(&mut header, path, &b"{}"[..]).unwrap();
            }
        });
        let tree = unpack(&archive).unwrap();
        let paths: Vec<_> = tree.keys().map(String::as_str).collect();
        assert_eq!(paths, ["fixtures/a.json", "manifest.json"]);
    }

    #[test]
    fn links_and_escaping_paths_are_refused() {
        for kind in [EntryType::Symlink, EntryType::Link] {
            let archive = archive(|tar| {
                let mut header = entry(kind, 0);
                tar.append_link(&mut header, "fixtures/a.json", "manifest.json")
                    .unwrap();
            });
            assert!(unpack(&archive).is_err(), "{kind:?} was taken");
        }
        for path in ["../a.json", "a/../../b.json", "/a.json"] {
            let archive = archive(|tar| {
                let mut header = entry(EntryType::Regular, 0);
                // The builder would refuse such a path itself.
                header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
                header.set_cksum();
                tar.append(&header, &b""[..]).unwrap();
            });
            assert!(unpack(&archive).is_err(), "{path} was taken");
        }
    }

    #[test]
    fn an_archive_that_unpacks_without_end_is_refused() {
        let archive = archive(|tar| {
            let mut header = entry(EntryType::Regular, MAX_UNPACKED + 1);
            tar.append_data(
                &mut header,
                "manifest.json",
                std::io::repeat(b' ').take(MAX_UNPACKED + 1),
            )
            .unwrap();
        });
        assert!(unpack(&archive).is_err());
    }

    #[test]
    fn an_archive_is_held_against_the_checksum_beside_it() {
        let scratch = Scratch::new("beside");
        let archive = archive(|tar| {
            let mut header = entry(EntryType::Regular, 2);
            tar.append_data(&mut header, "a.json", &b"{}"[..]).unwrap();
        });
        let path = scratch.0.join("suite.tar.gz");
        fs::write(&path, &archive).unwrap();
        let url = format!("file://{}", path.display());
        assert!(read(&url).is_ok(), "without checksums");

        let sums = checksums::of(&Tree::from([("suite.tar.gz".to_owned(), archive.clone())]));
        fs::write(scratch.0.join(checksums::FILE), sums).unwrap();
        assert!(read(&url).is_ok(), "with the right one");

        let mut other = archive;
        other.push(0);
        fs::write(&path, &other).unwrap();
        assert!(read(&url).unwrap_err().to_string().contains("checksum"));
    }

    #[test]
    fn a_folder_with_a_link_is_refused() {
        let scratch = Scratch::new("link");
        fs::write(scratch.0.join("a.json"), "{}").unwrap();
        assert!(read(&scratch.0.display().to_string()).is_ok());
        std::os::unix::fs::symlink("a.json", scratch.0.join("b.json")).unwrap();
        assert!(read(&scratch.0.display().to_string()).is_err());
    }
}
