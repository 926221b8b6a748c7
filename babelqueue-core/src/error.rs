use std::fmt::Display;

/// Any error, boxed, as a source.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// What a transport, a producer or a worker can fail with.
///
/// A caller rarely needs to match: [`is_transient`](Self::is_transient) says whether trying again
/// can help, [`is_lost`](Self::is_lost) whether a delivery is no longer ours. No variant shows a
/// secret: URLs are redacted before they get here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The broker or the connection failed in a way that passes. The outcome of the operation is
    /// unknown: it may have been carried out.
    #[error("{operation} failed for now: {context}")]
    Transient {
        /// What was being done: `publish`, `receive`, `settle`, `connect` …
        operation: &'static str,
        /// Where and on what, in words.
        context: String,
        /// The client's own error.
        #[source]
        source: Option<BoxError>,
    },

    /// The broker refused in a way that no retry mends: wrong credentials, missing rights, a queue
    /// that does not exist.
    #[error("{operation} was refused: {context}")]
    Refused {
        /// What was being done.
        operation: &'static str,
        /// Where and on what, in words.
        context: String,
        /// The client's own error.
        #[source]
        source: Option<BoxError>,
    },

    /// The lease, the lane or the connection that a delivery came by is gone. The broker gives the
    /// message out again; this delivery's settlement is without effect.
    #[error("the delivery is lost: {context}")]
    Lost {
        /// What is gone, in words.
        context: String,
    },

    /// A publish option or a settlement that this broker has no means for.
    #[error("{broker} has no {feature}: {context}")]
    Unsupported {
        /// The transport's name, as in its [`Capabilities`](crate::transport::Capabilities).
        broker: &'static str,
        /// What was asked for: `delay`, `partition key` …
        feature: &'static str,
        /// What there is instead, or which limit was passed.
        context: String,
    },

    /// A setting that cannot be: an attempt cap of 0, a dead-letter queue that is its own source.
    #[error("invalid configuration: `{option}` {problem}")]
    Config {
        /// The option's name.
        option: &'static str,
        /// What is wrong with it, with the value and what was expected.
        problem: String,
    },

    /// The message itself cannot be sent, whatever the broker's state: it carries a forbidden key,
    /// or is too large.
    #[error("the message cannot be sent: {context}")]
    Message {
        /// What is wrong, naming the field.
        context: String,
        /// The cause.
        #[source]
        source: Option<BoxError>,
    },
}

impl Error {
    /// A failure that passes; trying again can help.
    pub fn transient(operation: &'static str, context: impl Display) -> Self {
        Self::Transient {
            operation,
            context: context.to_string(),
            source: None,
        }
    }

    /// A refusal that no retry mends.
    pub fn refused(operation: &'static str, context: impl Display) -> Self {
        Self::Refused {
            operation,
            context: context.to_string(),
            source: None,
        }
    }

    /// A delivery that is no longer ours.
    pub fn lost(context: impl Display) -> Self {
        Self::Lost {
            context: context.to_string(),
        }
    }

    /// A setting that cannot be.
    pub fn config(option: &'static str, problem: impl Display) -> Self {
        Self::Config {
            option,
            problem: problem.to_string(),
        }
    }

    /// A message that cannot be sent.
    pub fn message(context: impl Display) -> Self {
        Self::Message {
            context: context.to_string(),
            source: None,
        }
    }

    /// The same error with its cause, where the variant holds one.
    #[must_use]
    pub fn with_source(mut self, cause: impl Into<BoxError>) -> Self {
        if let Self::Transient { source, .. }
        | Self::Refused { source, .. }
        | Self::Message { source, .. } = &mut self
        {
            *source = Some(cause.into());
        }
        self
    }

    /// Whether the same call can succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Transient { .. })
    }

    /// Whether a delivery's lease, lane or connection is gone.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}
