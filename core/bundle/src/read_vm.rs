// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a VM in a bundle.

use dtoolkit::fdt::FdtNode;
use turnstile_machine::Flat;

use crate::cpus::CpuList;
use crate::error::BundleError;
use crate::fields::{double_word, fields, flag, no_children, text, word};
use crate::machine::{Arm64, Format, Machine, Pc, Pseries};
use crate::paravirt::{Feature, Paravirt};
use crate::schedule::{Class, Schedule};
use crate::spec::VmSpec;

/// The properties of a VM.
const VM_PROPERTIES: [&str; 27] = [
    "name",
    "vcpus",
    "cpus",
    "schedule",
    "weight",
    "realtime",
    "memory",
    "mapping",
    "machine",
    "gic",
    "pmu",
    "sve",
    "format",
    "load",
    "entry",
    "flash",
    "virtio",
    "apic",
    "paravirt",
    "triple-fault",
    "interrupts",
    "threads",
    "on-crash",
    "statistics",
    "cmdline",
    "kernel",
    "initrd",
];

/// The properties that only machines for arm64 have.
const ARM64_PROPERTIES: [&str; 8] = ["gic", "pmu", "sve", "format", "load", "entry", "flash", "virtio"];

/// Reads the description of a VM.
pub fn read_vm<'a>(node: &FdtNode<'a>, images: &[&'a [u8]]) -> Result<VmSpec<'a>, BundleError> {
    const MALFORMED: BundleError = BundleError::Malformed("a VM's description");
    no_children(node)?;
    let values = fields(node, VM_PROPERTIES)?;
    let get = |name: &str| {
        let position = VM_PROPERTIES.iter().position(|known| *known == name);
        position.and_then(|position| values.get(position).copied().flatten())
    };
    let required = |name| get(name).ok_or(MALFORMED);
    let text = |name| required(name).and_then(|value| text(value).ok_or(MALFORMED));
    let image = |value: &[u8]| {
        let index = word(value).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| images.get(index).copied()).ok_or(BundleError::Malformed("an image's index"))
    };

    Ok(VmSpec {
        name: text("name")?,
        vcpus: word(required("vcpus")?).ok_or(MALFORMED)? as usize,
        cpus: read_cpus(required("cpus")?)?,
        schedule: read_schedule(text("schedule")?, get("weight"), get("realtime"))?,
        memory: double_word(required("memory")?)?,
        mapping: text("mapping")?
            .parse()
            .map_err(|_| BundleError::Malformed("how a VM's memory is mapped"))?,
        machine: read_machine(text("machine")?, get)?,
        on_crash: text("on-crash")?.parse().map_err(|_| BundleError::Malformed("a VM's crash policy"))?,
        statistics: flag(get("statistics"))?,
        cmdline: text("cmdline")?,
        kernel: image(required("kernel")?)?,
        initrd: get("initrd").map(image).transpose()?,
    })
}

/// Reads the machine of this name; what belongs to machines of the other architecture must not be there.
fn read_machine<'a>(name: &str, get: impl Fn(&str) -> Option<&'a [u8]>) -> Result<Machine, BundleError> {
    let none = |names: &[&str]| match names.iter().any(|name| get(name).is_some()) {
        true => Err(BundleError::Malformed("a property of another machine")),
        false => Ok(()),
    };
    if name == Pseries::NAME {
        none(&ARM64_PROPERTIES)?;
        none(&["apic", "paravirt", "triple-fault"])?;
        let interrupts = get("interrupts").and_then(text).and_then(|name| name.parse().ok());
        let threads = get("threads").and_then(word).and_then(|threads| threads.try_into().ok());
        return Ok(Machine::Pseries(Pseries {
            interrupts: interrupts.ok_or(BundleError::Malformed("a VM's interrupt controller"))?,
            threads: threads.ok_or(BundleError::Malformed("the threads of a VM's cores"))?,
        }));
    }
    if name == Pc::NAME {
        none(&ARM64_PROPERTIES)?;
        none(&["interrupts", "threads"])?;
        let apic = get("apic").and_then(text).and_then(|apic| apic.parse().ok());
        let paravirt = get("paravirt").and_then(read_paravirt);
        let triple_fault = get("triple-fault").and_then(text).and_then(|what| what.parse().ok());
        return Ok(Machine::Pc(Pc {
            apic: apic.ok_or(BundleError::Malformed("a VM's local APIC"))?,
            paravirt: paravirt.ok_or(BundleError::Malformed("a VM's paravirtual interface"))?,
            triple_fault: triple_fault.ok_or(BundleError::Malformed("what a triple fault is"))?,
        }));
    }
    none(&["apic", "paravirt", "triple-fault", "interrupts", "threads"])?;
    let map = name.parse().map_err(|_| BundleError::Malformed("a VM's machine"))?;
    let gic = get("gic").and_then(text).and_then(|gic| gic.parse().ok());
    let pmu = get("pmu").and_then(text).and_then(|pmu| pmu.parse().ok());
    let virtio = get("virtio").and_then(text).and_then(|virtio| virtio.parse().ok());
    Ok(Machine::Arm64(Arm64 {
        map,
        gic: gic.ok_or(BundleError::Malformed("a VM's interrupt controller"))?,
        pmu: pmu.ok_or(BundleError::Malformed("a VM's PMU"))?,
        sve: flag(get("sve"))?,
        format: read_format(get("format").and_then(text), get("load"), get("entry"))?,
        flash: get("flash").map(double_word).transpose()?.unwrap_or(0),
        virtio: virtio.ok_or(BundleError::Malformed("how a VM reaches its virtio devices"))?,
    }))
}

/// Reads what a kernel's file is; only a flat image has addresses.
fn read_format(name: Option<&str>, load: Option<&[u8]>, entry: Option<&[u8]>) -> Result<Format, BundleError> {
    match (name, load, entry) {
        (Some(Format::IMAGE), None, None) => Ok(Format::Image),
        (Some(Format::FLAT), Some(load), Some(entry)) => {
            Ok(Format::Flat(Flat { load: double_word(load)?, entry: double_word(entry)? }))
        }
        _ => Err(BundleError::Malformed("a kernel's format")),
    }
}

/// Reads a list of names, each once; an empty list is none.
fn read_paravirt(value: &[u8]) -> Option<Paravirt> {
    let Some((0, _)) = value.split_last() else {
        return value.is_empty().then_some(Paravirt::NONE);
    };
    let mut found = Paravirt::NONE;
    for name in value.split_inclusive(|&byte| byte == 0) {
        found = found.with(text(name).and_then(Feature::from_name)?);
    }
    let written = found.iter().map(|feature| feature.name().len() + 1).sum::<usize>();
    // Names that are there twice are longer than what is written.
    (written == value.len()).then_some(found)
}

/// Reads a list of physical CPU indexes, one cell each.
fn read_cpus(value: &[u8]) -> Result<CpuList<'_>, BundleError> {
    match value.as_chunks() {
        (cells, []) => Ok(CpuList::from_cells(cells)),
        _ => Err(BundleError::Malformed("a list of physical CPUs")),
    }
}

/// Reads who runs on a VM's CPUs. Numbers that are too large for any machine stay so.
fn read_schedule(
    name: &str,
    weight: Option<&[u8]>,
    realtime: Option<&[u8]>,
) -> Result<Schedule, BundleError> {
    let malformed = BundleError::Malformed("a VM's schedule");
    let number = |value: &[u8]| word(value).ok_or(malformed);
    match (name, weight, realtime) {
        (Schedule::PINNED, None, None) => Ok(Schedule::Pinned),
        (Schedule::SHARED, Some(weight), None) => {
            let weight = u16::try_from(number(weight)?).unwrap_or(u16::MAX);
            Ok(Schedule::Shared(Class::Fair { weight }))
        }
        (Schedule::SHARED, None, Some(priority)) => {
            let priority = u8::try_from(number(priority)?).unwrap_or(u8::MAX);
            Ok(Schedule::Shared(Class::RealTime { priority }))
        }
        _ => Err(malformed),
    }
}
