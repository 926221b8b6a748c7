//! `rediss://`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use babelqueue_core::Error;
use babelqueue_core::transport::Settlement;
use babelqueue_redis::{Config, Redis};
use tokio::net::TcpListener;

use crate::common::unique;
use crate::server::{Private, publish, receive, subscribe, texts};
use crate::{Fault, Outcome, trials};

trials![
    a_listener_that_is_no_tls_server_is_an_error_and_no_panic,
    a_tls_server_is_spoken_to
];

async fn a_listener_that_is_no_tls_server_is_an_error_and_no_panic() -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let accepting = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(stream);
        }
    });
    let connected = Redis::connect(&format!("rediss://{address}?connect_timeout_ms=2000")).await;
    assert!(connected.is_err_and(|error| error.is_transient()));
    accepting.abort();
    Ok(())
}

async fn a_tls_server_is_spoken_to() -> Outcome {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique("tls").replace(':', "-"));
    std::fs::create_dir_all(&folder)?;
    let path = |name: &str| folder.join(name).display().to_string();
    openssl(&[
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=test root",
        "-keyout",
        &path("root.key"),
        "-out",
        &path("root.pem"),
    ])?;
    openssl(&[
        "req",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-keyout",
        &path("key.pem"),
        "-out",
        &path("request.pem"),
    ])?;
    std::fs::write(path("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1")?;
    openssl(&[
        "x509",
        "-req",
        "-days",
        "2",
        "-in",
        &path("request.pem"),
        "-extfile",
        &path("names"),
        "-CA",
        &path("root.pem"),
        "-CAkey",
        &path("root.key"),
        "-CAcreateserial",
        "-out",
        &path("cert.pem"),
    ])?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let server = Private::start(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &path("cert.pem"),
        "--tls-key-file",
        &path("key.pem"),
        "--tls-ca-cert-file",
        &path("root.pem"),
        "--tls-auth-clients",
        "no",
    ])
    .await?;

    let url = format!("rediss://localhost:{port}");
    let root = std::fs::read(path("root.pem"))?;
    let redis = Redis::open(Config::from_url(&url)?.certificates(Some(root), None))?;
    publish(&redis, "orders", &["a"]).await?;
    let mut subscription = subscribe(&redis, "orders").await?;
    let held = receive(&mut subscription, 1).await?;
    assert_eq!(texts(&held), ["a"]);
    let batch = held.into_iter().map(|d| (d, Settlement::Ack)).collect();
    subscription.settler.settle(batch).await.remove(0)?;

    // Not signed by anybody that the system knows: no retry mends that.
    let error = Redis::connect(&url).await.err().ok_or("trusted")?;
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    subscription.receiver.close(Duration::from_secs(1)).await?;
    drop(server);
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}

fn openssl(arguments: &[&str]) -> Result<(), Fault> {
    match Command::new("openssl").args(arguments).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err((&*String::from_utf8_lossy(&output.stderr)).into()),
        Err(error) => Err(Fault::NoServer(format!("no openssl: {error}"))),
    }
}
