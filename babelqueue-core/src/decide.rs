//! What becomes of a delivery: one pure function (contract §7, §8, §9.5).
