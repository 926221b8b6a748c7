//! Recognising a redriven message (contract §17A, ADR-0027).
