use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use tokio::sync::oneshot;

use super::commits::Commits;
use super::context::Context;
use super::offsets::OffsetReader;
use super::queues::Queues;
use super::rebalance::Rebalancer;
use super::shared::Shared;
use crate::config::{Config, Order};
use crate::error::{is_missing_topic, is_refusal};
use crate::topology;

/// Tells the polling thread to end.
#[derive(Debug)]
pub(crate) struct Close {
    /// How long it waits for what is out.
    pub(crate) within: Duration,
    /// Told when the member has left the group: whether its progress was seen committed.
    pub(crate) left: oneshot::Sender<bool>,
}

/// How long the thread sleeps where nothing wakes it. It has to poll now and then, or the group
/// takes the member for dead.
const IDLE: Duration = Duration::from_millis(200);
/// How long a topic may be reported missing before it counts as gone.
const GRACE: Duration = Duration::from_secs(5);
/// How often the last commits are sent and looked for, before the member leaves without.
const TRIES: u32 = 2;

/// The one thread that drives a consumer: it reads, commits and answers rebalances, so that these
/// never cross each other.
pub(crate) struct PollThread {
    consumer: Arc<BaseConsumer<Context>>,
    shared: Arc<Shared>,
    close: Receiver<Close>,
    queues: Queues,
    commits: Commits,
    rebalancer: Rebalancer,
    /// Since when a topic has been reported missing.
    missing: Option<Instant>,
    closing: Option<Closing>,
}

/// How far the end has got.
struct Closing {
    until: Instant,
    left: oneshot::Sender<bool>,
    /// How often the last commits were looked for; 0 while deliveries are still out.
    tries: u32,
}

impl PollThread {
    /// To be called on the thread itself.
    pub(crate) fn new(
        mut consumer: BaseConsumer<Context>,
        shared: Arc<Shared>,
        close: Receiver<Close>,
        topics: Vec<Arc<str>>,
        order: Order,
        config: &Config,
    ) -> std::io::Result<Self> {
        let me = std::thread::current();
        shared.polled_by(me.clone());
        let woken = me.clone();
        consumer.set_nonempty_callback(move || woken.unpark());
        let consumer = Arc::new(consumer);
        let offsets = OffsetReader::start(Arc::clone(&consumer), me)?;
        Ok(Self {
            queues: Queues::new(topics, order),
            commits: Commits::new(Arc::clone(&consumer), offsets, config.commit_interval),
            rebalancer: Rebalancer::new(
                Arc::clone(&consumer),
                Arc::clone(&shared),
                config.revoke_timeout,
            ),
            missing: None,
            closing: None,
            consumer,
            shared,
            close,
        })
    }

    /// Polls until it is closed and all is home, then leaves the group.
    pub(crate) fn run(mut self) {
        let mut failed = Vec::new();
        let complete = loop {
            self.serve_events();
            self.rebalancer.advance(&mut self.queues, &mut self.commits);
            let busy = self
                .queues
                .read(&self.shared, &mut |error| failed.push(error));
            failed.drain(..).for_each(|error| self.met(&error));
            self.check_missing();
            self.commit();
            self.note_close();
            if let Some(complete) = self.end() {
                break complete;
            }
            if !busy {
                std::thread::park_timeout(self.until_next());
            }
        };
        self.leave_group(complete);
    }

    /// Serves the consumer's own queue: rebalances and errors.
    fn serve_events(&mut self) {
        let mut empty = 0;
        // A callback that was served looks like an empty queue, and nothing wakes us for what is
        // behind it.
        while empty < 2 {
            match self.consumer.poll(Duration::ZERO) {
                None => empty += 1,
                Some(Err(error)) => self.met(&error),
                // Records come by their partition's queue, which is open before its assignment.
                Some(Ok(_)) => {}
            }
        }
    }

    /// An error that no retry mends ends the subscription; the rest was logged by the context, and
    /// the client goes on by itself.
    fn met(&mut self, error: &KafkaError) {
        let code = error.rdkafka_error_code();
        if code.is_some_and(is_missing_topic) {
            // A broker that has just started may not know of it yet.
            self.missing.get_or_insert_with(Instant::now);
        } else if matches!(error, KafkaError::MessageConsumptionFatal(_))
            || code.is_some_and(is_refusal)
        {
            let why = self.consumer.context().last_error().unwrap_or_default();
            self.shared.refuse(format!("{error} ({why})"));
        }
    }

    /// A topic that was reported missing and still is ends the subscription.
    fn check_missing(&mut self) {
        if self.missing.is_none_or(|since| since.elapsed() < GRACE) {
            return;
        }
        self.missing = None;
        for topic in self.queues.topics() {
            let known = topology::exists(self.consumer.client(), topic, Duration::from_secs(3));
            if let Ok(false) = known {
                self.shared
                    .refuse(format!("topic `{topic}` does not exist any more"));
            }
        }
    }

    fn commit(&mut self) {
        if self
            .closing
            .as_ref()
            .is_some_and(|closing| closing.tries > 0)
        {
            // The last ones are on their way.
            return;
        }
        if self.rebalancer.is_idle() && self.closing.is_none() {
            // Whoever rebalances has questions of its own.
            for scope in self.commits.look() {
                self.shared.lock().commit_again(scope);
            }
        }
        if self.commits.until_next().is_zero() {
            let due = self.shared.lock().due(None);
            self.commits.send(due);
        }
    }

    fn note_close(&mut self) {
        if self.closing.is_some() {
            return;
        }
        let close = match self.close.try_recv() {
            Ok(close) => close,
            Err(TryRecvError::Empty) => return,
            // The receiver was dropped: nobody waits.
            Err(TryRecvError::Disconnected) => Close {
                within: Duration::ZERO,
                left: oneshot::channel().0,
            },
        };
        self.shared.lock().close();
        self.closing = Some(Closing {
            until: Instant::now() + close.within,
            left: close.left,
            tries: 0,
        });
    }

    /// Whether the end has come; and then, whether it was a good one.
    fn end(&mut self) -> Option<bool> {
        // A rebalance at hand is brought to its end first; it has its own limits.
        let closing = self
            .closing
            .as_mut()
            .filter(|_| self.rebalancer.is_idle())?;
        let mut assignment = self.shared.lock();
        let scopes = assignment.scopes();
        let home = assignment.is_home(&scopes);
        if closing.tries > 0 {
            let answer = self.commits.answer()?;
            self.commits.compare(&answer);
        } else if !home && Instant::now() < closing.until {
            return None;
        } else {
            let last = assignment.due(None);
            drop(assignment);
            self.commits.send(last);
        }
        let again = closing.tries > 0;
        closing.tries += 1;
        let open = closing.tries <= TRIES && self.commits.ask_for_unseen(&scopes, again);
        let complete = !self.commits.any_unseen();
        (!open).then_some(complete)
    }

    fn leave_group(self, complete: bool) {
        let mut assignment = self.shared.lock();
        for scope in assignment.scopes() {
            assignment.forget(scope);
        }
        drop(assignment);
        self.rebalancer.answer_the_rest();
        self.consumer.context().close();
        let closing = self.closing;
        // The consumer's last owner has to be this thread: its end blocks until the group lets go.
        drop((self.queues, self.commits, self.rebalancer));
        drop(self.consumer);
        if let Some(closing) = closing {
            // Nobody may be waiting.
            let _ = closing.left.send(complete);
        }
    }

    fn until_next(&self) -> Duration {
        if !self.rebalancer.is_idle() || self.closing.is_some() {
            return Duration::from_millis(10);
        }
        match self.commits.until_next() {
            Duration::ZERO => IDLE,
            next => next.min(IDLE),
        }
    }
}
