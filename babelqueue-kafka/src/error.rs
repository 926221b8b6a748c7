//! What the client's errors mean to the core.

use babelqueue_core::Error;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// The core's error for `cause`, which `operation` on `subject` ended with.
pub(crate) fn classified(operation: &'static str, subject: &str, cause: KafkaError) -> Error {
    if let KafkaError::ClientConfig(_, what, property, _value) = &cause {
        // The value may be a secret.
        let hint = if property.starts_with("ssl") || property.starts_with("sasl") {
            " (TLS and SCRAM need the feature `ssl` of this crate)"
        } else {
            ""
        };
        return Error::config("property", format!("`{property}`: {what}{hint}"));
    }
    if let KafkaError::ClientCreation(what) = &cause {
        // Properties that do not go together.
        return Error::config("property", format!("{subject}: {what}"));
    }
    let code = cause.rdkafka_error_code();
    let context = match code {
        Some(code) if is_missing_topic(code) => format!("{subject} does not exist: {code}"),
        Some(code) => format!("{subject}: {code}"),
        None => format!("{subject}: {cause}"),
    };
    let error = match code {
        Some(code) if is_about_the_message(code) => Error::message(context),
        Some(code) if is_refusal(code) => Error::refused(operation, context),
        _ => Error::transient(operation, context),
    };
    error.with_source(cause)
}

/// Whether no retry mends it.
pub(crate) fn is_refusal(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    is_missing_topic(code)
        || matches!(
            code,
            Code::Authentication
                | Code::ClusterAuthorizationFailed
                | Code::Fatal
                | Code::GroupAuthorizationFailed
                | Code::InconsistentGroupProtocol
                | Code::InvalidGroupId
                | Code::InvalidPartitions
                | Code::InvalidSessionTimeout
                | Code::InvalidTopic
                | Code::SaslAuthenticationFailed
                | Code::TopicAuthorizationFailed
                | Code::UnsupportedSASLMechanism
                | Code::UnsupportedVersion
        )
}

/// Whether the topic, or the partition of it, is not there.
pub(crate) fn is_missing_topic(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownPartition
    )
}

fn is_about_the_message(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::MessageSizeTooLarge
            | RDKafkaErrorCode::InvalidRecord
            | RDKafkaErrorCode::InvalidTimestamp
    )
}

#[cfg(test)]
mod tests {
    use rdkafka::producer::BaseProducer;

    use super::*;
    use crate::Config;

    #[test]
    fn the_kind_of_failure_decides() {
        let of = |code| classified("publish", "topic `t`", KafkaError::MessageProduction(code));
        assert!(matches!(
            of(RDKafkaErrorCode::UnknownTopic),
            Error::Refused { .. }
        ));
        assert!(matches!(
            of(RDKafkaErrorCode::TopicAuthorizationFailed),
            Error::Refused { .. }
        ));
        assert!(matches!(
            of(RDKafkaErrorCode::MessageSizeTooLarge),
            Error::Message { .. }
        ));
        assert!(of(RDKafkaErrorCode::MessageTimedOut).is_transient());
        assert!(of(RDKafkaErrorCode::NotEnoughReplicas).is_transient());
        // Brokers may still be starting.
        assert!(of(RDKafkaErrorCode::InvalidReplicationFactor).is_transient());
    }
    #[test]
    fn properties_that_do_not_go_together_are_a_wrong_setting() {
        let producer = Config::new("127.0.0.1:9").property("acks", "1").producer();
        let made: Result<BaseProducer, KafkaError> = producer.create();
        let error = classified("connect", "the producer", made.err().unwrap());
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(error.to_string().contains("`acks`"), "{error}");
    }
}
