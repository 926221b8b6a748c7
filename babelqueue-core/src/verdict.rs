//! The verdict of a body: envelope or poison (contract §2A).
