use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use babelqueue_core::Error;
use bytes::Bytes;
use futures_util::FutureExt as _;
use lapin::options::BasicPublishOptions;
use lapin::{BasicProperties, Channel, Confirmation, PublisherConfirm};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::confirms::{Unconfirmed, Verdict};
use crate::flights::{Flights, Round};
use crate::link::{Link, LinkFailure};
use crate::{Config, delay, failure};

/// How often a connection that the broker holds back is looked at.
const BLOCKED_TICK: Duration = Duration::from_millis(50);

/// How many calls may wait for the one that is being sent; more wait outside.
const WAITING_CALLS: usize = 64;

/// How many messages the client holds that it has not written: enough for a write, and no more. What
/// is written steadily is confirmed steadily; a whole window at once would be confirmed at once too,
/// and the broker stand still in between.
const UNWRITTEN: usize = 16;

/// One message, ready to be sent.
pub(crate) struct Letter {
    /// The queue that it is sent to: the target, or a delay queue before it.
    pub(crate) queue: Arc<str>,
    pub(crate) body: Bytes,
    pub(crate) properties: BasicProperties,
    /// When its delay queue was declared, if that is where it goes.
    pub(crate) delay_declared: Option<Instant>,
}

/// What became of a letter.
#[derive(Debug)]
pub(crate) enum Posted {
    /// The broker has it.
    Confirmed,
    /// There is no such queue.
    Returned,
    /// Anything else; whether the broker has it may be unknown.
    Failed(Error),
}

/// Sends all messages of a transport over one channel, in order, with a window of confirms.
///
/// One task, and nobody else, uses that channel: the client numbers and sends a message in two steps,
/// so that two senders could swap each other's confirms.
pub(crate) struct Publisher {
    calls: mpsc::Sender<Call>,
    task: JoinHandle<()>,
}

struct Call {
    letters: VecDeque<Letter>,
    reply: oneshot::Sender<Vec<Posted>>,
}

impl Publisher {
    /// Starts its task. The connection is made with the first message.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub(crate) fn start(config: Arc<Config>, link: Arc<Link>) -> Self {
        let (calls, receiver) = mpsc::channel(WAITING_CALLS);
        let sender = Sender {
            config,
            link,
            calls: receiver,
            channel: None,
        };
        Self {
            calls,
            task: tokio::spawn(sender.run()),
        }
    }

    /// Takes letters to be sent in order, after all that it took before. Waits where too many calls
    /// wait already.
    pub(crate) async fn take(&self, letters: Vec<Letter>) -> Taken {
        let count = letters.len();
        let (reply, answer) = oneshot::channel();
        if count > 0 {
            let call = Call {
                letters: letters.into(),
                reply,
            };
            // Where the task has ended, the answer fails as well.
            _ = self.calls.send(call).await;
        }
        Taken { count, answer }
    }
}

/// Letters that are being sent. What is not sent yet when this is dropped is not sent at all.
pub(crate) struct Taken {
    count: usize,
    answer: oneshot::Receiver<Vec<Posted>>,
}

impl Taken {
    /// One result each, in order, when the broker has answered them all.
    pub(crate) async fn posted(self) -> Vec<Posted> {
        if self.count == 0 {
            return Vec::new();
        }
        let gone = |_| Posted::Failed(Error::transient("publish", "the publisher has stopped"));
        let answer = self.answer.await;
        answer.unwrap_or_else(|_| (0..self.count).map(gone).collect())
    }
}

/// Nobody is left who could wait for an answer.
impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Sender {
    config: Arc<Config>,
    link: Arc<Link>,
    calls: mpsc::Receiver<Call>,
    channel: Option<Channel>,
}

impl Sender {
    async fn run(mut self) {
        while let Some(call) = self.calls.recv().await {
            if call.reply.is_closed() {
                continue;
            }
            match self.channel().await {
                Ok(channel) => {
                    if Stream::new(&self.config, &self.link, channel)
                        .run(call, &mut self.calls)
                        .await
                    {
                        continue;
                    }
                    self.channel = None;
                }
                Err(failure) => self.refuse_all(call, &failure),
            }
        }
    }

    /// The channel of the last call if it still serves, else a new one.
    async fn channel(&mut self) -> Result<Channel, LinkFailure> {
        match &self.channel {
            Some(channel) if channel.status().connected() => Ok(channel.clone()),
            _ => {
                let channel = self.link.confirming_channel().await?;
                Ok(self.channel.insert(channel).clone())
            }
        }
    }

    /// Answers the call, and all that wait behind it: each would try to connect in vain.
    fn refuse_all(&mut self, call: Call, failure: &LinkFailure) {
        let mut next = Some(call);
        while let Some(call) = next {
            let error = || {
                failure
                    .clone()
                    .into_error("publish", &self.config.address())
            };
            let posted = call
                .letters
                .iter()
                .map(|_| Posted::Failed(error()))
                .collect();
            // Whoever has gone does not want it.
            _ = call.reply.send(posted);
            next = self.calls.try_recv().ok();
        }
    }
}

/// What is being sent over one channel, until it is all answered or the channel breaks.
struct Stream<'a> {
    config: &'a Config,
    link: &'a Link,
    channel: Arc<Channel>,
    flying: Flights<PublisherConfirm, lapin::Error>,
    unconfirmed: Unconfirmed<Ticket>,
    open: Vec<Option<OpenCall>>,
    /// The call whose letters are being sent.
    sending: Option<(usize, VecDeque<Letter>)>,
    blocked_since: Option<Instant>,
    /// Whether the channel is to be given up when all is answered, and what broke it already.
    worn: bool,
    broken: Option<lapin::Error>,
}

/// Which letter of which call.
struct Ticket {
    call: usize,
    letter: usize,
    len: usize,
    queue: Arc<str>,
    delay_declared: Option<Instant>,
}

struct OpenCall {
    posted: Vec<Option<Posted>>,
    left: usize,
    sent: usize,
    reply: oneshot::Sender<Vec<Posted>>,
}

impl<'a> Stream<'a> {
    fn new(config: &'a Config, link: &'a Link, channel: Channel) -> Self {
        Self {
            config,
            link,
            channel: Arc::new(channel),
            flying: Flights::new(),
            unconfirmed: Unconfirmed::new(),
            open: Vec::new(),
            sending: None,
            blocked_since: None,
            worn: false,
            broken: None,
        }
    }

    /// Sends `call` and whatever comes meanwhile. Whether the channel can be used again.
    async fn run(mut self, call: Call, calls: &mut mpsc::Receiver<Call>) -> bool {
        self.begin(call);
        loop {
            self.look_for_a_block();
            self.send();
            if let Some(error) = self.broken.take() {
                self.give_up(&error);
                return false;
            }
            if self.unconfirmed.len() == 0 && self.sending.is_none() {
                return !self.worn;
            }
            let blocked = self.blocked_since.is_some();
            let deadline = self.unconfirmed.deadline().filter(|_| !blocked);
            let takes_calls = self.sending.is_none() && !blocked && !self.worn;
            tokio::select! {
                biased;
                round = self.flying.next() => self.answered(round),
                Some(call) = calls.recv(), if takes_calls => self.begin(call),
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    self.look_for_a_block();
                    self.overdue();
                }
                () = sleep(BLOCKED_TICK), if blocked => {}
            }
        }
    }

    fn begin(&mut self, call: Call) {
        let count = call.letters.len();
        let open = Some(OpenCall {
            posted: (0..count).map(|_| None).collect(),
            left: count,
            sent: 0,
            reply: call.reply,
        });
        let free = self.open.iter().position(Option::is_none);
        let number = free.unwrap_or(self.open.len());
        if free.is_none() {
            self.open.push(None);
        }
        self.open[number] = open;
        self.sending = Some((number, call.letters));
    }

    /// Sends of the current call what the window has room for. Nothing while the broker holds us
    /// back: what the client has taken can't be called back.
    fn send(&mut self) {
        while self.broken.is_none()
            && self.blocked_since.is_none()
            && self.unconfirmed.len() < self.config.publish_window
            && self.flying.unwritten() < UNWRITTEN
        {
            let Some((call, letters)) = &mut self.sending else {
                return;
            };
            let call = *call;
            let Some(open) = &mut self.open[call] else {
                self.sending = None;
                return;
            };
            if open.reply.is_closed() {
                // Nobody waits for the rest.
                open.left -= letters.len();
                self.sending = None;
                self.close_if_answered(call);
                return;
            }
            let Some(letter) = letters.pop_front() else {
                self.sending = None;
                return;
            };
            let ticket = Ticket {
                call,
                letter: open.sent,
                len: letter.body.len(),
                queue: letter.queue.clone(),
                delay_declared: letter.delay_declared,
            };
            open.sent += 1;
            self.launch(ticket, letter);
        }
    }

    fn launch(&mut self, ticket: Ticket, letter: Letter) {
        let deadline = Instant::now() + self.config.confirm_timeout;
        let number = self.unconfirmed.add(ticket, letter.queue.clone(), deadline);
        let channel = self.channel.clone();
        self.flying.push(number, publish(channel, letter).boxed());
    }

    fn answered(&mut self, round: Round<Confirmation, lapin::Error>) {
        let round = round
            .into_iter()
            .map(|(number, answer)| (number, answer.into()));
        for (ticket, verdict) in self.unconfirmed.judge(round.collect()) {
            self.post(&ticket, verdict);
        }
    }

    fn overdue(&mut self) {
        if self.blocked_since.is_some() {
            return;
        }
        let late = self.unconfirmed.late(Instant::now());
        // Whatever is wrong with it, a new channel is not more wrong.
        self.worn |= !late.is_empty();
        for (ticket, verdict) in late {
            self.post(&ticket, verdict);
        }
    }

    fn post(&mut self, ticket: &Ticket, verdict: Verdict) {
        if let Verdict::Broken(error) = &verdict
            && self.broken.is_none()
        {
            self.broken = Some(error.clone());
        }
        let posted = self.posted(ticket, verdict);
        let Some(open) = &mut self.open[ticket.call] else {
            return;
        };
        open.posted[ticket.letter] = Some(posted);
        open.left -= 1;
        self.close_if_answered(ticket.call);
    }

    fn posted(&self, ticket: &Ticket, verdict: Verdict) -> Posted {
        let queue = &ticket.queue;
        Posted::Failed(match verdict {
            Verdict::Confirmed => {
                let declared = ticket.delay_declared.map(|at| at.elapsed());
                if declared.is_none_or(delay::is_in_time) {
                    return Posted::Confirmed;
                }
                Error::transient(
                    "publish",
                    format!("delay queue `{queue}` may have expired before the confirm came"),
                )
            }
            Verdict::Returned => return Posted::Returned,
            Verdict::Refused => Error::transient(
                "publish",
                format!("queue `{queue}`: the broker does not take it (a full queue?)"),
            ),
            Verdict::Broken(error) if failure::is_too_large(&error, ticket.len) => Error::message(
                format!("it has {} bytes, more than the broker takes", ticket.len),
            )
            .with_source(error),
            Verdict::Broken(error) if failure::is_denied(&error) => {
                failure::setup("publish", format!("queue `{queue}`"), error)
            }
            Verdict::Broken(error) => failure::running(
                "publish",
                format!("queue `{queue}`, outcome unknown"),
                error,
            ),
            Verdict::Late => Error::transient(
                "publish",
                format!(
                    "queue `{queue}`: no confirm within {} ms, outcome unknown",
                    self.config.confirm_timeout.as_millis()
                ),
            ),
        })
    }

    fn close_if_answered(&mut self, call: usize) {
        let answered = self.open[call].take_if(|open| open.left == 0);
        if let Some(open) = answered {
            // Whoever has gone does not want it.
            _ = open.reply.send(open.posted.into_iter().flatten().collect());
        }
    }

    fn give_up(&mut self, error: &lapin::Error) {
        for (ticket, verdict) in self.unconfirmed.broken(error) {
            self.post(&ticket, verdict);
        }
        if let Some((call, letters)) = self.sending.take() {
            for letter in letters {
                let context = format!("queue `{}`, not sent", letter.queue);
                let posted = Posted::Failed(failure::running("publish", context, error.clone()));
                if let Some(open) = &mut self.open[call] {
                    open.posted[open.sent] = Some(posted);
                    open.sent += 1;
                    open.left -= 1;
                }
            }
            self.close_if_answered(call);
        }
    }

    /// The time in which the broker does not read what we send is not its time to confirm.
    fn look_for_a_block(&mut self) {
        let blocked = self.link.is_blocked();
        match self.blocked_since {
            None if blocked => {
                tracing::warn!("the broker holds its publishers back (memory or disk alarm)");
                self.blocked_since = Some(Instant::now());
            }
            Some(since) if !blocked => {
                tracing::info!(
                    seconds = since.elapsed().as_secs(),
                    "the broker takes messages again"
                );
                self.unconfirmed
                    .postpone(Instant::now() + self.config.confirm_timeout);
                self.blocked_since = None;
            }
            _ => {}
        }
    }
}

/// Complete when it is written.
async fn publish(channel: Arc<Channel>, letter: Letter) -> lapin::Result<PublisherConfirm> {
    let options = BasicPublishOptions {
        mandatory: true,
        ..BasicPublishOptions::default()
    };
    let queue = letter.queue.as_ref().into();
    let published =
        channel.basic_publish("".into(), queue, options, &letter.body, letter.properties);
    published.await
}
