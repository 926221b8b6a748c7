use std::collections::HashMap;
use std::sync::Arc;

use crate::Error;

/// For transports: the queues that could not be reached, or were refused, within one call. To try
/// again for each message of a batch would take as long each time.
#[derive(Debug, Default)]
pub struct Unready {
    queues: HashMap<Arc<str>, Reason>,
}

#[derive(Debug)]
struct Reason {
    operation: &'static str,
    context: String,
    passes: bool,
}

impl Unready {
    /// What there is to say of a further message to `queue`, if the queue is among them.
    pub fn error(&self, queue: &str) -> Option<Error> {
        let reason = self.queues.get(queue)?;
        let error = if reason.passes {
            Error::transient
        } else {
            Error::refused
        };
        Some(error(reason.operation, reason.context.clone()))
    }

    /// Notes what came of making a message ready for `queue`. What is wrong with the message alone
    /// says nothing of the queue.
    pub fn note<T>(&mut self, queue: Arc<str>, outcome: &Result<T, Error>) {
        let (operation, context, passes) = match outcome {
            Err(Error::Transient {
                operation, context, ..
            }) => (*operation, context.clone(), true),
            Err(Error::Refused {
                operation, context, ..
            }) => (*operation, context.clone(), false),
            _ => return,
        };
        self.queues.entry(queue).or_insert(Reason {
            operation,
            context,
            passes,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_failed_fails_the_rest_of_the_call_as_it_did() {
        let mut unready = Unready::default();
        let away: Result<(), _> = Err(Error::transient("publish", "nobody there"));
        let gone: Result<(), _> = Err(Error::refused("publish", "no such queue"));
        unready.note("away".into(), &away);
        unready.note("gone".into(), &gone);
        unready.note("fine".into(), &Ok(()));
        let unfit: Result<(), _> = Err(Error::message("too large"));
        unready.note("fine".into(), &unfit);

        let said = |queue: &str| unready.error(queue).map(|error| error.to_string());
        assert_eq!(said("away"), away.err().map(|error| error.to_string()));
        assert_eq!(said("gone"), gone.err().map(|error| error.to_string()));
        assert_eq!(said("fine"), None);
    }
}
