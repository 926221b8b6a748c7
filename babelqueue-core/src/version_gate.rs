//! The version gate, before any body is decoded (contract §9).
