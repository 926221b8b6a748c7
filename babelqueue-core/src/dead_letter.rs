//! The `dead_letter` block and the names of dead-letter queues (contract §6).

use crate::Error;
use crate::transport::DeadLetterNaming;

/// Why a message was dead-lettered (contract §6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Its handler failed on the last delivery, or rejected it.
    Failed,
    /// No handler took its URN.
    UnknownUrn,
    /// Its body is no envelope.
    Poison,
}

impl Reason {
    /// The word of the wire: `failed`, `unknown_urn`, `poison`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::UnknownUrn => "unknown_urn",
            Self::Poison => "poison",
        }
    }
}

/// The name of the dead-letter queue of `queue`: `explicit`, else made from the source's name with
/// `suffix`, else with the binding's own (contract §6.3). An empty name or suffix counts as unset.
///
/// # Errors
///
/// [`Error::Config`] where it is `queue` itself.
pub fn queue_name(
    queue: &str,
    explicit: Option<&str>,
    suffix: Option<&str>,
    naming: DeadLetterNaming,
) -> Result<String, Error> {
    let explicit = explicit.filter(|name| !name.is_empty());
    let suffix = suffix.filter(|suffix| !suffix.is_empty());
    let name = match (explicit, naming) {
        (Some(name), _) => name.to_owned(),
        (None, DeadLetterNaming::DotSuffix) => format!("{queue}{}", suffix.unwrap_or(".dlq")),
        (None, DeadLetterNaming::Sqs) => {
            let suffix = suffix.unwrap_or("-dlq");
            match queue.strip_suffix(".fifo") {
                Some(base) => format!("{base}{suffix}.fifo"),
                None => format!("{queue}{suffix}"),
            }
        }
    };
    if name == queue {
        let problem = format!("is {name:?}, the queue itself, expected another one");
        return Err(Error::config("dead_letter_queue", problem));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use DeadLetterNaming::{DotSuffix, Sqs};

    #[test]
    fn names_follow_the_binding() {
        for (queue, explicit, suffix, naming, expected) in [
            ("orders", None, None, DotSuffix, "orders.dlq"),
            ("orders", None, Some(""), DotSuffix, "orders.dlq"),
            ("orders", Some(""), Some("-x"), DotSuffix, "orders-x"),
            ("orders", Some("dead"), Some("-x"), Sqs, "dead"),
            ("orders", None, None, Sqs, "orders-dlq"),
            ("orders.fifo", None, None, Sqs, "orders-dlq.fifo"),
            ("orders.fifo", None, Some("-x"), Sqs, "orders-x.fifo"),
            ("orders.fifo", None, None, DotSuffix, "orders.fifo.dlq"),
        ] {
            let name = queue_name(queue, explicit, suffix, naming).ok();
            assert_eq!(name.as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_dead_letter_queue_is_not_its_own_source() {
        assert!(queue_name("orders", Some("orders"), None, DotSuffix).is_err());
    }
}
