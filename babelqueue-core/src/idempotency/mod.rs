//! Running a handler once for a message that is delivered twice (contract §17A).
