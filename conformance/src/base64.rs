//! Standard base64 (RFC 4648 §4), padded: how the suite carries bytes that are not UTF-8.

/// The bytes of `text`, or `None` where it is not padded standard base64.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in body.as_bytes().chunks(4) {
        let mut word = 0_u32;
        for &symbol in chunk {
            word = word << 6 | sextet(symbol)?;
        }
        word <<= 6 * (4 - chunk.len());
        bytes.extend(&word.to_be_bytes()[1..chunk.len()]);
    }
    Some(bytes)
}

fn sextet(symbol: u8) -> Option<u32> {
    let value = match symbol {
        b'A'..=b'Z' => symbol - b'A',
        b'a'..=b'z' => symbol - b'a' + 26,
        b'0'..=b'9' => symbol - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn the_rfcs_own_vectors() {
        for (text, bytes) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE=", "fooba"),
            ("Zm9vYmFy", "foobar"),
        ] {
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(decode("/w=="), Some(vec![0xFF]));
        for text in ["Zg", "Zg=", "Z===", "Zg=a", "Z-_="] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
