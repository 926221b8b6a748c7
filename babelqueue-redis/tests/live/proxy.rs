//! A proxy of our own that can stop forwarding: a stand-in for a network that goes silent without
//! closing anything, as a pulled cable or a firewall's forgotten connection does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::Fault;

/// The proxy, until it is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct State {
    /// Neither direction is forwarded, and nothing is closed.
    silent: AtomicBool,
    /// Answers are swallowed, and then the connection is closed: the server has done the work.
    swallow_answers: AtomicBool,
    /// The same for the next answer alone.
    swallow_one_answer: AtomicBool,
}

impl Proxy {
    pub(crate) async fn to(server: SocketAddr) -> Result<Self, Fault> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server, Arc::clone(&state)));
        Ok(Self {
            address,
            state,
            _tasks: tasks,
        })
    }

    pub(crate) fn url(&self, query: &str) -> String {
        format!("redis://{}?{query}", self.address)
    }

    /// Connections that are there now, and later ones, go silent or speak again. What was held back
    /// stays lost.
    pub(crate) fn set_silent(&self, silent: bool) {
        self.state.silent.store(silent, Ordering::SeqCst);
    }

    /// The next answer is lost, and its connection with it.
    pub(crate) fn swallow_one_answer(&self) {
        self.state.swallow_one_answer.store(true, Ordering::SeqCst);
    }

    /// From now on what the server answers is lost, and the connection with it.
    pub(crate) fn swallow_answers(&self, swallow: bool) {
        self.state.swallow_answers.store(swallow, Ordering::SeqCst);
    }
}

impl State {
    fn swallows(&self) -> bool {
        self.swallow_answers.load(Ordering::SeqCst)
            || self.swallow_one_answer.swap(false, Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let Ok(upstream) = TcpStream::connect(server).await else {
            continue;
        };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = upstream.into_split();
        connections.spawn(forward(from_client, to_server, Arc::clone(&state), false));
        connections.spawn(forward(from_server, to_client, Arc::clone(&state), true));
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: Arc<State>,
    are_answers: bool,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if are_answers && state.swallows() {
            return;
        }
        if state.silent.load(Ordering::SeqCst) {
            continue;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
