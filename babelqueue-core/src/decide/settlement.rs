use std::sync::Arc;

use bytes::Bytes;

use super::Decision;
use crate::dead_letter::{DeadLetter, Reason};
use crate::envelope::Envelope;
use crate::poison_record;
use crate::transport::{Delivery, Settlement};

/// What a [`Decision`] is carried out with.
#[derive(Debug, Clone, Copy)]
pub struct Material<'a> {
    /// The delivery, as received.
    pub delivery: &'a Delivery,
    /// Its envelope, where it has one: never for a poison or a gated delivery.
    pub envelope: Option<&'a Envelope>,
    /// Whether the envelope's bytes differ from the received ones
    /// ([`Dispatch::rewritten`](super::Dispatch::rewritten)).
    pub rewritten: bool,
    /// The name of the dead-letter queue
    /// ([`Policy::dead_letter_queue_for`](super::Policy::dead_letter_queue_for)).
    pub dead_letter_queue: &'a Arc<str>,
    /// What went wrong, in words.
    pub error: Option<&'a str>,
    /// The type of the error.
    pub exception: Option<&'a str>,
    /// The time, in Unix milliseconds.
    pub now_ms: i64,
}

impl Decision {
    /// The settlement that carries the decision out.
    ///
    /// `attempts` is written only into an envelope; a body that is none goes along byte for byte
    /// (contract §7.2).
    pub fn settlement(self, material: &Material<'_>) -> Settlement {
        match self {
            Self::Ack | Self::Drop => Settlement::Ack,
            Self::Retry { attempts, delay } => Settlement::Retry {
                body: material.counted(attempts),
                attempts: saturated(attempts),
                delay,
            },
            Self::Release { delay } => Settlement::Release {
                body: material.normalised(),
                delay,
            },
            Self::GiveBack => Settlement::release(),
            Self::DeadLetter {
                reason,
                attempts,
                with_error,
            } => Settlement::DeadLetter {
                queue: Arc::clone(material.dead_letter_queue),
                record: material.record(reason, attempts, with_error),
                verbatim: false,
                attempts: saturated(attempts),
            },
            Self::DeadLetterVerbatim => Settlement::DeadLetter {
                queue: Arc::clone(material.dead_letter_queue),
                record: material.delivery.body.clone(),
                verbatim: true,
                attempts: material.delivery.facts.attempts.unwrap_or(0),
            },
            Self::Native { reason } => Settlement::Native {
                reason,
                description: material.error.unwrap_or(reason).to_owned(),
            },
        }
    }
}

impl Material<'_> {
    /// The body of the next delivery.
    fn counted(&self, attempts: i64) -> Bytes {
        match self.envelope {
            Some(envelope) => envelope.with_attempts(attempts).bytes().clone(),
            None => self.delivery.body.clone(),
        }
    }

    /// The body without its forbidden keys, where it had any (contract §7.7).
    fn normalised(&self) -> Option<Bytes> {
        let envelope = self.envelope.filter(|_| self.rewritten)?;
        Some(envelope.bytes().clone())
    }

    /// The dead-letter record (contract §6.2, §6A).
    fn record(&self, reason: Reason, attempts: i64, with_error: bool) -> Bytes {
        let block = self.block(reason, attempts, with_error);
        match self.envelope {
            Some(envelope) => envelope
                .with_attempts(attempts)
                .with_dead_letter(&block)
                .bytes()
                .clone(),
            None => poison_record::write(&self.delivery.body, &block),
        }
    }

    fn block(&self, reason: Reason, attempts: i64, with_error: bool) -> DeadLetter {
        let said = |text: Option<&str>| text.filter(|_| with_error).map(str::to_owned);
        let queue = self.original_queue(reason);
        DeadLetter {
            error: said(self.error),
            exception: said(self.exception),
            ..DeadLetter::new(reason, queue, attempts, self.now_ms)
        }
    }

    /// The queue that it was consumed from (contract §18.8); for poison, where the broker knows an
    /// earlier one, that (§6A.5).
    fn original_queue(&self, reason: Reason) -> &str {
        match &self.delivery.facts.original_queue {
            Some(queue) if reason == Reason::Poison => queue,
            _ => &self.delivery.queue,
        }
    }
}

/// A count as a broker's property holds it.
fn saturated(attempts: i64) -> u32 {
    u32::try_from(attempts.max(0)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Facts;
    use std::time::Duration;

    const DELAY: Duration = Duration::from_secs(7);

    /// Spelt unlike anything that we would write, with a number that no double holds.
    const BODY: &[u8] = br#"{ "job":"urn:a", "big": 1e999, "attempts":2, "data":{} }"#;

    fn delivery(body: &[u8]) -> Delivery {
        Delivery::new("orders".into(), Bytes::copy_from_slice(body))
    }

    fn envelope(body: &[u8]) -> Envelope {
        Envelope::decode(Bytes::copy_from_slice(body))
            .expect("an envelope")
            .envelope
    }

    fn settle(decision: Decision, delivery: &Delivery, envelope: Option<&Envelope>) -> Settlement {
        decision.settlement(&Material {
            delivery,
            envelope,
            rewritten: envelope.is_some_and(|envelope| envelope.bytes() != &delivery.body),
            dead_letter_queue: &"orders.dlq".into(),
            error: Some("no stock"),
            exception: Some("StockError"),
            now_ms: 1_700_000_000_000,
        })
    }

    fn dead_letter(reason: Reason, attempts: i64) -> Decision {
        Decision::DeadLetter {
            reason,
            attempts,
            with_error: true,
        }
    }

    fn record(settlement: Settlement) -> String {
        match settlement {
            Settlement::DeadLetter {
                queue,
                record,
                verbatim: false,
                ..
            } if &*queue == "orders.dlq" => {
                String::from_utf8(record.to_vec()).expect("a record is UTF-8")
            }
            other => panic!("expected a record, got {other:?}"),
        }
    }

    #[test]
    fn what_is_done_is_acknowledged() {
        let delivery = delivery(BODY);
        for decision in [Decision::Ack, Decision::Drop] {
            assert_eq!(settle(decision, &delivery, None), Settlement::Ack);
        }
    }

    #[test]
    fn a_retry_touches_attempts_and_nothing_else() {
        let decision = Decision::Retry {
            attempts: 3,
            delay: DELAY,
        };
        let expected = Settlement::Retry {
            body: br#"{ "job":"urn:a", "big": 1e999, "attempts":3, "data":{} }"#[..].into(),
            attempts: 3,
            delay: DELAY,
        };
        assert_eq!(
            settle(decision, &delivery(BODY), Some(&envelope(BODY))),
            expected
        );
    }

    #[test]
    fn a_poison_body_is_tried_again_as_it_came() {
        let decision = Decision::Retry {
            attempts: 1,
            delay: DELAY,
        };
        let body = b"{\"job\":\"urn:a\",\"attempts\":\"0\"\xFF";
        let expected = Settlement::Retry {
            body: body[..].into(),
            attempts: 1,
            delay: DELAY,
        };
        assert_eq!(settle(decision, &delivery(body), None), expected);
    }

    #[test]
    fn a_release_writes_a_body_only_where_a_key_had_to_go() {
        let release = Decision::Release { delay: DELAY };
        let unchanged = Settlement::Release {
            body: None,
            delay: DELAY,
        };
        assert_eq!(
            settle(release, &delivery(BODY), Some(&envelope(BODY))),
            unchanged
        );

        let forbidden = br#"{"job":"urn:a","timestamp":1}"#;
        let normalised = Settlement::Release {
            body: Some(br#"{"job":"urn:a"}"#[..].into()),
            delay: DELAY,
        };
        assert_eq!(
            settle(release, &delivery(forbidden), Some(&envelope(forbidden))),
            normalised
        );
        // At the stop it goes back as it came.
        assert_eq!(
            settle(
                Decision::GiveBack,
                &delivery(forbidden),
                Some(&envelope(forbidden))
            ),
            Settlement::release()
        );
    }

    #[test]
    fn a_failure_is_recorded_in_the_envelope() {
        let settlement = settle(
            dead_letter(Reason::Failed, 3),
            &delivery(BODY),
            Some(&envelope(BODY)),
        );
        assert_eq!(
            record(settlement),
            concat!(
                r#"{ "job":"urn:a", "big": 1e999, "attempts":3,"dead_letter":"#,
                r#"{"reason":"failed","error":"no stock","exception":"StockError","#,
                r#""failed_at":1700000000000,"original_queue":"orders","attempts":3,"#,
                r#""lang":"rust"}, "data":{} }"#
            )
        );
    }

    #[test]
    fn a_direct_unknown_urn_has_no_error_and_counts_nothing() {
        let decision = Decision::DeadLetter {
            reason: Reason::UnknownUrn,
            attempts: 5,
            with_error: false,
        };
        let settlement = settle(decision, &delivery(BODY), Some(&envelope(BODY)));
        let record = envelope(record(settlement).as_bytes());
        let block = record.dead_letter().expect("a block");
        assert_eq!(record.attempts(), Some(5));
        assert_eq!(block.attempts, Some(5));
        assert_eq!(block.reason.as_deref(), Some("unknown_urn"));
        assert_eq!((block.error, block.exception), (None, None));
    }

    #[test]
    fn poison_is_recorded_byte_for_byte_with_the_queue_that_it_first_came_from() {
        let mut delivery = delivery(b"not JSON");
        let of =
            |delivery: &Delivery| record(settle(dead_letter(Reason::Poison, 2), delivery, None));
        assert!(of(&delivery).starts_with(r#"{"raw":"not JSON","dead_letter":{"reason":"poison""#));
        assert!(of(&delivery).contains(r#""original_queue":"orders","attempts":2"#));

        delivery.facts = Facts {
            original_queue: Some("first".into()),
            ..Facts::default()
        };
        assert!(of(&delivery).contains(r#""original_queue":"first""#));
        // Only poison asks for it: anything else returns to the queue that it was consumed from.
        let failed = settle(
            dead_letter(Reason::Failed, 3),
            &delivery,
            Some(&envelope(BODY)),
        );
        assert!(record(failed).contains(r#""original_queue":"orders""#));
    }

    #[test]
    fn a_gated_body_is_kept_verbatim() {
        let body = b"{\n \"meta\": {\"schema_version\": 2}, \"n\": 1.50 }\n\xFF";
        let settlement = settle(Decision::DeadLetterVerbatim, &delivery(body), None);
        assert!(matches!(
            settlement,
            Settlement::DeadLetter { record, verbatim: true, .. } if record == body[..]
        ));
    }

    #[test]
    fn the_brokers_own_dead_lettering_is_told_why() {
        let native = Decision::Native { reason: "poison" };
        let expected = Settlement::Native {
            reason: "poison",
            description: "no stock".to_owned(),
        };
        assert_eq!(settle(native, &delivery(BODY), None), expected);
    }

    #[test]
    fn a_count_past_the_property_is_kept_in_the_body() {
        let settlement = settle(
            dead_letter(Reason::Failed, i64::MAX),
            &delivery(BODY),
            Some(&envelope(BODY)),
        );
        assert!(matches!(
            settlement,
            Settlement::DeadLetter {
                attempts: u32::MAX,
                ..
            }
        ));
        assert!(record(settlement).contains(r#""attempts":9223372036854775807"#));
    }
}
