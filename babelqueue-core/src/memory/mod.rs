//! A broker in memory, with real semantics.
