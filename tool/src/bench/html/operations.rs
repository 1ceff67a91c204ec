// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hardware has to do in one operation: stacked by kind, and every class and register in tables.
//!
//! The meter's classes overlap: an access to a list register is a system register's, a hardware register's and
//! the interrupt controller's. The kinds here do not: each access belongs to one.

use std::collections::{BTreeMap, BTreeSet};

use super::number;
use super::scale::{Linear, Tick};
use super::series::Series;
use crate::bench::document::{Document, Figure};

/// A kind of operations, and the classes that it adds up.
struct Kind {
    title: &'static str,
    classes: &'static [&'static str],
    /// Which accesses to system registers it does not count, because another kind does.
    without: Option<&'static str>,
}

const fn kind(title: &'static str, classes: &'static [&'static str]) -> Kind {
    Kind { title, classes, without: None }
}

const KINDS: [Kind; 8] = [
    kind(
        "exceptions taken and returns",
        &["exception_entries", "exception_returns", "vmrun", "vmload", "vmsave", "clgi", "stgi"],
    ),
    Kind {
        title: "system registers read",
        classes: &["hardware_reads", "cpuid", "rdtsc"],
        without: Some("read "),
    },
    Kind { title: "system registers written", classes: &["hardware_writes"], without: Some("write ") },
    kind("interrupt controller", &["irqchip_reads", "irqchip_writes", "doorbells"]),
    kind("other devices", &["mmio_reads", "mmio_writes", "port_reads", "port_writes"]),
    kind("barriers", &["isb", "dsb", "dmb", "fences", "ptesync", "sync", "isync"]),
    kind(
        "TLB, translation, caches",
        &["tlbi", "at", "cache", "invlpg", "invlpga", "tlbie", "tlbiel", "tlbsync", "slb"],
    ),
    kind("atomics", &["atomics"]),
];
/// Prefixes of the interrupt controller's system registers.
const IRQCHIP: [&str; 3] = ["ICC_", "ICH_", "ICV_"];

impl Kind {
    fn count(&self, figure: &Figure) -> f64 {
        let sum: f64 = self.classes.iter().filter_map(|class| figure.classes.get(*class)).sum();
        let elsewhere = self.without.map_or(0.0, |access| {
            let registers = figure.registers.iter().filter(|(name, _)| {
                let register = name.strip_prefix(access);
                register.is_some_and(|name| IRQCHIP.iter().any(|prefix| name.starts_with(prefix)))
            });
            registers.map(|(_, count)| count).sum()
        });
        (sum - elsewhere).max(0.0)
    }
}

/// Hardware operations of a row, each counted once.
fn hardware(figure: &Figure) -> f64 {
    KINDS.iter().map(|kind| kind.count(figure)).sum()
}

/// Hardware operations of classes alone, where accesses to the interrupt controller are accesses to system
/// registers, as with GICv3: they are counted as such.
pub fn hardware_of_classes(classes: &BTreeMap<String, f64>) -> f64 {
    let mut classes = classes.clone();
    classes.retain(|class, _| !class.starts_with("irqchip_"));
    hardware(&Figure { classes, ..Figure::default() })
}

/// The stacked bars of all rows.
pub struct Operations<'d> {
    /// The rows.
    pub groups: Vec<Group<'d>>,
    /// The kinds that occur, for the legend: colour and title.
    pub legend: Vec<(usize, &'static str)>,
    /// The grid.
    pub ticks: Vec<Tick>,
}

/// A row.
pub struct Group<'d> {
    /// Its name.
    pub row: &'d str,
    /// What one operation is.
    pub what: &'d str,
    /// One bar for each subject.
    pub bars: Vec<Bar<'d>>,
    /// Every class.
    pub classes: Vec<Line>,
    /// Every register and device.
    pub registers: Vec<Line>,
}

/// A subject's bar.
pub struct Bar<'d> {
    /// The subject.
    pub series: Series<'d>,
    /// Its segments, from the left.
    pub segments: Vec<Segment>,
    /// Where it ends.
    pub end: String,
    /// The sum; nothing where nothing was counted.
    pub total: Option<String>,
}

/// A part of a bar.
pub struct Segment {
    /// The number of its colour.
    pub colour: usize,
    /// Where it begins.
    pub from: String,
    /// How long it is.
    pub length: String,
    /// What it is, and how many.
    pub title: String,
}

/// A line of a table: a name and one figure for each subject.
pub struct Line {
    /// The class or register.
    pub name: String,
    /// The figures.
    pub counts: Vec<String>,
}

impl<'d> Operations<'d> {
    /// Takes the document apart; `None` if no operations were counted.
    pub fn new(document: &'d Document, series: &[Series<'d>]) -> Option<Self> {
        let counted = |figure: &&Figure| !figure.classes.is_empty();
        let shown = document.rows.iter().filter(|figure| super::curve::target(&figure.row).is_none());
        let totals: Vec<f64> = shown.filter(counted).map(hardware).collect();
        if totals.is_empty() {
            return None;
        }
        let scale = Linear::to(totals);
        let rows = document.row_names().into_iter().filter(|(row, _)| super::curve::target(row).is_none());
        let groups = rows.map(|(row, what)| {
            let figures: Vec<Option<&Figure>> = series
                .iter()
                .map(|series| document.figure(&series.info.subject, row).filter(counted))
                .collect();
            let bars = series.iter().zip(&figures).map(|(series, figure)| bar(*series, *figure, scale));
            Group {
                row,
                what,
                bars: bars.collect(),
                classes: lines(&figures, |figure| vec![&figure.classes]),
                registers: lines(&figures, |figure| vec![&figure.registers, &figure.devices]),
            }
        });
        let groups: Vec<Group> = groups.collect();
        let used: BTreeSet<usize> = groups
            .iter()
            .flat_map(|group| &group.bars)
            .flat_map(|bar| &bar.segments)
            .map(|segment| segment.colour)
            .collect();
        let legend = used.into_iter().filter_map(|index| Some((index, KINDS.get(index)?.title))).collect();
        Some(Operations { groups, legend, ticks: scale.ticks() })
    }
}

impl Group<'_> {
    /// The chart's content in a sentence, for those who do not see it.
    pub fn description(&self) -> String {
        let parts: Vec<String> = self
            .bars
            .iter()
            .map(|bar| match &bar.total {
                Some(total) => {
                    let segments: Vec<&str> =
                        bar.segments.iter().map(|segment| segment.title.as_str()).collect();
                    format!("{} {total} ({})", bar.series.info.title, segments.join(", "))
                }
                None => format!("{} not counted", bar.series.info.title),
            })
            .collect();
        format!("Hardware operations: {}.", parts.join("; "))
    }
}

fn bar<'d>(series: Series<'d>, figure: Option<&Figure>, scale: Linear) -> Bar<'d> {
    let mut segments = Vec::new();
    let mut sum = 0.0;
    for (colour, kind) in KINDS.iter().enumerate() {
        let count = figure.map_or(0.0, |figure| kind.count(figure));
        if count > 0.0 {
            let (from, to) = (scale.place(sum), scale.place(sum + count));
            segments.push(Segment {
                colour,
                from: number::length(from),
                length: number::length(to - from),
                title: format!("{}: {}", kind.title, number::count(count)),
            });
            sum += count;
        }
    }
    let total = figure.map(|_| number::count(sum));
    Bar { series, segments, end: number::length(scale.place(sum)), total }
}

type Counts<'f> = Vec<&'f BTreeMap<String, f64>>;

fn lines(figures: &[Option<&Figure>], maps: impl for<'f> Fn(&'f Figure) -> Counts<'f>) -> Vec<Line> {
    let all = figures.iter().flatten().flat_map(|figure| maps(figure)).flat_map(BTreeMap::keys);
    let names: BTreeSet<&String> = all.collect();
    let line = |name: &String| {
        let counts = figures.iter().map(|figure| match figure {
            None => "–".to_owned(),
            Some(figure) => number::count(maps(figure).iter().filter_map(|map| map.get(name)).sum()),
        });
        Line { name: name.clone(), counts: counts.collect() }
    };
    names.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, f64)]) -> BTreeMap<String, f64> {
        entries.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn nothing_is_counted_twice() {
        let classes = map(&[
            ("instructions", 50.0),
            ("loads", 9.0),
            ("exception_entries", 1.0),
            ("exception_returns", 1.0),
            ("register_reads", 5.0),
            ("hardware_reads", 3.0),
            ("irqchip_reads", 2.0),
            ("isb", 1.0),
        ]);
        let registers = map(&[
            ("read ESR_EL2", 2.0),
            ("read SP_EL0", 2.0),
            ("read ICH_VMCR_EL2", 1.0),
            ("write ICH_HCR_EL2", 7.0),
        ]);
        // One of the interrupt controller's reads is MMIO: two exceptions, two registers, two of the controller's,
        // one barrier.
        assert_eq!(hardware(&Figure { classes: classes.clone(), registers, ..Figure::default() }), 7.0);
        // Without registers all of the controller's are taken for system registers.
        assert_eq!(hardware_of_classes(&classes), 6.0);
    }
}
