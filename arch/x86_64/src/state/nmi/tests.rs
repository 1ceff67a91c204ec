// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NMIs through full exits, on the host: what the guest is entered with. The test is its CPU.

use turnstile_vm::attention::Reasons;

use crate::cpu::regs::fakes;
use crate::cpu::regs::flags;
use crate::cpu::svm::code;
use crate::cpu::svm::vmcb::{event, interrupt};
use crate::cpu::svm::{Vmcb, intercept};
use crate::exit::tests::machine;
use crate::exit::tier::Code;
use crate::exit::turnstile_full_exit;
use crate::vcpu::frame::Frame;
use crate::vm::Vcpu;

const NMI: u64 = event::VALID | event::NMI | 2;
/// DR6 as the guest has left it: B2, and BS of an earlier step.
const DR6: u64 = 0xffff_0ff0 | 1 << 2 | 1 << 14;
const BS: u64 = 1 << 14;
const IRET: u64 = 0x4000;
const ALWAYS: u32 = 1 << 1 | 1 << 17 | 1 << 18;
const OF_IRET: u32 = 1 << 10 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 14;

struct Guest {
    vcpu: &'static Vcpu,
    frame: Frame,
}

impl Guest {
    /// A guest in 64-bit code, which has DR6.
    fn new() -> Self {
        let (vcpu, frame, start, _) = machine();
        let guest = Self { vcpu, frame };
        guest.vmcb(|vmcb| {
            *vmcb = start;
            intercept::set(vmcb);
            vmcb.set_interrupt_shadow(0);
            vmcb.set_dr6(DR6);
        });
        guest
    }

    fn vmcb<R>(&self, f: impl FnOnce(&mut Vmcb) -> R) -> R {
        self.vcpu.with_vmcb(f)
    }

    /// The guest has taken what it was given, and leaves; returns what it is given then.
    fn leave(&mut self, exit: u32) -> u64 {
        self.vmcb(|vmcb| {
            vmcb.set_event(0);
            vmcb.set_exit_code(exit.into());
        });
        self.handled()
    }

    fn handled(&mut self) -> u64 {
        turnstile_full_exit(&mut self.frame, core::ptr::null_mut(), Code::FULL);
        self.vmcb(|vmcb| vmcb.event())
    }

    /// An NMI is posted, and the guest leaves because of that.
    fn nmi(&mut self) -> u64 {
        self.vcpu.post(Reasons::NMI);
        self.leave(code::INTR)
    }

    /// It leaves at its IRET.
    fn at_iret(&mut self) -> u64 {
        self.vmcb(|vmcb| vmcb.set_rip(IRET));
        self.leave(code::IRET)
    }

    /// What says that an IRET is stepped over: TF, the faults that leave, and that IRET does not.
    fn steps(&self) -> bool {
        self.vmcb(|vmcb| {
            let trap = vmcb.rflags() & flags::TRAP != 0;
            let faults = vmcb.exception_intercepts();
            assert!(faults == if trap { ALWAYS | OF_IRET } else { ALWAYS }, "{faults:#x}");
            assert!(!trap || !intercept::has_iret(vmcb));
            trap
        })
    }

    /// IRET is executed: the guest goes on at `rip` with these flags, and the trap leaves.
    fn stepped(&mut self, rip: u64, flags: u64, raised: u64) -> u64 {
        self.vmcb(|vmcb| {
            vmcb.set_rip(rip);
            vmcb.set_rflags(flags::RESERVED | flags);
            vmcb.set_dr6(vmcb.dr6() | BS | raised);
        });
        self.leave(code::DEBUG)
    }

    /// Nothing of a step is left: masked or not.
    fn is_quiet(&self, masked: bool) {
        assert!(!self.steps());
        self.vmcb(|vmcb| {
            assert_eq!((vmcb.dr6(), intercept::has_iret(vmcb)), (DR6, masked));
            assert_eq!(vmcb.rflags() & flags::TRAP, 0);
        });
    }
}

#[test]
fn the_second_is_taken_right_behind_the_iret_of_the_first() {
    let mut guest = Guest::new();
    assert_eq!(guest.nmi(), NMI);
    guest.is_quiet(true);
    assert_eq!([guest.nmi(), guest.nmi()], [0, 0], "masked");
    assert_eq!(guest.at_iret(), 0, "the IRET has yet to be executed");
    assert!(guest.steps());
    assert_eq!(guest.stepped(0x2000, 0, 0), NMI);
    guest.is_quiet(true);
    assert_eq!(guest.at_iret(), 0);
    assert_eq!(guest.stepped(0x2000, 0, 0), 0, "two that came while one was in service are one");
    guest.is_quiet(false);
    assert!(guest.vcpu.owned(|owned| owned.nmi.is_idle()));
    assert_eq!(guest.nmi(), NMI, "another IRET at the same place masks nothing");
}

#[test]
fn an_exit_before_the_iret_takes_the_step_back() {
    let mut guest = Guest::new();
    guest.nmi();
    guest.nmi();
    guest.at_iret();
    assert!(guest.steps());
    assert_eq!(guest.leave(code::INTR), 0);
    guest.is_quiet(true);
    assert_eq!(guest.leave(code::IRET), 0);
    assert!(guest.steps());
    assert_eq!(guest.stepped(0x2000, 0, 0), NMI);
}

#[test]
fn an_iret_that_faults_masks_on_and_pushes_flags_without_tf() {
    let faults = [(code::INVALID_TSS, 10), (0x4b, 11), (0x4c, 12), (0x4d, 13), (code::PAGE_FAULT, 14)];
    for (exit, vector) in faults {
        let mut guest = Guest::new();
        guest.nmi();
        guest.nmi();
        guest.at_iret();
        guest.vmcb(|vmcb| vmcb.set_exit_info([0x18, 0x1234_5678]));
        let fault = event::VALID | event::EXCEPTION | event::ERROR_CODE | vector | 0x18 << 32;
        assert_eq!(guest.leave(exit), fault);
        guest.is_quiet(true);
        let cr2 = guest.vmcb(|vmcb| vmcb.cr2());
        assert_eq!(cr2, if vector == 14 { 0x1234_5678 } else { 0 });
        // The fault's handler ends with IRET, too.
        assert_eq!(guest.at_iret(), 0);
        assert_eq!(guest.stepped(IRET, 0, 0), NMI);
    }
}

#[test]
fn a_guest_that_steps_gets_its_trap_first() {
    let mut guest = Guest::new();
    guest.nmi();
    guest.nmi();
    guest.vmcb(|vmcb| vmcb.set_rflags(flags::RESERVED | flags::TRAP));
    guest.at_iret();
    fakes::take_log();
    assert_eq!(guest.stepped(0x2000, 0, 0), event::VALID | event::EXCEPTION | 1);
    assert_eq!(guest.vmcb(|vmcb| vmcb.dr6()), DR6 & !0xf | BS);
    // The NMI follows before the trap's handler has executed anything: a kick is there already.
    assert!(fakes::take_log().iter().any(|access| matches!(access, fakes::Access::Write("ICR" | "APIC", _))));
    assert!(guest.vcpu.attention.is_pending());
    assert_eq!(guest.leave(code::INTR), NMI);
    // TF that IRET has loaded is for the instruction behind.
    let mut guest = Guest::new();
    guest.nmi();
    guest.at_iret();
    assert_eq!(guest.stepped(0x2000, flags::TRAP, 0), 0);
    guest.vmcb(|vmcb| assert_eq!((vmcb.dr6(), vmcb.rflags()), (DR6, flags::RESERVED | flags::TRAP)));
    guest.vmcb(|vmcb| vmcb.set_dr6(DR6 | BS));
    assert_eq!(guest.leave(code::DEBUG), event::VALID | event::EXCEPTION | 1);
}

#[test]
fn breakpoints_that_iret_meets_are_the_guests() {
    let debug = event::VALID | event::EXCEPTION | 1;
    let mut guest = Guest::new();
    guest.vmcb(|vmcb| vmcb.set_dr7(0x400 | 1 << 3));
    guest.nmi();
    guest.at_iret();
    assert_eq!(guest.stepped(0x2000, 0, 1), 0, "breakpoint 0 is off");
    guest.is_quiet(false);
    guest.nmi();
    guest.at_iret();
    assert_eq!(guest.stepped(0x2000, 0, 2), debug);
    assert_eq!(guest.vmcb(|vmcb| vmcb.dr6()), DR6 & !0xf | 2, "BS is as it was");
    // At the instruction itself: it has not been executed.
    guest.vmcb(|vmcb| vmcb.set_dr6(DR6 & !BS));
    guest.nmi();
    guest.at_iret();
    guest.vmcb(|vmcb| vmcb.set_dr6(vmcb.dr6() | 2));
    assert_eq!(guest.leave(code::DEBUG), debug);
    assert!(!guest.steps());
    guest.vmcb(|vmcb| assert_eq!((vmcb.dr6(), intercept::has_iret(vmcb)), (DR6 & !BS & !0xf | 2, true)));
}

#[test]
fn an_interrupt_that_comes_first_is_not_stepped_into() {
    let mut guest = Guest::new();
    guest.nmi();
    guest.nmi();
    guest.vmcb(|vmcb| {
        vmcb.set_rflags(flags::RESERVED | flags::INTERRUPT);
        vmcb.set_interrupts(interrupt::MASKING | interrupt::PENDING | 5 << interrupt::PRIORITY_SHIFT);
        vmcb.set_interrupt_vector(0x51);
    });
    assert_eq!(guest.at_iret(), 0);
    guest.is_quiet(true);
    // Behind STI IRET comes first.
    guest.vmcb(|vmcb| vmcb.set_interrupt_shadow(1));
    assert_eq!(guest.at_iret(), 0);
    assert!(guest.steps());
}

#[test]
fn an_iret_that_switches_tasks_ends_the_masking_when_rip_has_moved() {
    let mut guest = Guest::new();
    guest.vmcb(|vmcb| {
        vmcb.set_efer(crate::cpu::regs::efer::SVME);
        vmcb.set_cr0(crate::cpu::regs::cr0::PE);
        vmcb.set_rflags(flags::RESERVED | flags::NESTED);
    });
    guest.nmi();
    guest.nmi();
    fakes::take_log();
    assert_eq!(guest.at_iret(), 0);
    guest.is_quiet(false);
    let armed =
        || fakes::take_log().iter().filter(|access| matches!(access, fakes::Access::Write(..))).count();
    assert_ne!(armed(), 0, "the timer makes an exit");
    assert_eq!(guest.leave(code::INTR), 0);
    guest.vmcb(|vmcb| vmcb.set_rip(0x2000));
    assert_eq!(guest.leave(code::INTR), NMI);
    guest.is_quiet(true);
    // In virtual-8086 mode, real mode and long mode the bit means nothing.
    for (cr0, efer, more) in [(0, 0, 0), (1, crate::cpu::regs::efer::LMA, 0), (1, 0, flags::VIRTUAL_8086)] {
        let mut guest = Guest::new();
        guest.vmcb(|vmcb| {
            vmcb.set_efer(efer);
            vmcb.set_cr0(cr0);
            vmcb.set_rflags(flags::RESERVED | flags::NESTED | more);
        });
        guest.nmi();
        guest.at_iret();
        assert!(guest.steps());
    }
}

#[test]
fn none_is_taken_in_the_shadow_of_an_instruction() {
    let mut guest = Guest::new();
    guest.vmcb(|vmcb| vmcb.set_interrupt_shadow(1));
    let mut deadlines = Vec::new();
    for _ in 0..15 {
        fakes::set("TSC", 0);
        assert_eq!(guest.nmi(), 0);
        assert!(guest.vcpu.attention.is_pending(), "whatever leaves, looks");
        deadlines.push(crate::time::guest_deadline());
        crate::time::set_guest(None);
    }
    // Later each time, up to a millisecond: a slow machine gets to the next instruction, too.
    assert!(deadlines.windows(2).all(|pair| pair[0] <= pair[1]), "{deadlines:?}");
    assert_eq!((deadlines[0], deadlines[14]), (1000, 1_024_000));
    guest.vmcb(|vmcb| vmcb.set_interrupt_shadow(0));
    assert_eq!(guest.leave(code::INTR), NMI);
    assert!(!guest.vcpu.attention.is_pending());
}

#[test]
fn one_that_meets_another_event_follows_it() {
    let mut guest = Guest::new();
    guest.vcpu.post(Reasons::NMI);
    // An instruction that is #GP(0).
    let fault = event::VALID | event::EXCEPTION | event::ERROR_CODE | 13;
    assert_eq!(guest.leave(code::RDPMC), fault);
    assert!(guest.vcpu.attention.is_pending());
    assert_eq!(guest.leave(code::INTR), NMI);
}

#[test]
fn an_nmi_whose_delivery_was_cut_short_is_delivered_again() {
    let mut guest = Guest::new();
    assert_eq!(guest.nmi(), NMI);
    guest.vcpu.post(Reasons::NMI);
    guest.vmcb(|vmcb| vmcb.set_exit_interrupt(NMI));
    assert_eq!(guest.leave(code::INTR), NMI);
    guest.vmcb(|vmcb| vmcb.set_exit_interrupt(0));
    guest.is_quiet(true);
    assert_eq!(guest.leave(code::INTR), 0, "the other one waits");
    guest.at_iret();
    assert_eq!(guest.stepped(0x2000, 0, 0), NMI);
}
