//! Stepping a worker message by message in a unit test.
