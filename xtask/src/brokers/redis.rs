//! Redis, from Debian's package.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::Broker;
use crate::{Result, apt};

/// Without persistence: for tests and benches.
pub(super) const PLAIN: Redis = Redis {
    name: "redis",
    port: 16_379,
    variable: "BQ_REDIS_URL",
    durable: false,
};

/// With every write on the disk before its answer: survives SIGKILL.
pub(super) const DURABLE: Redis = Redis {
    name: "redis-durable",
    port: 16_380,
    variable: "BQ_REDIS_DURABLE_URL",
    durable: true,
};

pub(super) struct Redis {
    name: &'static str,
    port: u16,
    variable: &'static str,
    durable: bool,
}

impl Broker for Redis {
    fn name(&self) -> &'static str {
        self.name
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn install(&self) -> Result {
        apt::need("redis-server", "redis-server")
    }

    fn command(&self, address: SocketAddr, data: &Path) -> Result<Command> {
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", &address.ip().to_string()])
            .args(["--port", &address.port().to_string()])
            .arg("--dir")
            .arg(data)
            .args(["--daemonize", "no", "--save", ""]);
        if self.durable {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        }
        Ok(command)
    }

    fn answers(&self, address: SocketAddr) -> bool {
        ping(address).is_ok_and(|answer| answer == *b"+PONG\r\n")
    }

    fn environment(&self, address: SocketAddr) -> Vec<(&'static str, String)> {
        vec![(self.variable, format!("redis://{address}"))]
    }
}

fn ping(address: SocketAddr) -> std::io::Result<[u8; 7]> {
    let patience = Duration::from_millis(500);
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}
