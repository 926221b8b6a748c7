//! What is done above a partition's committed offset, as text for the commit's metadata.
//!
//! A commit says "everything below this offset is done". With order by key, much above it can be
//! done as well, and a restart would run it again; so the commit carries the lengths of the runs
//! above it: how many are not done, how many are, how many are not … A program that does not know
//! the text loses nothing but that knowledge.
//!
//! The text is `bq1:` and then the lengths, each in base 32, the lowest digit first, a digit in one
//! character of the URL-safe base 64 alphabet, whose sixth bit says that another digit follows.

use std::ops::Range;

/// The most bytes that a broker takes as a commit's metadata (`offset.metadata.max.bytes`).
const LIMIT: usize = 4_096;
const PREFIX: &str = "bq1:";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const MORE: u64 = 32;

/// The metadata of a commit at `low` above which the offsets in `done` are done: ranges that
/// ascend, are not empty and do not touch each other or `low`. What does not fit is left out from
/// the far end: it would run again. Empty where there is nothing to say.
pub(crate) fn encode(low: i64, done: impl IntoIterator<Item = Range<i64>>) -> String {
    let mut text = String::new();
    let mut at = low;
    for run in done {
        let before = text.len();
        if text.is_empty() {
            text.push_str(PREFIX);
        }
        push(&mut text, run.start - at);
        push(&mut text, run.end - run.start);
        if text.len() > LIMIT {
            text.truncate(before);
            break;
        }
        at = run.end;
    }
    text
}

/// The ranges that a commit's metadata at `low` calls done. `None` where the text is not ours or is
/// damaged: then nothing above `low` is done.
pub(crate) fn decode(low: i64, text: &str) -> Option<Vec<Range<i64>>> {
    let digits = text.strip_prefix(PREFIX)?;
    if text.len() > LIMIT {
        return None;
    }
    let mut digits = digits.bytes();
    let mut done = Vec::new();
    let mut at = low;
    while digits.len() > 0 {
        let start = at.checked_add(pull(&mut digits)?)?;
        let end = start.checked_add(pull(&mut digits)?)?;
        done.push(start..end);
        at = end;
    }
    Some(done)
}

fn push(text: &mut String, length: i64) {
    let mut rest = length.unsigned_abs();
    loop {
        let digit = rest % MORE;
        rest /= MORE;
        let more = if rest > 0 { MORE } else { 0 };
        // At most 63 by construction.
        let at = usize::try_from(digit | more).unwrap_or(0);
        text.push(char::from(ALPHABET[at]));
        if rest == 0 {
            return;
        }
    }
}

/// One length, which is never zero.
fn pull(digits: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let mut length: i64 = 0;
    let mut scale: i64 = 1;
    loop {
        let digit = digits.next()?;
        let value = ALPHABET.iter().position(|known| *known == digit)? as u64;
        let part = i64::try_from(value % MORE).ok()?.checked_mul(scale)?;
        length = length.checked_add(part)?;
        if value < MORE {
            return (length > 0).then_some(length);
        }
        scale = scale.checked_mul(i64::try_from(MORE).ok()?)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_done_says_nothing() {
        assert_eq!(encode(7, []), "");
        assert_eq!(decode(7, ""), None);
    }

    #[test]
    fn runs_come_back_as_they_were() {
        for done in [
            vec![8..9, 10..11],
            vec![8..39, 40..72, 1_000..1_000_000],
            vec![8..9, 10..i64::MAX - 1],
        ] {
            let text = encode(7, done.clone());
            assert_eq!(decode(7, &text), Some(done), "{text}");
        }
    }

    #[test]
    fn the_text_is_pinned() {
        // One not done, 31 done, 1 not, 32 done: B, f, B, then 32 = digit 0 and more, digit 1.
        assert_eq!(encode(0, [1..32, 33..65]), "bq1:BfBgB");
    }

    #[test]
    fn what_does_not_fit_is_left_out_from_the_far_end() {
        let done = (0..5_000).map(|i| (2 * i + 1)..(2 * i + 2));
        let text = encode(0, done.clone());
        assert!(
            text.len() <= LIMIT && text.len() > LIMIT - 4,
            "{}",
            text.len()
        );
        let kept = decode(0, &text).unwrap();
        assert_eq!(kept, done.take(kept.len()).collect::<Vec<_>>());
    }

    #[test]
    fn foreign_and_damaged_texts_are_refused() {
        let nothing = "bq1:A".to_owned();
        let odd = "bq1:B".to_owned();
        let cut = "bq1:Bg".to_owned();
        let huge = format!("bq1:B{}B", "_".repeat(13));
        let long = format!("bq1:{}", "BB".repeat(3_000));
        for text in [
            "{}", "bq2:BB", "bq1:B!", "bq1:BÄ", &nothing, &odd, &cut, &huge, &long,
        ] {
            assert_eq!(decode(0, text), None, "{text:.20}");
        }
        assert_eq!(decode(i64::MAX - 1, "bq1:fB"), None);
    }
}
