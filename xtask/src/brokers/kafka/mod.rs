//! Apache Kafka in `KRaft` mode, broker and controller in one process, from Maven's jars.

mod secure;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use self::secure::Secure;
use super::{Broker, maven};
use crate::Result;
use crate::root::target;

/// Both servers run from the same jars.
const JARS: &str = "kafka";

/// For tests that leave it running.
pub(super) const SHARED: Kafka = Kafka {
    name: "kafka",
    port: 19_092,
    variable: "BQ_KAFKA_URL",
    secure: Some("BQ_KAFKA_SECURE_URL"),
    // Nobody kills it, and a machine at its limit must not have it taken for dead.
    session: Duration::from_secs(18),
};

/// For tests that kill it.
pub(super) const MORTAL: Kafka = Kafka {
    name: "kafka-mortal",
    port: 19_192,
    variable: "BQ_KAFKA_MORTAL_URL",
    secure: None,
    // A start after SIGKILL waits for the end of the old session.
    session: Duration::from_secs(2),
};

pub(super) struct Kafka {
    name: &'static str,
    port: u16,
    variable: &'static str,
    /// The variable of its listener with TLS and passwords, where it has one.
    secure: Option<&'static str>,
    session: Duration,
}

/// How far above its port the secure listener's is.
const SECURE: u16 = 1;

impl Broker for Kafka {
    fn name(&self) -> &'static str {
        self.name
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn ports_beside(&self) -> &'static [u16] {
        if self.secure.is_some() {
            &[SECURE]
        } else {
            &[]
        }
    }

    fn install(&self) -> Result {
        let log = ("log4j2.xml", include_str!("log4j2.xml"));
        maven::need(JARS, include_str!("pom.xml"), &[log])
    }

    fn command(&self, address: SocketAddr, data: &Path) -> Result<Command> {
        let properties = data.join("server.properties");
        let secure = self
            .secure
            .map(|_| Secure::prepare(beside(address), data))
            .transpose()?;
        let text = self.server_properties(address, data, secure.as_ref())?;
        fs::write(&properties, text)?;
        if !data.join("logs/meta.properties").is_file() {
            format_storage(&properties, secure.as_ref())?;
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
        if let Some(variable) = self.secure {
            let data = target().join("brokers").join(self.name).join("data");
            if let Ok(secure) = Secure::read(beside(address), &data) {
                environment.push((variable, secure.url()));
            }
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

impl Kafka {
    fn server_properties(
        &self,
        address: SocketAddr,
        data: &Path,
        secure: Option<&Secure>,
    ) -> Result<String> {
        let controller = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let logs = data.join("logs");
        let logs = logs.display();
        let session = self.session.as_millis();
        let mut listeners = format!("PLAINTEXT://{address}");
        let mut of_secure = String::new();
        if let Some(secure) = secure {
            listeners = format!("{listeners},{}", secure.listener());
            of_secure = secure.properties();
        }
        // Groups that form at once, and sessions as short as a test likes them.
        Ok(format!(
            "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
controller.listener.names=CONTROLLER
listeners={listeners},CONTROLLER://{controller}
advertised.listeners={listeners}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL
inter.broker.listener.name=PLAINTEXT
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
broker.session.timeout.ms={session}
broker.heartbeat.interval.ms=500
log.initial.task.delay.ms=500
log.segment.delete.delay.ms=1000
log.cleaner.dedupe.buffer.size=4194304
log.retention.ms=-1
log.cleaner.threads=1
num.network.threads=2
num.io.threads=4
background.threads=2
{of_secure}"
        ))
    }
}

/// `java` with Kafka's jars, and its log as we like it.
fn java() -> Command {
    let settings = maven::jars(JARS).join("log4j2.xml");
    let mut command = maven::java(JARS);
    command.arg(format!("-Dlog4j2.configurationFile={}", settings.display()));
    command
}

/// The secure listener's address.
fn beside(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port().saturating_add(SECURE))
}

fn format_storage(properties: &Path, secure: Option<&Secure>) -> Result {
    let output = java()
        .arg("kafka.tools.StorageTool")
        .args(["format", "-t", "YmFiZWxxdWV1ZS14dGFzaw", "-c"])
        .arg(properties)
        .args(secure.map(Secure::format_arguments).into_iter().flatten())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("formatting failed: {}", said.trim()).into())
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
