// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a processor begins that was reset, and who decides when all are.

use turnstile_vm::startup::Start;

use super::*;

#[test]
fn who_resumes_begins_in_real_mode_where_memory_says() {
    let (vcpu, mut frame, mut vmcb, ram) = machine();
    ram[0x467..0x46b].copy_from_slice(&[0x34, 0x12, 0x00, 0xf8]);
    let mut begin = |start| {
        frame.clear();
        crate::vcpu::switch::reset_vcpu(&mut frame, &mut vmcb, vcpu, start);
        let cs = vmcb.cs();
        (vmcb.rip(), cs.selector, cs.base, cs.attributes, vmcb.cr0() & 1, vmcb.efer())
    };
    let real =
        |rip, selector, base| (rip, selector, base, attribute::REAL_CODE, 0, crate::cpu::regs::efer::SVME);
    assert_eq!(begin(Start::Resume), real(0x1234, 0xf800, 0xf_8000));
    assert_eq!(begin(Start::Startup(0x9a)), real(0, 0x9a00, 0x9_a000));
}

#[test]
fn of_processors_that_are_reset_the_first_resumes() {
    let (vcpu, ..) = machine();
    let startup = &vcpu.vm.startup;
    assert_eq!(startup.take_start(0), Some(Start::Boot));
    vcpu.attention.take();
    vcpu.vm.reset_processors();
    assert!(vcpu.attention.take().contains(Reasons::INIT | Reasons::START), "it has to look");
    assert!(!startup.is_on(0));
    assert_eq!(startup.take_start(0), Some(Start::Resume));
}

#[test]
fn of_processors_that_reset_all_at_once_the_first_decides() {
    let vcpus = crate::vcpu::facility::tests::vcpus(2);
    let (vm, startup) = (vcpus[0].vm, &vcpus[0].vm.startup);
    startup.reset();
    assert!(startup.take_start(0).is_some() && startup.startup(1, 9) && startup.take_start(1).is_some());
    // The shutdown code is good for one reset.
    let mut resumes = true;
    let mut begins = |index| vm.reset_by(index, || core::mem::take(&mut resumes));
    assert!(!begins(1), "the first vCPU goes on");
    assert!(!begins(0), "it has got the other one's INIT");
    for vcpu in &vcpus {
        assert!(vcpu.attention.take().contains(Reasons::INIT));
    }
    assert_eq!(startup.take_start(0), Some(Start::Resume));
    assert!(!begins(1), "its INIT, which it has not looked at, comes before that, too");
    assert!(begins(0), "now there is no code");
    // Somebody else has sent the INIT, and is about to say so.
    vcpus[0].attention.take();
    assert!(startup.init(0) && !begins(0));
    assert!(vcpus[0].attention.is_pending(), "it does not enter its guest, which has shut down");
}
