//! `amqps://`, to a listener that the server opens for the test, with certificates made for it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use babelqueue_amqp::{Amqp, Config};
use babelqueue_core::Error;
use tokio::time::sleep;

use crate::common::{CLOSING, Failed, Server, Test, body, ensure, publish, test, unique};
use babelqueue_core::test_kit::Consumer;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(a_tls_server_is_spoken_to_and_a_stranger_is_refused, ctl),
        test!(a_client_certificate_is_shown, ctl),
        test!(a_plain_server_is_not_taken_for_a_tls_server),
    ]
}

async fn a_tls_server_is_spoken_to_and_a_stranger_is_refused(server: Server) -> Result<(), Failed> {
    let certificates = Certificates::make()?;
    let listener = Listener::open(&server, &certificates, "")?;
    let trusting = listener
        .config("localhost")?
        .ca_certificates(certificates.text("root.pem")?);
    let (amqp, queue) = (Amqp::open(trusting)?, unique("tls"));
    publish(&amqp, &queue, (0..100).map(body)).await?;
    let mut reader = Consumer::open(&amqp, &queue, 10).await?;
    for number in 0..100 {
        let delivery = reader.one().await?;
        ensure!(delivery.body == body(number), "out of order at {number}");
        reader.ack(&delivery).await?;
    }
    reader.receiver.close(CLOSING).await?;
    amqp.close().await;
    server.bare().await?.delete(&queue).await?;

    // Signed by nobody that this machine knows; then by somebody else; then for another name.
    let other = Certificates::make()?;
    let other = other.text("root.pem")?;
    let known = certificates.text("root.pem")?;
    for (config, said) in [
        (listener.config("localhost")?, "UnknownIssuer"),
        (
            listener.config("localhost")?.ca_certificates(other),
            "UnknownIssuer",
        ),
        (
            listener.config("127.0.0.1")?.ca_certificates(known),
            "not valid for name",
        ),
    ] {
        let error = Amqp::open(config)?.ping().await.err().ok_or("trusted")?;
        ensure!(matches!(error, Error::Refused { .. }), "{error:?}");
        let text = error.to_string();
        ensure!(
            text.contains("certificate") && text.contains(said) && text.contains("amqps://"),
            "{text}"
        );
    }
    listener.close()
}

async fn a_client_certificate_is_shown(server: Server) -> Result<(), Failed> {
    let certificates = Certificates::make()?;
    let wants_one = ",{verify,verify_peer},{fail_if_no_peer_cert,true}";
    let listener = Listener::open(&server, &certificates, wants_one)?;
    let root = certificates.text("root.pem")?;
    let config = || Ok::<_, Failed>(listener.config("localhost")?.ca_certificates(root.clone()));
    let (certificate, key) = (
        certificates.text("cert.pem")?,
        certificates.text("key.pem")?,
    );
    let amqp = Amqp::open(config()?.client_certificate(certificate, key))?;
    amqp.ping().await?;
    amqp.close().await;
    let error = refusal(&Amqp::open(config()?)?).await?;
    ensure!(error.to_string().contains("CertificateRequired"), "{error}");
    listener.close()
}

async fn a_plain_server_is_not_taken_for_a_tls_server(server: Server) -> Result<(), Failed> {
    let url = server.url().replace("amqp://", "amqps://");
    let config = Config::from_url(&url)?;
    let error = refusal(&Amqp::open(config)?).await?;
    ensure!(error.to_string().contains("amqps://"), "{error}");
    Ok(())
}

/// Why the server lets nobody in. It may be heard only at a later try: a server that hangs up on what
/// was already sent to it takes back its last words with that.
async fn refusal(amqp: &Amqp) -> Result<Error, Failed> {
    for _ in 0..50 {
        match amqp.ping().await.err().ok_or("let in")? {
            Error::Transient { .. } => sleep(Duration::from_millis(100)).await,
            error @ Error::Refused { .. } => return Ok(error),
            error => return Err(format!("{error:?}").into()),
        }
    }
    Err("50 tries were broken off without a word".into())
}

/// A TLS listener of the server's.
struct Listener {
    server: Server,
    port: u16,
}

impl Listener {
    /// Opens it. `more` are further options, in Erlang's terms.
    fn open(server: &Server, certificates: &Certificates, more: &str) -> Result<Self, Failed> {
        // One that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let der = |name: &str| Ok::<_, Failed>(base64_of(&certificates.text(name)?));
        let (root, cert, key) = (der("root.pem")?, der("cert.pem")?, der("key.pem")?);
        // In the server's own memory: it may run in a root of its own.
        server.ctl(&[
            "eval",
            &format!(
                "D = fun base64:decode/1, rabbit_networking:start_ssl_listener(\
                 {{\"127.0.0.1\", {port}}}, [{{cacerts,[D(\"{root}\")]}},{{cert,D(\"{cert}\")}},\
                 {{key,{{'PrivateKeyInfo',D(\"{key}\")}}}}{more}], 2)."
            ),
        ])?;
        Ok(Self {
            server: server.clone(),
            port,
        })
    }

    /// How to reach it by this name.
    fn config(&self, host: &str) -> Result<Config, Error> {
        Config::from_url(&format!("amqps://guest:guest@{host}:{}", self.port))
    }

    fn close(self) -> Result<(), Failed> {
        let close = format!(
            "ranch:stop_listener(rabbit_networking:ranch_ref({{127,0,0,1}}, {})).",
            self.port
        );
        self.server.ctl(&["eval", &close]).map(|_| ())
    }
}

/// A root, and a certificate for `localhost` that it has signed, in a folder of their own.
struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    fn make() -> Result<Self, Failed> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique("tls"));
        std::fs::create_dir_all(&folder)?;
        let new = Self { folder };
        let subject = format!("/CN={}", unique("root"));
        let key = ["-newkey", "rsa:2048", "-nodes"];
        new.openssl(
            &["req", "-x509", "-days", "2", "-subj", &subject],
            &[&key[..], &["-keyout", "root.key", "-out", "root.pem"]].concat(),
        )?;
        new.openssl(
            &["req", "-subj", "/CN=localhost"],
            &[&key[..], &["-keyout", "key.pem", "-out", "request.pem"]].concat(),
        )?;
        std::fs::write(new.folder.join("names"), "subjectAltName=DNS:localhost")?;
        new.openssl(
            &[
                "x509",
                "-req",
                "-days",
                "2",
                "-in",
                "request.pem",
                "-extfile",
                "names",
            ],
            &[
                "-CA",
                "root.pem",
                "-CAkey",
                "root.key",
                "-CAcreateserial",
                "-out",
                "cert.pem",
            ],
        )?;
        Ok(new)
    }

    fn openssl(&self, arguments: &[&str], more: &[&str]) -> Result<(), Failed> {
        let mut openssl = Command::new("openssl");
        openssl.current_dir(&self.folder).args(arguments).args(more);
        let output = openssl
            .output()
            .map_err(|error| format!("openssl: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
    }

    fn text(&self, name: &str) -> Result<String, Failed> {
        Ok(std::fs::read_to_string(self.folder.join(name))?)
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        // Nothing is lost with a folder that stays.
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What stands between the lines that begin and end a PEM file.
fn base64_of(pem: &str) -> String {
    pem.lines().filter(|line| !line.starts_with('-')).collect()
}
