//! RabbitMQ, from Debian's packages: 3.10 of Debian 12, and 4.0 of Debian 13 in a root of its own.
//!
//! Both need root: the one because its package wants a user of its own otherwise, the other for its
//! root. Neither touches the machine's own packages, services, cookies or node names.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Broker;
use crate::root::target;
use crate::{Result, apt};

/// Debian 12's 3.10, which many still run.
pub(super) const V3: RabbitMq = RabbitMq {
    name: "rabbitmq",
    port: 25_672,
    variables: ["BQ_RABBITMQ_URL", "BQ_RABBITMQ_RUN"],
    foreign: false,
};

/// Debian 13's 4.0.
pub(super) const V4: RabbitMq = RabbitMq {
    name: "rabbitmq4",
    port: 25_682,
    variables: ["BQ_RABBITMQ4_URL", "BQ_RABBITMQ4_RUN"],
    foreign: true,
};

/// Where both packages keep their programs; the wrappers in `/usr/sbin` change the user.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";

/// Where its own tools talk to the node, above its port.
const DISTRIBUTION: u16 = 1;

/// Where they ask for it.
const MAPPER: u16 = 7;

/// How long it may believe in a node that is gone.
const MAPPER_STOP: Duration = Duration::from_secs(30);

/// What it says while it does.
const MAPPER_IN_USE: &str = "living nodes";

pub(super) struct RabbitMq {
    name: &'static str,
    port: u16,
    /// Where it is; and what runs a program in its environment.
    variables: [&'static str; 2],
    /// Whether it runs in a root of its own.
    foreign: bool,
}

impl Broker for RabbitMq {
    fn name(&self) -> &'static str {
        self.name
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn ports_beside(&self) -> &'static [u16] {
        &[DISTRIBUTION, MAPPER]
    }

    fn install(&self) -> Result {
        if self.foreign {
            return install_foreign(&self.root());
        }
        if Path::new(PROGRAMS).is_dir() {
            return Ok(());
        }
        apt::need("rabbitmqctl", "rabbitmq-server")
    }

    fn command(&self, address: SocketAddr, data: &Path) -> Result<Command> {
        fs::create_dir_all(data.join("home"))?;
        fs::write(data.join("rabbitmq.conf"), configuration(address))?;
        fs::write(data.join("enabled_plugins"), "[].")?;
        self.write_runner(&self.script(address, data))?;
        let mut command = self.run();
        command.arg(format!("{PROGRAMS}/rabbitmq-server"));
        Ok(command)
    }

    fn answers(&self, address: SocketAddr) -> bool {
        greeting(address).is_ok_and(|first| first == METHOD_FRAME)
    }

    fn environment(&self, address: SocketAddr) -> Vec<(&'static str, String)> {
        let url = format!("amqp://guest:guest@{address}");
        let [url_variable, run_variable] = self.variables;
        let mut variables = vec![(url_variable, url)];
        variables.push((run_variable, self.runner().display().to_string()));
        if let Ok(xtask) = std::env::current_exe() {
            // Some tests kill the server, and start it again.
            variables.push(("BQ_XTASK", xtask.display().to_string()));
        }
        variables
    }

    fn patience(&self) -> Duration {
        Duration::from_mins(5)
    }

    /// The node's own port mapper stays behind, and would hold its port against the next start. It
    /// does not let itself be ended while it believes that the node lives: after a SIGKILL, on a
    /// busy machine, that is a while.
    fn stopped(&self) -> Result {
        let deadline = Instant::now() + MAPPER_STOP;
        loop {
            let output = self.run().args(["epmd", "-kill"]).output()?;
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            if !said.contains(MAPPER_IN_USE) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("its port mapper does not end: {}", said.trim()).into());
            }
            sleep(Duration::from_millis(50));
        }
    }
}

impl RabbitMq {
    /// A script that runs a program of RabbitMQ's in the node's environment, in the place of its own
    /// process: the server itself, and `rabbitmqctl` for tests.
    fn script(&self, address: SocketAddr, data: &Path) -> String {
        let inside = if self.foreign {
            Path::new("/data")
        } else {
            data
        };
        let mut script = String::from("exec ");
        if self.foreign {
            let root = self.root();
            _ = write!(
                script,
                "unshare -m --propagation private /bin/sh -c 'mount -t proc proc \"{root}/proc\" \
                 && mount --rbind /dev \"{root}/dev\" && mount --bind \"{data}\" \"{root}/data\" \
                 && exec chroot \"{root}\" \"$@\"' enter /usr/bin/",
                root = root.display(),
                data = data.display(),
            );
        }
        script.push_str("env -i");
        for (name, value) in self.node_environment(address, inside) {
            _ = write!(script, " '{name}={value}'");
        }
        script.push_str(" \"$@\"\n");
        script
    }

    fn node_environment(&self, address: SocketAddr, data: &Path) -> Vec<(&'static str, String)> {
        let of_data = |name: &str| data.join(name).display().to_string();
        vec![
            ("PATH", format!("{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin")),
            ("LANG", "C.UTF-8".into()),
            ("HOME", of_data("home")),
            ("RABBITMQ_NODENAME", format!("{}@localhost", self.name)),
            (
                "RABBITMQ_DIST_PORT",
                (address.port() + DISTRIBUTION).to_string(),
            ),
            ("RABBITMQ_MNESIA_BASE", of_data("mnesia")),
            ("RABBITMQ_LOG_BASE", of_data("log")),
            ("RABBITMQ_CONFIG_FILE", of_data("rabbitmq.conf")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", of_data("enabled_plugins")),
            ("RABBITMQ_PID_FILE", of_data("pid")),
            ("RABBITMQ_CONF_ENV_FILE", "/dev/null".into()),
            // The server replaces its shell, so that its pid is the one that was started.
            ("RUNNING_UNDER_SYSTEMD", "true".into()),
            ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
            // A mapper of its own: two checkouts' nodes have the same name.
            ("ERL_EPMD_PORT", (address.port() + MAPPER).to_string()),
            (
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-kernel inet_dist_use_interface {127,0,0,1}".into(),
            ),
        ]
    }

    fn folder(&self) -> PathBuf {
        target().join("brokers").join(self.name)
    }

    /// Runs a program of the server's. The shell reads the script: as a program of its own it would be
    /// "busy" for as long as a process that was begun meanwhile still has it open.
    fn run(&self) -> Command {
        let mut command = Command::new("sh");
        command.arg(self.runner());
        command
    }

    /// Replaces the script as a whole: a test may be running it.
    fn write_runner(&self, script: &str) -> Result {
        let unfinished = self.folder().join("run.new");
        fs::write(&unfinished, script)?;
        fs::rename(unfinished, self.runner())?;
        Ok(())
    }

    fn runner(&self) -> PathBuf {
        self.folder().join("run")
    }

    fn root(&self) -> PathBuf {
        self.folder().join("root")
    }
}

fn configuration(address: SocketAddr) -> String {
    format!(
        "listeners.tcp.1 = {address}\nloopback_users = none\nlog.file.level = warning\n\
         disk_free_limit.absolute = 50MB\n"
    )
}

/// Debian 13's packages, unpacked into `root`: fetched by this machine's own apt from wherever it
/// gets its packages, with lists and a package state of their own.
fn install_foreign(root: &Path) -> Result {
    let done = root.join(".done");
    if done.is_file() {
        return Ok(());
    }
    println!("unpacking RabbitMQ 4.0 …");
    let output = Command::new("bash")
        .args(["-euc", UNPACK, "unpack"])
        .arg(root)
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("RabbitMQ 4.0 was not unpacked: {}", said.trim()).into());
    }
    fs::write(done, "")?;
    Ok(())
}

const UNPACK: &str = r#"
root=$1; apt=$root.apt
mkdir -p "$apt"/lists/partial "$apt"/debs/partial "$apt"/cache; : >"$apt/status"
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | head -1)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$apt/list"
own=(-qq -o "Dir::Etc::sourcelist=$apt/list" -o Dir::Etc::sourceparts=/dev/null
  -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o "Dir::Cache::archives=$apt/debs/"
  -o "Dir::State::status=$apt/status" -o APT::Install-Recommends=false -o Debug::NoLocking=1)
apt-get "${own[@]}" update
apt-get "${own[@]}" -y -d install rabbitmq-server dash bash coreutils sed grep mawk
for folder in bin sbin lib lib64; do mkdir -p "$root/usr/$folder"; ln -sfn "usr/$folder" "$root/$folder"; done
for package in "$apt"/debs/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink
done
mkdir -p "$root"/proc "$root"/dev "$root"/tmp "$root"/root "$root"/data "$root"/etc
ln -sf dash "$root/usr/bin/sh"; ln -sf mawk "$root/usr/bin/awk"
printf 'root:x:0:0:root:/root:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\n' >"$root/etc/group"
echo '127.0.0.1 localhost' >"$root/etc/hosts"
rm -rf "$apt"
"#;

/// What the first frame of an AMQP 0-9-1 server begins with.
const METHOD_FRAME: u8 = 1;

/// The first byte that the server says to an AMQP 0-9-1 client.
fn greeting(address: SocketAddr) -> std::io::Result<u8> {
    let patience = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(b"AMQP\x00\x00\x09\x01")?;
    let mut first = [0];
    stream.read_exact(&mut first)?;
    Ok(first[0])
}
