use super::{Expected, Fault};

/// The shape of a number's text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Literal {
    /// Offset after its last byte.
    pub(crate) end: usize,
    /// Digits before the point.
    integer_digits: usize,
    fraction: bool,
    exponent: bool,
}

impl Literal {
    /// Whether it has neither fraction nor exponent.
    pub(crate) const fn is_integer(&self) -> bool {
        !self.fraction && !self.exponent
    }

    /// Whether an integer literal's text fits 64 bits.
    #[inline]
    pub(crate) fn fits_int64(&self, text: &[u8]) -> bool {
        self.integer_digits <= 18 || int64(text).is_some()
    }

    /// Whether the literal at `start` rounds to a finite double.
    #[inline]
    pub(crate) fn is_finite(&self, text: &[u8], start: usize) -> bool {
        // 308 digits are below 1e308, and that is finite.
        (!self.exponent && self.integer_digits <= 308) || is_finite(&text[start..self.end])
    }
}

/// The number that starts at `start` (RFC 8259 §6).
#[inline]
pub(crate) fn scan(text: &[u8], start: usize) -> Result<Literal, Fault> {
    let mut at = start;
    if text.get(at) == Some(&b'-') {
        at += 1;
    }
    let integer = at;
    at = digits(text, at);
    let integer_digits = at - integer;
    if integer_digits == 0 {
        return Err(Fault::syntax(Expected::Digit, at));
    }
    if integer_digits > 1 && text[integer] == b'0' {
        return Err(Fault::syntax(Expected::NoLeadingZero, integer + 1));
    }
    let fraction = text.get(at) == Some(&b'.');
    if fraction {
        at = one_or_more_digits(text, at + 1)?;
    }
    let exponent = matches!(text.get(at), Some(b'e' | b'E'));
    if exponent {
        at += 1;
        if let Some(b'+' | b'-') = text.get(at) {
            at += 1;
        }
        at = one_or_more_digits(text, at)?;
    }
    Ok(Literal {
        end: at,
        integer_digits,
        fraction,
        exponent,
    })
}

/// The value of an integer literal; `None` beyond 64 bits, or where `text` is no integer literal.
/// `-0` is one (contract §2A): `serde_json` reads it as a float.
pub(crate) fn int64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_i64, |value, digit| {
        let digit = i64::from(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?);
        let value = value.checked_mul(10)?;
        if negative {
            value.checked_sub(digit)
        } else {
            value.checked_add(digit)
        }
    })
}

/// The longest text of an `i64`.
pub(crate) const DIGITS_MAX: usize = 20;

/// The decimal text of `value`, at the end of `buffer`.
pub(crate) fn decimal(value: i64, buffer: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut rest = value.unsigned_abs();
    let mut at = DIGITS_MAX;
    loop {
        at -= 1;
        buffer[at] = b"0123456789"[(rest % 10) as usize];
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    &buffer[at..]
}

/// Appends the decimal text of `value`.
pub(crate) fn write_int64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(decimal(value, &mut [0; DIGITS_MAX]));
}

#[inline]
fn digits(text: &[u8], mut at: usize) -> usize {
    while let Some(b'0'..=b'9') = text.get(at) {
        at += 1;
    }
    at
}

#[inline]
fn one_or_more_digits(text: &[u8], at: usize) -> Result<usize, Fault> {
    let end = digits(text, at);
    if end == at {
        return Err(Fault::syntax(Expected::Digit, at));
    }
    Ok(end)
}

/// The least magnitude that rounds to infinity, as the 309 digits of an integer: halfway between the
/// largest double and 2^1024, and a tie goes to the even one, which is infinity.
const INFINITE_FROM: &[u8; 309] = b"179769313486231580793728971405303415079934132710037826936173778980444968292764750946649017977587207096330286416692887910946555547851940402630657488671505820681908902000708383676273854845817711531764475730270069855571366959622842914819860834936475292719074168444365510704342711559699508093042880177904174497792";

/// Whether a valid number's text rounds to a finite double: exactly, without arithmetic on the
/// digits, and without a copy, however long it is.
fn is_finite(text: &[u8]) -> bool {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let (mantissa, exponent) = match unsigned.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&unsigned[..at], saturating_exponent(&unsigned[at + 1..])),
        None => (unsigned, 0),
    };
    let integer_digits = mantissa
        .iter()
        .position(|byte| *byte == b'.')
        .unwrap_or(mantissa.len());
    let Some(first) = mantissa.iter().position(|byte| matches!(byte, b'1'..=b'9')) else {
        return true;
    };
    // How many digits the number would have before its point, written out.
    let magnitude = if first < integer_digits {
        signed(integer_digits - first)
    } else {
        -signed(first - integer_digits - 1)
    }
    .saturating_add(exponent);
    let threshold = signed(INFINITE_FROM.len());
    if magnitude != threshold {
        return magnitude < threshold;
    }
    let digits = mantissa[first..].iter().filter(|byte| **byte != b'.');
    digits
        .chain(std::iter::repeat(&b'0'))
        .take(INFINITE_FROM.len())
        .lt(INFINITE_FROM)
}

fn saturating_exponent(text: &[u8]) -> i64 {
    let (negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        Some((b'+', digits)) => (false, digits),
        _ => (false, text),
    };
    let magnitude = digits.iter().fold(0_i64, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(i64::from(digit - b'0'))
    });
    if negative { -magnitude } else { magnitude }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
