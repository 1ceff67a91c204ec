// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run of `bench` found, as JSON: the table, the page and the tests are made from this and nothing else.
//!
//! Two runs of one version of everything write the same bytes, but for `date` and `host`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::report::printable;
use crate::failure::{Context, Failure, Result};
use crate::meter::fold::{Folded, NamedStep};

/// The version of the form.
pub const SCHEMA: u32 = 3;
/// What a file with a run has to be.
const EXPECTED: &str = "it has to be a file that `turnstile bench --save` of this version wrote";

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// The version of this form.
    pub schema: u32,
    /// When it was measured: `2026-01-01T00:00:00Z`.
    pub date: String,
    /// Where.
    pub host: Host,
    /// The tool's version.
    pub tool: String,
    /// QEMU's version.
    pub qemu: String,
    /// The architecture: `arm64`.
    pub isa: String,
    /// The emulated machine on which `rows` were measured: board, CPU, interrupt controller.
    pub platform: String,
    /// The command that repeats the run.
    pub command: String,
    /// Who is in the rows, in the order of the table.
    pub subjects: Vec<SubjectInfo>,
    /// The figures: by subject, and for each in the order of the table.
    pub rows: Vec<Figure>,
    /// Turnstile's figures on other platforms, if those were asked for, too: by platform and row.
    pub elsewhere: Vec<Figure>,
    /// What ran in one visit: for each subject that was asked for, of each row that was asked for.
    pub traces: Vec<Trace>,
    /// Whole work in Linux, if that was measured: by hypervisor, none first.
    #[serde(default)]
    pub work: Vec<WorkFigure>,
    /// What each technique saves, if that was measured.
    pub ablation: Option<Ablation>,
    /// The model behind estimated cycles, if they were asked for.
    pub weights: Option<WeightsUsed>,
}

/// The machine that QEMU ran on. It has no influence on the figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// What the CPU calls itself.
    pub cpu: String,
    /// How many there are.
    pub cores: usize,
    /// The operating system and its version.
    pub os: String,
}

/// A hypervisor in one of its modes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectInfo {
    /// Its name on the command line: `kvm-vhe`.
    pub subject: String,
    /// How it runs: `vhe`, `nvhe`.
    pub mode: String,
    /// Its heading: `Linux KVM VHE`.
    pub title: String,
    /// What exactly it is: `Linux 6.12.95 KVM`.
    pub version: String,
    /// What it does against speculation on the machine of the rows, as it says itself; empty if that is not known.
    #[serde(default)]
    pub mitigations: String,
}

/// What one operation costs on one subject.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The row's name.
    pub row: String,
    /// What one operation is.
    pub what: String,
    /// The subject's name.
    pub subject: String,
    /// The subject's mode.
    pub mode: String,
    /// The architecture.
    pub isa: String,
    /// The platform's name on the command line.
    pub platform: String,
    /// Whether the figure was recorded some other time: then only `instructions` is known.
    pub recorded: bool,
    /// Why there is no figure, if it was to be measured and could not be.
    pub error: Option<String>,
    /// Instructions outside the guest, by the meter.
    pub instructions: Option<f64>,
    /// The same by the guest's own counter, where that tells it.
    pub counter: Option<f64>,
    /// Instructions of the guests themselves, where the operation is what a boot did more than another.
    #[serde(default)]
    pub inside: Option<f64>,
    /// Visits outside the guest.
    pub exits: Option<f64>,
    /// How many operations were measured.
    pub iterations: Option<u64>,
    /// Operations by class; docs/meter.md names the classes. Those that are zero are absent; all are where
    /// nothing was measured.
    pub classes: BTreeMap<String, f64>,
    /// Accesses to system registers, as `read NAME` and `write NAME`.
    pub registers: BTreeMap<String, f64>,
    /// Accesses to devices, as `read NAME` and `write NAME`.
    pub devices: BTreeMap<String, f64>,
    /// Lines and pages that an operation touches, if they were counted.
    #[serde(default)]
    pub footprint: Option<Footprint>,
    /// The kinds of visits that an operation consists of.
    pub parts: Vec<Part>,
    /// Estimated cycles, if a model was given.
    pub cycles: Option<Cycles>,
}

/// What an operation of whole work in Linux costs, on a hypervisor or on none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkFigure {
    /// The row's name.
    pub row: String,
    /// What one operation is.
    pub what: String,
    /// The subject's name; `bare` without a hypervisor.
    pub under: String,
    /// Its heading.
    pub title: String,
    /// What exactly it is: `Linux 6.12.95 KVM`.
    pub version: String,
    /// The architecture.
    pub isa: String,
    /// Whether the ratio was recorded some other time: then only that is known.
    pub recorded: bool,
    /// Why there is no figure, if it was to be measured and could not be.
    pub error: Option<String>,
    /// Instructions of all CPUs, in the guest and outside.
    pub instructions: Option<f64>,
    /// How many times those without a hypervisor they are.
    pub ratio: Option<f64>,
    /// Those in the guest, where the meter told it apart. Of blocks that exceptions cut short it then counts what ran.
    pub inside: Option<f64>,
    /// Those outside the guest.
    pub outside: Option<f64>,
    /// Visits outside the guest.
    pub exits: Option<f64>,
    /// How many operations were measured.
    pub operations: Option<u64>,
}

/// The visits of one CPU for one reason, or of several that do the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The CPU, in the order in which they were first seen outside the guest; of several the first.
    pub cpu: u32,
    /// How many CPUs there are that do this.
    pub cpus: u32,
    /// Why the guest was left.
    pub reason: String,
    /// Instructions of the most frequent kind of visit.
    pub instructions: u64,
    /// Visits of each of them in one operation.
    pub per_operation: f64,
    /// Pairs of instructions and how many visits took so many, most frequent first.
    pub distribution: Vec<(u64, u64)>,
}

/// How much memory an operation touches: lines of 64 bytes and pages of 4 KiB, each once in a visit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Footprint {
    /// Lines of code.
    pub code_lines: f64,
    /// Lines of data.
    pub data_lines: f64,
    /// Pages of either.
    pub pages: f64,
}

impl Footprint {
    /// The names of its counts.
    pub const NAMES: [&str; 3] = ["code_lines", "data_lines", "pages"];

    /// The counts by name.
    pub fn counts(&self) -> [(&'static str, f64); 3] {
        let [code, data, pages] = Self::NAMES;
        [(code, self.code_lines), (data, self.data_lines), (pages, self.pages)]
    }
}

/// Estimated cycles of an operation. They are the model's, not a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cycles {
    /// The model's name.
    pub model: String,
    /// All of them.
    pub total: f64,
    /// What each class of operations contributes.
    pub by_class: BTreeMap<String, f64>,
}

/// What ran in the most frequent kind of visit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The subject's name.
    pub subject: String,
    /// The row's name.
    pub row: String,
    /// Instructions by function, in the order in which they were first entered.
    pub folded: Vec<Folded>,
    /// The instructions in order.
    pub steps: Vec<NamedStep>,
}

/// What each technique saves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ablation {
    /// The techniques.
    pub techniques: Vec<Technique>,
    /// What rows cost with something switched off.
    pub rows: Vec<AblationRow>,
    /// All of them off, beside what the seeds say.
    pub seed: Vec<SeedRow>,
}

/// One way of making an exit cheaper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Technique {
    /// Its name.
    pub name: String,
    /// Where it comes from.
    pub seed: String,
    /// Where it acts.
    pub acts: String,
    /// What it saves.
    pub saves: String,
}

/// What a row costs without a technique.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AblationRow {
    /// The row's name.
    pub row: String,
    /// What is switched off: a technique, `all`, or `none`.
    pub off: String,
    /// Instructions per operation.
    pub instructions: f64,
    /// Operations by class.
    pub classes: BTreeMap<String, f64>,
}

/// What a seed says about a row, and what was found here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeedRow {
    /// The row's name.
    pub row: String,
    /// Where the seed says it.
    pub source: String,
    /// The change of cycles by the seed's techniques, on each of its platforms, in per cent.
    pub seed_percent: Vec<f64>,
    /// The change of instructions by all techniques here, in per cent.
    pub here_percent: f64,
}

/// The model that estimated cycles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WeightsUsed {
    /// Its name.
    pub name: String,
    /// What it was derived from.
    pub source: String,
    /// How far it is off where cycles are known.
    pub residuals: Vec<Residual>,
}

/// A known number of cycles, and what the model says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Residual {
    /// What was measured.
    pub row: String,
    /// The known cycles.
    pub measured: f64,
    /// The model's.
    pub model: f64,
}

impl Document {
    /// Reads a saved run, which may be anybody's: its strings are made harmless on a terminal.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).context(|| format!("cannot read {}", path.display()))?;
        let harmless = |mut value| {
            disarm(&mut value);
            Self::of(value)
        };
        value(&text).and_then(harmless).map_err(|failure| failure.context_line(&path.display().to_string()))
    }

    /// Reads the JSON of a run.
    pub fn parse(text: &str) -> Result<Self> {
        Self::of(value(text)?)
    }

    fn of(value: serde_json::Value) -> Result<Self> {
        match value.get("schema").and_then(serde_json::Value::as_u64) {
            Some(schema) if schema == u64::from(SCHEMA) => {
                let document = serde_json::from_value(value).context(|| "no saved run".to_owned());
                document.map_err(|failure| failure.help(EXPECTED))
            }
            Some(other) => {
                Err(Failure::failed(format!("schema {other}; this version reads {SCHEMA}")).help(EXPECTED))
            }
            None => Err(Failure::failed("no saved run: it has no `schema`").help(EXPECTED)),
        }
    }

    /// The JSON, with a line end.
    pub fn json(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self).context(|| "cannot write the figures".to_owned())?;
        Ok(text + "\n")
    }

    /// The figure of a row on a subject.
    pub fn figure(&self, subject: &str, row: &str) -> Option<&Figure> {
        self.rows.iter().find(|figure| figure.subject == subject && figure.row == row)
    }

    /// The rows' names and operations, in the order of the table.
    pub fn row_names(&self) -> Vec<(&str, &str)> {
        let mut names: Vec<(&str, &str)> = Vec::new();
        for figure in &self.rows {
            if !names.iter().any(|(row, _)| *row == figure.row) {
                names.push((&figure.row, &figure.what));
            }
        }
        names
    }
}

fn value(text: &str) -> Result<serde_json::Value> {
    serde_json::from_str(text).context(|| "no JSON".to_owned()).map_err(|failure| failure.help(EXPECTED))
}

/// Takes out of all strings what a terminal would take for commands.
fn disarm(value: &mut serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::String(text) => *text = printable(text),
        Value::Array(values) => values.iter_mut().for_each(disarm),
        Value::Object(fields) => {
            let all = std::mem::take(fields).into_iter();
            fields.extend(all.map(|(name, mut value)| {
                disarm(&mut value);
                (printable(&name), value)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
