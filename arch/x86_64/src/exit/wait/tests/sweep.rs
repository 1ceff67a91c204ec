// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All that there is of a vCPU, in a life that has just begun.

use std::vec::Vec;

use super::*;
use crate::exit::tests::bytes;

fn msrs() -> impl Iterator<Item = u32> {
    let kvm = 0x4b56_4d00..0x4b56_4d10;
    (0..0x2000).chain(kvm).chain(0xc000_0000..0xc000_2000).chain(0xc001_0000..0xc001_2000)
}

/// Registers whose writes do something to others, or to the vCPU's own life: the commands of the local APIC.
const COMMANDS: [u32; 2] = [0x830, 0x83f];

/// What `facility` moves, as the fakes know it.
const OF_THE_CPU: [&str; 7] = ["EXTENDED", "XCR0", "DR0", "DR1", "DR2", "DR3", "TSC_AUX"];

/// All that there is of a vCPU whose life has just begun.
#[derive(Debug, PartialEq)]
struct Found {
    block: Vec<u8>,
    registers: Vec<u64>,
    msrs: Vec<(u32, Result<u64, u64>)>,
    /// What is in the CPU's own.
    cpu: Vec<u64>,
    nmis: bool,
    unhalted: bool,
}

fn found(vcpu: &'static Vcpu, frame: &mut Frame) -> Found {
    let (block, registers) = vcpu.with_vmcb(|vmcb| {
        let mut block = bytes(vmcb);
        // The ASID is another one each time.
        block[0x58..0x5c].fill(0);
        (block, (0..16).map(|number| frame.get(vmcb, number)).collect())
    });
    let (nmis, unhalted) = vcpu.owned(|owned| (!owned.nmi.is_idle(), owned.unhalted));
    let msrs = vcpu
        .with_vmcb(|vmcb| msrs().map(|number| (number, msr_of(vcpu, frame, vmcb, number, None))).collect());
    let cpu = OF_THE_CPU.map(fakes::get).to_vec();
    Found { block, registers, msrs, cpu, nmis, unhalted }
}

/// Writes to every MSR whatever it takes, and to all else. Returns how many MSRs have changed.
fn spoil(vcpu: &'static Vcpu, frame: &mut Frame, with_base: bool) -> usize {
    let before = found(vcpu, frame).msrs;
    vcpu.with_vmcb(|vmcb| {
        for number in
            msrs().filter(|number| !COMMANDS.contains(number) && (with_base || *number != APIC_BASE))
        {
            for value in [0x301, 0x1101, 0x0101_0101_0101_0101, 0x1800, 0xec, 1, 0] {
                let result = msr_of(vcpu, frame, vmcb, number, Some(value));
                // The first value that the register takes, unless it is what it was.
                if result.is_ok() && !before.contains(&(number, Ok(value))) {
                    break;
                }
            }
        }
    });
    let after = found(vcpu, frame).msrs;
    OF_THE_CPU.iter().for_each(|name| fakes::set(name, 0x77));
    vcpu.owned(|owned| {
        owned.nmi.post();
        owned.unhalted = true;
    });
    vcpu.with_vmcb(|vmcb| {
        (0..16).for_each(|number| frame.set(vmcb, number, 0x5555));
        vmcb.set_event(1 << 31);
        vmcb.set_interrupt_shadow(1);
        vmcb.set_exception_intercepts(0);
        vmcb.set_cr2(0x1234);
    });
    before.iter().zip(&after).filter(|(before, after)| before != after).count()
}

#[test]
fn a_life_begins_with_nothing_of_the_one_before() {
    let (vcpu, mut frame, _, _) = machine_with(KVM);
    start_life(vcpu, &mut frame, Start::Boot);
    let first = found(vcpu, &mut frame);
    let asid = vcpu.with_vmcb(|vmcb| vmcb.asid());
    assert!(!first.nmis && !first.unhalted);
    assert!(spoil(vcpu, &mut frame, true) > 20, "the sweep is worth something");
    start_life(vcpu, &mut frame, Start::Boot);
    assert_eq!(found(vcpu, &mut frame), first);
    assert_ne!(vcpu.with_vmcb(|vmcb| vmcb.asid()), asid, "nor translations of the one before");
}

#[test]
fn a_startup_finds_nothing_of_what_was_before_the_init() {
    let (vcpu, mut frame, _, _) = machine_with(KVM);
    // The mode of the local APIC stays over an INIT: in x2APIC mode all its registers are MSRs.
    start_life(vcpu, &mut frame, Start::Boot);
    let on = vcpu.with_vmcb(|vmcb| msr_of(vcpu, &mut frame, vmcb, APIC_BASE, Some(X2APIC)));
    assert_eq!(on, Ok(X2APIC));
    start_life(vcpu, &mut frame, Start::Startup(9));
    let first = found(vcpu, &mut frame);
    assert!(spoil(vcpu, &mut frame, false) > 25, "the sweep is worth something");
    start_life(vcpu, &mut frame, Start::Startup(9));
    assert_eq!(found(vcpu, &mut frame), first);
}
