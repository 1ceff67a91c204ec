// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MOV to CR8, where it is carried out.

use super::*;

#[test]
fn cr8_is_written_as_the_cpu_does() {
    let (vcpu, mut frame, mut vmcb, ram) = machine();
    // Its code is found without paging: 32-bit code, where LOCK makes CR0 CR8.
    vmcb.set_efer(0);
    vmcb.set_cs(Segment { attributes: attribute::FLAT_CODE, limit: u32::MAX, ..Segment::default() });
    ram[0x1000..0x1004].copy_from_slice(&[0xf0, 0x0f, 0x22, 0xc1]);
    let mut write = |vmcb: &mut Vmcb, value| {
        vmcb.set_event(0);
        vmcb.set_rip(0x1000);
        vmcb.set_interrupt_shadow(1);
        frame.set_rcx(value);
        control::write_cr8(&frame, vmcb, &vcpu.vm.life().ram);
        (vmcb.event(), vmcb.rip(), vmcb.interrupts())
    };
    let offered = interrupt::MASKING | interrupt::PENDING | 6 << interrupt::PRIORITY_SHIFT;
    vmcb.set_interrupts(offered | 7);
    assert_eq!(write(&mut vmcb, 5), (0, 0x1004, offered | 5), "what is offered stays as it is");
    assert_eq!(vmcb.interrupt_shadow(), 0);
    assert_eq!(write(&mut vmcb, 0xffff_ffff_0000_000f), (0, 0x1004, offered | 15), "half of the register");
    assert_eq!(write(&mut vmcb, 0x10), (GP, 0x1000, offered | 15), "bits that must be zero");
    vmcb.set_cpl(3);
    assert_eq!(write(&mut vmcb, 0), (GP, 0x1000, offered | 15));
    vmcb.set_cpl(0);
    ram[0x1001] = 0x90;
    assert_eq!(write(&mut vmcb, 0), (UD, 0x1000, offered | 15), "no such instruction any longer");
}

#[test]
fn a_cr8_write_of_which_not_all_is_there_is_executed_again() {
    let (vcpu, frame, mut vmcb, ram) = machine();
    vmcb.set_efer(0);
    vmcb.set_cs(Segment { attributes: attribute::FLAT_CODE, limit: u32::MAX, ..Segment::default() });
    // The last bytes of RAM.
    ram[RAM - 3..].copy_from_slice(&[0xf0, 0x0f, 0x22]);
    let mut write = |rip| {
        vmcb.set_event(0);
        vmcb.set_rip(rip);
        control::write_cr8(&frame, &mut vmcb, &vcpu.vm.life().ram);
        (vmcb.event(), vmcb.rip())
    };
    let end = RAM as u64;
    assert_eq!(write(end - 3), (0, end - 3));
    assert_eq!(write(end), (0, end), "nor any of it");
    assert_eq!(write(end - 2), (0, end - 2), "MOV to CR0, as far as it goes");
    ram[RAM - 3..].copy_from_slice(&[0xf0, 0x0f, 0xff]);
    assert_eq!(write(end - 3), (UD, end - 3), "UD0");
}
