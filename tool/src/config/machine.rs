// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads `[machine]`: the physical machine, as QEMU emulates it.

use std::fmt;
use std::ops::Range;

use toml::de::DeTable;
use turnstile_bundle::{Apic, GicVersion, MAX_PHYSICAL_CPUS};
use turnstile_machine::gic::MAX_VCPUS_GICV2;

use super::problem::Problem;
use super::read::{At, Others, Reader, show_size};
use crate::isa::Isa;

/// The processor models that the machine can have. Those of Armv8.0, which have no VHE, come last.
const CPU_MODELS: [&str; 10] = [
    "max",
    "neoverse-n1",
    "neoverse-n2",
    "neoverse-v1",
    "cortex-a55",
    "cortex-a76",
    "cortex-a710",
    "cortex-a53",
    "cortex-a57",
    "cortex-a72",
];
/// Those of them that have the Scalable Vector Extension.
const SVE_MODELS: [&str; 4] = ["max", "neoverse-n2", "neoverse-v1", "cortex-a710"];

/// The processor models of PCs that have SVM.
const PC_MODELS: [&str; 5] = ["max", "EPYC", "EPYC-Rome", "EPYC-Milan", "EPYC-Genoa"];

/// The most CPUs of a machine for POWER: cores of one thread, on one chip.
const MOST_POWER_CPUS: u64 = 24;
/// The processor of each of QEMU's machines for POWER.
const POWER_MODELS: [&str; 2] = ["power9", "power10"];

/// A physical machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Board {
    /// QEMU's virt, with the processors, interrupt controller and memory that are asked for
    #[default]
    Virt,
    /// Raspberry Pi 4 Model B; in QEMU raspi4b
    Rpi4,
    /// QEMU's q35, a PC with PCI Express
    Q35,
    /// QEMU's pc, a PC of the nineties
    Pc,
    /// QEMU's microvm, a PC without PCI and BIOS
    Microvm,
    /// QEMU's powernv9, a machine with POWER9 and OPAL
    Powernv9,
    /// QEMU's powernv10, a machine with Power10 and OPAL
    Powernv10,
}

impl Board {
    /// Every board, in the order in which messages list them.
    pub const ALL: [Board; 7] =
        [Board::Virt, Board::Rpi4, Board::Q35, Board::Pc, Board::Microvm, Board::Powernv9, Board::Powernv10];

    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Board::Virt => "virt",
            Board::Rpi4 => "rpi4",
            Board::Q35 => "q35",
            Board::Pc => "pc",
            Board::Microvm => "microvm",
            Board::Powernv9 => "powernv9",
            Board::Powernv10 => "powernv10",
        }
    }

    /// Its architecture.
    pub fn isa(self) -> Isa {
        match self {
            Board::Virt | Board::Rpi4 => Isa::Arm64,
            Board::Q35 | Board::Pc | Board::Microvm => Isa::X86_64,
            Board::Powernv9 | Board::Powernv10 => Isa::Power64,
        }
    }

    /// The board of an architecture for which no board is asked.
    pub fn usual(isa: Isa) -> Self {
        match isa {
            Isa::Arm64 => Board::Virt,
            Isa::X86_64 => Board::Q35,
            Isa::Power64 => Board::Powernv9,
        }
    }

    /// What cannot be changed about it; `None` if everything can.
    fn fixed(self) -> Option<Fixed> {
        match self {
            Board::Virt | Board::Q35 | Board::Pc | Board::Microvm | Board::Powernv9 | Board::Powernv10 => {
                None
            }
            Board::Rpi4 => Some(Fixed {
                cpu: "cortex-a72",
                cpus: 4,
                gic: GicVersion::V2,
                memory: &[1 << 30, 2 << 30, 4 << 30, 8 << 30],
                kept: 76 << 20,
                emulated: 960 << 20,
            }),
        }
    }

    /// The memory that its firmware is in, if that is in the middle of it.
    pub fn firmware_memory(self) -> Option<Firmware> {
        (self.isa() == Isa::Power64).then_some(Firmware { end: 1 << 30, free: 384 << 20 })
    }

    /// The memory that it has in QEMU, in bytes; `None` if that is as the user likes.
    pub fn emulated_memory(self) -> Option<u64> {
        self.fixed().map(|fixed| fixed.emulated)
    }
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Memory in whose middle the firmware is: all machines have that much.
pub struct Firmware {
    /// Where it ends, in bytes.
    pub end: u64,
    /// What of it is free in one piece.
    pub free: u64,
}

/// What a real board has.
struct Fixed {
    cpu: &'static str,
    cpus: u64,
    gic: GicVersion,
    /// The sizes of memory with which it is sold.
    memory: &'static [u64],
    /// What of it its firmware keeps.
    kept: u64,
    /// The memory that it has in QEMU.
    emulated: u64,
}

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
                let cpu = models(board)[0].to_owned();
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
            (Board::Q35, None | Some(Apic::X2apic)) if self.cpu == PC_MODELS[0] => MAX_PHYSICAL_CPUS as u64,
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
    let models: Vec<_> = models(board).iter().map(|&model| (model, model)).collect();
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

/// The processor models that a board can have, the usual one first.
fn models(board: Board) -> &'static [&'static str] {
    match board {
        Board::Virt | Board::Rpi4 => &CPU_MODELS,
        Board::Q35 | Board::Pc | Board::Microvm => &PC_MODELS,
        Board::Powernv9 => &POWER_MODELS[..1],
        Board::Powernv10 => &POWER_MODELS[1..],
    }
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
