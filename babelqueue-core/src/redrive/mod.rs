//! Bringing dead-lettered messages back (contract §17A).
