// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handlers that go without techniques ([`crate::exit::naive`]).

use core::hint::black_box;
use core::sync::atomic::{AtomicUsize, Ordering};

use turnstile_techniques::{Set, Technique};

use crate::cpu::svm::{Vmcb, code};
use crate::exit::keep::keep;
use crate::exit::table::{LIGHT_HANDLERS, other, place};
use crate::exit::tier::{Code, Handler, control};
use crate::exit::{cpuid, hypercall, msr, port};
use crate::irq::interrupts::Arrived;
use crate::vcpu::frame::Frame;
use crate::vcpu::next::{Known, Next};
use crate::vcpu::serve;
use crate::vm::Vcpu;
use crate::vm::monitor::monitor;

/// The handlers by exit code, for `naive.S`.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static NAIVE_HANDLERS: [AtomicUsize; 256] = [const { AtomicUsize::new(0) }; 256];

/// Serves interrupts that have arrived on the CPU where `vcpu` is resident.
pub fn serve(vcpu: &Vcpu, arrived: Arrived) {
    serve::serve(Some(vcpu), monitor(), arrived);
}

/// Registers that are known, as a list to search: those of the local APIC come last, as they did in lists that grew.
const LISTED: [u32; 40] = {
    let mut listed = [0; 40];
    let mut next = 0;
    while next < 24 {
        listed[next] = [
            0x10,
            0x1b,
            0x49,
            0x8b,
            0xfe,
            0x179,
            0x17a,
            0x1d9,
            0x200,
            0x250,
            0x258,
            0x268,
            0x277,
            0x2ff,
            0x6e0,
            0xc000_0080,
            0xc001_0010,
            0xc001_0015,
            0xc001_001f,
            0xc001_1029,
            0x4b56_4d00,
            0x4b56_4d01,
            0x4b56_4d02,
            0x4b56_4d03,
        ][next];
        next += 1;
    }
    listed[next] = 0x4b56_4d04;
    listed[next + 1] = 0x4b56_4d05;
    next += 2;
    while next < 40 {
        listed[next] = 0x800 + (next as u32 - 26) * 4 + 2;
        next += 1;
    }
    listed
};

keep! {
    /// RDMSR and WRMSR, found by a search of the list and handled as always.
    searched => search: rsi 40, rdx 48, r8 24, r9 16, r10 8, r11 0
}

extern "C" fn search<N: Next>(frame: &mut Frame, _: u64, _: u64) -> u32 {
    let number = frame.rcx() as u32;
    black_box(black_box(&LISTED).iter().position(|listed| *listed == number));
    msr::answer::<N>(frame, control(frame))
}

/// Does in the full tier, where the registers are in the frame, what the light one was not to do.
pub fn light(frame: &mut Frame, vmcb: &mut Vmcb, exit: u32) -> u32 {
    match exit {
        code::CPUID => cpuid::answer::<Known>(frame, vmcb),
        code::VMMCALL => hypercall::answer::<Known>(frame, vmcb),
        code::IOIO => port::answer::<Known>(frame, vmcb),
        _ => Code::FULL,
    }
}

/// Chooses the handlers of a set.
pub fn take_off(off: Set) {
    let mut handlers: [Handler; 256] = LIGHT_HANDLERS;
    if off.contains(Technique::IndexedDispatch) {
        handlers[place(code::MSR)] = searched::<Known>;
    }
    if off.contains(Technique::LightExit) {
        handlers = [other; 256];
    }
    for (place, handler) in NAIVE_HANDLERS.iter().zip(handlers) {
        place.store(handler as usize, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use turnstile_x86policy::msr::{Policy, policy};

    use super::*;

    #[test]
    fn what_is_listed_is_there() {
        for number in LISTED {
            assert_ne!(policy(number), Policy::Absent, "{number:#x}");
        }
    }
}
