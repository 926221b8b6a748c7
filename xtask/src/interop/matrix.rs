//! The matrix: its cells, and how they end.

use babelqueue_conformance::Json;

use crate::Result;

/// How a cell ended.
pub(super) enum Cell {
    /// As the contract has it.
    Met,
    /// What the peer did breaks the contract, as is known of it; on our side nothing was lost.
    Deviates(String),
}

/// The cells so far.
#[derive(Default)]
pub(super) struct Matrix {
    met: usize,
    deviating: usize,
    failed: usize,
}

impl Matrix {
    /// Runs one cell, and prints its line.
    pub(super) fn cell(&mut self, name: &str, cell: impl FnOnce() -> Result<Cell>) {
        match cell() {
            Ok(Cell::Met) => {
                self.met += 1;
                println!("{name:70} ok");
            }
            Ok(Cell::Deviates(how)) => {
                self.deviating += 1;
                println!("{name:70} ok, nothing lost; {how}");
            }
            Err(error) => {
                self.failed += 1;
                println!("{name:70} FAILED: {error}");
            }
        }
    }

    /// The counts; an error where a cell failed.
    pub(super) fn close(self) -> Result {
        let Self {
            met,
            deviating,
            failed,
        } = self;
        println!(
            "{met} cells as the contract has it, {deviating} with a peer's known deviation, {failed} failed"
        );
        println!("{} passed, {failed} failed", met + deviating);
        if failed == 0 {
            return Ok(());
        }
        Err("the matrix has failures".into())
    }
}

/// Fails unless `line` has these members with these values.
pub(super) fn expect(line: &Json, members: &[(&str, Json)]) -> Result {
    for (name, expected) in members {
        let found = line.get(name).unwrap_or(&Json::Null);
        if found != expected {
            return Err(format!("`{name}` is {found}, expected {expected}").into());
        }
    }
    Ok(())
}

/// Fails unless the two are equal.
pub(super) fn same(what: &str, found: &Json, expected: &Json) -> Result {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what} is {found}, expected {expected}").into())
}
