// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads `[machine]`: the physical machine, as QEMU emulates it.

use std::ops::Range;

use toml::de::DeTable;
use turnstile_bundle::{Apic, GicVersion, MAX_PHYSICAL_CPUS};
use turnstile_machine::gic::MAX_VCPUS_GICV2;

use super::board::{Board, Fixed};
use super::problem::Problem;
use super::read::{At, Others, Reader};
use super::size::show_size;
use crate::isa::Isa;

/// The processor models for arm64 that have the Scalable Vector Extension.
const SVE_MODELS: [&str; 4] = ["max", "neoverse-n2", "neoverse-v1", "cortex-a710"];

/// The most CPUs of a machine for POWER: cores of one thread, on one chip.
const MOST_POWER_CPUS: u64 = 24;

/// The physical machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The board.
    pub board: Board,
    /// Physical memory in bytes, if the file or the board says it; else it is computed from what the VMs need.
    pub memory: Option<At<u64>>,
    /// The number of physical CPUs.
    pub cpus: u64,
    /// QEMU's name of the processor model.
    pub cpu: String,
    /// The interrupt controller of a machine for arm64.
    pub gic: GicVersion,
    /// How the local APICs of a PC are reached, if that is not as the processor model has it.
    pub apic: Option<Apic>,
}

impl Machine {
    /// QEMU's name of the processor with what is changed about it.
    pub fn model(&self) -> String {
        match self.apic {
            None => self.cpu.clone(),
            Some(Apic::X2apic) => format!("{},+x2apic", self.cpu),
            Some(Apic::Xapic) => format!("{},-x2apic", self.cpu),
        }
    }

    /// Says whether its processors have the Scalable Vector Extension.
    pub fn has_sve(&self) -> bool {
        SVE_MODELS.contains(&self.cpu.as_str())
    }
}

/// What the file says about the machine.
#[derive(Debug)]
pub struct Draft {
    pub board: Board,
    pub memory: Option<At<u64>>,
    pub cpus: Option<At<u64>>,
    pub cpu: String,
    pub gic: GicVersion,
    pub apic: Option<Apic>,
}

impl Draft {
    /// A board about which nothing more is said.
    pub fn of(board: Board) -> Self {
        match board.fixed() {
            Some(fixed) => Draft {
                board,
                memory: Some(At::new(fixed.emulated, 0..0)),
                cpus: Some(At::new(fixed.cpus, 0..0)),
                cpu: fixed.cpu.to_owned(),
                gic: fixed.gic,
                apic: None,
            },
            None => {
                let cpu = board.models()[0].to_owned();
                Draft { board, memory: None, cpus: None, cpu, gic: GicVersion::V3, apic: None }
            }
        }
    }

    /// The most CPUs that it can have.
    pub fn most_cpus(&self) -> u64 {
        match self.board.isa() {
            Isa::Arm64 => {}
            Isa::X86_64 => return self.most_pc_cpus(),
            Isa::Power64 => return MOST_POWER_CPUS,
        }
        match (self.board.fixed(), self.gic) {
            (Some(fixed), _) => fixed.cpus,
            (None, GicVersion::V2) => MAX_VCPUS_GICV2 as u64,
            (None, GicVersion::V3) => MAX_PHYSICAL_CPUS as u64,
        }
    }

    /// The most CPUs of a PC: QEMU's older boards have eight bits for the identifier of a local APIC.
    fn most_pc_cpus(&self) -> u64 {
        match (self.board, self.apic) {
            (Board::Q35, None | Some(Apic::X2apic)) if self.cpu == self.board.models()[0] => {
                MAX_PHYSICAL_CPUS as u64
            }
            _ => Apic::Xapic.max_vcpus() as u64,
        }
    }

    /// What to do when the VMs need `need` CPUs and it has fewer.
    pub fn advice(&self, need: u64) -> String {
        let share = "let VMs share CPUs (schedule = \"shared\")";
        match (self.most_cpus(), self.gic) {
            (most, _) if need <= most => {
                format!("give {need} `cpus`, leave `cpus` out, or {share}")
            }
            (most, GicVersion::V2) if self.board == Board::Virt => {
                format!("a machine with a GICv2 has at most {most} CPUs: give it `gic = 3`, or {share}")
            }
            (most, _) => format!("this machine has at most {most} CPUs: use fewer vCPUs, or {share}"),
        }
    }
}

/// Reads the table; `asked` is the board that was asked for elsewhere.
pub fn read(
    table: &DeTable<'_>,
    span: Range<usize>,
    asked: Option<Board>,
    problems: &mut Vec<Problem>,
) -> Draft {
    let board = {
        // The board decides which keys are known: the problems of this reading are not wanted twice.
        let mut unwanted = Vec::new();
        read_board(&mut Reader::new(table, span.clone(), &[], &[], &mut unwanted), asked)
    };
    let mut reader = Reader::new(table, span, keys(board.isa()), others(board.isa()), problems);
    read_board(&mut reader, asked);
    let memory = reader.size("memory");
    let gic = read_gic(&mut reader);
    let apic = reader.choice("apic", &[Apic::X2apic, Apic::Xapic].map(|apic| (apic.name(), apic)));
    let models: Vec<_> = board.models().iter().map(|&model| (model, model)).collect();
    let cpu = reader.choice("cpu", &models);
    let cpu = cpu.map(|cpu| At::new(cpu.value.to_owned(), cpu.span));
    let cpus = reader.number("cpus");
    if let Some(firmware) = board.firmware_memory()
        && let Some(memory) = memory.as_ref().filter(|memory| memory.value < firmware.end)
    {
        let what = format!("a {board} cannot have {} of memory", show_size(memory.value));
        let help = format!("give {} or more, or leave `memory` out", show_size(firmware.end));
        reader.problem(memory.span.clone(), what, help);
    }
    let mut draft = Draft::of(board);
    let Some(fixed) = board.fixed() else {
        draft.cpu = cpu.map_or(draft.cpu, |cpu| cpu.value);
        draft.gic = gic.map_or(draft.gic, |gic| gic.value);
        draft.apic = apic.map(|apic| apic.value);
        let most = draft.most_cpus();
        if let Some(cpus) = cpus.as_ref().filter(|cpus| !(1..=most).contains(&cpus.value)) {
            let what = match board.isa() {
                Isa::Arm64 => format!("a machine with a {} cannot have {} CPUs", draft.gic, cpus.value),
                Isa::X86_64 | Isa::Power64 => {
                    format!("a {board} cannot have {} CPUs", cpus.value)
                }
            };
            reader.problem(cpus.span.clone(), what, format!("give 1 to {most}, or leave `cpus` out"));
        }
        return Draft { memory, cpus, ..draft };
    };
    judge(&mut reader, &fixed, &cpu, &cpus, &memory, &gic);
    // What there is has no place in the file: messages about it point at [machine].
    let here = |value| Some(At::new(value, reader.span.clone()));
    draft.cpus = here(fixed.cpus);
    draft.memory = match memory {
        Some(memory) => Some(At::new(memory.value.saturating_sub(fixed.kept), memory.span)),
        None => here(fixed.emulated),
    };
    draft
}

/// The keys of `[machine]` for an architecture.
fn keys(isa: Isa) -> &'static [&'static str] {
    match isa {
        Isa::Arm64 => &["board", "isa", "cpu", "cpus", "memory", "gic"],
        Isa::X86_64 => &["board", "isa", "cpu", "cpus", "memory", "apic"],
        Isa::Power64 => &["board", "isa", "cpu", "cpus", "memory"],
    }
}

/// The keys of other architectures, and what to say of them.
fn others(isa: Isa) -> &'static Others {
    match isa {
        Isa::Arm64 => &[(&["apic"], "is for PCs: leave it out, or write isa = \"x86_64\"")],
        Isa::X86_64 => &[(&["gic"], "is for arm64, and this machine is a PC: leave it out")],
        Isa::Power64 => &[(&["gic", "apic"], "is not for machines with POWER: leave it out")],
    }
}

/// Reads the board, or takes the usual one of the architecture that is named.
fn read_board(reader: &mut Reader<'_, '_>, asked: Option<Board>) -> Board {
    let isa = reader.choice("isa", &Isa::ALL.map(|isa| (isa.name(), isa)));
    let board = read_named_board(reader, asked);
    let Some(isa) = isa else { return board.unwrap_or_default() };
    match board {
        None => Board::usual(isa.value),
        Some(board) => {
            if board.isa() != isa.value {
                let what = format!("the board `{board}` is {}, not {}", board.isa(), isa.value);
                reader.problem(isa.span, what, "leave `isa` out: the board says it");
            }
            board
        }
    }
}

fn read_named_board(reader: &mut Reader<'_, '_>, asked: Option<Board>) -> Option<Board> {
    let written = reader.choice("board", &Board::ALL.map(|board| (board.name(), board)));
    match (written, asked) {
        (Some(written), Some(asked)) if written.value != asked => {
            let what = format!("this machine is the board `{}`, and `{asked}` was asked for", written.value);
            reader.problem(written.span, what, "leave `board` out, or do not ask for another one");
            Some(asked)
        }
        (Some(written), _) => Some(written.value),
        (None, asked) => asked,
    }
}

fn read_gic(reader: &mut Reader<'_, '_>) -> Option<At<GicVersion>> {
    let number = reader.number("gic")?;
    match number.value {
        2 => Some(At::new(GicVersion::V2, number.span)),
        3 => Some(At::new(GicVersion::V3, number.span)),
        other => {
            reader.problem(number.span, format!("there is no machine with a GICv{other}"), "give 2 or 3");
            None
        }
    }
}

/// Refuses what a real board does not have.
fn judge(
    reader: &mut Reader<'_, '_>,
    fixed: &Fixed,
    cpu: &Option<At<String>>,
    cpus: &Option<At<u64>>,
    memory: &Option<At<u64>>,
    gic: &Option<At<GicVersion>>,
) {
    let mut refuse = |key: &str, span: &Range<usize>, has: String| {
        reader.problem(span.clone(), format!("this board has {has}"), format!("leave `{key}` out"));
    };
    if let Some(cpu) = cpu.as_ref().filter(|cpu| cpu.value != fixed.cpu) {
        refuse("cpu", &cpu.span, format!("the processor `{}`", fixed.cpu));
    }
    if let Some(cpus) = cpus.as_ref().filter(|cpus| cpus.value != fixed.cpus) {
        refuse("cpus", &cpus.span, format!("{} CPUs", fixed.cpus));
    }
    if let Some(memory) = memory.as_ref().filter(|memory| !fixed.memory.contains(&memory.value)) {
        let sizes: Vec<String> = fixed.memory.iter().map(|&size| show_size(size)).collect();
        refuse("memory", &memory.span, format!("{} of memory", sizes.join(", ")));
    }
    if let Some(gic) = gic.as_ref().filter(|gic| gic.value != fixed.gic) {
        refuse("gic", &gic.span, format!("a {}", fixed.gic));
    }
}
