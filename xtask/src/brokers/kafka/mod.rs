//! Apache Kafka in `KRaft` mode, broker and controller in one process, from Maven's jars.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Broker, maven};
use crate::Result;

/// Both servers run from the same jars.
const JARS: &str = "kafka";

/// For tests that leave it running.
pub(super) const SHARED: Kafka = Kafka {
    name: "kafka",
    port: 19_092,
    variable: "BQ_KAFKA_URL",
};

/// For tests that kill it.
pub(super) const MORTAL: Kafka = Kafka {
    name: "kafka-mortal",
    port: 19_192,
    variable: "BQ_KAFKA_MORTAL_URL",
};

pub(super) struct Kafka {
    name: &'static str,
    port: u16,
    variable: &'static str,
}

impl Broker for Kafka {
    fn name(&self) -> &'static str {
        self.name
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn install(&self) -> Result {
        let log = ("log4j2.xml", include_str!("log4j2.xml"));
        maven::need(JARS, include_str!("pom.xml"), &[log])
    }

    fn command(&self, address: SocketAddr, data: &Path) -> Result<Command> {
        let properties = data.join("server.properties");
        fs::write(&properties, server_properties(address, data)?)?;
        if !data.join("logs/meta.properties").is_file() {
            format_storage(&properties)?;
        }
        let mut command = java();
        command.arg("kafka.Kafka").arg(properties);
        Ok(command)
    }

    fn answers(&self, address: SocketAddr) -> bool {
        knows_a_broker(address).unwrap_or(false)
    }

    fn environment(&self, address: SocketAddr) -> Vec<(&'static str, String)> {
        let mut environment = vec![(self.variable, format!("kafka://{address}"))];
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

/// `java` with Kafka's jars, and its log as we like it.
fn java() -> Command {
    let settings = maven::jars(JARS).join("log4j2.xml");
    let mut command = maven::java(JARS);
    command.arg(format!("-Dlog4j2.configurationFile={}", settings.display()));
    command
}

fn format_storage(properties: &Path) -> Result {
    let output = java()
        .arg("kafka.tools.StorageTool")
        .args(["format", "-t", "YmFiZWxxdWV1ZS14dGFzaw", "-c"])
        .arg(properties)
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("formatting failed: {}", said.trim()).into())
}

fn server_properties(address: SocketAddr, data: &Path) -> Result<String> {
    let controller = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let logs = data.join("logs");
    let logs = logs.display();
    // Groups that form at once, sessions as short as a test likes them, and a restart after SIGKILL
    // that does not wait for the old session (2 s instead of 11).
    Ok(format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{address},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{address}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={logs}
auto.create.topics.enable=false
delete.topic.enable=true
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=4
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.min.heartbeat.interval.ms=500
group.consumer.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
log.initial.task.delay.ms=500
log.segment.delete.delay.ms=1000
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.threads=1
num.network.threads=2
num.io.threads=4
background.threads=2
"
    ))
}

/// A Metadata request (key 3, version 1, no topics): the answer names a broker once this one has
/// registered itself, which comes a while after its port is open.
fn knows_a_broker(address: SocketAddr) -> std::io::Result<bool> {
    const REQUEST: &[u8] = &[
        0, 0, 0, 14, // the length of what follows
        0, 3, 0, 1, // key, version
        0, 0, 0, 7, // correlation id
        0xFF, 0xFF, // no client id
        0, 0, 0, 0, // of no topics
    ];
    let patience = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(500))?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(REQUEST)?;
    // The length, the correlation id, the number of brokers.
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    Ok(answer[4..8] == [0, 0, 0, 7] && answer[8..12] != [0; 4])
}
