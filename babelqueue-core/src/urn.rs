//! URNs and the message types that they name (contract §4).
