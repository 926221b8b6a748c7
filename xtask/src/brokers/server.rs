//! The life of a server's process, the same for every broker.

use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Broker;
use crate::Result;
use crate::root::target;

/// How often a start or a stop is looked after.
const TICK: Duration = Duration::from_millis(25);

/// How long a server may take to stop before it is killed.
const STOP: Duration = Duration::from_secs(15);

/// How long a process that has ended may hold its port. A server that comes back somewhere else is
/// lost to its clients, so this is long.
const LET_GO: Duration = Duration::from_mins(1);

/// A broker's process, as its folder knows it: running or not.
pub(crate) struct Server {
    broker: &'static dyn Broker,
    folder: PathBuf,
}

impl Server {
    pub(super) fn of(broker: &'static dyn Broker) -> Self {
        Self {
            broker,
            folder: target().join("brokers").join(broker.name()),
        }
    }

    /// The broker's name.
    pub(crate) fn name(&self) -> &'static str {
        self.broker.name()
    }

    /// Whether it runs and answers.
    pub(crate) fn is_up(&self) -> bool {
        self.process()
            .is_some_and(|process| self.broker.answers(process.address))
    }

    /// The environment by which tests find it, if it runs.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        self.process()
            .map(|process| self.broker.environment(process.address))
            .unwrap_or_default()
    }

    /// Installs what it needs, where it is missing.
    pub(crate) fn install(&self) -> Result {
        self.broker.install()
    }

    /// Starts it, and returns when it answers. A server that runs already is left alone.
    pub(crate) fn up(&self) -> Result {
        let _lock = self.lock()?;
        self.start()
    }

    /// Stops it, deletes its data, and lets go of its port.
    pub(crate) fn down(&self) -> Result {
        let _lock = self.lock()?;
        self.stop("TERM")?;
        gone(fs::remove_file(self.port_file()))?;
        gone(fs::remove_dir_all(self.data()))
    }

    /// Stops it, and starts it again with its data and, if nobody took it, on the same port.
    pub(crate) fn restart(&self) -> Result {
        let _lock = self.lock()?;
        self.stop("TERM")?;
        self.start()
    }

    /// Ends it with SIGKILL, and keeps its data.
    pub(crate) fn kill(&self) -> Result {
        let _lock = self.lock()?;
        self.stop("KILL")
    }

    /// One line: its name, whether it is up, its pid, and how to find it.
    pub(crate) fn status(&self) -> String {
        let Some(process) = self.process() else {
            return format!("{}: down", self.name());
        };
        let state = if self.broker.answers(process.address) {
            "up"
        } else {
            "silent"
        };
        let mut line = format!("{}: {state} pid={}", self.name(), process.pid);
        for (variable, value) in self.broker.environment(process.address) {
            _ = write!(line, " {variable}={value}");
        }
        line
    }

    fn start(&self) -> Result {
        if self.is_up() {
            return Ok(());
        }
        // One that runs without an answer is in nobody's way once it is gone.
        self.stop("KILL")?;
        self.broker.install()?;
        fs::create_dir_all(self.data())?;

        // Of the whole machine: from the choice of a port until it answers there, no other
        // checkout starts the same broker, and takes one of its ports.
        let _alone = locked(&env::temp_dir().join(format!("babelqueue-{}.lock", self.name())))?;
        let address = self.free_address()?;
        let log = File::create(self.log())?;
        let mut child = self
            .broker
            .command(address, &self.data())?
            // Whatever it leaves where it stands (a crash dump) is not the checkout's.
            .current_dir(self.data())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Out of our group, so that a Ctrl-C on the xtask leaves it alone.
            .process_group(0)
            .spawn()?;
        let process = Process {
            pid: child.id(),
            started: started(child.id()).ok_or("it ended at once")?,
            address,
        };
        fs::write(self.pid_file(), process.to_text())?;
        self.wait_for_answer(&mut child, address)
    }

    fn wait_for_answer(&self, child: &mut Child, address: SocketAddr) -> Result {
        let deadline = Instant::now() + self.broker.patience();
        loop {
            let answers = self.broker.answers(address);
            // Asked afterwards: somebody else may answer in the place of one that is gone.
            if let Some(status) = child.try_wait()? {
                return Err(format!("it ended with {status}:\n{}", self.tail()).into());
            }
            if answers {
                return Ok(());
            }
            if Instant::now() > deadline {
                self.stop("KILL")?;
                return Err(format!("it does not answer:\n{}", self.tail()).into());
            }
            sleep(TICK);
        }
    }

    /// Ends the process by its pid, if it is still the one that was started here.
    fn stop(&self, signal: &str) -> Result {
        let Some(process) = self.process() else {
            return Ok(());
        };
        process.signal(signal)?;
        let deadline = Instant::now() + STOP;
        while process.is_alive() {
            if Instant::now() > deadline {
                process.signal("KILL")?;
            }
            sleep(TICK);
        }
        fs::remove_file(self.pid_file())?;
        fs::write(self.port_file(), process.address.port().to_string())?;
        self.broker.stopped()
    }

    /// The port of the last run, so that clients find a restarted server again; else the broker's
    /// own; else, where another checkout's server has it, any free one.
    fn free_address(&self) -> Result<SocketAddr> {
        let last = fs::read_to_string(self.port_file()).ok();
        let last = last.and_then(|port| port.trim().parse().ok());
        if let Some(last) = last {
            // A killed process is dead a while before the last of its threads lets go of the port.
            let deadline = Instant::now() + LET_GO;
            while Instant::now() < deadline {
                if let Ok(address) = self.free(last) {
                    return Ok(address);
                }
                sleep(TICK);
            }
        }
        let own = self.free(self.broker.port());
        // One whose neighbours are taken is passed over.
        (0..20).fold(own, |found, _| found.or_else(|_| self.free(0)))
    }

    /// A loopback address with this port, any for 0, if nobody has it or one that goes with it.
    fn free(&self, port: u16) -> Result<SocketAddr> {
        let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let address = bind(port)?.local_addr()?;
        for distance in self.broker.ports_beside() {
            bind(address.port().saturating_add(*distance))?;
        }
        Ok(address)
    }

    /// The process of the pid file, if it still runs.
    fn process(&self) -> Option<Process> {
        let text = fs::read_to_string(self.pid_file()).ok()?;
        Process::from_text(&text).filter(Process::is_alive)
    }

    /// Held while the process is started or stopped, so that two runs of the xtask don't do it both.
    fn lock(&self) -> Result<File> {
        fs::create_dir_all(&self.folder)?;
        locked(&self.folder.join("lock"))
    }

    fn tail(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join("pid")
    }

    fn port_file(&self) -> PathBuf {
        self.folder.join("port")
    }
}

/// What is not there needs no removal.
fn gone(removed: std::io::Result<()>) -> Result {
    match removed {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
        _ => Ok(()),
    }
}

/// The file at `path`, locked until it is dropped.
fn locked(path: &Path) -> Result<File> {
    let file = File::create(path)?;
    file.lock()?;
    Ok(file)
}

/// A process that was started here. Its start time tells it from a later one with the same pid.
struct Process {
    pid: u32,
    started: u64,
    address: SocketAddr,
}

impl Process {
    fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.split_whitespace();
        Some(Self {
            pid: parts.next()?.parse().ok()?,
            started: parts.next()?.parse().ok()?,
            address: parts.next()?.parse().ok()?,
        })
    }

    fn to_text(&self) -> String {
        format!("{} {} {}\n", self.pid, self.started, self.address)
    }

    fn is_alive(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    fn signal(&self, signal: &str) -> Result {
        // The shell's own `kill`: a bare machine may have no other.
        let kill = format!("kill -{signal} {}", self.pid);
        let status = Command::new("sh").args(["-c", &kill]).status()?;
        if status.success() || !self.is_alive() {
            return Ok(());
        }
        Err(format!("`{kill}` failed").into())
    }
}

/// When the process `pid` started, in clock ticks since the machine did; `None` for one that is
/// gone, or dead and not yet reaped.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name stands in brackets, and can hold spaces and brackets itself.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_pid() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process {
            pid: child.id(),
            started: started(child.id()).unwrap(),
            address: ([127, 0, 0, 1], 1).into(),
        };
        let read = Process::from_text(&process.to_text()).unwrap();
        assert!(read.is_alive());
        let other = Process {
            started: read.started + 1,
            ..read
        };
        assert!(!other.is_alive());

        process.signal("KILL").unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while process.is_alive() {
            assert!(Instant::now() < deadline, "it still runs");
            sleep(TICK);
        }
        child.wait().unwrap();
        assert!(!process.is_alive());
    }
}
