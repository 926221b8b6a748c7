//! Reserves whose answer was lost, where no deadline brings back what they took.
//!
//! With recovery off a reservation of the SDK layout never ends: what a reserve took whose answer broke
//! off with its connection would lie in `:processing` for good. But it lies there under tokens that
//! nobody else has. So the next reserve first asks for them, and goes on asking for a while: a call can
//! still be on its way to the server when its connection is gone.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use babelqueue_core::Error;
use tokio::time::Instant;

use super::{Queue, Reserved};
use crate::error::unexpected;
use crate::layout::Keys;
use crate::reply::{self, Taken};
use crate::reservation::Token;
use crate::scripts::{SDK_FIND, Size};

/// How long after the server has first said that it has nothing of a call it is asked again.
const ASKED_FOR: Duration = Duration::from_mins(1);

/// How long between two questions.
const PAUSE: Duration = Duration::from_secs(1);

/// The reserves of a queue that have no answer.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    calls: Mutex<Vec<Call>>,
}

#[derive(Debug)]
struct Call {
    tokens: Vec<Token>,
    ask_at: Instant,
    /// Not before the server has answered once.
    ask_until: Option<Instant>,
}

impl Unanswered {
    /// Keeps the tokens of a reserve that may have been carried out.
    pub(super) fn note(&self, tokens: &[Token]) {
        self.calls().push(Call {
            tokens: tokens.to_vec(),
            ask_at: Instant::now(),
            ask_until: None,
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls().is_empty()
    }

    /// The tokens to ask for now.
    fn due(&self, now: Instant) -> Vec<Token> {
        let calls = self.calls();
        let due = calls.iter().filter(|call| call.ask_at <= now);
        due.flat_map(|call| &call.tokens).copied().collect()
    }

    /// The server has answered for `asked`, and has `found` some of them: one call's all at once, for
    /// a script is never half done.
    fn answered(&self, asked: &[Token], found: &[Token], now: Instant) {
        self.calls().retain_mut(|call| {
            if !call.tokens.iter().any(|token| asked.contains(token)) {
                return true;
            }
            call.ask_at = now + PAUSE;
            let until = *call.ask_until.get_or_insert(now + ASKED_FOR);
            now < until && !call.tokens.iter().any(|token| found.contains(token))
        });
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// What reserves took whose answers were lost, oldest first. Asks no more often than now and then.
    pub(crate) async fn find_unanswered(&self) -> Result<Reserved, Error> {
        let Keys::Sdk { deadlines, .. } = &*self.keys else {
            return Ok(Reserved::default());
        };
        let asked = self.unanswered.due(Instant::now());
        if asked.is_empty() {
            return Ok(Reserved::default());
        }
        let size = Size::with(asked.len(), asked.len() * Token::BYTES);
        let answer = self
            .run("receive", &SDK_FIND, size, |command| {
                command.arg(1).arg(deadlines);
                for token in &asked {
                    command.arg(token.as_bytes());
                }
            })
            .await?;
        let mut found = reply::found(answer).map_err(|answer| unexpected("receive", &answer))?;
        found.sort_unstable_by_key(|(number, _)| *number);
        let (tokens, stored): (Vec<Token>, Vec<_>) = found
            .into_iter()
            .filter_map(|(number, stored)| Some((*asked.get(number)?, stored)))
            .unzip();
        self.unanswered.answered(&asked, &tokens, Instant::now());
        let taken = Taken {
            stored,
            ..Taken::default()
        };
        Ok(Reserved {
            deliveries: self.deliveries(taken, &tokens, None),
            due_in: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(count: usize) -> Vec<Token> {
        Token::fresh(count).expect("random bytes")
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_asked_for_until_it_is_found() {
        let unanswered = Unanswered::default();
        let (first, second) = (tokens(3), tokens(2));
        unanswered.note(&first);
        unanswered.note(&second);
        let now = Instant::now();
        let asked = unanswered.due(now);
        assert_eq!(asked, [first.clone(), second.clone()].concat());
        // The queue had two for the first call, and the server never saw the second.
        unanswered.answered(&asked, &first[..2], now);
        assert!(unanswered.due(now).is_empty(), "not at once again");
        assert_eq!(unanswered.due(now + PAUSE), second);
        unanswered.answered(&second, &second[..1], now + PAUSE);
        assert!(unanswered.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_was_never_carried_out_is_forgotten_after_a_while() {
        let unanswered = Unanswered::default();
        let call = tokens(1);
        let start = Instant::now();
        unanswered.note(&call);
        // A server that is away does not count.
        let back = start + 10 * ASKED_FOR;
        assert_eq!(unanswered.due(back), call);
        unanswered.answered(&call, &[], back);
        let last = back + ASKED_FOR;
        assert_eq!(unanswered.due(last), call);
        unanswered.answered(&call, &[], last);
        assert!(unanswered.is_empty());
    }
}
