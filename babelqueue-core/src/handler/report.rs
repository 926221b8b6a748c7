use std::error::Error as StdError;
use std::fmt::{self, Write};

use super::caught;
use crate::bounded_text::BoundedText;

/// How many causes are told. A chain that is longer most likely runs in a ring.
const CAUSES: usize = 32;

/// An error and what it came from, in one line, whatever its type does when it is asked.
pub(super) fn report(error: &(dyn StdError + 'static)) -> String {
    let mut report = BoundedText::default();
    let written = caught(|| write_chain(&mut report, error));
    if !matches!(written, Ok(Ok(()))) && !report.is_cut() {
        let unsaid = match written {
            Ok(_) => "(the rest of the error's text could not be had: its Display failed)",
            Err(_) => "(the rest of the error's text could not be had: it panicked)",
        };
        // Full or not, that is all there is to say.
        let _ = report.write_str(unsaid);
    }
    report.into_string()
}

fn write_chain(report: &mut BoundedText, error: &(dyn StdError + 'static)) -> fmt::Result {
    write!(report, "{error}")?;
    let mut cause = error.source();
    for _ in 0..CAUSES {
        let Some(error) = cause else { break };
        let mut text = BoundedText::default();
        let written = write!(text, "{error}");
        // Many errors name their source in their own text.
        if !report.as_str().ends_with(text.as_str()) {
            write!(report, ": {}", text.as_str())?;
        }
        if !text.is_cut() {
            written?;
        }
        cause = error.source();
    }
    Ok(())
}
