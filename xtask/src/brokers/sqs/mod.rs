//! `ElasticMQ`, a server that speaks the protocol of Amazon SQS, from Maven's jars.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Broker, maven};
use crate::Result;

/// For tests that leave it running.
pub(super) const SHARED: Sqs = Sqs {
    name: "sqs",
    port: 19_324,
    variable: "BQ_SQS_URL",
};

/// For tests that kill it.
pub(super) const MORTAL: Sqs = Sqs {
    name: "sqs-mortal",
    port: 19_334,
    variable: "BQ_SQS_MORTAL_URL",
};

/// Both servers run from the same jars.
const JARS: &str = "elasticmq";

const REGION: &str = "us-east-1";

pub(super) struct Sqs {
    name: &'static str,
    port: u16,
    variable: &'static str,
}

impl Broker for Sqs {
    fn name(&self) -> &'static str {
        self.name
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn install(&self) -> Result {
        // Else it says a line at level DEBUG for each request.
        let log = ("logback.xml", include_str!("logback.xml"));
        maven::need(JARS, include_str!("pom.xml"), &[log])
    }

    fn command(&self, address: SocketAddr, data: &Path) -> Result<Command> {
        let settings = data.join("elasticmq.conf");
        fs::write(&settings, configuration(address, data))?;
        let mut command = maven::java(JARS);
        command
            .arg(format!("-Dconfig.file={}", settings.display()))
            .arg(format!(
                "-Dlogback.configurationFile={}",
                maven::jars(JARS).join("logback.xml").display()
            ))
            .arg("org.elasticmq.server.Main");
        Ok(command)
    }

    fn answers(&self, address: SocketAddr) -> bool {
        lists_queues(address).unwrap_or(false)
    }

    fn environment(&self, address: SocketAddr) -> Vec<(&'static str, String)> {
        let url = format!("sqs://{REGION}?endpoint=http://{address}");
        let mut environment = vec![(self.variable, url)];
        // It asks for some, and takes any; the machine's own are none of a test's business.
        for variable in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
            environment.push((variable, "test".to_owned()));
        }
        // By which tests kill it and start it again.
        if let Ok(xtask) = std::env::current_exe() {
            environment.push(("BQ_XTASK", xtask.display().to_string()));
        }
        environment
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(90)
    }
}

/// Strict as Amazon is, and with everything on the disk before it is answered. The port of the
/// queues' URLs has to be the one that it listens on.
fn configuration(address: SocketAddr, data: &Path) -> String {
    let mut text = String::new();
    let (host, port) = (address.ip(), address.port());
    let data = data.display();
    for line in [
        format!(
            r#"node-address {{ protocol = http, host = "{host}", port = {port}, context-path = "" }}"#
        ),
        format!(
            r#"rest-sqs {{ enabled = true, bind-hostname = "{host}", bind-port = {port}, sqs-limits = strict }}"#
        ),
        "rest-stats { enabled = false }".to_owned(),
        format!(r#"aws {{ region = "{REGION}", accountId = "000000000000" }}"#),
        format!(
            r#"messages-storage {{ enabled = true, uri = "jdbc:h2:{data}/messages;WRITE_DELAY=0" }}"#
        ),
        format!(r#"queues-storage {{ enabled = true, path = "{data}/queues.conf" }}"#),
        // Each signed request would be a warning otherwise.
        r#"pekko { loglevel = "ERROR", http.server.parsing.illegal-header-warnings = off }"#
            .to_owned(),
    ] {
        _ = writeln!(text, "{line}");
    }
    text
}

/// `ListQueues`, answered with 200.
fn lists_queues(address: SocketAddr) -> std::io::Result<bool> {
    let patience = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(500))?;
    stream.set_read_timeout(Some(patience))?;
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/x-amz-json-1.0\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n\
         Content-Length: 2\r\n\r\n{{}}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    Ok(answer == *b"HTTP/1.1 200")
}
