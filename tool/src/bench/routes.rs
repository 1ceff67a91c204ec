// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SGI by its target, as text: bars whose length is the sender's instructions.

use super::document::{Document, Figure, SubjectInfo};
use super::table::count;
use crate::prose;

/// The longest bar, in characters.
const LONGEST: usize = 48;
/// What stands before a bar.
const BEFORE: usize = 31;

/// The target and the number of vCPUs of a row `sgi-to-N-of-M`.
pub fn target(row: &str) -> Option<(u32, u32)> {
    let (target, vcpus) = row.strip_prefix("sgi-to-")?.split_once("-of-")?;
    Some((target.parse().ok()?, vcpus.parse().ok()?))
}

/// The number of vCPUs, the target among them, and the sender's instructions.
type Point = (u32, u32, f64);

/// The chart in lines of this width; `None` if no subject has such rows for two targets. Bars give way to numbers.
pub fn chart(document: &Document, width: usize) -> Option<String> {
    let longest = width.saturating_sub(BEFORE).min(LONGEST) as f64;
    let of = |info: &SubjectInfo| -> Vec<Point> {
        let point = |figure: &Figure| {
            let (target, vcpus) = target(&figure.row)?;
            Some((vcpus, target, figure.instructions?))
        };
        document.rows.iter().filter(|figure| figure.subject == info.subject).filter_map(point).collect()
    };
    let subjects: Vec<(&SubjectInfo, Vec<Point>)> = document
        .subjects
        .iter()
        .map(|info| (info, of(info)))
        .filter(|(_, points)| points.len() > 1)
        .collect();
    let largest = subjects.iter().flat_map(|(_, points)| points).map(|point| point.2).reduce(f64::max)?;
    let mut lines = vec![prose::wrap("An SGI by its target: instructions of the sender", width)];
    for (info, points) in subjects {
        lines.push(String::new());
        for (vcpus, target, instructions) in points {
            let bar = "█".repeat((instructions / largest * longest).ceil() as usize);
            let what = format!("{target} of {vcpus}");
            let line = format!("{:<12} {what:>10} {:>6} {bar}", info.title, count(instructions));
            lines.push(line.trim_end().to_owned());
        }
    }
    Some(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn bars_are_as_long_as_the_figures() {
        let mut document = samples::document();
        assert_eq!(chart(&document, 100), None);
        let point = |row: &str, instructions: f64| Figure {
            row: row.to_owned(),
            instructions: Some(instructions),
            ..document.rows[0].clone()
        };
        let points = [point("sgi-to-1-of-32", 100.0), point("sgi-to-31-of-32", 400.0)];
        document.rows.extend(points);
        let text = chart(&document, 100).unwrap();
        let bars: Vec<usize> =
            text.lines().map(|line| line.matches('█').count()).filter(|bar| *bar > 0).collect();
        assert_eq!(bars, [12, 48], "{text}");
        assert!(text.contains("31 of 32    400 █"), "{text}");
        for width in [None, Some(80), Some(200)] {
            let text = chart(&document, crate::prose::within(width)).unwrap();
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
        let narrow = chart(&document, 40).unwrap();
        assert!(
            narrow.contains(" 400 █") && narrow.lines().skip(1).all(|line| line.chars().count() <= 40),
            "{narrow}"
        );
    }

    #[test]
    fn reads_the_names_of_rows() {
        assert_eq!(target("sgi-to-31-of-32"), Some((31, 32)));
        assert_eq!(target("sgi-to-x-of-32"), None);
        assert_eq!(target("self-sgi"), None);
    }
}
