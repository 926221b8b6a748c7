use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// What a worker shares with its handlers: at most one value of each type.
#[derive(Clone, Default)]
pub(crate) struct State {
    values: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl State {
    /// Puts `value` in, in place of an earlier one of its type.
    pub(crate) fn insert<S: Send + Sync + 'static>(&mut self, value: S) {
        self.values.insert(TypeId::of::<S>(), Arc::new(value));
    }

    pub(crate) fn get<S: Send + Sync + 'static>(&self) -> Result<&S, MissingState> {
        self.values
            .get(&TypeId::of::<S>())
            .and_then(|value| value.downcast_ref())
            .ok_or(MissingState {
                wanted: type_name::<S>(),
            })
    }
}

/// By number: the values are the user's.
impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("values", &self.values.len())
            .finish()
    }
}

/// A handler asked for state of a type that the worker was not given
/// ([`Worker::state`](crate::worker::Worker::state)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the worker has no state of type `{wanted}`")]
pub struct MissingState {
    wanted: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_found_by_its_type() {
        let mut state = State::default();
        state.insert(7_u16);
        state.insert("text");
        state.insert(8_u16);
        assert_eq!(state.get::<u16>(), Ok(&8));
        assert_eq!(state.get::<&str>(), Ok(&"text"));
        let missing = state.get::<String>().unwrap_err();
        assert_eq!(
            missing.to_string(),
            "the worker has no state of type `alloc::string::String`"
        );
    }
}
