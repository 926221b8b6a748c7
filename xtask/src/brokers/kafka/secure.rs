//! A listener with TLS and passwords: SCRAM, and PLAIN with the same password.
//!
//! Its key and its password are made for the data folder at the first start, and go with it.

use std::fs::{self, File};
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

const USER: &str = "alice";

pub(super) struct Secure {
    address: SocketAddr,
    password: String,
    keys: PathBuf,
    certificate: PathBuf,
}

impl Secure {
    /// What was made for this data folder; made now where it is missing.
    pub(super) fn prepare(address: SocketAddr, data: &Path) -> Result<Self> {
        let file = password_file(data);
        if !file.is_file() {
            fs::write(&file, random_text()?)?;
        }
        let secure = Self::read(address, data)?;
        if !secure.certificate.is_file() {
            secure.make_certificate()?;
        }
        Ok(secure)
    }

    /// What was made for this data folder.
    pub(super) fn read(address: SocketAddr, data: &Path) -> Result<Self> {
        Ok(Self {
            address,
            password: fs::read_to_string(password_file(data))?,
            keys: data.join("keys.p12"),
            certificate: data.join("certificate.pem"),
        })
    }

    /// By which a client finds it, logs in and trusts it.
    pub(super) fn url(&self) -> String {
        let (password, address) = (&self.password, self.address);
        let certificate = self.certificate.display();
        format!(
            "kafka://{USER}:{password}@{address}/?security.protocol=SASL_SSL\
             &sasl.mechanism=SCRAM-SHA-256&ssl.ca.location={certificate}"
        )
    }

    pub(super) fn listener(&self) -> String {
        format!("SASL_SSL://{}", self.address)
    }

    /// The broker's properties for it.
    pub(super) fn properties(&self) -> String {
        let (password, keys) = (&self.password, self.keys.display());
        let module = "org.apache.kafka.common.security";
        let listener = "listener.name.sasl_ssl";
        format!(
            "sasl.enabled.mechanisms=SCRAM-SHA-256,PLAIN
{listener}.scram-sha-256.sasl.jaas.config={module}.scram.ScramLoginModule required;
{listener}.plain.sasl.jaas.config={module}.plain.PlainLoginModule required user_{USER}=\"{password}\";
ssl.keystore.type=PKCS12
ssl.keystore.location={keys}
ssl.keystore.password={password}
ssl.client.auth=none
"
        )
    }

    /// By which the storage is formatted with the user in it.
    pub(super) fn format_arguments(&self) -> [String; 2] {
        let password = &self.password;
        let user = format!("SCRAM-SHA-256=[name={USER},password={password}]");
        ["--add-scram".to_owned(), user]
    }

    /// A key and its own certificate for the loopback address, by the tool that comes with Java.
    fn make_certificate(&self) -> Result {
        let names = "san=ip:127.0.0.1,dns:localhost";
        self.keytool(
            &["-genkeypair", "-keyalg", "RSA", "-dname", "CN=localhost"],
            &["-ext", names],
        )?;
        let certificate = self.keytool(&["-exportcert", "-rfc"], &[])?;
        fs::write(&self.certificate, certificate)?;
        Ok(())
    }

    fn keytool(&self, step: &[&str], more: &[&str]) -> Result<Vec<u8>> {
        let output = Command::new("keytool")
            .args(step)
            .args(["-alias", "broker", "-storetype", "PKCS12"])
            .args(["-storepass", &self.password, "-keystore"])
            .arg(&self.keys)
            .args(more)
            .output()?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let said = String::from_utf8_lossy(&output.stdout);
        Err(format!("keytool failed: {}", said.trim()).into())
    }
}

fn password_file(data: &Path) -> PathBuf {
    data.join("password")
}

/// What nobody can guess, in letters and digits.
fn random_text() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
