//! Which of a cluster's slots a key falls into.
//!
//! A script may only touch keys of one slot, and all keys of a queue have to lie together. Redis
//! hashes what stands between the first `{` and the next `}`, so the user writes the braces
//! (`{orders}`), and peers see the same key.

use babelqueue_core::Error;

const SLOTS: u16 = 16_384;

/// Refuses keys that lie in several slots.
pub(crate) fn check_one<'k>(keys: impl IntoIterator<Item = &'k str>) -> Result<(), Error> {
    let mut keys = keys.into_iter();
    let Some(first) = keys.next() else {
        return Ok(());
    };
    match keys.find(|key| of(key) != of(first)) {
        None => Ok(()),
        Some(other) => Err(Error::config(
            "queue",
            format_args!(
                "has keys in several slots of the cluster (`{first}` in {}, `{other}` in {}); put \
                 the part that they share in braces, as in `{{orders}}` and `{{orders}}.dlq`",
                of(first),
                of(other)
            ),
        )),
    }
}

/// The slot of a key.
fn of(key: &str) -> u16 {
    crc16(hashed_part(key).as_bytes()) % SLOTS
}

/// What stands between the first `{` and the next `}`, where that is not empty; else the whole key.
fn hashed_part(key: &str) -> &str {
    key.find('{')
        .and_then(|open| {
            let rest = &key[open + 1..];
            rest.find('}').map(|close| &rest[..close])
        })
        .filter(|tag| !tag.is_empty())
        .unwrap_or(key)
}

/// CRC-16/XMODEM, as Redis Cluster uses it: polynomial 0x1021, from zero, not reflected.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Keys, LARAVEL_PREFIX, Layout};

    #[test]
    fn crc16_gives_the_check_value_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
    }

    #[test]
    fn only_a_tag_that_is_not_empty_counts() {
        assert_eq!(hashed_part("{orders}:processing"), "orders");
        assert_eq!(hashed_part("a{b}{c}"), "b");
        assert_eq!(hashed_part("foo{}{bar}"), "foo{}{bar}");
        assert_eq!(hashed_part("foo{{bar}}zap"), "{bar");
        assert_eq!(hashed_part("open{only"), "open{only");
    }

    #[test]
    fn braces_hold_a_queue_together_in_both_layouts() {
        for layout in [Layout::Sdk, Layout::Laravel] {
            let keys = Keys::new(layout, LARAVEL_PREFIX, "{orders}");
            assert!(check_one(keys.iter()).is_ok());
        }
    }

    #[test]
    fn without_braces_the_error_names_two_keys_and_the_cure() {
        let keys = Keys::new(Layout::Sdk, LARAVEL_PREFIX, "orders");
        let error = check_one(keys.iter()).expect_err("three slots").to_string();
        assert!(error.contains("`orders:processing`"), "{error}");
        assert!(error.contains("{orders}"), "{error}");
    }
}
