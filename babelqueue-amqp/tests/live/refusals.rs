//! What no retry mends is said at once.

use babelqueue_amqp::{Amqp, Config};
use babelqueue_core::Error;
use babelqueue_core::transport::{Outgoing, Transport as _};

use crate::common::{Failed, Server, Test, body, ensure, publish, test, unique};
use babelqueue_core::test_kit::Consumer;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test!(a_wrong_password_is_refused),
        test!(an_unknown_vhost_is_refused),
        test!(an_absent_server_is_transient),
        test!(missing_rights_are_refused, ctl),
    ]
}

async fn a_wrong_password_is_refused(server: Server) -> Result<(), Failed> {
    let error = refused(Amqp::connect(&server.url_with("guest:wr0ng", "%2f")).await)?;
    ensure!(error.contains("403"), "{error}");
    ensure!(!error.contains("wr0ng"), "the password is in it: {error}");
    Ok(())
}

async fn an_unknown_vhost_is_refused(server: Server) -> Result<(), Failed> {
    let error = refused(Amqp::connect(&server.url_with("guest:guest", "nowhere")).await)?;
    ensure!(error.contains("nowhere"), "{error}");
    Ok(())
}

async fn an_absent_server_is_transient(_: Server) -> Result<(), Failed> {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let error = Amqp::connect(&format!("amqp://127.0.0.1:{port}"))
        .await
        .err();
    let error = error.ok_or("connected to nothing")?;
    ensure!(error.is_transient(), "{error}");
    Ok(())
}

async fn missing_rights_are_refused(server: Server) -> Result<(), Failed> {
    let (user, queue) = (unique("user"), unique("rights"));
    publish(&Amqp::open(server.config()?)?, &queue, [body(0)]).await?;
    server.ctl(&["add_user", &user, "pass"])?;
    // To write to that queue, and nothing else.
    let write = "^amq\\.default$";
    server.ctl(&["set_permissions", "-p", "/", &user, "^$", write, "^$"])?;
    let url = server.url_with(&format!("{user}:pass"), "%2f");
    let active = Amqp::connect(&url).await?;
    let passive = Amqp::open(Config::from_url(&format!("{url}?declare=passive"))?)?;

    let declared = publish(&active, &queue, [body(1)]).await.err();
    let declared = declared.ok_or("declared without the right to")?.to_string();
    ensure!(declared.contains("403"), "{declared}");
    publish(&passive, &queue, [body(1)]).await?;
    let error = refused(Consumer::open(&passive, &queue, 1).await)?;
    ensure!(error.contains("403") && error.contains(&queue), "{error}");

    server.ctl(&["set_permissions", "-p", "/", &user, "^$", "^$", "^$"])?;
    let unwriting = Amqp::open(Config::from_url(&format!("{url}?declare=passive"))?)?;
    let mut published = unwriting
        .publish(vec![Outgoing::new(&*queue, body(2))])
        .await;
    let error = refused(published.remove(0))?;
    ensure!(error.contains("403") && error.contains(&queue), "{error}");

    server.ctl(&["delete_user", &user])?;
    server.bare().await?.delete(&queue).await
}

/// The text of a refusal, which is all that may come.
fn refused<T>(result: Result<T, Error>) -> Result<String, Failed> {
    match result {
        Err(error @ Error::Refused { .. }) => Ok(format!("{error} {error:?}")),
        Err(error) => Err(format!("not refused, but: {error}").into()),
        Ok(_) => Err("let in".into()),
    }
}
