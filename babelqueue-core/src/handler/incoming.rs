use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

use serde::de::DeserializeOwned;

use super::{Context, Failure, MissingState};
use crate::Headers;
use crate::producer::Producer;

/// A message as its handler takes it: the payload as a `T`, and beside it the [`Context`].
///
/// Dereferences to the payload, so that its fields read as the message's own.
#[derive(Debug, Clone)]
pub struct Incoming<T> {
    payload: T,
    context: Context,
}

impl<T> Incoming<T> {
    /// Puts a message together, for a test that calls a handler itself.
    pub fn new(payload: T, context: Context) -> Self {
        Self { payload, context }
    }

    /// The payload alone.
    pub fn into_inner(self) -> T {
        self.payload
    }

    /// Payload and context apart.
    pub fn into_parts(self) -> (T, Context) {
        (self.payload, self.context)
    }

    /// Everything but the payload.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The logical name of the queue that it was consumed from.
    pub fn queue(&self) -> &str {
        self.context.queue()
    }

    /// Which delivery this is: 1 for the first.
    pub fn attempt(&self) -> u32 {
        self.context.attempt()
    }

    /// `meta.id`, the message's own id.
    pub fn id(&self) -> Option<Cow<'_, str>> {
        self.context.id()
    }

    /// `trace_id`, which the whole chain of messages shares.
    pub fn trace_id(&self) -> Option<Cow<'_, str>> {
        self.context.trace_id()
    }

    /// What travelled beside the body.
    pub fn headers(&self) -> &Headers {
        self.context.headers()
    }

    /// Whether a redrive asked to leave out external effects ([`Context::is_replay`]).
    pub fn is_replay(&self) -> bool {
        self.context.is_replay()
    }

    /// The worker's value of type `S`.
    ///
    /// # Errors
    ///
    /// The worker was not given one.
    pub fn state<S: Send + Sync + 'static>(&self) -> Result<&S, MissingState> {
        self.context.state()
    }

    /// The [`Producer`] from the worker's state, set to carry this message's trace id forward.
    ///
    /// # Errors
    ///
    /// The worker was not given one.
    pub fn producer(&self) -> Result<Producer, MissingState> {
        self.context.producer()
    }

    /// Waits until the delivery is lost ([`Context::lost`]).
    pub async fn lost(&self) {
        self.context.lost().await;
    }
}

impl<T: DeserializeOwned> Incoming<T> {
    /// Reads the payload from the envelope's `data`.
    pub(super) fn read(context: Context) -> Result<Self, Failure> {
        match context.envelope().data() {
            Ok(payload) => Ok(Self { payload, context }),
            Err(error) => Err(Failure::named(error, "DataError")),
        }
    }
}

impl<T> Deref for Incoming<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.payload
    }
}

impl<T> DerefMut for Incoming<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.payload
    }
}
