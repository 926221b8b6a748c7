//! A listener of ours in front of an SQS endpoint, or in its place: it sees each request, and can
//! answer in the endpoint's name.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What becomes of a request.
pub(crate) enum Verdict {
    /// The endpoint answers it.
    Forward,
    /// The endpoint carries it out, and its answer is lost: the connection breaks.
    Lose,
    /// It is answered here, with this status and this JSON.
    Answer(u16, String),
}

/// One request: which action of SQS's, and its JSON.
pub(crate) struct Request {
    pub(crate) action: String,
    pub(crate) body: String,
}

type Judge = dyn Fn(&Request) -> Verdict + Send + Sync;

/// The listener. Dropping it closes every connection.
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    _tasks: JoinSet<()>,
}

impl Front {
    /// Listens on loopback, in front of the endpoint at `behind` if there is one.
    pub(crate) async fn start(
        behind: Option<SocketAddr>,
        judge: impl Fn(&Request) -> Verdict + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let judge: Arc<Judge> = Arc::new(judge);
        let mut tasks = JoinSet::new();
        let log = seen.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let serve = serve(stream, behind, judge.clone(), log.clone());
                connections.spawn(async move {
                    // Whoever hung up has seen what it wanted.
                    _ = serve.await;
                });
            }
        });
        Ok(Self {
            address,
            seen,
            _tasks: tasks,
        })
    }

    /// The URL of an `Sqs` over it.
    pub(crate) fn url(&self) -> String {
        format!("sqs://us-east-1?endpoint=http://{}", self.address)
    }

    /// How many requests for this action it has seen.
    pub(crate) fn count(&self, action: &str) -> usize {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter()
            .filter(|request| request.action == action)
            .count()
    }

    /// The JSON of each request for this action.
    pub(crate) fn bodies(&self, action: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let of_action = seen.iter().filter(|request| request.action == action);
        of_action.map(|request| request.body.clone()).collect()
    }
}

async fn serve(
    stream: TcpStream,
    behind: Option<SocketAddr>,
    judge: Arc<Judge>,
    seen: Arc<Mutex<Vec<Request>>>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut client = BufReader::new(stream);
    let mut endpoint = None;
    loop {
        let (head, body) = message(&mut client).await?;
        let action = header(&head, "x-amz-target").unwrap_or_default();
        let action = action.rsplit('.').next().unwrap_or_default().to_owned();
        let request = Request {
            action,
            body: String::from_utf8_lossy(&body).into_owned(),
        };
        let verdict = judge(&request);
        seen.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(request);
        match (verdict, behind) {
            (Verdict::Answer(status, text), _) => {
                let answer = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/x-amz-json-1.0\r\n\
                     content-length: {}\r\n\r\n{text}",
                    text.len()
                );
                client.get_mut().write_all(answer.as_bytes()).await?;
            }
            (verdict, Some(behind)) => {
                let endpoint = match &mut endpoint {
                    Some(open) => open,
                    none => none.insert(BufReader::new(TcpStream::connect(behind).await?)),
                };
                endpoint.get_mut().set_nodelay(true)?;
                endpoint.get_mut().write_all(head.as_bytes()).await?;
                endpoint.get_mut().write_all(&body).await?;
                let (head, body) = message(endpoint).await?;
                if matches!(verdict, Verdict::Lose) {
                    return Ok(());
                }
                client.get_mut().write_all(head.as_bytes()).await?;
                client.get_mut().write_all(&body).await?;
            }
            (_, None) => return Ok(()),
        }
    }
}

/// One HTTP/1.1 message: its head, and as much body as that says.
async fn message(from: &mut BufReader<TcpStream>) -> io::Result<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(from.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let length = header(&head, "content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    from.read_exact(&mut body).await?;
    Ok((head, body))
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
