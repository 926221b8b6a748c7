//! The envelope: lossless and lazy (contract §1–3, §5).
