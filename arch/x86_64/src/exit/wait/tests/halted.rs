// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HLT with a timer that rings.

use super::*;
use crate::exit::wait::halt;

const PERIOD: u64 = 20_000;

/// The guest executes HLT with its timer ringing as often as it can. Returns how often that rang.
fn rings_in_halt(timer: u64, rflags: u64, priority: u32) -> (u32, &'static Vcpu, Frame) {
    let (vcpu, mut frame, owner) = recording();
    for (msr, value) in [(0x832, 1 << 17 | timer), (0x83e, 0xb), (0x838, 100)] {
        write(vcpu, &mut frame, msr, value);
    }
    vcpu.with_vmcb(|vmcb| {
        vmcb.set_rflags(flags::RESERVED | rflags);
        vmcb.set_interrupts(vmcb.interrupts() & !interrupt::TPR | priority);
    });
    cpu::this().arrived.store(Arrived::CONSOLE.bits(), Ordering::Relaxed);
    halt(&mut frame, vcpu, &owner);
    (owner.rings.load(Ordering::Relaxed), vcpu, frame)
}

#[test]
fn a_timer_does_not_wake_for_what_a_halted_vcpu_does_not_take() {
    const VECTOR: u64 = 0xec;
    for (rflags, priority) in [(0, 0), (flags::INTERRUPT, 15)] {
        let (rings, vcpu, mut frame) = rings_in_halt(VECTOR, rflags, priority);
        assert_eq!(rings, 1, "RFLAGS {rflags:#x}, priority {priority}");
        assert!(vcpu.owned(|owned| !owned.nmi.is_idle()), "the NMI has ended it");
        assert_eq!(pending(vcpu, &mut frame), [VECTOR as u32]);
        // It rings again, where it would have rung.
        let (now, next) = (time::ticks(), time::guest_deadline());
        assert!(next > now && next <= now + PERIOD, "{next} behind {now}");
        assert_eq!((next - 1_000_100) % PERIOD, 0);
        vcpu.with_vmcb(|vmcb| {
            vmcb.set_interrupts(vmcb.interrupts() & !(interrupt::PENDING | interrupt::TPR))
        });
        write(vcpu, &mut frame, 0x80b, 0);
        assert_eq!(pending(vcpu, &mut frame), [0; 0], "once");
    }
    // What no APIC accepts is an error, once.
    assert_eq!(rings_in_halt(5, flags::INTERRUPT, 0).0, 1);
}

#[test]
fn a_timer_wakes_whoever_takes_its_interrupt() {
    let (rings, vcpu, _) = rings_in_halt(0xec, flags::INTERRUPT, 0);
    assert_eq!((rings, offered(vcpu)), (1, Some(0xec)));
    assert!(vcpu.owned(|owned| owned.nmi.is_idle()), "nothing else was needed");
    assert!(vcpu.with_vmcb(|vmcb| event::takes_interrupt(vmcb)));
}
