//! What the broker has not yet confirmed, and whose each answer is.
//!
//! A message that no queue takes comes back (`basic.return`), and is acknowledged all the same. The
//! client hands the returned message to whichever confirm it completes next: where the broker
//! acknowledges several at once, that may be any of them, and the lost message's own confirm looks
//! like a success. What is sure is the order: by the time that a confirm is seen, every return before
//! it has been handed to a confirm that is complete as well. So answers are read in rounds, each until
//! nothing more is complete, and judged together: a return puts in doubt every unconfirmed message to
//! the queue that it names.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use lapin::Confirmation;
use tokio::time::Instant;

/// What came back for one publish.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The broker has it, and nothing came back with the confirm.
    Taken,
    /// A message to this queue came back with the confirm: this one, or another.
    Returned(String),
    /// The broker does not take it.
    Refused,
    /// No confirm was asked for: our mistake, and no success.
    Unasked,
    /// The channel broke before the confirm.
    Broken(lapin::Error),
}

impl From<lapin::Result<Confirmation>> for Answer {
    fn from(confirmation: lapin::Result<Confirmation>) -> Self {
        match confirmation {
            Ok(Confirmation::Ack(None)) => Self::Taken,
            Ok(Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned))) => {
                Self::Returned(returned.routing_key.as_str().to_owned())
            }
            Ok(Confirmation::Nack(None)) => Self::Refused,
            Ok(Confirmation::NotRequested) => Self::Unasked,
            Err(error) => Self::Broken(error),
        }
    }
}

/// What became of one message.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The broker has it.
    Confirmed,
    /// No queue took it, as far as can be told.
    Returned,
    /// The broker does not take it.
    Refused,
    /// The channel broke: it is unknown whether the broker has it.
    Broken(lapin::Error),
    /// No confirm in time: it is unknown whether the broker has it.
    Late,
}

/// The messages that are on their way. `T` tells them apart for the caller.
pub(crate) struct Unconfirmed<T> {
    entries: HashMap<u64, Entry<T>>,
    /// By age, which is by deadline as well.
    order: VecDeque<u64>,
    next: u64,
}

struct Entry<T> {
    ticket: T,
    queue: Arc<str>,
    deadline: Instant,
    doubtful: bool,
}

impl<T> Unconfirmed<T> {
    pub(crate) fn new() -> Self {
        Self {
            entries: HashMap::new(),
            order: VecDeque::new(),
            next: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Notes a message to `queue`; gives its number.
    pub(crate) fn add(&mut self, ticket: T, queue: Arc<str>, deadline: Instant) -> u64 {
        let number = self.next;
        self.next += 1;
        let entry = Entry {
            ticket,
            queue,
            deadline,
            doubtful: false,
        };
        self.entries.insert(number, entry);
        self.order.push_back(number);
        number
    }

    /// Judges the answers of one round. A message that is late already is out of it.
    pub(crate) fn judge(&mut self, round: Vec<(u64, Answer)>) -> Vec<(T, Verdict)> {
        for (_, answer) in &round {
            if let Answer::Returned(queue) = answer {
                let to_it = self
                    .entries
                    .values_mut()
                    .filter(|entry| *entry.queue == **queue);
                to_it.for_each(|entry| entry.doubtful = true);
            }
        }
        let judged = round.into_iter().filter_map(|(number, answer)| {
            let entry = self.entries.remove(&number)?;
            let verdict = match answer {
                Answer::Broken(error) => Verdict::Broken(error),
                Answer::Refused | Answer::Unasked => Verdict::Refused,
                Answer::Returned(_) => Verdict::Returned,
                Answer::Taken if entry.doubtful => Verdict::Returned,
                Answer::Taken => Verdict::Confirmed,
            };
            Some((entry.ticket, verdict))
        });
        let judged = judged.collect();
        self.forget_the_judged();
        judged
    }

    /// The earliest deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.order
            .front()
            .and_then(|number| self.entries.get(number))
            .map(|entry| entry.deadline)
    }

    /// Takes out those whose deadline is over at `now`.
    pub(crate) fn late(&mut self, now: Instant) -> Vec<(T, Verdict)> {
        let mut late = Vec::new();
        while self.deadline().is_some_and(|deadline| deadline <= now) {
            if let Some(number) = self.order.pop_front()
                && let Some(entry) = self.entries.remove(&number)
            {
                late.push((entry.ticket, Verdict::Late));
            }
            self.forget_the_judged();
        }
        late
    }

    /// Moves all deadlines to `deadline`, except later ones.
    pub(crate) fn postpone(&mut self, deadline: Instant) {
        for entry in self.entries.values_mut() {
            entry.deadline = entry.deadline.max(deadline);
        }
    }

    /// Takes out all, because the channel broke.
    pub(crate) fn broken(&mut self, error: &lapin::Error) -> Vec<(T, Verdict)> {
        self.order.clear();
        let entries = self.entries.drain();
        entries
            .map(|(_, entry)| (entry.ticket, Verdict::Broken(error.clone())))
            .collect()
    }

    fn forget_the_judged(&mut self) {
        while let Some(number) = self.order.front()
            && !self.entries.contains_key(number)
        {
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lapin::ErrorKind;

    use super::*;

    fn unconfirmed(queues: &[&str]) -> Unconfirmed<usize> {
        let mut unconfirmed = Unconfirmed::new();
        for (ticket, queue) in queues.iter().enumerate() {
            let deadline = Instant::now() + Duration::from_secs(ticket as u64);
            assert_eq!(
                unconfirmed.add(ticket, (*queue).into(), deadline),
                ticket as u64
            );
        }
        unconfirmed
    }

    fn returned(judged: &[(usize, Verdict)]) -> Vec<usize> {
        let returned = judged
            .iter()
            .filter(|(_, verdict)| matches!(verdict, Verdict::Returned));
        returned.map(|(ticket, _)| *ticket).collect()
    }

    #[test]
    fn success_is_a_confirm_with_nothing_in_it() {
        assert!(matches!(
            Answer::from(Ok(Confirmation::Ack(None))),
            Answer::Taken
        ));
        assert!(matches!(
            Answer::from(Ok(Confirmation::Nack(None))),
            Answer::Refused
        ));
        assert!(matches!(
            Answer::from(Ok(Confirmation::NotRequested)),
            Answer::Unasked
        ));
        let error = ErrorKind::MissingHeartbeatError.into();
        assert!(matches!(Answer::from(Err(error)), Answer::Broken(_)));
    }

    #[test]
    fn a_return_in_anothers_confirm_is_not_taken_for_success() {
        // The client put the return of message 1 into the confirm of message 0.
        let mut unconfirmed = unconfirmed(&["here", "gone", "here"]);
        let round = vec![
            (0, Answer::Returned("gone".into())),
            (1, Answer::Taken),
            (2, Answer::Taken),
        ];
        assert_eq!(returned(&unconfirmed.judge(round)), [0, 1]);
        assert_eq!(unconfirmed.len(), 0);
    }

    #[test]
    fn a_return_keeps_its_queue_in_doubt_beyond_its_round() {
        let mut unconfirmed = unconfirmed(&["here", "gone", "here"]);
        let first = unconfirmed.judge(vec![(0, Answer::Returned("gone".into()))]);
        assert_eq!(returned(&first), [0]);
        let later = unconfirmed.judge(vec![(2, Answer::Taken), (1, Answer::Taken)]);
        assert_eq!(returned(&later), [1]);
        // What is published afterwards is not in doubt.
        let number = unconfirmed.add(9, "gone".into(), Instant::now());
        assert_eq!(
            returned(&unconfirmed.judge(vec![(number, Answer::Taken)])),
            [0; 0]
        );
    }

    #[test]
    fn late_messages_are_taken_out_by_age_and_their_answers_ignored() {
        let start = Instant::now();
        let mut unconfirmed = unconfirmed(&["a", "b", "c"]);
        unconfirmed.judge(vec![(0, Answer::Taken)]);
        let late = unconfirmed.late(start + Duration::from_millis(1500));
        assert_eq!(late.len(), 1);
        assert_eq!(late[0].0, 1);
        assert!(matches!(late[0].1, Verdict::Late));
        assert!(unconfirmed.judge(vec![(1, Answer::Taken)]).is_empty());
        unconfirmed.postpone(start + Duration::from_mins(1));
        assert!(unconfirmed.late(start + Duration::from_secs(50)).is_empty());
        assert_eq!(
            unconfirmed
                .broken(&ErrorKind::MissingHeartbeatError.into())
                .len(),
            1
        );
        assert_eq!(unconfirmed.deadline(), None);
    }
}
