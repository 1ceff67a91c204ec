// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the meter reported: its JSON file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::failure::{Context, Failure, Result};

/// The version of the file that is understood.
const SCHEMA: u32 = 1;

/// A whole reading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The version of this form.
    pub schema: u32,
    /// QEMU's name of the machine's architecture: `aarch64`, `x86_64`, `ppc64`.
    pub target: String,
    /// Of the whole run.
    pub total: Total,
    /// What the meter could not do, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The visits by CPU, reason and place, those with most visits first.
    pub groups: Vec<Group>,
}

/// Instructions of the whole run since the guest was first seen, and visits outside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Instructions in the guest.
    pub guest: u64,
    /// Instructions outside it.
    pub outside: u64,
    /// Visits outside it.
    pub visits: u64,
    /// Instructions of the hypervisor's boot, to the first one of a guest, if they were asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub boot: u64,
}

/// All visits that one CPU made for one reason from one instruction of the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The CPU, numbered in the order in which they were first seen.
    pub cpu: u32,
    /// Why the guest was left: the architecture's name of the exception class or exit code, or `irq`.
    pub reason: String,
    /// The guest's program counter, as the architecture reports it (hexadecimal).
    #[serde(with = "hex")]
    pub pc: u64,
    /// Where the hypervisor's exception vectors are (hexadecimal); zero where there is no such register.
    #[serde(with = "hex")]
    pub vectors: u64,
    /// How many visits there were.
    pub visits: u64,
    /// Instructions of the most frequent kind of visit; the smaller of two equally frequent ones.
    pub modal: u64,
    /// Instructions of the shortest visit.
    pub min: u64,
    /// Instructions of the longest visit.
    pub max: u64,
    /// Instructions of all visits.
    pub sum: u64,
    /// Pairs of instructions and how many visits took so many: at most the 64 most frequent, most frequent first.
    pub distribution: Vec<(u64, u64)>,
    /// Visits that the distribution leaves out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub others: u64,
    /// Operations of the modal visit by class; docs/src/meter.md names the classes. Those that are zero are absent.
    pub classes: BTreeMap<String, u64>,
    /// Accesses of the modal visit to system registers, as `read NAME` and `write NAME`.
    pub registers: BTreeMap<String, u64>,
    /// Accesses of the modal visit to devices, as `read NAME` and `write NAME`.
    pub devices: BTreeMap<String, u64>,
    /// The lines and pages that the modal visit touched, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint: Option<Footprint>,
    /// The instructions of the modal visit in order, if they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<Step>,
}

/// What a visit touched: lines of 64 bytes, pages of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Lines of code, by virtual address.
    pub code_lines: u64,
    /// Lines of data, by physical address.
    pub data_lines: u64,
    /// Pages of either, by virtual address.
    pub pages: u64,
}

/// One executed instruction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its address (hexadecimal).
    #[serde(with = "hex")]
    pub pc: u64,
    /// Its bytes as they are in memory (hexadecimal digits).
    #[serde(default)]
    pub bytes: String,
    /// Its text, as QEMU disassembles it.
    pub text: String,
}

impl Reading {
    /// Reads the plugin's file.
    pub fn load(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).context(|| format!("the meter wrote nothing to {}", path.display()))?;
        let reading: Reading =
            serde_json::from_str(&text).context(|| format!("{} is not a reading", path.display()))?;
        match reading.schema {
            SCHEMA => Ok(reading),
            other => Err(Failure::failed(format!("{} has version {other}", path.display()))),
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{number:#x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.strip_prefix("0x").ok_or_else(|| D::Error::custom("expected 0x…"))?;
        u64::from_str_radix(digits, 16).map_err(D::Error::custom)
    }
}
