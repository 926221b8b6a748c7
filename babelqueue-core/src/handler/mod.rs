//! What a user writes to handle a message.
