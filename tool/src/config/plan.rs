// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges the VMs together and on their machine: names, interrupt controllers, and who gets which physical CPU.

use std::collections::BTreeMap;
use std::ops::Range;

use turnstile_bundle::{Gic, GicVersion, Pc, Pseries, Schedule};

use super::board::Board;
use super::machine::Draft;
use super::problem::Problem;
use super::read::At;
use super::vm::VmDraft;
use super::{Config, Machine, Vm};

/// Finds names that two VMs have.
pub fn names(drafts: &[VmDraft], problems: &mut Vec<Problem>) {
    for (index, draft) in drafts.iter().enumerate() {
        if drafts.iter().take(index).any(|other| other.name.value == draft.name.value) {
            let what = format!("there are two VMs with the name `{}`", draft.name.value);
            problems.push(Problem::new(draft.name.span.clone(), what, "give each its own"));
        }
    }
}

/// Finds VMs that want what the machine has not.
fn suit(machine: &Machine, drafts: &[VmDraft], problems: &mut Vec<Problem>) {
    for draft in drafts {
        let chosen = match &draft.machine.machine {
            turnstile_bundle::Machine::Arm64(chosen) => chosen,
            turnstile_bundle::Machine::Pc(pc) => {
                suit_pc(draft, pc, problems);
                continue;
            }
            turnstile_bundle::Machine::Pseries(pseries) => {
                suit_pseries(draft, pseries, problems);
                continue;
            }
        };
        let gic = chosen.gic.on(machine.gic);
        if gic == GicVersion::V3 && machine.gic == GicVersion::V2 {
            let what = "a machine with a GICv2 has no GICv3 for its guests";
            let help = match machine.board {
                Board::Rpi4 => "leave this `gic` out",
                _ => "write gic = 3 in [machine], or leave this `gic` out",
            };
            problems.push(Problem::new(draft.machine.controller.clone(), what, help));
        } else if draft.vcpus.value > gic.max_vcpus() as u64 {
            let what = format!("{} vCPUs are too many for a {gic}", draft.vcpus.value);
            let other = match (chosen.gic, machine.board) {
                (Gic::V2, _) => ", or leave this VM's `gic` out",
                (_, Board::Rpi4) => "",
                _ => ", or write gic = 3 in [machine]",
            };
            let help = format!("give at most {}{other}", gic.max_vcpus());
            problems.push(Problem::new(draft.vcpus.span.clone(), what, help));
        }
        if chosen.sve && !machine.has_sve() {
            let what = format!("the processor `{}` has no SVE", machine.cpu);
            problems.push(Problem::new(
                draft.machine.sve.clone(),
                what,
                "leave `sve` out, or choose another `cpu`",
            ));
        }
    }
}

/// Finds a PC with more vCPUs than its local APICs have identifiers.
fn suit_pc(draft: &VmDraft, pc: &Pc, problems: &mut Vec<Problem>) {
    let most = pc.apic.max_vcpus();
    if draft.vcpus.value > most as u64 {
        let what = format!("{} vCPUs are too many for a PC with an {}", draft.vcpus.value, pc.apic);
        let help = format!("give at most {most}, or leave this VM's `apic` out");
        problems.push(Problem::new(draft.vcpus.span.clone(), what, help));
    }
}

/// Finds a partition whose vCPUs are no whole cores.
fn suit_pseries(draft: &VmDraft, pseries: &Pseries, problems: &mut Vec<Problem>) {
    let (vcpus, threads) = (draft.vcpus.value, u64::from(pseries.threads));
    if !vcpus.is_multiple_of(threads) {
        let what = format!("{vcpus} vCPUs are no whole cores of {threads} threads");
        let help = format!("give {}, or other `threads`", vcpus.next_multiple_of(threads));
        problems.push(Problem::new(draft.vcpus.span.clone(), what, help));
    }
}

/// Who named a physical CPU first, and where.
struct Tenant {
    vm: String,
    pinned: bool,
    /// It is no VM, but a service.
    is_service: bool,
    span: Range<usize>,
}

type Tenants = BTreeMap<u64, Tenant>;

/// Chooses the physical CPUs and completes the configuration; `None` if that cannot be done. `own` are the services that have CPUs of
/// their own, with those.
pub fn finish(
    draft: Draft,
    drafts: Vec<VmDraft>,
    own: &[(&str, &At<u64>)],
    problems: &mut Vec<Problem>,
) -> Option<Config> {
    let before = problems.len();
    let mut named = named(&drafts, problems)?;
    reserve(&mut named, own, problems);
    let need = Need::of(&drafts, &named);
    let cpus = draft.cpus.as_ref().map_or(need.cpus.max(need.highest), |cpus| cpus.value);
    enough(&draft, cpus, need.cpus, &named, &drafts, problems);
    let Draft { board, memory, cpu, gic, apic, .. } = draft;
    let machine = Machine { board, memory, cpus, cpu, gic, apic };
    suit(&machine, &drafts, problems);
    if problems.len() != before {
        return None;
    }
    let mut given: Vec<Vec<u64>> = Vec::new();
    for draft in drafts.iter() {
        given.push(match (&draft.cpus, draft.schedule) {
            (Some(cpus), _) => cpus.value.iter().map(|cpu| cpu.value).collect(),
            (None, Schedule::Pinned) => take(&mut named, draft, cpus),
            (None, Schedule::Shared(_)) => Vec::new(),
        });
    }
    // What is left is known once every pinned vCPU has its CPU.
    let left: Vec<u64> = (0..cpus).filter(|cpu| named.get(cpu).is_none_or(|tenant| !tenant.pinned)).collect();
    let complete =
        |(draft, cpus): (VmDraft, Vec<u64>)| complete(draft, if cpus.is_empty() { &left } else { &cpus });
    let vms = drafts.into_iter().zip(given).map(complete).collect::<Option<_>>()?;
    Some(Config { machine, vms, services: Vec::new(), disks: Vec::new(), ports: Vec::new(), pool: 0 })
}

/// Gives a pinned VM the lowest CPUs that nobody has named.
fn take(named: &mut Tenants, draft: &VmDraft, cpus: u64) -> Vec<u64> {
    let count = usize::try_from(draft.vcpus.value).unwrap_or(usize::MAX);
    let taken: Vec<u64> = (0..cpus).filter(|cpu| !named.contains_key(cpu)).take(count).collect();
    let tenant = || Tenant {
        vm: draft.name.value.clone(),
        pinned: true,
        is_service: false,
        span: draft.name.span.clone(),
    };
    named.extend(taken.iter().map(|&cpu| (cpu, tenant())));
    taken
}

/// Collects the CPUs that VMs name; `None` if two name one that they cannot share.
fn named(drafts: &[VmDraft], problems: &mut Vec<Problem>) -> Option<Tenants> {
    let mut named = Tenants::new();
    let before = problems.len();
    for draft in drafts {
        let Some(cpus) = &draft.cpus else { continue };
        let pinned = draft.schedule == Schedule::Pinned;
        if pinned && cpus.value.len() as u64 != draft.vcpus.value {
            // Reported where the VM was read.
            return None;
        }
        for (index, cpu) in cpus.value.iter().enumerate() {
            let twice = cpus.value.iter().take(index).any(|earlier| earlier.value == cpu.value);
            let vm = draft.name.value.clone();
            let tenant = Tenant { vm, pinned, is_service: false, span: cpu.span.clone() };
            let other = named.entry(cpu.value).or_insert(tenant);
            if let Some((what, help)) = conflict(cpu.value, pinned, other, twice, &draft.name.value) {
                problems.push(Problem::new(cpu.span.clone(), what, help));
            }
        }
    }
    (problems.len() == before).then_some(named)
}

/// Keeps the CPUs of services from VMs that name none, and finds those that a VM has named. Services may share one.
fn reserve(named: &mut Tenants, own: &[(&str, &At<u64>)], problems: &mut Vec<Problem>) {
    for (name, cpu) in own {
        let span = cpu.span.clone();
        let tenant = Tenant { vm: (*name).to_owned(), pinned: true, is_service: true, span };
        let other = named.entry(cpu.value).or_insert(tenant);
        if !other.is_service {
            let what = format!("CPU {} belongs to the VM `{}`: `{name}` cannot have it", cpu.value, other.vm);
            problems.push(Problem::new(
                cpu.span.clone(),
                what,
                "name one that no VM has, or leave `cpus` out",
            ));
        }
    }
}

/// Says why a VM cannot have a CPU that was named before, and what to do.
fn conflict(cpu: u64, pinned: bool, other: &Tenant, twice: bool, name: &str) -> Option<(String, String)> {
    if twice {
        let help = if pinned { "each vCPU needs a physical CPU of its own" } else { "name it once" };
        return Some((format!("CPU {cpu} is named twice"), help.to_owned()));
    }
    let other_name = &other.vm;
    match (pinned, other.pinned) {
        _ if other_name == name => None,
        (false, false) => None,
        (true, true) => Some((
            format!("CPU {cpu} belongs to the VM `{other_name}` already"),
            "each pinned vCPU needs a physical CPU of its own: name another, or write schedule = \"shared\" in \
             both VMs"
                .to_owned(),
        )),
        (false, true) => Some((
            format!("the VM `{other_name}` is pinned to CPU {cpu} and does not share it"),
            format!("name another CPU, or write schedule = \"shared\" in `{other_name}` too"),
        )),
        (true, false) => Some((
            format!("CPU {cpu} is shared by the VM `{other_name}`: nobody can be pinned to it"),
            format!("name another CPU, or write schedule = \"shared\" in `{name}` too"),
        )),
    }
}

/// The CPUs that the VMs need.
struct Need {
    /// How many.
    cpus: u64,
    /// One more than the highest that is named.
    highest: u64,
}

impl Need {
    fn of(drafts: &[VmDraft], named: &Tenants) -> Need {
        let unnamed = || drafts.iter().filter(|draft| draft.cpus.is_none());
        let pinned: u64 =
            unnamed().filter(|draft| draft.schedule == Schedule::Pinned).map(|draft| draft.vcpus.value).sum();
        let shares = unnamed().any(|draft| draft.schedule != Schedule::Pinned);
        // A VM that shares and names none wants one at least that nobody is pinned to.
        let one_more = shares && named.values().all(|tenant| tenant.pinned);
        Need {
            cpus: named.len() as u64 + pinned + u64::from(one_more),
            highest: named.keys().next_back().map_or(0, |cpu| cpu.saturating_add(1)),
        }
    }
}

/// Checks that the machine has the CPUs that the VMs need.
fn enough(
    machine: &Draft,
    cpus: u64,
    need: u64,
    named: &Tenants,
    drafts: &[VmDraft],
    problems: &mut Vec<Problem>,
) {
    let most = machine.most_cpus();
    for (cpu, tenant) in named.range(cpus.min(most)..) {
        let what = format!("there is no CPU {cpu}: the machine has {}", cpus.min(most));
        let help = match machine.board {
            Board::Rpi4 => "CPUs are counted from 0; name another",
            _ => "CPUs are counted from 0; raise `cpus` in [machine] or name another",
        };
        problems.push(Problem::new(tenant.span.clone(), what, help));
    }
    if let Some(written) = machine.cpus.as_ref().filter(|written| written.value < need) {
        let what = format!("the VMs need {need} CPUs, and the machine has {}", written.value);
        problems.push(Problem::new(written.span.clone(), what, machine.advice(need)));
    } else if need > most {
        let span = first_too_many(drafts, named.len() as u64, most);
        problems.push(Problem::new(span, format!("the VMs need {need} CPUs"), machine.advice(need)));
    }
}

/// Where the VM says how many vCPUs it has with which the CPUs become too many.
fn first_too_many(drafts: &[VmDraft], named: u64, most: u64) -> Range<usize> {
    let mut sum = named;
    let pinned = drafts.iter().filter(|draft| draft.cpus.is_none() && draft.schedule == Schedule::Pinned);
    for draft in pinned {
        sum += draft.vcpus.value;
        if sum > most {
            return draft.vcpus.span.clone();
        }
    }
    // One that shares wants a CPU besides.
    drafts.last().map_or(0..0, |draft| draft.vcpus.span.clone())
}

fn complete(draft: VmDraft, cpus: &[u64]) -> Option<Vm> {
    Some(Vm {
        name: draft.name,
        kernel: draft.kernel,
        initrd: draft.initrd,
        cmdline: draft.cmdline,
        vcpus: usize::try_from(draft.vcpus.value).ok()?,
        cpus: cpus.iter().map(|&cpu| u16::try_from(cpu).ok()).collect::<Option<_>>()?,
        schedule: draft.schedule,
        memory: draft.memory,
        mapping: draft.mapping,
        machine: draft.machine.machine,
        places: draft.machine.places,
        on_crash: draft.on_crash,
        statistics: draft.statistics,
        disks: draft.disks,
        networks: draft.networks,
        entropy: draft.entropy,
        balloon: draft.balloon,
        console: draft.console,
        ports: draft.ports,
    })
}
