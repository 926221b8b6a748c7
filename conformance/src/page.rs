//! The tables of the READMEs that say what a broker can do: written and checked here, from what the
//! transport says of itself.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use babelqueue_core::transport::{Capabilities, Delay, Prefetch};

use crate::{Met, Unmet};

/// Set, it has the tables written rather than checked.
const WRITE: &str = "BQ_WRITE_PAGES";

const BEGIN: &str = "<!-- capabilities -->\n";
const END: &str = "<!-- /capabilities -->\n";

const HEAD: &str = "\
| | delay | headers | lease | lanes | reads ahead at N | own dead letters | counts crashes | publish batch | receive batch | options |
|---|---|---|---|---|---|---|---|---|---|---|
";

/// Holds the page of the package in `folder`, and the repository's, against the transports' rows;
/// or writes them there, where `BQ_WRITE_PAGES` is set.
pub(crate) fn check(folder: &Path, transports: &[(&'static str, Capabilities)]) -> Met {
    let rows: Vec<String> = transports.iter().map(|(name, c)| row(name, c)).collect();
    hold(&folder.join("README.md"), |_| {
        format!("{HEAD}{}", rows.concat())
    })?;
    hold(&folder.join("../README.md"), |table| {
        with_rows(table, &rows)
    })
}

/// Holds the table of the page at `path` against what `table` makes of it.
fn hold(path: &Path, table: impl Fn(&str) -> String) -> Met {
    let page = fs::read_to_string(path)?;
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| {
        let (found, after) = rest.split_once(END)?;
        Some((before, found, after))
    });
    let Some((before, found, after)) = parts else {
        return Err(Unmet::Failed(format!(
            "{} has no place for the table: {BEGIN}{END}",
            path.display()
        )));
    };
    let wanted = table(found);
    if wanted == found {
        return Ok(());
    }
    if env::var_os(WRITE).is_some() {
        return Ok(fs::write(
            path,
            [before, BEGIN, &wanted, END, after].concat(),
        )?);
    }
    Err(Unmet::Failed(format!(
        "{} is not up to date; run again with {WRITE}=1. Expected:\n{wanted}",
        path.display()
    )))
}

/// `table` with `rows` in the place of those with the same first cell, or else at its end.
fn with_rows(table: &str, rows: &[String]) -> String {
    let mut lines: Vec<&str> = table.lines().skip(HEAD.lines().count()).collect();
    for row in rows.iter().map(|row| row.trim_end()) {
        let known = lines
            .iter()
            .position(|line| first_cell(line) == first_cell(row));
        match known {
            Some(at) => lines[at] = row,
            None => lines.push(row),
        }
    }
    let mut table = HEAD.to_owned();
    for line in lines {
        _ = writeln!(table, "{line}");
    }
    table
}

fn first_cell(row: &str) -> &str {
    row.split('|').nth(1).unwrap_or_default()
}

fn row(name: &str, capabilities: &Capabilities) -> String {
    let yes = |is: bool| if is { "yes" } else { "–" };
    let cells = [
        name.to_owned(),
        delay(capabilities.delay),
        yes(capabilities.headers).to_owned(),
        yes(capabilities.lease).to_owned(),
        yes(capabilities.lanes).to_owned(),
        prefetch(capabilities.prefetch).to_owned(),
        yes(capabilities.native_dead_letter).to_owned(),
        yes(capabilities.counts_crashes).to_owned(),
        batch(capabilities.publish_batch),
        batch(capabilities.receive_batch),
        options(capabilities),
    ];
    format!("| {} |\n", cells.join(" | "))
}

fn delay(delay: Delay) -> String {
    match delay {
        Delay::Unsupported => "–".to_owned(),
        Delay::Supported { max: None } => "any".to_owned(),
        Delay::Supported { max: Some(max) } => format!("up to {}", human(max)),
        Delay::Tiers => "in tiers".to_owned(),
        other => format!("{other:?}"),
    }
}

fn human(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds > 0 && seconds.is_multiple_of(86_400) => {
            format!("{} d", seconds / 86_400)
        }
        seconds if seconds > 0 && seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        _ => format!("{duration:?}"),
    }
}

fn prefetch(prefetch: Prefetch) -> &'static str {
    match prefetch {
        Prefetch::Double => "2 N",
        Prefetch::Exact => "N",
        Prefetch::Deep => "max(1024, 16 N)",
        _ => "?",
    }
}

fn batch(messages: usize) -> String {
    match messages {
        usize::MAX => "any".to_owned(),
        messages => messages.to_string(),
    }
}

fn options(capabilities: &Capabilities) -> String {
    let options = capabilities.options;
    let names: Vec<&str> = [
        ("key", options.key),
        ("partition", options.partition),
        ("group", options.group),
        ("deduplication id", options.deduplication_id),
        ("priority", options.priority),
        ("time to live", options.time_to_live),
    ]
    .iter()
    .filter_map(|(name, there)| there.then_some(*name))
    .collect();
    if names.is_empty() {
        return "–".to_owned();
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use babelqueue_core::transport::Rules;

    use super::*;

    fn capabilities() -> Capabilities {
        let mut capabilities = Capabilities::new("x", Rules::standard());
        capabilities.delay = Delay::Supported {
            max: Some(Duration::from_mins(15)),
        };
        capabilities.lease = true;
        capabilities.publish_batch = 10;
        capabilities.options.group = true;
        capabilities
    }

    #[test]
    fn a_row_says_what_the_transport_says() {
        assert_eq!(
            row("X", &capabilities()),
            "| X | up to 15 min | – | yes | – | 2 N | – | – | 10 | 1 | group |\n"
        );
    }

    #[test]
    fn a_row_takes_the_place_of_its_older_self() {
        let old = format!("{HEAD}| A | 1 |\n| X | 2 |\n| Z | 3 |\n");
        let new = with_rows(&old, &["| X | 4 |\n".to_owned(), "| Y | 5 |\n".to_owned()]);
        assert_eq!(
            new,
            format!("{HEAD}| A | 1 |\n| X | 4 |\n| Z | 3 |\n| Y | 5 |\n")
        );
        assert_eq!(
            with_rows("", &["| A | 1 |\n".to_owned()]),
            format!("{HEAD}| A | 1 |\n")
        );
    }
}
