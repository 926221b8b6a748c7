//! Publishing messages.
