// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All that each physical CPU has for itself: one list, in which modules find theirs ([`PerCpu::slot`]).

use alloc::boxed::Box;
use core::mem::offset_of;

use spin::Once;

use crate::cpu::PerCpu;
use crate::cpu::area::Slot;
use crate::cpu::report::Reporter;
use crate::time::Deadlines;
use crate::vcpu::facility::Holder;
use crate::vm::queues::Scheduler;

macro_rules! area {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $new:expr;)*) => {
        /// The area of a CPU.
        #[repr(C)]
        pub(super) struct Area {
            /// The ground part.
            pub(super) cpu: PerCpu,
            $($(#[$doc])* $field: $type,)*
        }

        impl Area {
            /// Makes the area of a CPU that has not started.
            ///
            /// # Safety
            /// It lives for ever, at an address that is exposed.
            pub(super) const unsafe fn new(
                index: usize,
                pir: u32,
                stack_end: u64,
                fault_stack_end: u64,
                report: Reporter,
            ) -> Self {
                // SAFETY: the caller's promise; the others are at the places that their `Slot`s refer to.
                let cpu = unsafe { PerCpu::new(index, pir, stack_end, fault_stack_end, report) };
                Self { cpu, $($field: $new,)* }
            }
        }

        $(
            // SAFETY: every `PerCpu` is the first field of an `Area`, which has this one there.
            unsafe impl Slot for $type {
                const OFFSET: usize = offset_of!(Area, $field);
            }
        )*
    };
}

area! {
    /// What its timer is to ring for.
    deadlines: Deadlines = Deadlines::new();
    /// Its run queue, if vCPUs share it.
    scheduler: Once<Scheduler> = Once::new();
    /// Whose state its registers hold.
    // SAFETY: `vcpu/facility.rs` alone reaches it, through `cpu::this`; nothing interrupts it.
    holder: Holder = unsafe { Holder::nobody() };
}

const _: () = assert!(offset_of!(Area, cpu) == 0);

impl Area {
    /// Makes an area that lives for ever.
    pub(super) fn leak(
        index: usize,
        pir: u32,
        stack_end: u64,
        fault_stack_end: u64,
        report: Reporter,
    ) -> &'static PerCpu {
        // SAFETY: it is leaked, and exposed.
        let area = Box::leak(Box::new(unsafe { Self::new(index, pir, stack_end, fault_stack_end, report) }));
        let area = core::ptr::from_mut(area);
        area.expose_provenance();
        // SAFETY: nobody has any other reference to it.
        unsafe { &(*area).cpu }
    }
}

/// The area of a thread of the host, which stands for a CPU in tests: [`crate::cpu::this`].
#[cfg(not(target_os = "none"))]
#[unsafe(no_mangle)]
fn turnstile_power64_area() -> &'static PerCpu {
    extern "C" fn nobody(_: &crate::cpu::report::Report, _: u64) -> ! {
        crate::cpu::halt()
    }
    std::thread_local! {
        static AREA: &'static PerCpu = Area::leak(0, 0, 0, 0, nobody);
    }
    AREA.with(|area| *area)
}
