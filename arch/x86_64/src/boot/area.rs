// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What modules have for each physical CPU: the one list of it.

use core::mem::offset_of;

use spin::Once;

use crate::cpu::descriptors::Own;
use crate::cpu::{PerCpu, Slot};
use crate::state::asid::Asids;
use crate::time::Deadlines;
use crate::vcpu::facility::Holder;
use crate::vm::queues::Scheduler;

/// What modules have for each physical CPU.
struct Slots {
    deadlines: Deadlines,
    descriptors: Own,
    scheduler: Once<Scheduler>,
    holder: Holder,
    asids: Asids,
}

macro_rules! slots {
    ($($field:ident: $type:ty),* $(,)?) => {
        $(
            // SAFETY: every `PerCpu` is filled with `Slots` by `fill`, before anybody else knows it.
            unsafe impl Slot for $type {
                const OFFSET: usize = offset_of!(Slots, $field);
            }
        )*
    };
}

slots! {
    deadlines: Deadlines,
    descriptors: Own,
    scheduler: Once<Scheduler>,
    holder: Holder,
    asids: Asids,
}

/// Makes what is not the ground part of the area of a CPU that has not started; `asids` are by what its TLB tells vCPUs apart.
pub(crate) fn fill(cpu: &mut PerCpu, asids: Asids) {
    cpu.fill(Slots {
        deadlines: Deadlines::new(),
        descriptors: Own::new(),
        scheduler: Once::new(),
        // SAFETY: `vcpu::facility` alone reaches it, through `cpu::this`; nothing interrupts it.
        holder: unsafe { Holder::nobody() },
        asids,
    });
}

/// Makes an area that stands for a CPU in tests: `cpu::this` calls it by name.
#[cfg(not(target_os = "none"))]
#[unsafe(no_mangle)]
fn turnstile_x86_64_area() -> &'static PerCpu {
    let cpu = Box::leak(Box::new(PerCpu::new(0, 0, 0, 0, 0)));
    cpu.online.store(true, core::sync::atomic::Ordering::Relaxed);
    fill(cpu, Asids::new(0, 16, false));
    cpu
}
