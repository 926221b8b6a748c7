//! Reading the scripts' answers.

use bytes::Bytes;
use redis::Value;

/// What a reserve script gives.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// The second part of the server's "now" that had passed, where its clock was asked.
    pub(crate) now: Bytes,
    /// The elements, byte for byte.
    pub(crate) stored: Vec<Bytes>,
    /// In the Laravel layout what each became in `:reserved`.
    pub(crate) reserved: Vec<Bytes>,
    /// Where nothing was taken: the first second at which something will be due.
    pub(crate) next_due: Option<f64>,
}

/// Reads `{now, {stored…}[, {reserved…}]}` or `{now, {}, next due or ''}`.
pub(crate) fn taken(answer: Value) -> Result<Taken, Value> {
    let Value::Array(parts) = answer else {
        return Err(answer);
    };
    let mut parts = parts.into_iter();
    let now = text(parts.next().unwrap_or(Value::Nil))?;
    let stored = texts(parts.next().unwrap_or(Value::Nil))?;
    let mut taken = Taken {
        now,
        stored,
        ..Taken::default()
    };
    match parts.next() {
        Some(reserved @ Value::Array(_)) => taken.reserved = texts(reserved)?,
        Some(due) => taken.next_due = number(&text(due)?),
        None => {}
    }
    Ok(taken)
}

/// What a settle script could not do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Undone {
    /// Settlements, from 0, whose reservation was gone.
    pub(crate) stale: Vec<usize>,
    /// Settlements whose copy was refused, with the server's words.
    pub(crate) refused: Vec<(usize, String)>,
}

/// Reads `{{numbers}, {'number refusal', …}}`; numbers count from 1 there.
pub(crate) fn undone(answer: Value) -> Result<Undone, Value> {
    let Value::Array(parts) = answer else {
        return Err(answer);
    };
    let mut parts = parts.into_iter();
    let stale = numbers(parts.next().unwrap_or(Value::Nil))?;
    let refused = texts(parts.next().unwrap_or(Value::Nil))?
        .iter()
        .filter_map(|line| {
            let line = String::from_utf8_lossy(line);
            let (at, refusal) = line.split_once(' ')?;
            Some((
                at.parse::<usize>().ok()?.checked_sub(1)?,
                refusal.to_owned(),
            ))
        })
        .collect();
    Ok(Undone { stale, refused })
}

/// Reads `{{numbers}, {elements}}`; numbers count from 1 there, from 0 here.
pub(crate) fn found(answer: Value) -> Result<Vec<(usize, Bytes)>, Value> {
    let Value::Array(parts) = answer else {
        return Err(answer);
    };
    let mut parts = parts.into_iter();
    let numbers = numbers(parts.next().unwrap_or(Value::Nil))?;
    let stored = texts(parts.next().unwrap_or(Value::Nil))?;
    Ok(numbers.into_iter().zip(stored).collect())
}

/// Reads `{now, {numbers of those that are gone}}`.
pub(crate) fn gone(answer: Value) -> Result<(Bytes, Vec<usize>), Value> {
    let Value::Array(parts) = answer else {
        return Err(answer);
    };
    let mut parts = parts.into_iter();
    let now = text(parts.next().unwrap_or(Value::Nil))?;
    Ok((now, numbers(parts.next().unwrap_or(Value::Nil))?))
}

/// Reads a count.
pub(crate) fn count(answer: &Value) -> Option<u64> {
    match answer {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// A number in Redis's spelling.
pub(crate) fn number(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn text(value: Value) -> Result<Bytes, Value> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.into()),
        Value::SimpleString(text) => Ok(text.into()),
        other => Err(other),
    }
}

fn texts(value: Value) -> Result<Vec<Bytes>, Value> {
    match value {
        Value::Array(items) => items.into_iter().map(text).collect(),
        other => Err(other),
    }
}

fn numbers(value: Value) -> Result<Vec<usize>, Value> {
    let Value::Array(items) = value else {
        return Err(value);
    };
    items
        .into_iter()
        .map(|item| match item {
            Value::Int(number) => usize::try_from(number)
                .ok()
                .and_then(|number| number.checked_sub(1))
                .ok_or(Value::Int(number)),
            other => Err(other),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn what_was_taken_is_read_in_all_three_shapes() {
        let sdk = Value::Array(vec![bulk("7"), Value::Array(vec![bulk("a"), bulk("")])]);
        let read = taken(sdk).expect("a list");
        assert_eq!(
            (read.stored.len(), read.reserved.len(), read.next_due),
            (2, 0, None)
        );

        let laravel = Value::Array(vec![
            bulk("7"),
            Value::Array(vec![bulk("a")]),
            Value::Array(vec![bulk("A")]),
        ]);
        assert_eq!(taken(laravel).expect("a list").reserved, ["A"]);

        let empty = Value::Array(vec![bulk("7"), Value::Array(vec![]), bulk("1090")]);
        assert_eq!(taken(empty).expect("a list").next_due, Some(1090.0));
        let idle = Value::Array(vec![bulk("7"), Value::Array(vec![]), bulk("")]);
        assert_eq!(taken(idle).expect("a list").next_due, None);
    }

    #[test]
    fn what_was_not_done_is_read() {
        let answer = Value::Array(vec![
            Value::Array(vec![Value::Int(1), Value::Int(3)]),
            Value::Array(vec![bulk("2 WRONGTYPE Operation")]),
        ]);
        assert_eq!(
            undone(answer).expect("a list"),
            Undone {
                stale: vec![0, 2],
                refused: vec![(1, "WRONGTYPE Operation".to_owned())]
            }
        );
    }

    #[test]
    fn what_was_found_is_read() {
        let answer = Value::Array(vec![
            Value::Array(vec![Value::Int(3), Value::Int(1)]),
            Value::Array(vec![bulk("c"), bulk("")]),
        ]);
        let read = found(answer).expect("two lists");
        assert_eq!(read, [(2, "c".into()), (0, "".into())]);
    }

    #[test]
    fn another_shape_is_given_back() {
        for answer in [
            Value::Nil,
            Value::Int(3),
            Value::Array(vec![]),
            Value::Array(vec![bulk("7"), Value::Int(1)]),
            Value::Array(vec![bulk("7"), Value::Array(vec![Value::Nil])]),
        ] {
            assert!(taken(answer.clone()).is_err(), "{answer:?}");
            assert!(undone(answer.clone()).is_err(), "{answer:?}");
            assert!(found(answer.clone()).is_err(), "{answer:?}");
            assert!(
                gone(answer.clone()).is_err() || answer == Value::Nil,
                "{answer:?}"
            );
        }
    }
}
