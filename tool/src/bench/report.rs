// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a measuring guest says of itself: its line `@bench …`, or `@error …`.
//!
//! Under `-icount shift=0` one instruction is one nanosecond of virtual time, so the guest's own counter counts
//! the instructions of everything on its CPU. The guest subtracts nothing: it reports the loop with the
//! operation and the same loop without it.

use super::rows::Row;
use crate::failure::{Failure, Result};
use crate::setup::last_lines;

/// What a guest reported: the fields of its `@bench` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The row's name.
    pub row: String,
    /// How many operations there were.
    pub iterations: u64,
    /// What the counter advanced over all of them.
    pub ticks: u64,
    /// What it advanced over as many empty rounds of the loop.
    pub empty: u64,
    /// The counter's frequency in hertz.
    pub frequency: u64,
    /// Where the guest is left for what is no part of the operation, if it says so in a line `@apart pc=…`.
    pub apart: Option<u64>,
}

impl Report {
    /// Reads a line `@bench row=… iterations=… ticks=… empty=… frequency=…`; other lines are `None`.
    pub fn parse(line: &str) -> Option<std::result::Result<Self, String>> {
        let fields = line.trim().strip_prefix("@bench ")?;
        let field = |name: &str| {
            let value =
                fields.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            value.ok_or_else(|| format!("the line has no `{name}`: {line}"))
        };
        let number = |name: &str| {
            let value = field(name)?;
            value.parse::<u64>().map_err(|_| format!("`{name}` is no number: {line}"))
        };
        let read = || {
            Ok(Report {
                row: field("row")?.to_owned(),
                iterations: number("iterations")?,
                ticks: number("ticks")?,
                empty: number("empty")?,
                frequency: number("frequency")?,
                apart: None,
            })
        };
        Some(read().and_then(Self::plausible))
    }

    fn plausible(self) -> std::result::Result<Self, String> {
        match &self {
            Report { iterations: 0, .. } | Report { frequency: 0, .. } => {
                Err("the guest counted nothing".to_owned())
            }
            Report { ticks, empty, .. } if ticks < empty => {
                Err("the guest's empty loop took longer than the other".to_owned())
            }
            _ => Ok(self),
        }
    }

    /// Finds the report of a row in what a guest wrote on its console.
    pub fn find(row: &Row, iterations: u64, console: &str) -> Result<Self> {
        let failure = |what: String| Failure::failed(what).details(last_lines(&printable(console), 25));
        let mut lines = console.lines().map(str::trim);
        if let Some(error) = lines.clone().find_map(|line| line.strip_prefix("@error ")) {
            return Err(failure(format!("the guest reports: {}", printable(error))));
        }
        let Some(report) = lines.find_map(Report::parse) else {
            return Err(failure("the guest ended without its @bench line".to_owned()));
        };
        let apart = console.lines().find_map(|line| line.trim().strip_prefix("@apart pc=0x"));
        let apart = apart.and_then(|pc| u64::from_str_radix(pc, 16).ok());
        let report = Report { apart, ..report.map_err(|what| failure(printable(&what)))? };
        if report.row != row.reported() || report.iterations != iterations {
            let (row, times) = (printable(&report.row), report.iterations);
            return Err(failure(format!("the guest measured {row} {times} times")));
        }
        Ok(report)
    }

    /// Instructions per operation outside the guest, to two decimals.
    pub fn instructions(&self) -> f64 {
        self.per_operation(self.ticks - self.empty)
    }

    /// Instructions per operation, the guest's among them, to two decimals.
    pub fn instructions_in_all(&self) -> f64 {
        self.per_operation(self.ticks)
    }

    fn per_operation(&self, ticks: u64) -> f64 {
        let ticks = ticks as f64;
        let instructions = ticks * 1e9 / self.frequency as f64 / self.iterations as f64;
        (instructions * 100.0).round() / 100.0
    }
}

/// Text of a guest without what a terminal would take for commands.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || *c == '\n').collect()
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::*;

    const LINE: &str = "@bench row=self-sgi iterations=1024 ticks=205824 empty=1024 frequency=1000000000\r";

    #[test]
    fn reads_the_guests_line() {
        let report = Report::parse(LINE).unwrap().unwrap();
        assert_eq!((report.row.as_str(), report.iterations, report.empty), ("self-sgi", 1024, 1024));
        assert_eq!(report.instructions(), 200.0);
        assert_eq!(Report::parse("@boot"), None);
    }

    #[test]
    fn frequency_scales_ticks_to_instructions() {
        let slow = Report {
            row: "x".into(),
            iterations: 16,
            ticks: 48,
            empty: 2,
            frequency: 62_500_000,
            apart: None,
        };
        assert_eq!(slow.instructions(), 46.0);
        let thirds = Report {
            row: "x".into(),
            iterations: 3,
            ticks: 100,
            empty: 0,
            frequency: 1_000_000_000,
            apart: None,
        };
        assert_eq!(thirds.instructions(), 33.33);
    }

    #[test]
    fn refuses_lines_that_cannot_be_true() {
        for (from, to) in [
            ("ticks=205824", "ticks=1023"),
            ("iterations=1024", "iterations=0"),
            ("frequency=1000000000", "frequency=0"),
            ("empty=1024", "empty=-1"),
            ("empty=1024", ""),
        ] {
            let line = LINE.replace(from, to);
            assert!(Report::parse(&line).unwrap().is_err(), "{line}");
        }
    }

    #[test]
    fn garbage_is_named_and_harmless() {
        let row = ROWS.iter().find(|row| row.name == "self-sgi").unwrap();
        let find = |console: &str| Report::find(row, 1024, console).map_err(|failure| failure.full());
        assert_eq!(find(&format!("boot\r\n{LINE}\n")).unwrap().apart, None);
        assert_eq!(find(&format!("@apart pc=0x80a0\r\n{LINE}\n")).unwrap().apart, Some(0x80a0));
        let error = find("\x1b[2Jno such line").unwrap_err();
        assert!(error.contains("without its @bench line") && error.contains("no such line"), "{error}");
        assert!(!error.contains('\x1b'), "{error:?}");
        let error = find("@error no GIC\x07\r\n").unwrap_err();
        assert!(error.starts_with("the guest reports: no GIC\n"), "{error:?}");
        assert!(find(&LINE.replace("self-sgi", "io-kernel")).unwrap_err().contains("measured io-kernel"));
        assert!(find(&LINE.replace("=1024 t", "=1000 t")).unwrap_err().contains("1000 times"));
        assert!(find(&LINE.replace("ticks=", "ticks=x")).unwrap_err().contains("is no number"));
    }
}
