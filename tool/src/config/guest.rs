// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads what machine a guest sees: the keys of `[[vm]]` that differ by architecture.

use std::ops::Range;

use turnstile_bundle::{
    Apic, Arm64, Feature, Gic, GuestMachine, Interrupts, Machine, Paravirt, Pc, Pmu, Pseries, Transport,
    TripleFault,
};

use turnstile_machine::pseries;

use super::flat::{self, Places};
use super::problem::{did_you_mean, list};
use super::read::{At, Others, Reader, named};
use crate::isa::Isa;

const ARM64: [&str; 8] = ["gic", "pmu", "sve", "format", "load-address", "entry", "flash", "virtio"];
/// What has a message of its own.
const VIRTIO: [&str; 1] = ["virtio"];
const PC: [&str; 3] = ["apic", "paravirt", "triple-fault"];
const PSERIES: [&str; 2] = ["interrupts", "threads"];

/// The keys that only VMs of an architecture have.
pub fn keys(isa: Isa) -> &'static [&'static str] {
    match isa {
        Isa::Arm64 => &ARM64,
        Isa::X86_64 => &PC,
        Isa::Power64 => &PSERIES,
    }
}

/// The keys of the other architectures, and what to say of them.
pub fn others(isa: Isa) -> &'static Others {
    match isa {
        Isa::Arm64 => &[
            (
                &PC,
                "is for PCs, and this machine is for arm64: leave it out, or write isa = \"x86_64\" in [machine]",
            ),
            (
                &PSERIES,
                "is for POWER, and this machine is for arm64: leave it out, or write isa = \"power64\" in [machine]",
            ),
        ],
        Isa::X86_64 => &[
            (
                &VIRTIO,
                "is for arm64, whose guests find devices without PCI in their device tree: leave it out, a PC has PCI",
            ),
            (
                &ARM64,
                "is for arm64, and this machine is a PC: leave it out, or let isa and board in [machine] be arm64's",
            ),
            (&PSERIES, "is for POWER, and this machine is a PC: leave it out"),
        ],
        Isa::Power64 => &[
            (
                &VIRTIO,
                "is for arm64, and a partition with POWER has virtio devices behind PCI alone: leave it out",
            ),
            (&ARM64, "is for arm64, and this machine has POWER: leave it out"),
            (&PC, "is for PCs, and this machine has POWER: leave it out"),
        ],
    }
}

/// The machine that was chosen, and where, for messages about it.
#[derive(Debug)]
pub struct Chosen {
    /// The machine.
    pub machine: Machine,
    /// Where its interrupt controller is named.
    pub controller: Range<usize>,
    /// Where SVE is asked for.
    pub sve: Range<usize>,
    /// Where it is said where the kernel goes.
    pub places: Places,
}

impl Chosen {
    /// The machine by which memory is judged: whether the interrupt controller suits is judged elsewhere.
    pub fn bounds(&self) -> Machine {
        match self.machine {
            // Flash is judged where it is read.
            Machine::Arm64(arm64) => Machine::Arm64(Arm64 { gic: Gic::Auto, flash: 0, ..arm64 }),
            other @ (Machine::Pc(_) | Machine::Pseries(_)) => other,
        }
    }
}

/// Reads the keys.
pub fn read(reader: &mut Reader<'_, '_>, isa: Isa) -> Chosen {
    match isa {
        Isa::Arm64 => read_arm64(reader),
        Isa::X86_64 => read_pc(reader),
        Isa::Power64 => read_pseries(reader),
    }
}

fn read_arm64(reader: &mut Reader<'_, '_>) -> Chosen {
    let map = reader.choice("machine", &named(&GuestMachine::ALL, GuestMachine::name));
    let gic = reader.choice("gic", &named(Gic::ALL, Gic::name));
    let pmu = reader.choice("pmu", &named(Pmu::ALL, Pmu::name));
    let sve = reader.boolean("sve");
    let span = |at: Option<Range<usize>>| at.unwrap_or_else(|| reader.span.clone());
    let (controller, place) =
        (span(gic.as_ref().map(|gic| gic.span.clone())), span(sve.as_ref().map(|sve| sve.span.clone())));
    let (map, mut places) = (value(map), Places::none(reader.span.clone()));
    let format = flat::read_format(reader, map, &mut places);
    let flash = flat::read_flash(reader, map, &mut places);
    let virtio = value(reader.choice("virtio", &named(Transport::ALL, Transport::name)));
    let (gic, pmu, sve) = (value(gic), value(pmu), value(sve));
    let machine = Machine::Arm64(Arm64 { map, gic, pmu, sve, format, flash, virtio });
    Chosen { machine, controller, sve: place, places }
}

fn read_pc(reader: &mut Reader<'_, '_>) -> Chosen {
    reader.choice("machine", &[(Pc::NAME, ())]);
    let apic = reader.choice("apic", &named(Apic::ALL, Apic::name));
    let paravirt = read_paravirt(reader);
    let triple_fault = reader.choice("triple-fault", &named(TripleFault::ALL, TripleFault::name));
    let controller = apic.as_ref().map_or_else(|| reader.span.clone(), |apic| apic.span.clone());
    let machine = Machine::Pc(Pc { apic: value(apic), paravirt, triple_fault: value(triple_fault) });
    Chosen { machine, controller, sve: reader.span.clone(), places: Places::none(reader.span.clone()) }
}

fn read_pseries(reader: &mut Reader<'_, '_>) -> Chosen {
    reader.choice("machine", &[(Pseries::NAME, ())]);
    let interrupts = reader.choice("interrupts", &named(Interrupts::ALL, Interrupts::name));
    let controller = interrupts.as_ref().map_or_else(|| reader.span.clone(), |at| at.span.clone());
    let machine = Machine::Pseries(Pseries { interrupts: value(interrupts), threads: read_threads(reader) });
    Chosen { machine, controller, sve: reader.span.clone(), places: Places::none(reader.span.clone()) }
}

/// Reads how many threads a core has.
fn read_threads(reader: &mut Reader<'_, '_>) -> u8 {
    let Some(threads) = reader.number("threads") else { return 1 };
    match u8::try_from(threads.value) {
        Ok(value) if pseries::THREADS.contains(&value.into()) => value,
        _ => {
            let what = format!("a core cannot have {} threads", threads.value);
            reader.problem(threads.span, what, "give 1, 2, 4 or 8");
            1
        }
    }
}

fn value<T: Default>(read: Option<At<T>>) -> T {
    read.map(|at| at.value).unwrap_or_default()
}

/// Reads what of KVM's interface is offered: "all", "none" or a list of names.
fn read_paravirt(reader: &mut Reader<'_, '_>) -> Paravirt {
    let known = Feature::ALL.map(Feature::name);
    let Some(names) = reader.word_or_words("paravirt") else { return Paravirt::default() };
    let names = match names {
        Ok(word) if word.value == "all" => return Paravirt::ALL,
        Ok(word) if word.value == "none" => return Paravirt::NONE,
        Ok(word) => {
            let what = format!("`paravirt` cannot be `{}`", word.value);
            let help = format!("write \"all\", \"none\", or a list of {}", list(&known));
            reader.problem(word.span, what, help);
            return Paravirt::default();
        }
        Err(names) => names,
    };
    let mut offered = Paravirt::NONE;
    for name in names {
        match Feature::from_name(&name.value) {
            Some(feature) if offered.has(feature) => {
                reader.problem(name.span, format!("`{feature}` is named twice"), "name it once");
            }
            Some(feature) => offered = offered.with(feature),
            None => {
                let what = format!("there is no paravirtual feature `{}`", name.value);
                reader.problem(name.span, what, did_you_mean(&name.value, &known));
            }
        }
    }
    offered
}
