// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ticks of the 8254 while the vCPU's CPU does something else, on the host: a kernel that counts them gets them all. Linux
//! panics if it counts fewer than five in the time of seventeen ("IO-APIC + timer doesn't work").

use turnstile_vm::attention::Reasons;

use super::{enabled, take, write};
use crate::cpu::regs::fakes;
use crate::cpu::svm::{Vmcb, code};
use crate::exit::tests::handle;
use crate::vcpu::frame::Frame;
use crate::vcpu::irq;
use crate::vm::Vcpu;

const VECTOR: u64 = 0x51;
/// Four milliseconds of the 8254, and a little more in ticks of the time stamp counter: Linux's 250 Hz.
const COUNT: u16 = 4773;
const PERIOD: u64 = 4_000_250;

/// Lets the 8254 ring every [`PERIOD`]. The next tick is due when the time stamp counter shows the result.
fn start(vcpu: &'static Vcpu, vmcb: &mut Vmcb) -> u64 {
    fakes::set("TSC", 1_000_000);
    for (port, value) in [(0x43, 0x34), (0x40, COUNT as u8), (0x40, (COUNT >> 8) as u8)] {
        vcpu.vm.write_port(port, value);
    }
    vcpu.attention.take();
    irq::timer(vcpu, vmcb);
    assert_eq!(take(vmcb), None);
    1_002_000 + PERIOD
}

/// The time stamp counter shows `at` when the vCPU's CPU looks at its timer again.
fn wake(vcpu: &'static Vcpu, vmcb: &mut Vmcb, at: u64) {
    fakes::set("TSC", at);
    irq::timer(vcpu, vmcb);
}

/// Masks the 8259, and lets the tick through the I/O APIC.
fn use_ioapic(vcpu: &'static Vcpu) {
    vcpu.vm.write_port(0x21, 0xff);
    vcpu.vm.ioapic_write(0, 0x10 + 2 * 2);
    vcpu.vm.ioapic_write(0x10, VECTOR as u32);
}

/// Does what the attention word asks for.
fn attend(vcpu: &'static Vcpu, vmcb: &mut Vmcb) {
    let reasons = vcpu.attention.take();
    irq::drain(vcpu, vmcb, reasons);
    if reasons.contains(Reasons::EXTERNAL) {
        irq::external(vcpu, vmcb);
    }
}

/// Takes all ticks that are there; the end of each is what `end` does. Returns how many there were.
fn ticks(vcpu: &'static Vcpu, vmcb: &mut Vmcb, vector: u64, mut end: impl FnMut(&mut Vmcb)) -> usize {
    for count in 0..100 {
        attend(vcpu, vmcb);
        match take(vmcb) {
            Some(taken) => assert_eq!(taken, vector),
            None => return count,
        }
        end(vmcb);
    }
    panic!("there is no end of ticks");
}

/// The end of an interrupt by the x2APIC.
fn end_by_apic(frame: &mut Frame) -> impl FnMut(&mut Vmcb) {
    move |vmcb| {
        write(frame, vmcb, 0x80b, 0);
    }
}

#[test]
fn ticks_that_were_missed_follow_the_end_of_the_one_before() {
    let (vcpu, mut frame, mut vmcb, _) = enabled();
    use_ioapic(vcpu);
    let first = start(vcpu, &mut vmcb);
    wake(vcpu, &mut vmcb, first);
    assert_eq!(ticks(vcpu, &mut vmcb, VECTOR, end_by_apic(&mut frame)), 1, "in time");
    wake(vcpu, &mut vmcb, first + 10 * PERIOD);
    attend(vcpu, &mut vmcb);
    assert_eq!(take(&mut vmcb), Some(VECTOR));
    attend(vcpu, &mut vmcb);
    assert_eq!(take(&mut vmcb), None, "the next one waits for the end of this");
    end_by_apic(&mut frame)(&mut vmcb);
    assert_eq!(ticks(vcpu, &mut vmcb, VECTOR, end_by_apic(&mut frame)), 9);
    // Behind that it is an edge like others: its end is nobody's business.
    wake(vcpu, &mut vmcb, first + 11 * PERIOD);
    attend(vcpu, &mut vmcb);
    assert_eq!(take(&mut vmcb), Some(VECTOR));
    assert_eq!(write(&mut frame, &mut vmcb, 0x80b, 0), 0);
    assert_eq!(ticks(vcpu, &mut vmcb, VECTOR, end_by_apic(&mut frame)), 0);
}

#[test]
fn ticks_are_made_up_for_by_the_8259_too() {
    let (vcpu, mut frame, mut vmcb, _) = crate::exit::tests::machine();
    irq::reset(vcpu, &mut vmcb);
    for (port, value) in [(0x20, 0x11), (0x21, 0x30), (0x21, 4), (0x21, 1), (0x21, 0xfe)] {
        vcpu.vm.write_port(port, value);
    }
    let first = start(vcpu, &mut vmcb);
    wake(vcpu, &mut vmcb, first + 9 * PERIOD);
    // OUT 0x20, AL.
    let mut end = |vmcb: &mut Vmcb| {
        vmcb.set_exit_info([0x20 << 16 | 1 << 4, 0x1002]);
        vmcb.set_rax(0x20);
        handle(&mut frame, vmcb, code::IOIO);
    };
    assert_eq!(ticks(vcpu, &mut vmcb, 0x30, &mut end), 10);
    wake(vcpu, &mut vmcb, first + 10 * PERIOD);
    assert_eq!(ticks(vcpu, &mut vmcb, 0x30, end), 1);
}

#[test]
fn ticks_that_nobody_hears_are_not_owed_to_who_starts_the_timer_anew() {
    let (vcpu, mut frame, mut vmcb, _) = enabled();
    vcpu.vm.write_port(0x21, 0xff);
    let first = start(vcpu, &mut vmcb);
    wake(vcpu, &mut vmcb, first + 1000 * PERIOD);
    assert_eq!(ticks(vcpu, &mut vmcb, VECTOR, end_by_apic(&mut frame)), 0, "the pin is masked");
    use_ioapic(vcpu);
    let first = start(vcpu, &mut vmcb);
    wake(vcpu, &mut vmcb, first);
    assert_eq!(ticks(vcpu, &mut vmcb, VECTOR, end_by_apic(&mut frame)), 1);
}
