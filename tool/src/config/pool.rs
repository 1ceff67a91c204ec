// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads `[pool]`: memory that VMs have in common.

use toml::de::{DeTable, DeValue};
use turnstile_bundle::Mapping;
use turnstile_machine::map::MEMORY_UNIT;

use super::Config;
use super::problem::Problem;
use super::read::{At, Reader};
use super::size::show_size;
use super::vm::VmDraft;

/// Reads the size of the pool; `None` if there is none, or none that can be.
pub fn read(root: &DeTable<'_>, problems: &mut Vec<Problem>) -> Option<At<u64>> {
    let (key, value) = root.iter().find(|(key, _)| key.get_ref().as_ref() == "pool")?;
    let DeValue::Table(table) = value.get_ref() else {
        problems.push(Problem::new(
            value.span(),
            "`pool` is a table",
            "write [pool] above `size = \"1GiB\"`",
        ));
        return None;
    };
    let mut reader = Reader::new(table, key.span(), &["size"], &[], problems);
    if !table.contains_key("size") {
        reader.problem(key.span(), "the pool has no size", "write `size = \"1GiB\"` below [pool]");
    }
    let size = reader.size("size")?;
    if size.value == 0 || !size.value.is_multiple_of(MEMORY_UNIT) {
        let what = format!("a pool cannot have {}", show_size(size.value));
        reader.problem(size.span, what, format!("give a multiple of {}", show_size(MEMORY_UNIT)));
        return None;
    }
    Some(size)
}

/// Says what does not fit between the pool and the VMs.
pub fn judge(pool: Option<&At<u64>>, vms: &[VmDraft], problems: &mut Vec<Problem>) {
    let mut of_pool = vms.iter().filter(|vm| vm.mapping == Mapping::FromPool).peekable();
    if let Some(pool) = pool
        && of_pool.peek().is_none()
    {
        let help = "write mapping = \"from-pool\" in one, or leave [pool] out";
        problems.push(Problem::new(pool.span.clone(), "no VM has memory from the pool", help));
    }
    for vm in of_pool {
        let (span, name) = (vm.memory.span.clone(), &vm.name.value);
        match pool {
            None => {
                let what = format!("the memory of `{name}` comes from a pool, and there is none");
                problems.push(Problem::new(
                    span,
                    what,
                    "write [pool] with its size, such as `size = \"1GiB\"`",
                ));
            }
            Some(pool) if vm.memory.value > pool.value => {
                let (memory, size) = (show_size(vm.memory.value), show_size(pool.value));
                let what = format!("`{name}` may have {memory}, and the pool has {size}");
                problems.push(Problem::new(
                    span,
                    what,
                    format!("give at most {size}, or make the pool larger"),
                ));
            }
            Some(_) => {}
        }
    }
}

/// Says what VMs have that goes with a pool alone, or not with one.
pub fn suits(config: &Config) -> Vec<Problem> {
    let is_driven = |index: usize| {
        let mut disks = config.services.iter().filter(|service| service.vm == Some(index));
        disks.any(|service| service.disk.is_some_and(|disk| config.disks[disk].device.is_some()))
    };
    let mut problems = Vec::new();
    for (index, vm) in config.vms.iter().enumerate() {
        let is_pooled = vm.mapping == Mapping::FromPool;
        if is_pooled && is_driven(index) {
            let what = format!(
                "`{}` has a disk behind a controller of the machine, and its memory comes from a pool",
                vm.name.value
            );
            problems.push(Problem::new(vm.name.span.clone(), what, "write mapping = \"on-demand\""));
        }
        if let Some(span) = vm.balloon.clone().filter(|_| !is_pooled) {
            let what = format!("`{}` has a balloon, and its memory does not come from a pool", vm.name.value);
            let help =
                "write mapping = \"from-pool\" in the VM, and [pool] with its size, or take `balloon` out";
            problems.push(Problem::new(span, what, help));
        }
    }
    problems
}
