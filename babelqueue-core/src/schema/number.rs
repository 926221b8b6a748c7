use std::cmp::Ordering;

/// A JSON number's text, read as what it is: a decimal fraction of any length, and an exponent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decimal<'a> {
    negative: bool,
    /// Digits and perhaps a point, from the first digit that is not zero; empty for zero.
    mantissa: &'a [u8],
    /// How many of its digits count, before the zeros at its end.
    digits: usize,
    /// The number is 0.mantissa times ten to this power.
    magnitude: i64,
}

impl<'a> Decimal<'a> {
    /// Reads a number; `None` where `text` is another value. Well-formed text is expected.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if !text.starts_with(|first: char| first.is_ascii_digit()) {
            return None;
        }
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, saturating(exponent)),
            None => (text, 0),
        };
        let point = mantissa.find('.').unwrap_or(mantissa.len());
        let Some(first) = mantissa.find(|digit| matches!(digit, '1'..='9')) else {
            return Some(Self {
                negative: false,
                mantissa: &[],
                digits: 0,
                magnitude: 0,
            });
        };
        let before_point = if first < point {
            signed(point - first)
        } else {
            -signed(first - point - 1)
        };
        let mantissa = mantissa[first..].trim_end_matches('.').as_bytes();
        let trailing = mantissa
            .iter()
            .rev()
            .filter(|digit| **digit != b'.')
            .take_while(|digit| **digit == b'0')
            .count();
        let written = mantissa.iter().filter(|digit| **digit != b'.').count();
        Some(Self {
            negative,
            mantissa,
            digits: written - trailing,
            magnitude: before_point.saturating_add(exponent),
        })
    }

    /// Whether it has no fraction: `1.0` and `1e2` have none.
    pub(super) fn is_integer(&self) -> bool {
        signed(self.digits) <= self.magnitude.max(0)
    }

    /// Its value as a whole number from 0 up; `None` where it is none, or is too large.
    pub(super) fn to_u64(self) -> Option<u64> {
        if self.negative || !self.is_integer() {
            return None;
        }
        let zeros = self.magnitude.saturating_sub(signed(self.digits));
        let factor = 10_u64.checked_pow(u32::try_from(zeros).ok()?)?;
        self.significant()
            .try_fold(0_u64, |value, digit| {
                value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
            })?
            .checked_mul(factor)
    }

    fn significant(&self) -> impl Iterator<Item = u8> {
        let digits = self.mantissa.iter().filter(|digit| **digit != b'.');
        digits.take(self.digits).copied()
    }

    fn sign(&self) -> i8 {
        match (self.digits, self.negative) {
            (0, _) => 0,
            (_, true) => -1,
            (_, false) => 1,
        }
    }
}

impl Ord for Decimal<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let absolute = || {
            self.magnitude
                .cmp(&other.magnitude)
                .then_with(|| self.significant().cmp(other.significant()))
        };
        self.sign()
            .cmp(&other.sign())
            .then_with(|| match self.sign() {
                0 => Ordering::Equal,
                1 => absolute(),
                _ => absolute().reverse(),
            })
    }
}

impl PartialOrd for Decimal<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Decimal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal<'_> {}

/// An exponent beyond 64 bits is as good as the largest.
fn saturating(exponent: &str) -> i64 {
    let (negative, digits) = match exponent.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, exponent.strip_prefix('+').unwrap_or(exponent)),
    };
    let value = digits.bytes().fold(0_i64, |value, digit| {
        let digit = i64::from(digit.wrapping_sub(b'0'));
        value.saturating_mul(10).saturating_add(digit)
    });
    if negative { -value } else { value }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Decimal<'_> {
        Decimal::read(text).unwrap_or_else(|| panic!("{text} is a number"))
    }

    #[test]
    fn numbers_are_ordered_by_value() {
        let ascending = [
            "-1e99999999999999999999",
            "-12345678901234567890.2",
            "-12345678901234567890.1",
            "-1",
            "-0.5",
            "-1e-400",
            "0",
            "1e-99999999999999999999",
            "4.9e-324",
            "0.0999999999999999999999999",
            "0.1",
            "0.5",
            "1",
            "1.0000000000000000000000001",
            "9",
            "10",
            "9007199254740992",
            "9007199254740993",
            "1e400",
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(read(a).cmp(&read(b)), i.cmp(&j), "{a} against {b}");
            }
        }
    }

    #[test]
    fn one_value_has_many_spellings() {
        for spellings in [
            &[
                "0",
                "-0",
                "0.0",
                "0e5",
                "-0.00E-3",
                "0e99999999999999999999",
            ][..],
            &["1", "1.0", "1.000", "1e0", "10e-1", "0.1e1", "0.001E+3"],
            &["100", "1e2", "100.0", "1.00e2", "10000e-2"],
            &["-1.5", "-15e-1", "-0.150e1", "-1.50"],
        ] {
            for other in spellings {
                assert_eq!(read(spellings[0]), read(other), "{other}");
            }
        }
    }

    #[test]
    fn whole_numbers_are_known_by_value() {
        for text in [
            "0", "-0.0", "1", "1.0", "-7", "1e2", "1.5e1", "12300e-2", "1e400",
        ] {
            assert!(read(text).is_integer(), "{text}");
        }
        for text in ["0.5", "1.5", "-1.01", "15e-1", "1e-1", "1e-400", "0.1e-5"] {
            assert!(!read(text).is_integer(), "{text}");
        }
    }

    #[test]
    fn whole_numbers_are_read() {
        for (text, expected) in [
            ("0", Some(0)),
            ("3", Some(3)),
            ("2.0", Some(2)),
            ("1.2e3", Some(1200)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("1e20", None),
            ("1e99999999999999999999", None),
            ("-1", None),
            ("1.5", None),
        ] {
            assert_eq!(read(text).to_u64(), expected, "{text}");
        }
    }

    #[test]
    fn other_values_are_no_numbers() {
        for text in ["true", "null", "\"1\"", "[1]", "{}", "-", ""] {
            assert!(Decimal::read(text).is_none(), "{text}");
        }
    }
}
