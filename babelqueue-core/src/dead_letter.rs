//! The `dead_letter` block and the names of dead-letter queues (contract §6).
