//! The client's errors, as the core knows them.

use std::error::Error as StdError;
use std::fmt::{Display, Write as _};

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::BatchResultErrorEntry;
use babelqueue_core::Error;

/// Answers that stay the same however often one asks.
const REFUSALS: &[&str] = &[
    "QueueDoesNotExist",
    "NonExistentQueue",
    "QueueDeletedRecently",
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "IncompleteSignature",
    "InvalidAddress",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "InvalidSignatureException",
    "KmsAccessDenied",
    "KmsDisabled",
    "KmsInvalidKeyUsage",
    "KmsNotFound",
    "KmsOptInRequired",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "NotAuthorized",
    "OptInRequired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
    "UnsupportedOperation",
];

/// Answers to a receipt handle that is good no more.
const ENDED: &[&str] = &["ReceiptHandleIsInvalid", "MessageNotInflight"];

/// A request that failed as a whole.
pub(crate) fn of<E>(
    operation: &'static str,
    context: impl Display,
    error: SdkError<E, HttpResponse>,
) -> Error
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    let context = format!("{context}: {}", in_words(&error));
    let mapped = if is_refusal(&error) {
        Error::refused(operation, context)
    } else {
        Error::transient(operation, context)
    };
    mapped.with_source(error)
}

/// Whether the service says that there is no such queue.
pub(crate) fn is_missing_queue<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    let code = error.as_service_error().and_then(|said| said.code());
    code.map(bare).is_some_and(is_missing)
}

/// Whether the service says that we may not.
pub(crate) fn is_denied<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    let code = error.as_service_error().and_then(|said| said.code());
    code.map(bare)
        .is_some_and(|code| code.starts_with("AccessDenied"))
}

/// What the service did not do of a batch: one entry, or all of it.
#[derive(Debug, Clone)]
pub(crate) struct Undone {
    kind: Kind,
    said: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Of this entry, and it can do better in a moment.
    Passes,
    /// The request failed, tried again as often as the client does.
    Failed,
    /// The receipt handle is good no more.
    Ended,
    /// It stays the same however often one asks.
    Refused,
    /// The entry itself is not as the service wants it.
    Unfit,
}

impl Undone {
    /// One entry.
    pub(crate) fn entry(error: &BatchResultErrorEntry) -> Self {
        let code = bare(error.code());
        let message = error.message().unwrap_or_default();
        let kind = if REFUSALS.contains(&code) {
            Kind::Refused
        } else if has_ended(code, message) {
            Kind::Ended
        } else if error.sender_fault() {
            Kind::Unfit
        } else {
            Kind::Passes
        };
        let said = format!("{code} {message}");
        Self { kind, said }
    }

    /// An entry that the answer does not mention.
    pub(crate) fn unmentioned() -> Self {
        Self {
            kind: Kind::Passes,
            said: "the answer does not mention it".into(),
        }
    }

    /// Every entry of a request that failed.
    pub(crate) fn request<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
    {
        let kind = if is_refusal(error) {
            Kind::Refused
        } else {
            Kind::Failed
        };
        let said = in_words(error);
        Self { kind, said }
    }

    /// An entry that cannot be sent at all.
    pub(crate) fn unfit(error: &dyn Display) -> Self {
        Self {
            kind: Kind::Unfit,
            said: error.to_string(),
        }
    }

    /// Whether the same entry can do better in a moment.
    pub(crate) fn passes(&self) -> bool {
        self.kind == Kind::Passes
    }

    /// Whether the receipt handle is good no more: the message was given out again, or is gone.
    pub(crate) fn has_ended(&self) -> bool {
        self.kind == Kind::Ended
    }

    /// As an error of the settlement or the publish that it was part of.
    pub(crate) fn into_error(self, operation: &'static str, context: impl Display) -> Error {
        let context = format!("{context}: {}", self.said);
        match self.kind {
            Kind::Passes | Kind::Failed => Error::transient(operation, context),
            Kind::Refused => Error::refused(operation, context),
            Kind::Ended => Error::lost(context),
            Kind::Unfit => Error::message(context),
        }
    }
}

fn has_ended(code: &str, message: &str) -> bool {
    let of_handle = ["expired", "ReceiptHandle", "VisibilityTimeout"];
    ENDED.contains(&code)
        || code == "InvalidParameterValue" && of_handle.iter().any(|sign| message.contains(sign))
}

fn is_refusal<E>(error: &SdkError<E, HttpResponse>) -> bool
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    match error {
        // Nothing was sent: a setting is missing or wrong.
        SdkError::ConstructionFailure(_) => true,
        SdkError::ServiceError(answer) => {
            let status = answer.raw().status().as_u16();
            let code = answer.err().code().map(bare);
            code.is_some_and(|code| REFUSALS.contains(&code) || is_missing(code))
                || code.is_some_and(|code| code.starts_with("Invalid"))
                    && (400..500).contains(&status)
        }
        _ => has_no_credentials(error),
    }
}

/// Whether nobody had credentials for us. Somebody who could not be asked may be there the next time.
fn has_no_credentials(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(next) = cause {
        if let Some(said) = next.downcast_ref::<CredentialsError>() {
            return matches!(
                said,
                CredentialsError::CredentialsNotLoaded(_)
                    | CredentialsError::InvalidConfiguration(_)
            );
        }
        cause = next.source();
    }
    false
}

fn is_missing(code: &str) -> bool {
    ["QueueDoesNotExist", "NonExistentQueue"].contains(&code)
}

/// The code without the name of the service before it: both ways are in use.
fn bare(code: &str) -> &str {
    let code = code.rsplit(['#', ':']).next().unwrap_or(code);
    code.strip_prefix("AWS.SimpleQueueService.").unwrap_or(code)
}

/// What the service said, or the whole chain of what went wrong on the way.
fn in_words<E>(error: &SdkError<E, HttpResponse>) -> String
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    if let SdkError::ServiceError(answer) = error
        && let Some(code) = answer.err().code()
    {
        let message = answer.err().message().unwrap_or_default();
        return format!("{} {message}", bare(code));
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        _ = write!(text, ": {next}");
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(code: &str, message: &str, is_our_fault: bool) -> Undone {
        let error = BatchResultErrorEntry::builder()
            .id("0")
            .code(code)
            .message(message)
            .sender_fault(is_our_fault)
            .build();
        Undone::entry(&error.unwrap())
    }

    #[test]
    fn codes_count_without_the_services_name() {
        assert_eq!(
            bare("AWS.SimpleQueueService.NonExistentQueue"),
            "NonExistentQueue"
        );
        assert_eq!(
            bare("com.amazonaws.sqs#QueueDoesNotExist"),
            "QueueDoesNotExist"
        );
        assert_eq!(bare("AccessDenied"), "AccessDenied");
    }

    #[test]
    fn an_entry_that_passes_is_told_from_one_that_does_not() {
        for (code, our_fault, passes) in [
            ("InternalError", false, true),
            ("RequestThrottled", false, true),
            ("ServiceUnavailable", false, true),
            ("InvalidMessageContents", true, false),
            ("KmsAccessDenied", false, false),
            ("AWS.SimpleQueueService.MessageNotInflight", false, false),
            ("ReceiptHandleIsInvalid", true, false),
        ] {
            assert_eq!(entry(code, "", our_fault).passes(), passes, "{code}");
        }
    }

    #[test]
    fn a_handle_that_has_ended_is_known_by_what_is_said() {
        let said = "Value … for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.";
        assert!(entry("InvalidParameterValue", said, true).has_ended());
        assert!(entry("ReceiptHandleIsInvalid", "", true).has_ended());
        assert!(!entry("InvalidParameterValue", "DelaySeconds", true).has_ended());
    }

    #[test]
    fn an_error_says_the_code_and_what_it_means() {
        let refused = entry("KmsAccessDenied", "no", true).into_error("publish", "queue `q`");
        assert!(matches!(refused, Error::Refused { .. }), "{refused}");
        let bad = entry("InvalidMessageContents", "no", true).into_error("publish", "queue `q`");
        assert!(matches!(bad, Error::Message { .. }), "{bad}");
        let later = entry("InternalError", "oops", false).into_error("settle", "queue `q`");
        assert!(
            later.is_transient() && later.to_string().contains("queue `q`: InternalError oops")
        );
    }
}
