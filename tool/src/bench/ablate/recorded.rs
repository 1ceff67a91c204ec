// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What techniques were last found to be worth, for the tables of the book. The suite measures some of it and compares.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use serde::Deserialize;
use turnstile_techniques::{Set, Technique};

use super::super::document::{Ablation, AblationRow, SeedRow};
use super::super::table::{count, is_hardware};
use super::{described, rows};
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};

/// Where it is.
const FILE: &str = "bench/ablation.toml";
/// What the file says of itself.
const HEADER: &str = "# What rows cost Turnstile without its techniques: written by `./x bench --isa ISA --ablate --update-budgets`, shown in\n\
                      # docs/src/techniques.md by `./x figures --write`, compared with what is measured by ARCHITECTURE/ablation/effects.\n";
/// The class that is recorded beside those of the machine.
const INSTRUCTIONS: &str = "instructions";

/// The file: architectures by name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Recorded {
    sections: BTreeMap<String, Section>,
}

/// Operations by class.
type Classes = BTreeMap<String, f64>;

/// What was found on one architecture.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    /// By what is off, and by row.
    off: BTreeMap<String, BTreeMap<String, Classes>>,
    /// Beside what the seeds say.
    #[serde(default)]
    seeds: Vec<SeedRow>,
}

impl Recorded {
    /// Reads the file of the checkout.
    ///
    /// # Errors
    /// It cannot be read, or is something else.
    pub fn load(layout: &Layout) -> Result<Self> {
        let path = layout.root().join(FILE);
        let text = fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).context(|| format!("cannot read {}", path.display()))
    }

    /// Puts in what was found on an architecture, and writes the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn update(mut self, layout: &Layout, isa: Isa, found: &Ablation) -> Result<()> {
        self.sections.insert(isa.name().to_owned(), Section::new(found));
        write_atomically(&layout.root().join(FILE), self.text().as_bytes())
    }

    /// All that is recorded of an architecture, its rows in the order of the table.
    pub fn ablation(&self, isa: Isa) -> Option<Ablation> {
        let section = self.sections.get(isa.name())?;
        let figure = |off: &str, row: &str| {
            let classes = section.off.get(off)?.get(row)?.clone();
            let instructions = classes.get(INSTRUCTIONS).copied()?;
            Some(AblationRow { row: row.to_owned(), off: off.to_owned(), instructions, classes })
        };
        let rows =
            section.off.keys().flat_map(|off| rows(isa).iter().filter_map(move |row| figure(off, row)));
        let techniques = Set::ALL.on(isa.techniques()).iter().map(described).collect();
        Some(Ablation { techniques, rows: rows.collect(), seed: section.seeds.clone() })
    }

    /// Operations of a class in a row without something; what is not named does not occur.
    pub fn count(&self, isa: Isa, off: &str, row: &str, class: &str) -> Option<f64> {
        let classes = self.sections.get(isa.name())?.off.get(off)?.get(row)?;
        Some(classes.get(class).copied().unwrap_or(0.0))
    }

    /// Compares what was measured with what is recorded.
    ///
    /// # Errors
    /// Says what differs.
    pub fn hold(&self, isa: Isa, found: &Ablation) -> Result<()> {
        let section = self.sections.get(isa.name());
        let differs = |figure: &AblationRow| {
            let recorded = section.and_then(|section| section.off.get(&figure.off)?.get(&figure.row));
            let shown =
                |classes: &Classes| classes.get(INSTRUCTIONS).copied().map_or("nothing".to_owned(), count);
            let recorded = recorded.cloned().unwrap_or_default();
            (recorded != kept(figure)).then(|| {
                let AblationRow { row, off, .. } = figure;
                format!(
                    "{row} without {off}: {} instructions, recorded are {}",
                    shown(&kept(figure)),
                    shown(&recorded)
                )
            })
        };
        let differences: Vec<String> = found.rows.iter().filter_map(differs).collect();
        match differences.is_empty() {
            true => Ok(()),
            false => Err(Failure::failed(format!("{FILE} has other figures than what is measured"))
                .details(differences.join("\n"))
                .help(format!("./x bench --isa {isa} --ablate --update-budgets, then ./x figures --write"))),
        }
    }

    /// The file: architectures and rows in the order of the tables, techniques in that of theirs.
    fn text(&self) -> String {
        let mut text = HEADER.to_owned();
        let sections = Isa::ALL.into_iter().filter_map(|isa| Some((isa, self.sections.get(isa.name())?)));
        for (isa, section) in sections {
            let names = Technique::ALL.iter().map(|technique| technique.name().to_owned());
            let ends = [Set::NONE, Set::ALL].map(|set| set.to_string());
            let [none, all] = ends;
            for off in std::iter::once(none).chain(names).chain([all]) {
                let Some(figures) = section.off.get(&off) else { continue };
                // Writing to a text does not fail.
                let _ = writeln!(text, "\n[{isa}.off.{off}]");
                let figures = rows(isa).iter().filter_map(|row| Some((row, figures.get(*row)?)));
                figures.for_each(|(row, classes)| text.push_str(&line(row, classes)));
            }
            for SeedRow { row, source, seed_percent, here_percent } in &section.seeds {
                let _ = writeln!(
                    text,
                    "\n[[{isa}.seeds]]\nrow = {row:?}\nsource = {source:?}\nseed_percent = {seed_percent:?}\n\
                     here_percent = {here_percent:?}"
                );
            }
        }
        text
    }
}

impl Section {
    fn new(found: &Ablation) -> Self {
        let mut section = Section { seeds: found.seed.clone(), ..Section::default() };
        for figure in &found.rows {
            section.off.entry(figure.off.clone()).or_default().insert(figure.row.clone(), kept(figure));
        }
        section
    }
}

/// What of a figure is recorded: instructions and operations on the machine, as in budgets.
fn kept(figure: &AblationRow) -> Classes {
    let mut kept = figure.classes.clone();
    kept.retain(|class, count| is_hardware(class) && *count != 0.0);
    kept.insert(INSTRUCTIONS.to_owned(), figure.instructions);
    kept
}

/// A row: instructions come first.
fn line(row: &str, classes: &Classes) -> String {
    let instructions = classes.get(INSTRUCTIONS).copied().unwrap_or_default();
    let mut line = format!("{row} = {{ {INSTRUCTIONS} = {instructions}");
    for (class, count) in classes.iter().filter(|(class, _)| *class != INSTRUCTIONS) {
        let _ = write!(line, ", {class} = {count}");
    }
    line.push_str(" }\n");
    line
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut recorded = Recorded::default();
        let seed = SeedRow {
            row: "null-hypercall".to_owned(),
            source: "seed 000: A; here all techniques".to_owned(),
            seed_percent: vec![-38.0],
            here_percent: -95.6,
        };
        let found = Ablation { seed: vec![seed], ..sample() };
        recorded.sections.insert("arm64".to_owned(), Section::new(&found));
        let text = recorded.text();
        assert!(
            text.contains("[arm64.off.none]\nnull-hypercall = { instructions = 56, hardware_reads = 3, register_reads = 3 }\n"),
            "{text}"
        );
        assert_eq!(toml::from_str::<Recorded>(&text).unwrap(), recorded);
        let read = recorded.ablation(Isa::Arm64).unwrap();
        assert_eq!((read.rows.len(), &read.seed), (4, &found.seed));
        assert_eq!(recorded.count(Isa::Arm64, "all", "null-hypercall", "instructions"), Some(1120.0));
        assert_eq!(recorded.count(Isa::Arm64, "all", "null-hypercall", "isb"), Some(0.0));
        assert_eq!(recorded.count(Isa::X86_64, "all", "null-hypercall", "isb"), None);
        assert!(recorded.ablation(Isa::Power64).is_none());
    }

    #[test]
    fn another_figure_is_noticed() {
        let mut recorded = Recorded::default();
        recorded.sections.insert("arm64".to_owned(), Section::new(&sample()));
        assert!(recorded.hold(Isa::Arm64, &sample()).is_ok());
        let mut other = sample();
        other.rows[1].instructions += 1.0;
        let failure = recorded.hold(Isa::Arm64, &other).unwrap_err().full();
        assert!(
            failure.contains("null-hypercall without fp-resident: 115 instructions, recorded are 114"),
            "{failure}"
        );
        assert!(recorded.hold(Isa::X86_64, &sample()).is_err(), "nothing is recorded of it");
    }

    #[test]
    fn every_architecture_is_recorded_whole() {
        let recorded = Recorded::load(&Layout::find().unwrap()).unwrap();
        for isa in Isa::ALL {
            let ablation = recorded.ablation(isa).unwrap();
            let sets = Set::ALL.on(isa.techniques()).iter().count() + 2;
            assert_eq!(ablation.rows.len(), sets * rows(isa).len(), "{isa}");
        }
    }
}
