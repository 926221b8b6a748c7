//! Running handlers over queues.
