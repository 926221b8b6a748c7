//! Brokers that are a heap of jars, fetched by Maven's own client.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::root::target;
use crate::{Result, apt};

/// The folder of the jars of `name`. It appears by one rename, so what is there is complete.
pub(super) fn jars(name: &str) -> PathBuf {
    target().join("brokers").join(format!("{name}-jars"))
}

/// Makes sure that the jars of `name` are there, with Java beside them: what the project `pom` needs
/// at run time, and `beside`, files by name and content. Quick where there is nothing to do.
pub(super) fn need(name: &str, pom: &str, beside: &[(&str, &str)]) -> Result {
    if jars(name).is_dir() {
        return Ok(());
    }
    apt::need("java", "default-jre-headless")?;
    apt::need("mvn", "maven")?;
    fetch(name, pom, beside)
}

/// `java` with the jars of `name` on its class path, small and quick to start.
pub(super) fn java(name: &str) -> Command {
    let mut command = Command::new("java");
    command
        .args(["-Xms64m", "-Xmx256m", "-Xss512k", "-XX:+UseSerialGC"])
        .args(["-XX:TieredStopAtLevel=1", "-Xshare:auto"])
        .arg("-cp")
        .arg(jars(name).join("*"));
    command
}

fn fetch(name: &str, pom: &str, beside: &[(&str, &str)]) -> Result {
    println!("fetching the jars of {name} …");
    let process = std::process::id();
    let unfinished = target()
        .join("brokers")
        .join(format!("{name}-jars.{process}"));
    fs::create_dir_all(&unfinished)?;
    for (file, content) in beside {
        fs::write(unfinished.join(file), content)?;
    }
    let project = unfinished.join("pom.xml");
    fs::write(&project, pom)?;
    let plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";
    let output = Command::new("mvn")
        .args(["-B", "-q", "-ntp", "-f"])
        .arg(&project)
        .args([plugin, "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", unfinished.display()))
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        return Err(format!("mvn failed: {}", said.trim()).into());
    }
    if fs::rename(&unfinished, jars(name)).is_err() && !jars(name).is_dir() {
        return Err("the jars could not be put in place".into());
    }
    Ok(())
}
