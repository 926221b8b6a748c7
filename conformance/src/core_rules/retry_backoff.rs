//! `retry_backoff`: the delay before a retry (contract §7.5).

use std::time::Duration;

use babelqueue_core::retry::{Jitter, Retry};

use crate::{Case, Json, Met, Unreadable, holds, same, unknown};

pub(super) fn run(case: &Case) -> Met {
    let jitter = match case.text("retry_jitter")? {
        "none" => Jitter::None,
        "full" => Jitter::Full,
        word => return Err(unknown("jitter", word).into()),
    };
    let retry = Retry::default()
        .backoff_seconds(
            case.number("retry_backoff")?,
            case.number("retry_backoff_multiplier")?,
        )
        .max_delay_seconds(case.number("retry_backoff_max")?)
        .jitter(jitter);
    retry.validate()?;
    let n = u32::try_from(case.integer("n")?)?;

    if let Some(range) = case.get("expect_delay_range_seconds") {
        let (min, max) = (seconds(range.get("min"))?, seconds(range.get("max"))?);
        // The largest double below 1 is the largest draw there is.
        for draw in [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0_f64.next_down()] {
            let delay = retry.delay(n, draw);
            holds(
                (min..=max).contains(&delay),
                format_args!("draw {draw} gives {delay:?}, expected {min:?} to {max:?}"),
            )?;
        }
        return Ok(());
    }
    let expected = seconds(case.get("expect_delay_seconds"))?;
    for draw in [0.0, 0.5, 1.0_f64.next_down()] {
        same("delay", &retry.delay(n, draw), &expected)?;
    }
    Ok(())
}

fn seconds(value: Option<&Json>) -> Result<Duration, Unreadable> {
    value
        .and_then(Json::as_f64)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| Unreadable("the expected delay is no number of seconds".to_owned()))
}
