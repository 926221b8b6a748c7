//! What every transport must do, as a suite (unstable).
