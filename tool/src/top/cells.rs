// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures of a row as text.

use super::rows::Figures;

/// Writes a rate or a count in at most six characters.
pub fn short(number: f64) -> String {
    match number {
        n if n < 10.0 && n.fract() != 0.0 => format!("{n:.1}"),
        n if n < 100_000.0 => format!("{n:.0}"),
        n if n < 1e7 => format!("{:.0}k", n / 1e3),
        n if n < 1e10 => format!("{:.0}M", n / 1e6),
        n => format!("{:.0}G", n / 1e9),
    }
}

/// Writes a time that is given in nanoseconds.
pub fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 10_000.0 => format!("{n:.0} ns"),
        n if n < 1e7 => format!("{:.1} µs", n / 1e3),
        n if n < 1e10 => format!("{:.1} ms", n / 1e6),
        n => format!("{:.1} s", n / 1e9),
    }
}

/// The columns of the tables: the reason, and then as [`cells`].
pub const COLUMNS: [&str; 7] = ["reason", "exits/s", "exits", "mean", "p50", "p99", "share"];

/// The figures of a row, written.
pub fn cells(figures: &Figures) -> [String; 6] {
    let written = |value: Option<f64>, write: fn(f64) -> String| value.map_or("-".to_owned(), write);
    [
        written(figures.rate, short),
        short(figures.count as f64),
        written(figures.mean, time),
        written(figures.p50, time),
        written(figures.p99, time),
        written(figures.share, |share| format!("{:.2} %", 100.0 * share)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([short(0.0), short(1.5), short(99_999.0)], ["0", "1.5", "99999"]);
        assert_eq!([short(123_456.0), short(12_345_678.0), short(2e10)], ["123k", "12M", "20G"]);
        assert_eq!(
            [time(48.0), time(12_345.0), time(2e7), time(3e10)],
            ["48 ns", "12.3 µs", "20.0 ms", "30.0 s"]
        );
    }
}
