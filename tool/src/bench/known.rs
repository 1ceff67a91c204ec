// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What rows cost as far as it is written down: Turnstile's budgets, and recorded figures of others. From these the figures in
//! the documentation are made.

use std::fs;

use super::ablate::{self, recorded::Recorded as Worth};
use super::assemble;
use super::budgets::{Budgets, INSTRUCTIONS};
use super::document::{Document, Figure, Footprint};
use super::footprint;
use super::measure::blank;
use super::platform::Platform;
use super::recorded::Recorded;
use super::rows;
use super::subjects::Subject;
use super::table;
use crate::failure::{Context, Result};
use crate::isa::Isa;
use crate::layout::Layout;

/// The class that means the ratio of whole work in Linux to the same without a hypervisor.
const WORK: &str = "work";
/// The class that means the instructions where QEMU alone ends the turns of the emulated CPUs.
const LONG_TURNS: &str = "long-turns";

/// The budgets and the recorded figures of the checkout, and what its techniques were found to be worth.
#[derive(Debug)]
pub struct Known {
    budgets: toml::Table,
    recorded: Recorded,
    worth: Worth,
}

impl Known {
    /// Reads them.
    pub fn load(layout: &Layout) -> Result<Self> {
        let path = Budgets::file(layout);
        let text = fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
        let budgets = text.parse().context(|| format!("cannot read {}", path.display()))?;
        Ok(Known { budgets, recorded: Recorded::load(layout)?, worth: Worth::load(layout)? })
    }

    /// Operations of a class in a row. `of` is an architecture, which means Turnstile on its usual platform; a platform as
    /// `bench/budgets.toml` names it; another subject; or, for what it costs without a technique, `arm64/fp-resident`.
    /// What a budget does not name does not occur.
    pub fn count(&self, of: &str, row: &str, class: &str) -> Option<f64> {
        if let Some((name, off)) = of.split_once('/') {
            let isa = Isa::ALL.into_iter().find(|isa| isa.name() == name)?;
            return self.worth.count(isa, off, row, class);
        }
        let usual = Isa::ALL.into_iter().find(|isa| isa.name() == of).map(|isa| Platform::usual_of(isa).name);
        let section = usual.unwrap_or(of);
        let all = self.budgets.values().filter_map(|isa| isa.as_table()?.get(section)?.as_table()).next();
        if let Some(section) = all {
            let budget = section.get(row)?.as_table()?;
            let number = budget
                .get(class)
                .map(|number| number.as_float().or_else(|| number.as_integer().map(|number| number as f64)));
            let counted = !Footprint::NAMES.contains(&class);
            return number.unwrap_or(counted.then_some(0.0));
        }
        let subject = Subject::ALL.into_iter().find(|subject| subject.name() == of)?;
        match class {
            INSTRUCTIONS => self.recorded.instructions(subject, row),
            WORK => self.recorded.work(subject, row),
            LONG_TURNS => self.recorded.long_turns(subject, row),
            _ => {
                let counts = self.recorded.footprint(subject, row)?.counts();
                counts.into_iter().find(|(name, _)| *name == class).map(|(_, count)| count)
            }
        }
    }

    /// What techniques are worth on an architecture, as a table in Markdown.
    pub fn ablation(&self, isa: Isa) -> Option<String> {
        self.worth.ablation(isa).map(|ablation| ablate::markdown(&ablation))
    }

    /// The same beside what the seeds say.
    pub fn seeds(&self, isa: Isa) -> Option<String> {
        self.worth.ablation(isa).map(|ablation| ablate::seeds_markdown(&ablation))
    }

    /// Everything about the rows of an architecture, as if it had been measured.
    pub fn document(&self, isa: Isa) -> Result<Document> {
        let platform = Platform::usual_of(isa);
        let figures = rows::of(isa).iter().filter_map(|row| {
            let count = |class| self.count(isa.name(), row.name, class);
            let instructions = Some(count(INSTRUCTIONS)?);
            let [code, data, pages] = Footprint::NAMES.map(count);
            let footprint = code.zip(data).zip(pages).map(|((code_lines, data_lines), pages)| Footprint {
                code_lines,
                data_lines,
                pages,
            });
            Some(Figure { instructions, footprint, ..blank(Subject::Turnstile, row, platform) })
        });
        assemble::written(isa, figures.collect(), &self.recorded)
    }

    /// The table of an architecture, as `./x bench` prints it.
    pub fn table(&self, isa: Isa) -> Result<String> {
        let document = self.document(isa)?;
        let text = format!("{}\n{}", table::table(&document, None), table::legend(&document));
        Ok(text.lines().map(|line| format!("{}\n", line.trim_end())).collect())
    }

    /// Lines and pages of an architecture's rows as a table in Markdown; only what is known.
    pub fn footprint(&self, isa: Isa) -> Result<String> {
        let document = self.document(isa)?;
        let of = |subject: &str, row: &str| document.figure(subject, row)?.footprint;
        let rows: Vec<&str> = document.row_names().into_iter().map(|(row, _)| row).collect();
        let known = |subject: &str| rows.iter().any(|row| of(subject, row).is_some());
        let subjects: Vec<_> = document
            .subjects
            .iter()
            .filter(|info| info.subject == "turnstile" || known(&info.subject))
            .collect();
        let mut text = "| row |".to_owned();
        text.extend(subjects.iter().map(|info| format!(" {} |", info.title)));
        text.push_str("\n|---|");
        text.push_str(&"---:|".repeat(subjects.len()));
        text.push('\n');
        for row in rows.iter().filter(|row| subjects.iter().any(|info| of(&info.subject, row).is_some())) {
            let cell =
                |subject: &str| of(subject, row).map_or_else(|| "–".to_owned(), |it| footprint::cell(&it));
            let cells: String = subjects.iter().map(|info| format!(" {} |", cell(&info.subject))).collect();
            text.push_str(&format!("| `{row}` |{cells}\n"));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        let budgets = "[arm64.max-gicv3]\nnull-hypercall = { instructions = 48, dsb = 2, code_lines = 6, data_lines = 5, pages = 4 }\n\
                       io-kernel = { instructions = 88 }\n[arm64.max-gicv2]\nnull-hypercall = { instructions = 49.5 }\n";
        let recorded = "[kvm-vhe]\nversion = \"Linux 1 KVM\"\n[kvm-vhe.instructions]\nnull-hypercall = 1364\nself-sgi = 9\n\
                        [kvm-vhe.work]\npipe-2cpus = 1.5\n[kvm-vhe.long_turns]\nself-sgi = 8\n\
                        [kvm-vhe.footprint]\nnull-hypercall = { code_lines = 80, data_lines = 50, pages = 40 }\n";
        let worth = "[arm64.off.none]\nnull-hypercall = { instructions = 56, dsb = 1 }\n";
        let (recorded, worth) = (toml::from_str(recorded).unwrap(), toml::from_str(worth).unwrap());
        Known { budgets: budgets.parse().unwrap(), recorded, worth }
    }

    #[test]
    fn counts_are_found_by_who_and_where() {
        let known = known();
        let count = |of, class| known.count(of, "null-hypercall", class);
        assert_eq!(count("arm64", "instructions"), Some(48.0));
        assert_eq!(count("max-gicv2", "instructions"), Some(49.5));
        assert_eq!(count("kvm-vhe", "instructions"), Some(1364.0));
        assert_eq!(known.count("kvm-vhe", "pipe-2cpus", "work"), Some(1.5));
        assert_eq!(known.count("kvm-vhe", "self-sgi", "long-turns"), Some(8.0));
        assert_eq!([count("arm64", "dsb"), count("max-gicv2", "dsb")], [Some(2.0), Some(0.0)]);
        assert_eq!([count("arm64", "pages"), count("kvm-vhe", "pages")], [Some(4.0), Some(40.0)]);
        assert_eq!(count("max-gicv2", "pages"), None, "not counted there");
        assert_eq!(
            [count("arm64/none", "instructions"), count("arm64/none", "isb")],
            [Some(56.0), Some(0.0)]
        );
        for of in ["x86_64", "kvm-nvhe", "nobody", "arm64/all", "riscv/none"] {
            assert_eq!(count(of, "instructions"), None, "{of}");
        }
    }

    #[test]
    fn tables_have_what_is_known() {
        let known = known();
        let table = known.table(Isa::Arm64).unwrap();
        assert!(table.contains("1364 (28.4×)") && table.contains("io-kernel"), "{table}");
        assert!(!table.contains("self-sgi"), "a row without a budget: {table}");
        let expected =
            "| row | Turnstile | KVM VHE |\n|---|---:|---:|\n| `null-hypercall` | 6 + 5, 4 | 80 + 50, 40 |\n";
        assert_eq!(known.footprint(Isa::Arm64).unwrap(), expected);
        assert!(known.ablation(Isa::Arm64).unwrap().contains("| `none` | 56 (1) |"));
        assert!(known.seeds(Isa::X86_64).is_none());
    }
}
