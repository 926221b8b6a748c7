use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use babelqueue_core::Error;
use babelqueue_core::transport::{Delivery, Receiver};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::content::MAX_ENTRIES;
use crate::polls::{Answer, Source};

/// The receiving half: long polls under way, and what they brought.
///
/// One poll waits at an idle queue. Each that brings something doubles how many there may be, so that
/// a full queue is emptied by several at a time; an empty answer brings it back to one. Together they
/// never ask for more than was asked of us.
///
/// While a message group waits for its head to come again, each asks for one message: the head would
/// come with those behind it, which then went back with it, counted each time, and were at the end of
/// their attempts before they had begun.
pub(crate) struct SqsReceiver {
    source: Arc<Source>,
    sender: mpsc::UnboundedSender<Answer>,
    answers: mpsc::UnboundedReceiver<Answer>,
    /// How many polls are under way, how many there may be, and for how many messages they ask.
    polls: usize,
    most_polls: usize,
    asked: usize,
    /// What came, and was not given out.
    held: VecDeque<Arc<Delivery>>,
}

#[async_trait]
impl Receiver for SqsReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Arc<Delivery>>, Error> {
        let max = max.max(1);
        loop {
            self.ask(max);
            let given = self.give_out(max);
            if !given.is_empty() {
                return Ok(given);
            }
            match self.answers.recv().await {
                Some(answer) => self.take_in(answer)?,
                None => return Err(Error::transient("receive", "the subscription is closed")),
            }
        }
    }

    async fn close(&mut self, within: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + within;
        let wound_down = timeout_at(deadline, async {
            while self.polls > 0 {
                let Some(answer) = self.answers.recv().await else {
                    break;
                };
                if let Err(error) = self.take_in(answer) {
                    tracing::debug!(%error, "a receive failed while the subscription closed");
                }
            }
            let held: Vec<_> = self.held.drain(..).collect();
            self.source.give_back(&held).await;
            self.source.out.all_home().await;
        });
        if wound_down.await.is_err() {
            let queue = &*self.source.queue.name;
            tracing::warn!(queue, "not all was settled when the subscription closed");
        }
        // A poll that is still under way gives back itself what it gets.
        self.answers.close();
        self.source.out.lose_all();
        Ok(())
    }
}

impl SqsReceiver {
    pub(crate) fn new(source: Arc<Source>) -> Self {
        let (sender, answers) = mpsc::unbounded_channel();
        Self {
            source,
            sender,
            answers,
            polls: 0,
            most_polls: 1,
            asked: 0,
            held: VecDeque::new(),
        }
    }

    /// Starts as many polls as there may be for `max` messages, beside those that are under way.
    fn ask(&mut self, max: usize) {
        while self.polls < self.most_polls {
            let open = max.saturating_sub(self.asked + self.held.len());
            let most = if self.source.out.is_held_up() {
                1
            } else {
                MAX_ENTRIES
            };
            let size = open.min(most);
            if size == 0 {
                return;
            }
            self.polls += 1;
            self.asked += size;
            let poll = self.source.clone().poll(size, self.sender.clone());
            self.source.link.background.spawn(poll);
        }
    }

    fn take_in(&mut self, answer: Answer) -> Result<(), Error> {
        self.polls -= 1;
        self.asked -= answer.size;
        let received = answer.received.inspect_err(|_| self.most_polls = 1)?;
        self.most_polls = if received.is_empty() {
            1
        } else {
            (self.most_polls * 2).min(self.source.link.config.max_receives)
        };
        self.held.extend(received);
        Ok(())
    }

    /// What is held and still ours, at most `max`. With what came meanwhile.
    fn give_out(&mut self, max: usize) -> Vec<Arc<Delivery>> {
        let mut given = Vec::new();
        while given.len() < max
            && let Some(delivery) = self.held.pop_front()
        {
            if delivery.lease_is_over() {
                delivery.mark_lost();
                continue;
            }
            self.source.out.enter(&delivery);
            given.push(delivery);
        }
        given
    }
}

/// Gives back in the background what nobody was given. Outside of a runtime the visibility timeout
/// does it.
impl Drop for SqsReceiver {
    fn drop(&mut self) {
        self.answers.close();
        let mut held: Vec<_> = self.held.drain(..).collect();
        while let Ok(answer) = self.answers.try_recv() {
            held.extend(answer.received.into_iter().flatten());
        }
        if !held.is_empty() {
            let source = self.source.clone();
            let giving_back = async move { source.give_back(&held).await };
            self.source.link.background.spawn(giving_back);
        }
    }
}
