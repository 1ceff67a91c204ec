// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts through the exit handlers, on the host: what they touch of the machine, and what the guest finds.

mod ticks;

use turnstile_vm::attention::Reasons;

use crate::cpu::regs::fakes;
use crate::cpu::svm::vmcb::{interrupt, part};
use crate::cpu::svm::{Vmcb, code};
use crate::exit::tests::{handle, machine};
use crate::vcpu::frame::Frame;
use crate::vm::Vcpu;

const APIC_BASE: u64 = 0xfee0_0d00;
const VECTOR: u64 = 0x41;
/// Guest physical address of the EOI word.
const WORD: u64 = 0x3004;

/// Executes WRMSR for the guest, by the light tier.
pub(super) fn write(frame: &mut Frame, vmcb: &mut Vmcb, msr: u64, value: u64) -> u32 {
    frame.set_rcx(msr);
    frame.set_rdx(value >> 32);
    vmcb.set_rax(value & 0xffff_ffff);
    vmcb.set_exit_info([1, 0]);
    vmcb.set_clean(part::ALL);
    handle(frame, vmcb, code::MSR)
}

/// A vCPU whose guest has enabled its x2APIC.
pub(super) fn enabled() -> (&'static Vcpu, Frame, Vmcb, &'static mut [u8]) {
    let (vcpu, mut frame, mut vmcb, ram) = machine();
    super::reset(vcpu, &mut vmcb);
    super::with_lapic::<true, _>(vcpu, &mut vmcb, |lapic, cx| lapic.set_base(cx, APIC_BASE, |_| false))
        .expect("it has an x2APIC");
    assert_eq!(write(&mut frame, &mut vmcb, 0x80f, 0x1ff), 0);
    fakes::take_log();
    (vcpu, frame, vmcb, ram)
}

/// What the CPU does when the guest takes the offered interrupt.
pub(super) fn take(vmcb: &mut Vmcb) -> Option<u64> {
    let offered = vmcb.interrupts();
    let is_taken = offered & interrupt::PENDING != 0
        && (offered & interrupt::PRIORITY) >> interrupt::PRIORITY_SHIFT > offered & 0xf;
    vmcb.set_interrupts(offered & !if is_taken { interrupt::PENDING } else { 0 });
    is_taken.then(|| vmcb.interrupt_vector().into())
}

#[test]
fn a_self_ipi_changes_the_virtual_interrupt_and_no_register() {
    let (_, mut frame, mut vmcb, _) = enabled();
    assert_eq!(write(&mut frame, &mut vmcb, 0x83f, VECTOR), 0);
    assert_eq!(vmcb.clean(), part::ALL & !part::INTERRUPTS, "only that is loaded again");
    assert_eq!(fakes::take_log(), [], "no register of the machine, no kick");
    assert_eq!(take(&mut vmcb), Some(VECTOR));
    assert_eq!(write(&mut frame, &mut vmcb, 0x80b, 0), 0);
    assert_eq!(vmcb.clean(), part::ALL, "an end changes nothing of it");
    assert_eq!(take(&mut vmcb), None);
    assert_eq!(fakes::take_log(), []);
}

/// What a kick finds, and what it leaves in the attention word.
fn kicked(posts: &[(u8, bool)], besides: Reasons) -> (u32, Option<u64>, Reasons) {
    let (vcpu, mut frame, mut vmcb, _) = enabled();
    for (vector, level) in posts {
        let _ = vcpu.mailbox.post(&vcpu.attention, *vector, *level);
    }
    vcpu.attention.raise(besides);
    let code = handle(&mut frame, &mut vmcb, code::INTR);
    assert_eq!(fakes::take_log(), [], "no register of the machine");
    (code, take(&mut vmcb), vcpu.attention.take())
}

#[test]
fn a_kick_takes_over_what_was_posted() {
    let nothing = Reasons::empty();
    assert_eq!(kicked(&[], nothing), (0, None, nothing), "somebody was faster");
    assert_eq!(kicked(&[(0x41, false)], nothing), (0, Some(0x41), nothing));
    assert_eq!(kicked(&[(0x41, false), (0x71, true)], nothing), (0, Some(0x71), nothing), "two of one word");
    assert_eq!(kicked(&[(0x41, false), (0xf1, false)], nothing), (0, Some(0xf1), nothing), "of two words");
    let both = Reasons::mailbox(0x41) | Reasons::STOP;
    assert_eq!(kicked(&[(0x41, false)], Reasons::STOP), (both.bits(), None, both), "the full tier's");
    assert_eq!(kicked(&[], Reasons::NMI), (Reasons::NMI.bits(), None, Reasons::NMI));
}

#[test]
fn the_task_priority_is_the_cpus_to_compare() {
    let (_, mut frame, mut vmcb, _) = enabled();
    assert_eq!(write(&mut frame, &mut vmcb, 0x808, 0x50), 0);
    assert_eq!(vmcb.interrupts() & interrupt::TPR, 5);
    assert_eq!(write(&mut frame, &mut vmcb, 0x83f, VECTOR), 0);
    assert_eq!(take(&mut vmcb), None);
    // CR8.
    vmcb.set_interrupts(vmcb.interrupts() & !interrupt::TPR | 3);
    assert_eq!(take(&mut vmcb), Some(VECTOR));
}

#[test]
fn the_eoi_word_is_in_guest_memory_and_nowhere_else() {
    let (vcpu, mut frame, mut vmcb, ram) = enabled();
    super::with_lapic::<true, _>(vcpu, &mut vmcb, |lapic, cx| {
        let resolve = |address| vcpu.vm.life().ram.host(address, 4).and_then(core::num::NonZeroU64::new);
        assert!(lapic.set_pv_eoi(cx, 0x10_0000 | 1, resolve).is_err(), "there is no memory");
        assert!(lapic.set_pv_eoi(cx, 0xfffc | 1, resolve).is_ok(), "the last word");
        lapic.set_pv_eoi(cx, WORD | 1, resolve)
    })
    .expect("there is memory");
    for _ in 0..3 {
        assert_eq!(write(&mut frame, &mut vmcb, 0x83f, VECTOR), 0);
        assert_eq!(take(&mut vmcb), Some(VECTOR));
        assert!(ram.iter().enumerate().all(|(at, byte)| *byte == u8::from(at == WORD as usize)));
        // The guest's end of interrupt.
        ram[WORD as usize] = 0;
    }
    assert_eq!(fakes::take_log(), []);
    // Not any more after a reset.
    super::reset(vcpu, &mut vmcb);
    assert!(ram.iter().all(|byte| *byte == 0));
}

#[test]
fn what_cannot_be_written_is_a_fault_to_the_guest() {
    use crate::cpu::svm::vmcb::event;
    let (_, mut frame, mut vmcb, _) = enabled();
    let rip = vmcb.rip();
    for (msr, value) in [(0x83f, 0x100), (0x80b, 1), (0x802, 0), (0x8ff, 0)] {
        vmcb.set_event(0);
        assert_eq!(write(&mut frame, &mut vmcb, msr, value), 0);
        assert_eq!(vmcb.event() & (event::VALID | 0xff), event::VALID | 13);
        assert_eq!(vmcb.rip(), rip);
    }
}

#[test]
fn an_offered_interrupt_of_the_8259_is_acknowledged_when_it_is_taken() {
    let (vcpu, _, mut vmcb, _) = machine();
    super::reset(vcpu, &mut vmcb);
    for (port, value) in [(0x20, 0x11), (0x21, 0x30), (0x21, 4), (0x21, 1), (0x21, 0)] {
        vcpu.vm.write_port(port, value);
    }
    vcpu.vm.set_irq(3, true);
    assert!(vcpu.attention.take().contains(Reasons::EXTERNAL));
    super::external(vcpu, &mut vmcb);
    assert_eq!(
        vmcb.interrupts() & (interrupt::PENDING | interrupt::IGNORE_TPR),
        interrupt::PENDING | interrupt::IGNORE_TPR
    );
    assert_eq!(vmcb.interrupt_vector(), 0x33);
    // A higher one arrives before the guest has taken it, and one after.
    vcpu.vm.set_irq(1, true);
    super::external(vcpu, &mut vmcb);
    assert_eq!(vmcb.interrupt_vector(), 0x31);
    vmcb.set_interrupts(vmcb.interrupts() & !interrupt::PENDING);
    vcpu.vm.set_irq(0, true);
    super::external(vcpu, &mut vmcb);
    assert_eq!(vmcb.interrupt_vector(), 0x30);
    vcpu.vm.write_port(0x20, 0x0b);
    assert_eq!(vcpu.vm.read_port(0x20), 1 << 1, "the one that was taken is in service, and it alone");
    // The handler of the next one asks the 8259 before anything else has looked.
    vmcb.set_interrupts(vmcb.interrupts() & !interrupt::PENDING);
    super::before_port(vcpu, &mut vmcb);
    assert_eq!(vcpu.vm.read_port(0x20), 1 << 1 | 1 << 0);
}

#[test]
fn lines_post_through_the_io_apic() {
    let (vcpu, mut frame, mut vmcb, _) = enabled();
    let entry = |pin: u32, low: u32| {
        vcpu.vm.ioapic_write(0, 0x10 + 2 * pin);
        vcpu.vm.ioapic_write(0x10, low);
    };
    entry(2, 0x51);
    entry(9, 1 << 15 | 0x61);
    let deliver = |vmcb: &mut Vmcb| {
        super::drain(vcpu, vmcb, vcpu.attention.take());
    };
    vcpu.vm.set_irq(0, true);
    deliver(&mut vmcb);
    assert_eq!(take(&mut vmcb), Some(0x51), "line 0 is pin 2");
    assert_eq!(write(&mut frame, &mut vmcb, 0x80b, 0), 0);
    vcpu.vm.set_irq(9, true);
    deliver(&mut vmcb);
    assert_eq!(take(&mut vmcb), Some(0x61));
    // Its end comes while the line is still asserted: once more.
    assert_eq!(write(&mut frame, &mut vmcb, 0x80b, 0), Reasons::mailbox(0x61).bits());
    deliver(&mut vmcb);
    assert_eq!(take(&mut vmcb), Some(0x61));
    vcpu.vm.set_irq(9, false);
    assert_eq!(write(&mut frame, &mut vmcb, 0x80b, 0), 0);
}

#[test]
fn the_timer_is_armed_where_the_vcpu_is() {
    let (vcpu, mut frame, mut vmcb, _) = enabled();
    fakes::set("TSC", 1_000_000);
    vmcb.set_tsc_offset(500_u64.wrapping_sub(1_000_000));
    assert_eq!(write(&mut frame, &mut vmcb, 0x832, 0x4_00ec), 0);
    super::with_lapic::<true, _>(vcpu, &mut vmcb, |lapic, cx| lapic.set_tsc_deadline(cx, 900));
    assert_eq!(super::put(vcpu, &mut vmcb), Some(1_000_400));
    fakes::set("TSC", 1_000_400);
    super::timer(vcpu, &mut vmcb);
    assert_eq!(take(&mut vmcb), Some(0xec));
    assert_eq!(super::put(vcpu, &mut vmcb), None);
}
