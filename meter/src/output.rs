// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reading as JSON. `tool/src/meter/reading.rs` is its reader.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::block::Code;
use crate::classify::Class;
use crate::footprint::Footprint;
use crate::tally::Tally;
use crate::visits::{Group, Kind, Meter};

/// The version of the form.
const SCHEMA: u32 = 1;
/// How many kinds of visits of a group are listed.
const DISTRIBUTION: usize = 64;

#[derive(Serialize)]
struct Reading<'a> {
    schema: u32,
    target: &'a str,
    total: Total,
    notes: Vec<&'static str>,
    groups: Vec<Part<'a>>,
}

#[derive(Default, Serialize)]
struct Total {
    guest: u64,
    outside: u64,
    visits: u64,
    #[serde(skip_serializing_if = "is_zero")]
    boot: u64,
}

#[derive(Serialize)]
struct Part<'a> {
    cpu: u32,
    reason: String,
    pc: String,
    vectors: String,
    visits: u64,
    modal: u64,
    min: u64,
    max: u64,
    sum: u64,
    distribution: Vec<(u64, u64)>,
    #[serde(skip_serializing_if = "is_zero")]
    others: u64,
    classes: BTreeMap<&'static str, u64>,
    registers: BTreeMap<String, u64>,
    devices: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    footprint: Option<Footprint>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trace: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    pc: String,
    bytes: String,
    text: &'a str,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Writes the reading of a run in which visits were counted, by one meter or one for each CPU, behind a boot of so many
/// instructions.
pub fn visits(target: &str, code: &Code, meters: &[&Meter], boot: u64) -> String {
    let mut total = Total { boot, ..Total::default() };
    let mut parts = Vec::new();
    let mut first_cpu = 0;
    for meter in meters {
        total.guest += meter.guest_instructions();
        total.outside += meter.outside_instructions();
        for group in meter.groups().sorted() {
            total.visits += group.visits;
            parts.extend(group.modal().map(|kind| part(code, meter, group, kind, first_cpu)));
        }
        first_cpu += meter.cpus() as u32;
    }
    // Stable: groups with as many visits stay in the order of their meters and keys.
    parts.sort_by_key(|part| std::cmp::Reverse(part.visits));
    let reading = Reading { schema: SCHEMA, target, total, notes: notes(meters), groups: parts };
    to_text(&reading)
}

/// Writes the reading of a run in which only the instructions were counted.
pub fn total(target: &str, instructions: u64) -> String {
    let total = Total { outside: instructions, ..Total::default() };
    to_text(&Reading { schema: SCHEMA, target, total, notes: Vec::new(), groups: Vec::new() })
}

fn to_text(reading: &Reading<'_>) -> String {
    let mut text = serde_json::to_string(reading).unwrap_or_default();
    text.push('\n');
    text
}

fn notes(meters: &[&Meter]) -> Vec<&'static str> {
    let mut notes = Vec::new();
    if meters.iter().all(|meter| meter.guest_instructions() == 0) {
        notes.push("no guest was seen");
    }
    if meters.iter().any(|meter| meter.groups().merged) {
        notes.push("the guest was left in too many places: the visits from the later ones are under pc 0");
    }
    if meters.iter().any(|meter| meter.groups().untraced) {
        notes.push("not all visits were traced: there were too many different ones, or too long ones");
    }
    notes
}

fn part<'a>(code: &'a Code, meter: &Meter, group: &Group, kind: &Kind, first_cpu: u32) -> Part<'a> {
    let mut distribution: Vec<(u64, u64)> =
        group.kinds.iter().map(|kind| (kind.instructions, kind.visits)).collect();
    distribution.sort_by_key(|&(instructions, visits)| (std::cmp::Reverse(visits), instructions));
    let listed = distribution.iter().take(DISTRIBUTION).map(|&(_, visits)| visits).sum::<u64>();
    distribution.truncate(DISTRIBUTION);
    Part {
        cpu: first_cpu + group.key.cpu,
        reason: group.key.reason.to_string(),
        pc: hex(group.key.pc),
        vectors: hex(group.key.vectors),
        visits: group.visits,
        modal: kind.instructions,
        min: group.min,
        max: group.max,
        sum: group.sum,
        distribution,
        others: group.visits - listed,
        classes: classes(&kind.tally),
        registers: registers(code, &kind.tally),
        devices: devices(meter, &kind.tally),
        footprint: kind.tally.footprint,
        trace: trace(kind),
    }
}

fn hex(number: u64) -> String {
    format!("{number:#x}")
}

fn named(write: bool, name: &str) -> String {
    format!("{} {name}", if write { "write" } else { "read" })
}

fn classes(tally: &Tally) -> BTreeMap<&'static str, u64> {
    let all = Class::ALL.iter().map(|&class| (class.name(), tally.get(class)));
    all.filter(|&(_, count)| count > 0).collect()
}

fn registers(code: &Code, tally: &Tally) -> BTreeMap<String, u64> {
    let named = tally.accesses.iter().filter_map(|(&number, &count)| {
        code.access(number).map(|access| (named(access.write, &access.register), count))
    });
    named.collect()
}

fn devices(meter: &Meter, tally: &Tally) -> BTreeMap<String, u64> {
    let all = tally.devices.iter();
    all.map(|(access, &count)| (named(access.write, meter.device_name(access.device)), count)).collect()
}

fn trace(kind: &Kind) -> Vec<Line<'static>> {
    let steps = kind.path.iter().flat_map(|step| step.block.instructions.iter().take(step.executed as usize));
    steps
        .map(|instruction| Line {
            pc: hex(instruction.pc),
            bytes: instruction.bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            text: instruction.text.as_deref().unwrap_or_default(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Raw;
    use crate::footprint::Touch;
    use crate::isa::Isa;
    use crate::machine::Register;
    use crate::machine::tests::Fake;
    use crate::visits::{Details, GuestBlock};

    /// One visit of a CPU: `mrs x0, ESR_EL2`, `eret`, and an access to a device.
    fn visit(code: &mut Code, pc: u64) -> Meter {
        let mut meter = Meter::new(Isa::Arm64, false, Details { trace: true, footprint: true });
        let mut machine = Fake::default();
        machine.set(Register::EsrEl2, 0x24 << 26);
        machine.set(Register::ElrEl2, pc);
        let raw = [(0x10400_u64, 0xd53c_5200_u32, "mrs x0, esr_el2"), (0x10404, 0xd69f_03e0, "eret")];
        let raw = raw.map(|(pc, word, text)| Raw {
            pc,
            bytes: word.to_le_bytes().to_vec(),
            text: Some(text.into()),
        });
        let (block, _) = code.block(2, true, raw.into());
        meter.guest(GuestBlock::new(pc, 1), &mut machine);
        meter.outside(block, &mut machine);
        meter.device(0x10404, "gicv3_dist", true, &mut machine);
        meter.touch(Touch { address: 0x2000, memory: Some(0x2000) }, &mut machine);
        meter.guest(GuestBlock::new(pc, 1), &mut machine);
        meter
    }

    #[test]
    fn a_reading_is_json() {
        let mut code = Code::new(Isa::Arm64);
        let meters = [visit(&mut code, 0x8000_0000), visit(&mut code, 0x8000_1000)];
        let text = visits("aarch64", &code, &meters.each_ref(), 0);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["total"], serde_json::json!({"guest": 2, "outside": 4, "visits": 2}));
        assert_eq!(json["notes"], serde_json::json!([]));
        assert_eq!(json["groups"][1]["cpu"], 1, "each meter has CPUs of its own");
        let expected = serde_json::json!({
            "cpu": 0, "reason": "data-abort", "pc": "0x80000000", "vectors": "0x10000", "visits": 1,
            "modal": 2, "min": 2, "max": 2, "sum": 2, "distribution": [[2, 1]],
            "classes": {
                "instructions": 2, "lines": 1, "exception_entries": 1, "exception_returns": 1,
                "register_reads": 1, "hardware_reads": 1, "irqchip_writes": 1,
            },
            "registers": {"read ESR_EL2": 1}, "devices": {"write gicv3_dist": 1},
            "footprint": {"code_lines": 1, "data_lines": 1, "pages": 2},
            "trace": [{"pc": "0x10400", "bytes": "00523cd5", "text": "mrs x0, esr_el2"}, {"pc": "0x10404", "bytes": "e0039fd6", "text": "eret"}],
        });
        assert_eq!(json["groups"][0], expected);
    }

    #[test]
    fn what_is_missing_is_said() {
        let code = Code::new(Isa::Arm64);
        let nothing = Meter::new(Isa::Arm64, false, Details::default());
        assert!(visits("aarch64", &code, &[&nothing], 0).contains("no guest was seen"));
        assert!(visits("aarch64", &code, &[], 0).contains("no guest was seen"));
        assert!(visits("aarch64", &code, &[], 5).contains("\"boot\":5"));
        let json: serde_json::Value = serde_json::from_str(&total("aarch64", 7)).unwrap();
        assert_eq!(json["total"], serde_json::json!({"guest": 0, "outside": 7, "visits": 0}));
    }
}
