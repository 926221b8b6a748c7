//! What the peers need: each installed where it is missing.

use std::path::PathBuf;

use crate::root::{root, target};
use crate::{Result, apt, cargo};

/// Builds the program `peer`, and says where it is.
pub(super) fn our_peer() -> Result<PathBuf> {
    cargo::run(&mut cargo::command(&["build", "--quiet", "-p", "peer"]))?;
    Ok(target().join("debug/peer"))
}

/// Laravel's own queue classes.
pub(super) fn laravel() -> Result {
    apt::need("php", "php-cli")?;
    for (folder, package) in [
        ("Illuminate/Queue", "php-illuminate-queue"),
        ("Illuminate/Redis", "php-illuminate-redis"),
        ("Predis", "php-nrk-predis"),
    ] {
        apt::need_file(&format!("/usr/share/php/{folder}"), package)?;
    }
    Ok(())
}

/// A driver of ours for a peer.
pub(super) fn driver(name: &str) -> PathBuf {
    root().join("interop").join(name)
}
