// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges the VMs together: names, and which physical CPU each vCPU gets.

use std::collections::BTreeMap;

use super::problem::Problem;
use super::read::At;
use super::vm::VmDraft;
use super::{Config, MAX_CPUS, Machine, MachineDraft, Vm};

/// Finds names that two VMs have.
pub fn names(drafts: &[VmDraft], problems: &mut Vec<Problem>) {
    for (index, draft) in drafts.iter().enumerate() {
        if drafts.iter().take(index).any(|other| other.name.value == draft.name.value) {
            let what = format!("there are two VMs with the name `{}`", draft.name.value);
            problems.push(Problem::new(draft.name.span.clone(), what, "give each its own"));
        }
    }
}

/// Chooses the physical CPUs and completes the configuration; `None` if that cannot be done.
pub fn finish(machine: MachineDraft, drafts: Vec<VmDraft>, problems: &mut Vec<Problem>) -> Option<Config> {
    let (taken, pins_are_good) = pinned(&drafts, problems);
    if !pins_are_good {
        return None;
    }
    let loose: u64 = drafts.iter().filter(|draft| draft.cpus.is_none()).map(|draft| draft.vcpus.value).sum();
    let total = taken.len() as u64 + loose;
    let highest = taken.keys().next_back().map_or(0, |cpu| cpu.saturating_add(1));
    let cpus = machine.cpus.as_ref().map_or(total.max(highest), |cpus| cpus.value);
    if !enough(&machine, cpus, total, &taken, problems) {
        return None;
    }
    let mut free = (0..cpus).filter(|cpu| !taken.contains_key(cpu));
    let mut vms = Vec::new();
    for draft in drafts {
        let cpus: Vec<u64> = match &draft.cpus {
            Some(cpus) => cpus.value.iter().map(|cpu| cpu.value).collect(),
            None => free.by_ref().take(usize::try_from(draft.vcpus.value).ok()?).collect(),
        };
        vms.push(complete(draft, &cpus)?);
    }
    let cpu = machine.cpu.unwrap_or_else(|| "max".to_owned());
    Some(Config { machine: Machine { memory: machine.memory, cpus, cpu }, vms })
}

/// Collects the CPUs that VMs name: CPU to VM name. Two vCPUs on one CPU are a problem.
fn pinned(drafts: &[VmDraft], problems: &mut Vec<Problem>) -> (BTreeMap<u64, At<String>>, bool) {
    let mut taken: BTreeMap<u64, At<String>> = BTreeMap::new();
    let before = problems.len();
    for draft in drafts {
        let Some(cpus) = &draft.cpus else { continue };
        if cpus.value.len() as u64 != draft.vcpus.value {
            // Reported where the VM was read.
            return (taken, false);
        }
        for cpu in &cpus.value {
            let owner = At::new(draft.name.value.clone(), cpu.span.clone());
            if let Some(other) = taken.insert(cpu.value, owner) {
                let what = match other.value == draft.name.value {
                    true => format!("CPU {} is named twice", cpu.value),
                    false => format!("CPU {} belongs to the VM `{}` already", cpu.value, other.value),
                };
                let help = "each vCPU needs a physical CPU of its own";
                problems.push(Problem::new(cpu.span.clone(), what, help));
            }
        }
    }
    let good = problems.len() == before;
    (taken, good)
}

/// Checks that the machine has the CPUs that the VMs need.
fn enough(
    machine: &MachineDraft,
    cpus: u64,
    total: u64,
    taken: &BTreeMap<u64, At<String>>,
    problems: &mut Vec<Problem>,
) -> bool {
    let before = problems.len();
    for (cpu, owner) in taken.range(cpus.min(MAX_CPUS)..) {
        let what = format!("there is no CPU {cpu}: the machine has {}", cpus.min(MAX_CPUS));
        let help = "CPUs are counted from 0; raise `cpus` in [machine] or name another";
        problems.push(Problem::new(owner.span.clone(), what, help));
    }
    if let Some(written) = machine.cpus.as_ref().filter(|written| written.value < total) {
        let what = format!("the VMs have {total} vCPUs together, the machine only {} CPUs", written.value);
        let help = format!("each vCPU needs a physical CPU of its own: give {total}, or leave `cpus` out");
        problems.push(Problem::new(written.span.clone(), what, help));
    } else if total > MAX_CPUS {
        let what = format!("the VMs have {total} vCPUs together");
        problems.push(Problem::new(0..0, what, format!("a machine has at most {MAX_CPUS} CPUs")));
    }
    problems.len() == before
}

fn complete(draft: VmDraft, cpus: &[u64]) -> Option<Vm> {
    Some(Vm {
        name: draft.name,
        kernel: draft.kernel,
        initrd: draft.initrd,
        cmdline: draft.cmdline,
        cpus: cpus.iter().map(|&cpu| u16::try_from(cpu).ok()).collect::<Option<_>>()?,
        memory: draft.memory,
        machine: draft.machine,
        pmu: draft.pmu,
        on_crash: draft.on_crash,
        statistics: draft.statistics,
    })
}
