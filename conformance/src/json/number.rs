//! When two number literals are the same number.

/// Whether both are integers or neither is, and both denote the same decimal, however large.
pub(super) fn same(a: &str, b: &str) -> bool {
    is_integer(a) == is_integer(b) && Decimal::of(a) == Decimal::of(b)
}

fn is_integer(literal: &str) -> bool {
    !literal.contains(['.', 'e', 'E'])
}

/// `digits × 10^exponent`, without zeros at either end of the digits; zero has none, and no sign.
#[derive(PartialEq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn of(literal: &str) -> Self {
        let (negative, literal) = match literal.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, literal),
        };
        let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));

        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let digits = significant.trim_end_matches('0');
        if digits.is_empty() {
            return Self {
                negative: false,
                digits: String::new(),
                exponent: 0,
            };
        }
        let saturated = if exponent.starts_with('-') {
            i64::MIN
        } else {
            i64::MAX
        };
        let exponent = exponent
            .parse::<i64>()
            .unwrap_or(saturated)
            .saturating_sub_unsigned(fraction.len() as u64)
            .saturating_add_unsigned((significant.len() - digits.len()) as u64);
        Self {
            negative,
            digits: digits.to_owned(),
            exponent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn decimals_are_compared_exactly() {
        assert!(same("1.50", "15e-1"));
        assert!(same("-0.0", "0e9"));
        assert!(same("100.0", "1e2"));
        assert!(same("1e+2", "1E2"));
        assert!(!same("0.1", "0.10000000000000000001"));
        assert!(!same("1.0", "1"));
        assert!(!same("-1", "1"));
    }
}
