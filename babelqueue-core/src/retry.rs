//! How often and how late a message is tried again (contract §7.4–5).
