// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures of other hypervisors that were taken once, for columns that are not measured in this run.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;

use super::document::Footprint;
use super::subjects::Subject;
use crate::failure::{Context, Result};
use crate::layout::Layout;

/// The file `bench/recorded.toml`: subjects by name.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Recorded {
    subjects: BTreeMap<String, Entry>,
}

/// What was recorded of one subject.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    version: String,
    /// What it does against speculation on that machine, as it says itself.
    #[serde(default)]
    mitigations: String,
    instructions: BTreeMap<String, f64>,
    /// The same where QEMU alone ends the turns of the emulated CPUs, of rows in which that makes a difference.
    #[serde(default)]
    long_turns: BTreeMap<String, f64>,
    #[serde(default)]
    footprint: BTreeMap<String, Footprint>,
    /// Whole work in Linux: its ratio to what it takes without a hypervisor.
    #[serde(default)]
    work: BTreeMap<String, f64>,
}

impl Recorded {
    /// Reads the figures of the checkout.
    pub fn load(layout: &Layout) -> Result<Self> {
        let path = layout.root().join("bench/recorded.toml");
        let text = fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).context(|| format!("cannot read {}", path.display()))
    }

    /// What exactly was measured.
    pub fn version(&self, subject: Subject) -> Option<&str> {
        Some(&self.subjects.get(subject.name())?.version)
    }

    /// What it does against speculation; empty if that is not known.
    pub fn mitigations(&self, subject: Subject) -> &str {
        self.subjects.get(subject.name()).map_or("", |entry| &entry.mitigations)
    }

    /// The lines and pages of an operation.
    pub fn footprint(&self, subject: Subject, row: &str) -> Option<Footprint> {
        self.subjects.get(subject.name())?.footprint.get(row).copied()
    }

    /// The instructions of an operation.
    pub fn instructions(&self, subject: Subject, row: &str) -> Option<f64> {
        self.subjects.get(subject.name())?.instructions.get(row).copied()
    }

    /// The instructions of an operation where QEMU alone ends the turns of the emulated CPUs.
    pub fn long_turns(&self, subject: Subject, row: &str) -> Option<f64> {
        self.subjects.get(subject.name())?.long_turns.get(row).copied()
    }

    /// How many times the instructions of whole work without a hypervisor it takes.
    pub fn work(&self, subject: Subject, row: &str) -> Option<f64> {
        self.subjects.get(subject.name())?.work.get(row).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_names_are_known() {
        let recorded = Recorded::load(&Layout::find().unwrap()).unwrap();
        assert!(!recorded.subjects.is_empty());
        for (name, entry) in &recorded.subjects {
            assert!(Subject::ALL.iter().any(|subject| subject.name() == name), "{name}");
            assert!(entry.instructions.values().all(|figure| *figure > 0.0), "{name}");
            let with_figure = |row| entry.instructions.contains_key(row);
            assert!(entry.footprint.keys().all(with_figure), "{name}: lines and pages, but no instructions");
            assert!(entry.long_turns.keys().all(with_figure), "{name}: a second figure, but no first one");
        }
        assert!(recorded.instructions(Subject::KvmVhe, "null-hypercall").is_some());
        assert_eq!(recorded.instructions(Subject::Turnstile, "null-hypercall"), None);
    }
}
