// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starting the other CPUs by PSCI CPU_ON.

use core::sync::atomic::Ordering::Relaxed;

use turnstile_guests_common::stack::Stack;

use crate::boot::EXCEPTION_STACK;
use crate::cpu::Cpu;
use crate::platform::{MAX_CPUS, platform};
use crate::psci::{self, function, status};
use crate::{mmu, println};

const STACK: usize = 24 << 10;

static CPUS: [Cpu; MAX_CPUS] = [const { Cpu::new(0) }; MAX_CPUS];
static STACKS: [Stack<STACK>; MAX_CPUS] = [const { Stack::new() }; MAX_CPUS];

unsafe extern "C" {
    fn secondary_entry();
}

/// Returns the address that CPU_ON is to be given.
pub fn entry_point() -> u64 {
    secondary_entry as *const () as u64
}

/// Returns the number of CPUs in the device tree.
pub fn count() -> usize {
    platform().cpus.as_slice().len()
}

/// Returns the affinity of the CPU with this index, or `u64::MAX`, which no CPU has.
pub fn affinity(index: usize) -> u64 {
    platform().cpus.as_slice().get(index).copied().unwrap_or(u64::MAX)
}

/// Returns the indexes of all CPUs but the one that runs this.
pub fn others() -> impl Iterator<Item = usize> + Clone {
    let this = crate::cpu::this().index();
    (0..count()).filter(move |index| *index != this)
}

/// Prepares the data of the CPU with this index and returns the context that CPU_ON is to hand it:
/// it will run `work(argument)`, with the MMU as on this CPU and IRQs masked, and then CPU_OFF.
pub fn prepare(index: usize, work: fn(u64), argument: u64) -> u64 {
    let (Some(cpu), Some(stack)) = (CPUS.get(index), STACKS.get(index)) else { return 0 };
    cpu.exception_stack.store(stack.bottom() + EXCEPTION_STACK as u64, Relaxed);
    cpu.main_stack.store(stack.top(), Relaxed);
    cpu.index.store(index as u64, Relaxed);
    cpu.entry.store(secondary_main as *const () as u64, Relaxed);
    cpu.work.set(work, argument);
    cpu.trap.armed.store(0, Relaxed);
    cpu.fatal.store(0, Relaxed);
    if mmu::is_enabled() {
        for (slot, value) in cpu.translation.iter().zip(mmu::registers()) {
            slot.store(value, Relaxed);
        }
    }
    mmu::clean(cpu);
    &raw const *cpu as u64
}

/// Starts the CPU with this index; see [`prepare`]. Returns CPU_ON's status.
pub fn start(index: usize, work: fn(u64), argument: u64) -> i64 {
    let context = prepare(index, work, argument);
    psci::call(function::CPU_ON, [affinity(index), entry_point(), context])
}

/// Lets all CPUs but this one do `work(0)`; returns whether they have begun, and prints which one has not.
pub fn start_others(work: fn(u64)) -> bool {
    let failed = others().find(|index| start(*index, work, 0) != status::SUCCESS);
    if let Some(index) = failed {
        println!("@error CPU {index} does not start");
    }
    failed.is_none()
}

/// Returns AFFINITY_INFO of the CPU with this index: 0 on, 1 off, 2 being started.
pub fn state(index: usize) -> i64 {
    psci::call(function::AFFINITY_INFO, [affinity(index), 0, 0])
}

/// Waits until the CPU with this index is off; returns whether it is.
pub fn wait_off(index: usize) -> bool {
    crate::timer::wait(2_000_000, || state(index) == 1)
}

extern "C" fn secondary_main(cpu: &'static Cpu) -> ! {
    cpu.work.run();
    let status = psci::call(function::CPU_OFF, [0; 3]);
    panic!("CPU_OFF returned {status}");
}
