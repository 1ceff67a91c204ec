// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads one `[[vm]]`.

use std::ops::Range;
use std::path::PathBuf;

use toml::de::DeTable;
use turnstile_bundle::{
    MAX_CMDLINE, MAX_NAME, MAX_NAMED_PORTS, MAX_PORT_NAME, Mapping, OnCrash, Schedule, SpecError,
    is_port_name,
};
use turnstile_machine::map::{MAX_VCPUS, MEMORY_UNIT, MIN_MEMORY, MapError};

use super::guest::{self, Chosen};
use super::port::{self, Port};
use super::problem::{Problem, did_you_mean};
use super::read::{At, Reader, named};
use super::size::show_size;
use super::{DebianPart, Source, Surroundings, schedule};
use crate::isa::Isa;

/// The keys of every VM.
const KEYS: [&str; 20] = [
    "name",
    "kernel",
    "initrd",
    "cmdline",
    "vcpus",
    "cpus",
    "schedule",
    "weight",
    "realtime",
    "memory",
    "mapping",
    "machine",
    "on-crash",
    "statistics",
    "disks",
    "networks",
    "entropy",
    "balloon",
    "console",
    "ports",
];
const DEFAULT_MEMORY: u64 = 256 << 20;

/// A VM as the file has it: its physical CPUs are not chosen yet.
#[derive(Debug)]
pub struct VmDraft {
    pub name: At<String>,
    pub kernel: At<Source>,
    pub initrd: Option<At<Source>>,
    pub cmdline: String,
    pub vcpus: At<u64>,
    pub cpus: Option<At<Vec<At<u64>>>>,
    pub schedule: Schedule,
    pub memory: At<u64>,
    pub mapping: Mapping,
    pub machine: Chosen,
    pub on_crash: OnCrash,
    pub statistics: bool,
    pub disks: Vec<At<String>>,
    pub networks: Vec<Port>,
    pub entropy: Option<Range<usize>>,
    pub balloon: Option<Range<usize>>,
    pub console: Option<Range<usize>>,
    pub ports: Vec<At<String>>,
}

/// The keys of a VM for an architecture.
pub fn keys(isa: Isa) -> Vec<&'static str> {
    KEYS.into_iter().chain(guest::keys(isa).iter().copied()).collect()
}

/// Reads a VM; `None` if something that it cannot do without is missing or wrong.
pub fn read(
    table: &DeTable<'_>,
    span: Range<usize>,
    isa: Isa,
    surroundings: &Surroundings<'_>,
    problems: &mut Vec<Problem>,
) -> Option<VmDraft> {
    let mut reader = Reader::new(table, header(&span), &keys(isa), guest::others(isa), problems);
    let name = read_name(&mut reader, "VM", "linux", MAX_NAME);
    let kernel = reader
        .required_string("kernel", "give a path, \"debian:linux\" or \"guest:NAME\"")
        .and_then(|text| read_source(&mut reader, &text, DebianPart::Linux, isa, surroundings));
    let initrd_text = reader.string("initrd");
    let has_initrd = initrd_text.is_some();
    let initrd =
        initrd_text.and_then(|text| read_source(&mut reader, &text, DebianPart::Busybox, isa, surroundings));
    let cmdline = read_cmdline(&mut reader);
    let cpus = reader.numbers("cpus");
    let schedule = schedule::read(&mut reader);
    let vcpus = read_vcpus(&mut reader, schedule, cpus.as_ref());
    let machine = guest::read(&mut reader, isa);
    let count = vcpus.as_ref().map_or(1, |vcpus| vcpus.value as usize);
    let memory = read_memory(&mut reader, &machine, count);
    let mapping = reader.choice("mapping", &named(Mapping::ALL, Mapping::name));
    let on_crash = reader.choice("on-crash", &named(OnCrash::ALL, OnCrash::name));
    let statistics = reader.boolean("statistics").is_some_and(|statistics| statistics.value);
    let disks = reader.words("disks", "a list of disks' names such as [\"root\"]");
    let networks = port::read_all(&mut reader);
    let has = |reader: &mut Reader<'_, '_>, key| {
        reader.boolean(key).filter(|device| device.value).map(|device| device.span)
    };
    let (entropy, balloon) = (has(&mut reader, "entropy"), has(&mut reader, "balloon"));
    let console = reader.choice("console", &[("serial", false), ("virtio", true)]);
    let console = console.filter(|is_virtio| is_virtio.value).map(|at| at.span);
    let ports = read_ports(&mut reader);
    Some(VmDraft {
        name: name?,
        kernel: kernel?,
        initrd: if has_initrd { Some(initrd?) } else { None },
        cmdline,
        vcpus: vcpus?,
        cpus,
        schedule,
        memory: memory?,
        mapping: mapping.map_or(Mapping::AtStart, |mapping| mapping.value),
        machine,
        on_crash: on_crash.map_or(OnCrash::Stop, |on_crash| on_crash.value),
        statistics,
        disks,
        networks,
        entropy,
        balloon,
        console,
        ports,
    })
}

/// The place of a table: its `[[vm]]`, not all of its lines.
fn header(span: &Range<usize>) -> Range<usize> {
    span.start..span.end.min(span.start + "[[vm]]".len())
}

/// Reads the name of a VM, a service, a disk or a network, whichever `of` says, which has at most so many characters.
pub fn read_name(reader: &mut Reader<'_, '_>, of: &str, example: &str, most: usize) -> Option<At<String>> {
    let name = reader.required_string("name", &format!("give the {of} a name, such as \"{example}\""))?;
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.value.is_empty() || name.value.len() > most || !name.value.chars().all(allowed) {
        let help = format!("use 1 to {most} characters of a-z, 0-9 and `-`");
        reader.problem(name.span, format!("`{}` cannot be a {of}'s name", name.value), help);
        return None;
    }
    Some(name)
}

/// Reads the names of the VM's ports; those that are wrong are left out.
fn read_ports(reader: &mut Reader<'_, '_>) -> Vec<At<String>> {
    let mut ports: Vec<At<String>> = Vec::new();
    for port in reader.words("ports", "a list of names such as [\"agent\"]") {
        let name = &port.value;
        let (what, help) = if !is_port_name(name) {
            let help = format!("use 1 to {MAX_PORT_NAME} characters of a-z, 0-9, `.`, `-` and `_`");
            (format!("`{name}` cannot be a port's name"), help)
        } else if ports.iter().any(|other| other.value == *name) {
            (format!("there are two ports with the name `{name}`"), "give each its own".to_owned())
        } else if ports.len() == MAX_NAMED_PORTS {
            (format!("a VM has at most {MAX_NAMED_PORTS} ports"), "take the others out".to_owned())
        } else {
            ports.push(port);
            continue;
        };
        reader.problem(port.span, what, help);
    }
    ports
}

/// What Debian has in the place of `part` for an architecture, by name.
const fn debian_parts(part: DebianPart, isa: Isa) -> &'static [(&'static str, DebianPart)] {
    match (part, isa) {
        (DebianPart::Busybox, _) => &[("busybox", DebianPart::Busybox)],
        (_, Isa::Arm64) => &[("linux", DebianPart::Linux), ("u-boot", DebianPart::UBoot)],
        (_, Isa::X86_64) => &[("linux", DebianPart::Linux), ("linux-standard", DebianPart::Standard)],
        (_, Isa::Power64) => &[("linux", DebianPart::Linux), ("linux-4k", DebianPart::SmallPages)],
    }
}

fn read_source(
    reader: &mut Reader<'_, '_>,
    text: &At<String>,
    part: DebianPart,
    isa: Isa,
    surroundings: &Surroundings<'_>,
) -> Option<At<Source>> {
    let key = if part == DebianPart::Busybox { "initrd" } else { "kernel" };
    let source = match text.value.split_once(':') {
        Some(("debian", name)) => {
            let parts = debian_parts(part, isa);
            let Some((_, part)) = parts.iter().find(|(part, _)| *part == name) else {
                let names: Vec<String> = parts.iter().map(|(name, _)| format!("\"debian:{name}\"")).collect();
                let what = format!("there is no {key} `debian:{name}` for {isa}");
                reader.problem(text.span.clone(), what, format!("use {} or a path", names.join(", ")));
                return None;
            };
            Source::Debian(*part)
        }
        Some(("guest", name)) if part == DebianPart::Linux => {
            let guests = (surroundings.guests)(isa);
            if !guests.iter().any(|guest| guest == name) {
                let known: Vec<&str> = guests.iter().map(String::as_str).collect();
                let what = format!("there is no guest `{name}` for {isa}");
                reader.problem(text.span.clone(), what, did_you_mean(name, &known));
                return None;
            }
            Source::Guest(name.to_owned())
        }
        _ if text.value.is_empty() => {
            reader.problem(text.span.clone(), format!("`{key}` is empty"), "give a path");
            return None;
        }
        _ => Source::File(surroundings.folder.join(from_home(&text.value))),
    };
    Some(At::new(source, text.span.clone()))
}

/// A path as a shell would read it: `~/` is the user's home folder.
pub fn from_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

fn read_cmdline(reader: &mut Reader<'_, '_>) -> String {
    let Some(cmdline) = reader.string("cmdline") else { return String::new() };
    if cmdline.value.len() > MAX_CMDLINE {
        let what = format!("the command line has {} bytes", cmdline.value.len());
        reader.problem(cmdline.span.clone(), what, format!("use at most {MAX_CMDLINE}"));
    }
    if cmdline.value.contains('\0') {
        reader.problem(cmdline.span.clone(), "the command line has a zero byte in it", "take it out");
    }
    if cmdline.value.contains(['\n', '\r']) {
        let help = "write it on one line; in a string of three quotes, `\\` at the end of a line joins it with the next";
        reader.problem(cmdline.span, "the command line has a line break in it", help);
    }
    cmdline.value
}

/// Reads the number of vCPUs: as it is written, or as many as there are physical CPUs, or one.
fn read_vcpus(
    reader: &mut Reader<'_, '_>,
    schedule: Schedule,
    cpus: Option<&At<Vec<At<u64>>>>,
) -> Option<At<u64>> {
    let named = cpus.map(|cpus| At::new(cpus.value.len() as u64, cpus.span.clone()));
    let written = reader.number("vcpus");
    match (&named, &written, schedule) {
        (Some(named), Some(written), Schedule::Pinned) if written.value != named.value => {
            let what = format!("{} vCPUs are pinned to {} CPUs", written.value, named.value);
            let share = if written.value > named.value { ", or write schedule = \"shared\"" } else { "" };
            let help = format!("name {} CPUs, one for each vCPU{share}", written.value);
            reader.problem(named.span.clone(), what, help);
        }
        (Some(At { value: 0, span }), _, Schedule::Shared(_)) => {
            let help = "name at least one, or leave `cpus` out";
            reader.problem(span.clone(), "a VM needs physical CPUs to run on", help);
            return None;
        }
        _ => {}
    }
    let vcpus = written.or(named).unwrap_or_else(|| At::new(1, reader.span.clone()));
    if !(1..=MAX_VCPUS as u64).contains(&vcpus.value) {
        let what = format!("a VM cannot have {} vCPUs", vcpus.value);
        reader.problem(vcpus.span, what, format!("give 1 to {MAX_VCPUS} vCPUs"));
        return None;
    }
    Some(vcpus)
}

fn read_memory(reader: &mut Reader<'_, '_>, machine: &Chosen, vcpus: usize) -> Option<At<u64>> {
    let memory = reader.size("memory").unwrap_or_else(|| At::new(DEFAULT_MEMORY, reader.span.clone()));
    let Err(SpecError::Map(error)) = machine.bounds().check(vcpus, memory.value) else {
        // Too many vCPUs are reported where the VM is judged on its machine.
        return Some(memory);
    };
    let size = show_size(memory.value);
    let (what, help) = match error {
        MapError::Unaligned(bytes) => {
            let below = bytes / MEMORY_UNIT * MEMORY_UNIT;
            let help = format!("give {} or {}", show_size(below), show_size(below + MEMORY_UNIT));
            (format!("{size} is not a multiple of {}", show_size(MEMORY_UNIT)), help)
        }
        MapError::TooLarge { most, .. } => {
            let most = most / MEMORY_UNIT * MEMORY_UNIT;
            (format!("{size} of memory do not fit the machine"), format!("give at most {}", show_size(most)))
        }
        _ => (format!("{size} of memory are too small"), format!("give at least {}", show_size(MIN_MEMORY))),
    };
    reader.problem(memory.span, what, help);
    None
}
