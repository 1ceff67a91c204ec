// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an SGI costs by the vCPU that it is for: a line for each subject and size of VM.

use std::collections::BTreeSet;

use super::number;
use super::scale::{Linear, Tick};
use super::series::Series;
use crate::bench::document::{Document, Figure};
use crate::bench::routes::target;

/// Labels that are closer than this, in per cent, do not fit side by side on a narrow screen.
const CLOSE: f64 = 7.0;

/// The curve.
pub struct Curve<'d> {
    /// Its lines.
    pub lines: Vec<Line<'d>>,
    /// The targets along the bottom, and whether each is close to the one before.
    pub targets: Vec<(Tick, bool)>,
    /// The grid, from the bottom.
    pub ticks: Vec<Tick>,
}

/// The figures of a subject with one size of VM.
pub struct Line<'d> {
    /// The subject.
    pub series: Series<'d>,
    /// The number of vCPUs.
    pub vcpus: u32,
    /// Whether it is drawn dashed, to tell sizes apart without colour.
    pub dashed: bool,
    /// Its points by target.
    pub points: Vec<Point>,
}

/// A figure.
pub struct Point {
    /// The target.
    pub target: u32,
    /// Where it is, from the left.
    pub x: String,
    /// Where it is, from the top.
    pub y: String,
    /// The figure.
    pub text: String,
}

/// A figure of the document that belongs to the curve.
struct Known {
    subject: usize,
    vcpus: u32,
    target: u32,
    count: f64,
}

/// The axes.
#[derive(Clone, Copy)]
struct Axes {
    farthest: u32,
    up: Linear,
}

impl Axes {
    fn across(self, target: u32) -> f64 {
        f64::from(target) * 100.0 / f64::from(self.farthest.max(1))
    }

    fn point(self, known: &Known) -> Point {
        Point {
            target: known.target,
            x: number::length(self.across(known.target)),
            y: number::length(100.0 - self.up.place(known.count)),
            text: number::count(known.count),
        }
    }

    /// The targets along the bottom, and whether each is close to the one before.
    fn targets(self, targets: BTreeSet<u32>) -> Vec<(Tick, bool)> {
        let mut before = None;
        let tick = |target: u32| {
            let close = before
                .replace(target)
                .is_some_and(|before| self.across(target) - self.across(before) < CLOSE);
            (Tick { at: number::length(self.across(target)), label: target.to_string() }, close)
        };
        targets.into_iter().map(tick).collect()
    }

    /// The grid. The axis counts from the bottom, SVG from the top; steps are equal, so that is the reverse.
    fn grid(self) -> Vec<Tick> {
        let mut ticks = self.up.ticks();
        let places: Vec<String> = ticks.iter().rev().map(|tick| tick.at.clone()).collect();
        for (tick, at) in ticks.iter_mut().zip(places) {
            tick.at = at;
        }
        ticks
    }
}

impl<'d> Curve<'d> {
    /// Takes the document apart; `None` if it has no such rows.
    pub fn new(document: &'d Document, series: &[Series<'d>]) -> Option<Self> {
        let mut known: Vec<Known> = document.rows.iter().filter_map(|figure| known(figure, series)).collect();
        known.sort_by_key(|known| (known.subject, known.vcpus, known.target));
        let targets: BTreeSet<u32> = known.iter().map(|known| known.target).collect();
        let up = Linear::to(known.iter().map(|known| known.count));
        let axes = Axes { farthest: *targets.last()?, up };
        let largest = known.iter().map(|known| known.vcpus).max()?;
        let lines = known.chunk_by(|one, other| (one.subject, one.vcpus) == (other.subject, other.vcpus));
        let lines = lines.filter_map(|points| {
            let Known { subject, vcpus, .. } = *points.first()?;
            let points = points.iter().map(|known| axes.point(known)).collect();
            Some(Line { series: *series.get(subject)?, vcpus, dashed: vcpus != largest, points })
        });
        Some(Curve { lines: lines.collect(), targets: axes.targets(targets), ticks: axes.grid() })
    }

    /// The chart's content in a sentence, for those who do not see it.
    pub fn description(&self) -> String {
        let lines: Vec<String> = self
            .lines
            .iter()
            .map(|line| {
                let points: Vec<String> = line
                    .points
                    .iter()
                    .map(|point| format!("{} to vCPU {}", point.text, point.target))
                    .collect();
                format!("{} with {} vCPUs: {}", line.series.info.title, line.vcpus, points.join(", "))
            })
            .collect();
        format!("Instructions of an SGI by its target. {}.", lines.join("; "))
    }
}

fn known(figure: &Figure, series: &[Series<'_>]) -> Option<Known> {
    let (target, vcpus) = target(&figure.row)?;
    let subject = series.iter().position(|series| series.info.subject == figure.subject)?;
    Some(Known { subject, vcpus, target, count: figure.instructions? })
}

impl Line<'_> {
    /// The points in pairs: the ends of the line's pieces.
    pub fn pieces(&self) -> impl Iterator<Item = (&Point, &Point)> {
        self.points.iter().zip(self.points.iter().skip(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_by_subject_and_size_and_points_by_target() {
        let document = Document::parse(include_str!("../../../tests/data/bench.json")).unwrap();
        let curve = Curve::new(&document, &Series::all(&document)).unwrap();
        let lines: Vec<(&str, u32, bool, usize)> = curve
            .lines
            .iter()
            .map(|line| (line.series.info.subject.as_str(), line.vcpus, line.dashed, line.points.len()))
            .collect();
        assert_eq!(
            lines,
            [
                ("turnstile", 4, true, 2),
                ("turnstile", 32, false, 5),
                ("kvm-vhe", 4, true, 2),
                ("kvm-vhe", 32, false, 5)
            ]
        );
        let points = curve.lines[3].points.iter().map(|point| (point.target, point.x.as_str()));
        let places = ["3.23%", "9.68%", "48.39%", "51.61%", "100.00%"];
        assert!(points.eq([1, 3, 15, 16, 31].into_iter().zip(places)));
        assert_eq!(curve.ticks[0], Tick { at: "100.00%".to_owned(), label: "0".to_owned() });
        let close: Vec<&str> =
            curve.targets.iter().filter(|(_, close)| *close).map(|(tick, _)| tick.label.as_str()).collect();
        assert_eq!(close, ["3", "16"]);
    }
}
