// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A model of costs: cycles for each class of operations, from a file, each with its source.
//!
//! Without such a file nothing is estimated. What it gives is never a measurement; docs/src/weights.md says how far
//! to trust it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::document::{Cycles, Document, Figure, Residual, WeightsUsed};
use crate::config::problem::did_you_mean;
use crate::failure::{Failure, Result};

/// The classes that the meter knows.
const CLASSES: [&str; 51] = [
    "instructions",
    "loads",
    "stores",
    "branches",
    "lines",
    "in_services",
    "copy",
    "atomics",
    "exception_entries",
    "exception_returns",
    "register_reads",
    "register_writes",
    "hardware_reads",
    "hardware_writes",
    "irqchip_reads",
    "irqchip_writes",
    "mmio_reads",
    "mmio_writes",
    "isb",
    "dsb",
    "dmb",
    "tlbi",
    "at",
    "cache",
    "vmrun",
    "vmload",
    "vmsave",
    "clgi",
    "stgi",
    "rdmsr",
    "wrmsr",
    "port_reads",
    "port_writes",
    "cpuid",
    "fences",
    "invlpg",
    "invlpga",
    "rdtsc",
    "mfspr",
    "mtspr",
    "mftb",
    "tlbie",
    "tlbiel",
    "tlbsync",
    "ptesync",
    "sync",
    "isync",
    "slb",
    "doorbells",
    "ci_loads",
    "ci_stores",
];

/// A model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weights {
    /// Its name.
    name: String,
    /// The architecture that it is for.
    isa: String,
    /// Whose costs they are.
    cpu: String,
    /// How it was derived.
    source: String,
    /// The classes.
    class: BTreeMap<String, Class>,
    /// Known cycles, by which the model can be judged.
    #[serde(default)]
    observation: Vec<Observation>,
}

/// What an operation of a class costs, on top of what it costs by the other classes that it belongs to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    cycles: f64,
    source: String,
}

/// Cycles that somebody measured, and the operations that they are for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Observation {
    row: String,
    cycles: f64,
    source: String,
    /// Whether the weights were fitted to it; the others show what the model is worth elsewhere.
    fitted: bool,
    counts: BTreeMap<String, f64>,
}

impl Weights {
    /// Reads a model and checks it.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!("cannot read {}: {error}", path.display()))
                .help("bench/weights has a model to begin with; docs/src/weights.md describes the file")
        })?;
        Self::parse(&text).map_err(|failure| failure.context_line(&path.display().to_string()))
    }

    fn parse(text: &str) -> Result<Self> {
        let weights: Weights = toml::from_str(text).map_err(|error| {
            Failure::usage("this is no model of costs")
                .details(error.to_string())
                .help("docs/src/weights.md describes the file")
        })?;
        for (name, class) in &weights.class {
            known(name, "class")?;
            number(class.cycles, &format!("the cycles of `{name}`"))?;
            sourced(&class.source, &format!("class `{name}`"))?;
        }
        for observation in &weights.observation {
            let what = format!("observation `{}`", observation.row);
            number(observation.cycles, &format!("the cycles of {what}"))?;
            sourced(&observation.source, &what)?;
            for (name, count) in &observation.counts {
                known(name, &what)?;
                number(*count, &format!("`{name}` of {what}"))?;
            }
        }
        match weights.class.is_empty() {
            true => {
                Err(Failure::usage("the model has no classes").help("give at least [class.instructions]"))
            }
            false => Ok(weights),
        }
    }

    /// Estimates the cycles of every row whose operations were counted.
    pub fn apply(&self, document: &mut Document) -> Result<()> {
        if self.isa != document.isa {
            let what =
                format!("the model `{}` is for {}, and this run is of {}", self.name, self.isa, document.isa);
            return Err(Failure::usage(what).help("name a model for that architecture with --weights"));
        }
        for figure in &mut document.rows {
            figure.cycles = self.estimate(figure);
        }
        let residuals = self.observation.iter().map(|observation| Residual {
            row: match observation.fitted {
                true => observation.row.clone(),
                false => format!("{} (not fitted)", observation.row),
            },
            measured: observation.cycles,
            model: round(self.by_class(&observation.counts).values().sum()),
        });
        let source = format!("For {}. {}", self.cpu, self.source);
        document.weights =
            Some(WeightsUsed { name: self.name.clone(), source, residuals: residuals.collect() });
        Ok(())
    }

    fn estimate(&self, figure: &Figure) -> Option<Cycles> {
        if figure.classes.is_empty() {
            return None;
        }
        let by_class = self.by_class(&figure.classes);
        let total = round(by_class.values().sum());
        Some(Cycles { model: self.name.clone(), total, by_class })
    }

    fn by_class(&self, counts: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
        let classes = self.class.iter().filter_map(|(name, class)| {
            let cycles = round(counts.get(name)? * class.cycles);
            Some((name.clone(), cycles))
        });
        classes.collect()
    }
}

/// To two decimals: the model does not deserve more.
fn round(cycles: f64) -> f64 {
    (cycles * 100.0).round() / 100.0
}

fn known(class: &str, place: &str) -> Result<()> {
    if CLASSES.contains(&class) {
        return Ok(());
    }
    Err(Failure::usage(format!("{place}: the meter has no class `{class}`"))
        .help(did_you_mean(class, &CLASSES)))
}

fn number(number: f64, what: &str) -> Result<()> {
    if number.is_finite() && number >= 0.0 {
        return Ok(());
    }
    Err(Failure::usage(format!("{what}: {number} is no cost or count"))
        .help("give a number that is zero or more"))
}

fn sourced(source: &str, what: &str) -> Result<()> {
    if !source.trim().is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format!("{what} has no source")).help("say where the number comes from"))
}

#[cfg(test)]
#[path = "weights_tests.rs"]
mod tests;
