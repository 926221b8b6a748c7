use std::future::Future;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use babelqueue_core::Error;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use lapin::options::ConfirmSelectOptions;
use lapin::tcp::AsyncTcpStream;
#[cfg(feature = "tls")]
use lapin::uri::AMQPScheme;
use lapin::{Channel, Connection, ConnectionProperties};

use crate::{Config, failure};

/// One connection to the broker, made when it is first needed and anew after it was lost.
///
/// Publishing and consuming have a link each: a broker that runs out of memory or disk stops reading
/// from those who publish, and acknowledgements must not wait behind that.
pub(crate) struct Link {
    config: Arc<Config>,
    purpose: &'static str,
    /// The last attempt, of which there is at most one at a time, whoever waits for it.
    attempt: Mutex<Option<Attempt>>,
}

type Attempt = Shared<BoxFuture<'static, Result<Arc<Connection>, LinkFailure>>>;

/// Why there is no connection or channel. Many can wait for one, so it can be cloned.
#[derive(Debug, Clone)]
pub(crate) enum LinkFailure {
    /// The client's error.
    Client(lapin::Error),
    /// The broker did not answer within this.
    Silent(Duration),
}

impl Link {
    pub(crate) fn new(config: Arc<Config>, purpose: &'static str) -> Self {
        Self {
            config,
            purpose,
            attempt: Mutex::new(None),
        }
    }

    /// The connection, which is up as far as anybody knows.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, LinkFailure> {
        let attempt = {
            let mut last = self.lock();
            match last.as_ref().map(|attempt| (attempt, attempt.peek())) {
                Some((_, Some(Ok(connection)))) if connection.status().connected() => {
                    return Ok(connection.clone());
                }
                Some((attempt, None)) => attempt.clone(),
                _ => last
                    .insert(connect(self.config.clone(), self.purpose).boxed().shared())
                    .clone(),
            }
        };
        attempt.await
    }

    /// A new channel.
    pub(crate) async fn channel(&self) -> Result<Channel, LinkFailure> {
        let connection = self.connection().await?;
        self.within(connection.create_channel()).await
    }

    /// A new channel on which the broker confirms what is published.
    pub(crate) async fn confirming_channel(&self) -> Result<Channel, LinkFailure> {
        let channel = self.channel().await?;
        self.within(channel.confirm_select(ConfirmSelectOptions::default()))
            .await?;
        Ok(channel)
    }

    /// An answer of the broker's, if it comes in time.
    pub(crate) async fn within<T>(
        &self,
        answer: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, LinkFailure> {
        within(self.config.connect_timeout, answer).await
    }

    /// Whether the broker holds back what is published.
    pub(crate) fn is_blocked(&self) -> bool {
        let last = self.lock();
        let connection = last.as_ref().and_then(|attempt| attempt.peek());
        matches!(connection, Some(Ok(connection)) if connection.status().blocked())
    }

    /// Closes the connection, if there is one, as the protocol has it.
    pub(crate) async fn close(&self) {
        let last = self.lock().take();
        let connection = last.and_then(|attempt| attempt.peek().cloned());
        if let Some(Ok(connection)) = connection
            && connection.status().connected()
        {
            let closed = self.within(connection.close(200, "OK".into())).await;
            if let Err(error) = closed {
                tracing::debug!(?error, purpose = self.purpose, "the connection broke off");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Attempt>> {
        self.attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkFailure {
    /// As the core knows it.
    pub(crate) fn into_error(self, operation: &'static str, context: &str) -> Error {
        match self {
            Self::Client(error) => failure::setup(operation, context, error),
            Self::Silent(limit) => Error::transient(
                operation,
                format!("{context}: no answer within {} ms", limit.as_millis()),
            ),
        }
    }
}

async fn connect(
    config: Arc<Config>,
    purpose: &'static str,
) -> Result<Arc<Connection>, LinkFailure> {
    let name = format!("{} {purpose}", config.name);
    // Without the client's own recovery: what is lost has to be known to be lost at once.
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let connection = open(&config, properties);
    let connection = within(config.connect_timeout, connection).await?;
    tracing::debug!(address = config.address(), purpose, "connected");
    Ok(Arc::new(connection))
}

/// Makes the network's connection before the client is told of it: of one that fails to make its own,
/// the client leaves two tasks behind for ever.
async fn open(config: &Config, properties: ConnectionProperties) -> lapin::Result<Connection> {
    let runtime = lapin::runtime::default_runtime()?;
    let authority = &config.uri.authority;
    let address = runtime.to_socket_addrs((authority.host.clone(), authority.port));
    let stream = AsyncTcpStream::connect(&runtime, address).await?;
    let line = match &stream {
        AsyncTcpStream::Plain(stream) => Some(Line::of(stream.get_ref())?),
        #[allow(unreachable_patterns, reason = "the others come with features")]
        _ => None,
    };
    #[cfg(feature = "tls")]
    let stream = match config.uri.scheme {
        AMQPScheme::AMQP => stream,
        AMQPScheme::AMQPS => {
            let tls = config.tls.to_config();
            stream.into_tls(&authority.host, tls.as_ref()).await?
        }
    };
    let stream = Mutex::new(Some(stream));
    let connect = async move |_, _| {
        let stream = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It asks again where a server hangs up before it has said anything.
        stream.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionAborted).into())
    };
    let connection =
        Connection::connector(config.uri.clone(), runtime, connect, properties).await?;
    if let Some(line) = line {
        line.keep();
    }
    Ok(connection)
}

/// A hand on the network's connection while the client says hello over it: hangs up when it is dropped.
/// The client itself would wait for a silent server for ever, in a thread of its own.
struct Line(Option<TcpStream>);

impl Line {
    #[cfg(unix)]
    fn of(stream: &impl std::os::fd::AsFd) -> io::Result<Self> {
        Ok(Self(Some(stream.as_fd().try_clone_to_owned()?.into())))
    }

    #[cfg(windows)]
    fn of(stream: &impl std::os::windows::io::AsSocket) -> io::Result<Self> {
        Ok(Self(Some(stream.as_socket().try_clone_to_owned()?.into())))
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(stream) = &self.0 {
            // It may be gone already.
            _ = stream.shutdown(Shutdown::Both);
        }
    }
}

async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = lapin::Result<T>>,
) -> Result<T, LinkFailure> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(LinkFailure::Client),
        Err(_) => Err(LinkFailure::Silent(limit)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;
    use std::time::Instant;

    use super::*;

    /// How many of the client's tasks are left when `url` could not be connected to, time and again.
    fn left_behind(url: &str) -> usize {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let config = Config::from_url(url).unwrap();
            let config = Arc::new(config.connect_timeout(Duration::from_millis(50)));
            for _ in 0..5 {
                let link = Link::new(config.clone(), "test");
                assert!(link.connection().await.is_err());
            }
        });
        let tasks = || runtime.metrics().num_alive_tasks();
        let deadline = Instant::now() + Duration::from_secs(30);
        while tasks() > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        tasks()
    }

    fn url_of(listener: &TcpListener) -> String {
        format!("amqp://{}", listener.local_addr().unwrap())
    }

    #[test]
    fn an_absent_server_leaves_nothing_behind() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = url_of(&listener);
        drop(listener);
        assert_eq!(left_behind(&url), 0);
    }

    #[test]
    fn a_server_that_says_nothing_leaves_nothing_behind() {
        // Connections wait in its backlog.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(left_behind(&url_of(&listener)), 0);
    }

    #[test]
    fn a_server_that_hangs_up_leaves_nothing_behind() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = url_of(&listener);
        thread::spawn(move || listener.incoming().for_each(drop));
        assert_eq!(left_behind(&url), 0);
    }
}
