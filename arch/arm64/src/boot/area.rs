// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The per-CPU area as a whole: the one list of what each CPU has.

use alloc::boxed::Box;
use core::mem::offset_of;
use core::ptr;

use spin::Once;
use turnstile_arch_common::mmio::Registers;

use crate::cpu::PerCpu;
use crate::cpu::area::Slot;
use crate::service::Entrance;
use crate::state::traps::Traps;
use crate::time::Deadlines;
use crate::vcpu::facility::Holders;
use crate::vm::Scheduler;

/// The area of a physical CPU.
#[repr(C)]
pub struct Area {
    cpu: PerCpu,
    /// What its timer is to ring for.
    deadlines: Deadlines,
    /// Its run queue, if vCPUs share it.
    scheduler: Once<Scheduler>,
    /// Whose facilities its registers hold.
    facilities: Holders,
    /// What does not trap.
    traps: Traps,
    /// How it enters services.
    entrance: Entrance,
}

const _: () = assert!(offset_of!(Area, cpu) == 0);

/// Says where in an area the slots are.
macro_rules! slots {
    ($($field:ident: $slot:ty;)*) => {$(
        // SAFETY: a field of the area, which `Area::new` fills in and nobody can name.
        unsafe impl Slot for $slot {
            const OFFSET: usize = offset_of!(Area, $field);
        }
    )*};
}

slots! {
    deadlines: Deadlines;
    scheduler: Once<Scheduler>;
    facilities: Holders;
    traps: Traps;
    entrance: Entrance;
}

impl Area {
    /// Makes the area of a CPU that has not started, with the tops of its stack and of that for fault reports.
    pub const fn new(index: usize, affinity: u64, stacks: [u64; 2], redistributor: Registers) -> Self {
        Self {
            // SAFETY: this is an area, and `settle` alone gives it away, when it stays where it is.
            cpu: unsafe { PerCpu::new(index, affinity, stacks, redistributor) },
            deadlines: Deadlines::new(),
            scheduler: Once::new(),
            facilities: Holders::new(),
            traps: Traps::new(),
            entrance: Entrance::new(),
        }
    }

    /// Gives the area its place, for ever.
    pub fn settle(self) -> &'static PerCpu {
        let area: &'static Self = Box::leak(Box::new(self));
        // As a whole: slots are reached by their addresses.
        ptr::from_ref(area).expose_provenance();
        &area.cpu
    }
}

/// The boot CPU's area until the real one exists.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "named by boot.S")]
// SAFETY: the redistributor is never accessed: what the boot CPU uses is in its final area.
static mut boot_cpu: Area = Area::new(0, 0, [0; 2], unsafe { Registers::new(0) });

/// Fills in the boot CPU's first area.
///
/// # Safety
/// No other CPU runs yet, and no reference to this area has been made.
#[cfg(target_os = "none")]
pub(super) unsafe fn begin(affinity: u64, stacks: [u64; 2]) {
    let area = &raw mut boot_cpu;
    area.expose_provenance();
    // SAFETY: the caller's promise.
    unsafe {
        (*area).cpu.affinity = affinity;
        [(*area).cpu.stack_top, (*area).cpu.fault_stack_top] = stacks;
    }
}
