//! Texts that are no longer than a log line or a dead-letter record can take.

use std::borrow::Cow;
use std::fmt;

use crate::dead_letter::TEXT_LIMIT;

/// What shows that something is left out.
const ELLIPSIS: char = '…';

/// Where a text that is too long is cut, at the latest.
const CUT_AT: usize = TEXT_LIMIT - ELLIPSIS.len_utf8();

/// `text`, or as much of its beginning as fits into [`TEXT_LIMIT`] bytes with an ellipsis after it.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= TEXT_LIMIT {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(CUT_AT);
    Cow::Owned(format!("{}{ELLIPSIS}", &text[..end]))
}

/// Takes in what is written until it holds [`TEXT_LIMIT`] bytes, then fails, so that who writes
/// stops.
#[derive(Debug, Default)]
pub(crate) struct BoundedText {
    text: String,
    cut: bool,
}

impl BoundedText {
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether something had to be left out.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    pub(crate) fn into_string(self) -> String {
        self.text
    }
}

impl fmt::Write for BoundedText {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.cut {
            return Err(fmt::Error);
        }
        let room = TEXT_LIMIT - self.text.len();
        if more.len() <= room {
            self.text.push_str(more);
            return Ok(());
        }
        self.cut = true;
        self.text.push_str(&more[..more.floor_char_boundary(room)]);
        self.text.truncate(self.text.floor_char_boundary(CUT_AT));
        self.text.push(ELLIPSIS);
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    #[test]
    fn what_fits_is_left_as_it_is() {
        let most = "x".repeat(TEXT_LIMIT);
        assert!(matches!(cut(&most), Cow::Borrowed(text) if text == most));
        let mut text = BoundedText::default();
        text.write_str(&most).unwrap();
        text.write_str("").unwrap();
        assert!(!text.is_cut());
        assert_eq!(text.into_string(), most);
    }

    #[test]
    fn a_cut_falls_between_two_characters_and_is_shown() {
        for (letter, ahead) in ["x", "é", "☕", "🦀"]
            .into_iter()
            .flat_map(|letter| (0..4).map(move |ahead| (letter, ahead)))
        {
            let long = "-".repeat(ahead) + &letter.repeat(TEXT_LIMIT + 1);
            let whole = cut(&long);
            let mut text = BoundedText::default();
            assert!(write!(text, "{}{}", &long[..ahead], &long[ahead..]).is_err());
            assert!(text.is_cut() && text.write_str("more").is_err());
            assert_eq!(text.as_str(), whole);
            assert!(whole.len() <= TEXT_LIMIT && whole.len() + 8 > TEXT_LIMIT);
            assert!(long.starts_with(whole.strip_suffix('…').unwrap()));
        }
    }

    #[test]
    fn a_text_that_is_full_is_cut_by_one_more_letter() {
        let mut text = BoundedText::default();
        text.write_str(&"x".repeat(TEXT_LIMIT)).unwrap();
        assert!(text.write_str("y").is_err());
        assert_eq!(text.into_string(), cut(&"x".repeat(TEXT_LIMIT + 1)));
    }
}
