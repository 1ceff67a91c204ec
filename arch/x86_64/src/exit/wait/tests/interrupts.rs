// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What others send: when it comes, and when it is gone.

use super::*;

/// Another vCPU sends an interrupt.
fn send(vcpu: &'static Vcpu, vector: u8) {
    vcpu.notify(vcpu.mailbox.post(&vcpu.attention, vector, false));
}

/// The guest has set its 8259s up, whose first vector is 30h.
fn set_pics_up(vm: &Vm) {
    for (port, value) in [(0x20, 0x11), (0x21, 0x30), (0x21, 4), (0x21, 1), (0x21, 0)] {
        vm.write_port(port, value);
    }
}

const LINT0: u32 = 0x835;

#[test]
fn of_reasons_that_come_together_none_is_left_out() {
    let (vcpu, mut frame, owner) = recording();
    let others = [
        Reasons::NMI,
        Reasons::UNHALT,
        Reasons::EXTERNAL,
        Reasons::DEADLINE,
        Reasons::FLUSH,
        // Not any more: a startup IPI was faster.
        Reasons::INIT,
    ];
    for (vector, reason) in (0x50..).zip(others) {
        send(vcpu, vector);
        vcpu.attention.raise(reason);
        settle(&mut frame, vcpu, &owner);
        assert!(pending(vcpu, &mut frame).contains(&vector.into()), "{reason:?}");
    }
}

#[test]
fn what_others_have_sent_before_an_init_is_gone() {
    let (vcpu, mut frame, owner) = recording();
    send(vcpu, 0x41);
    init(vcpu, &mut frame, &owner);
    // Nor is it there if the reason to look for it was taken while the vCPU waited.
    send(vcpu, 0x42);
    vcpu.attention.take();
    assert!(vcpu.vm.startup.init(0) && vcpu.vm.startup.startup(0, 9));
    start_life(vcpu, &mut frame, vcpu.vm.startup.take_start(0).expect("it starts"));
    write(vcpu, &mut frame, 0x80f, 0x1ff);
    send(vcpu, 0x52);
    settle(&mut frame, vcpu, &owner);
    assert_eq!(pending(vcpu, &mut frame), [0x52]);
}

#[test]
fn an_init_changes_nothing_of_what_the_8259_asks_for() {
    let (vcpu, mut frame, owner) = recording();
    set_pics_up(vcpu.vm);
    let mut opened = |change: fn(&'static Vcpu)| {
        write(vcpu, &mut frame, LINT0, 0x700);
        settle(&mut frame, vcpu, &owner);
        change(vcpu);
        init(vcpu, &mut frame, &owner);
        assert_eq!(offered(vcpu), None, "LINT0 is masked");
        write(vcpu, &mut frame, 0x80f, 0x1ff);
        write(vcpu, &mut frame, LINT0, 0x700);
        offered(vcpu)
    };
    // In the moment of the INIT it begins to ask, and ceases.
    assert_eq!(opened(|vcpu| vcpu.vm.set_irq(3, true)), Some(0x33));
    assert_eq!(opened(|vcpu| vcpu.vm.set_irq(3, false)), None);
    assert_eq!(opened(|vcpu| vcpu.vm.set_irq(3, true)), Some(0x33));
    // The guest has taken it, which nobody has seen yet.
    let takes = |vcpu: &'static Vcpu| {
        vcpu.with_vmcb(|vmcb| vmcb.set_interrupts(vmcb.interrupts() & !interrupt::PENDING));
    };
    assert_eq!(opened(takes), None);
    vcpu.vm.write_port(0x20, 0x0b);
    assert_eq!(vcpu.vm.read_port(0x20), 1 << 3, "in service");
}

#[test]
fn where_the_firmware_goes_on_the_8259_gets_through() {
    let (vcpu, mut frame, owner) = recording();
    let owner = Owner { resumes: true, ..owner };
    set_pics_up(vcpu.vm);
    init(vcpu, &mut frame, &owner);
    assert_eq!(offered(vcpu), None);
    vcpu.vm.set_irq(3, true);
    settle(&mut frame, vcpu, &owner);
    assert_eq!(offered(vcpu), Some(0x33));
    init(vcpu, &mut frame, &owner);
    assert_eq!(offered(vcpu), Some(0x33), "it asked before");
}
