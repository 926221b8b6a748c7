//! Checking `data` against a schema for its URN (contract §17A).
