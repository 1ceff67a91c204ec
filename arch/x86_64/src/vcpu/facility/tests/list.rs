// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every register that a guest reaches without an exit, by the manual's lists (APM vol. 2, table B-2 and appendix A), not by this
//! crate's: where the guest's value is while another vCPU runs, and what it is when a life begins. Who lets a guest reach another
//! one, by the permission map or by an intercept less, adds a line here, and finds out whether it is switched and reset.

use std::boxed::Box;
use std::vec::Vec;

use turnstile_vm::startup::Start;
use turnstile_x86policy::msr::SPEC_CTRL;

use super::super::{load, reset};
use super::vcpus;
use crate::cpu::regs::fakes;
use crate::cpu::svm::{Vmcb, permission};
use crate::vcpu::frame::Frame;
use crate::vcpu::switch::reset_vcpu;
use crate::vm::Vcpu;

/// Where a register is.
#[derive(Clone, Copy)]
enum Home {
    /// In the control block, at this offset, with so many bytes: VMRUN and #VMEXIT move it, or VMLOAD and VMSAVE.
    Block(usize, usize),
    /// In [`super::State`]: the name by which the fakes know it.
    State(&'static str),
}
use Home::{Block, State};

/// A register: its name, its number if it is an MSR, where it is, and what a startup IPI for page zero finds in it.
type Register = (&'static str, Option<u32>, Home, u64);

const fn segment(selector: usize) -> Home {
    Block(0x400 + selector, 16)
}

const REGISTERS: &[Register] = &[
    // Selector, attributes, limit and base; the value is that of the first eight bytes.
    ("ES", None, segment(0x00), 0xffff_0093_0000),
    ("CS", None, segment(0x10), 0xffff_009b_0000),
    ("SS", None, segment(0x20), 0xffff_0093_0000),
    ("DS", None, segment(0x30), 0xffff_0093_0000),
    ("FS", None, segment(0x40), 0xffff_0093_0000),
    ("GS", None, segment(0x50), 0xffff_0093_0000),
    ("GDTR", None, segment(0x60), 0xffff_0000_0000),
    ("LDTR", None, segment(0x70), 0xffff_0082_0000),
    ("IDTR", None, segment(0x80), 0xffff_0000_0000),
    ("TR", None, segment(0x90), 0xffff_008b_0000),
    ("CPL", None, Block(0x4cb, 1), 0),
    ("CR4", None, Block(0x548, 8), 0),
    ("CR3", None, Block(0x550, 8), 0),
    ("CR0", None, Block(0x558, 8), 0x10),
    ("DR7", None, Block(0x560, 8), 0x400),
    ("DR6", None, Block(0x568, 8), 0xffff_0ff0),
    ("RFLAGS", None, Block(0x570, 8), 2),
    ("RIP", None, Block(0x578, 8), 0),
    ("RSP", None, Block(0x5d8, 8), 0),
    ("RAX", None, Block(0x5f8, 8), 0),
    ("CR2", None, Block(0x640, 8), 0),
    // V_TPR.
    ("CR8", None, Block(0x60, 1), 0),
    ("FS.base", Some(0xc000_0100), Block(0x448, 8), 0),
    ("GS.base", Some(0xc000_0101), Block(0x458, 8), 0),
    ("STAR", Some(0xc000_0081), Block(0x600, 8), 0),
    ("LSTAR", Some(0xc000_0082), Block(0x608, 8), 0),
    ("CSTAR", Some(0xc000_0083), Block(0x610, 8), 0),
    ("SFMASK", Some(0xc000_0084), Block(0x618, 8), 0),
    ("KernelGSbase", Some(0xc000_0102), Block(0x620, 8), 0),
    ("SYSENTER_CS", Some(0x174), Block(0x628, 8), 0),
    ("SYSENTER_ESP", Some(0x175), Block(0x630, 8), 0),
    ("SYSENTER_EIP", Some(0x176), Block(0x638, 8), 0),
    // Where VMRUN switches it; elsewhere it is written by exits (`exit/tests/speculation.rs`).
    ("SPEC_CTRL", Some(SPEC_CTRL), Block(0x6e0, 8), 0),
    ("TSC_AUX", Some(0xc000_0103), State("TSC_AUX"), 0),
    ("DR0", None, State("DR0"), 0),
    ("DR1", None, State("DR1"), 0),
    ("DR2", None, State("DR2"), 0),
    ("DR3", None, State("DR3"), 0),
    // Written by exits, and in effect without one.
    ("EFER", None, Block(0x4d0, 8), 0x1000),
    ("PAT", None, Block(0x668, 8), 0x0007_0406_0007_0406),
    ("XCR0", None, State("XCR0"), 1),
    // All that XSAVE or FXSAVE stores, PKRU included: one word stands for it.
    ("x87, SSE, AVX and so on", None, State("EXTENDED"), 0),
];

/// A value that no register has of itself, for each one another.
const fn odd(index: usize) -> u64 {
    0x1111 * (index as u64 + 1)
}

fn is_listed(name: &str) -> bool {
    REGISTERS.iter().any(|(listed, ..)| *listed == name)
}

fn read(block: &Vmcb, offset: usize, size: usize) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: offsets of the table, inside the block.
    let place = unsafe { core::ptr::from_ref(block).cast::<u8>().add(offset) };
    // SAFETY: as above.
    unsafe { core::ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), size.min(8)) };
    u64::from_le_bytes(bytes)
}

fn fill(block: &mut Vmcb, offset: usize, size: usize, byte: u8) {
    // SAFETY: offsets of the table, inside the block, which is integers.
    unsafe { core::ptr::from_mut(block).cast::<u8>().add(offset).write_bytes(byte, size) };
}

#[test]
fn what_a_guest_reaches_without_an_exit_is_listed() {
    let mut listed: Vec<u32> = REGISTERS.iter().filter_map(|(_, number, ..)| *number).collect();
    listed.sort_unstable();
    for (write, what) in [(false, "MSRs that are read"), (true, "MSRs that are written")] {
        assert_eq!(permission::open(&permission::MSRS_AND_SPEC_CTRL, write), listed, "{what}");
        let without = listed.iter().copied().filter(|number| *number != SPEC_CTRL).collect::<Vec<_>>();
        assert_eq!(permission::open(&permission::MSRS, write), without, "{what}");
    }
    let mut block = Vmcb::new();
    crate::cpu::svm::intercept::set(&mut block);
    for (name, word, numbers) in [
        ("CR", block.cr_intercepts(), &[0, 2, 3, 4, 8][..]),
        ("DR", block.dr_intercepts(), &[0, 1, 2, 3, 6, 7]),
    ] {
        for number in numbers {
            // Reads in the low half, writes in the high one.
            let leaves = word >> number & 1 != 0 && word >> (16 + number) & 1 != 0;
            assert!(leaves || is_listed(&std::format!("{name}{number}")), "{name}{number}");
        }
    }
}

#[test]
fn what_is_listed_comes_and_goes_with_the_vcpu() {
    let vcpus = vcpus(2);
    let states: Vec<_> = REGISTERS
        .iter()
        .filter_map(|(.., home, _)| if let State(name) = home { Some(*name) } else { None })
        .collect();
    let set = |offset: u64| {
        (0..).zip(&states).for_each(|(index, name)| fakes::set(name, offset + index as u64 + 2))
    };
    let found = || states.iter().map(|name| fakes::get(name)).collect::<Vec<_>>();
    reset(vcpus[0]);
    set(0x100);
    let first = found();
    reset(vcpus[1]);
    set(0x200);
    let second = found();
    for _ in 0..2 {
        load(vcpus[0]);
        assert_eq!(found(), first, "{states:?}");
        load(vcpus[1]);
        assert_eq!(found(), second, "{states:?}");
    }
}

/// Begins a life of a vCPU whose registers another life has filled, which is still in the CPU or not.
fn begin_again(vcpu: &'static Vcpu, other: Option<&'static Vcpu>) {
    load(vcpu);
    for (index, (_, _, home, _)) in REGISTERS.iter().enumerate() {
        match *home {
            Block(offset, size) => vcpu.with_vmcb(|block| fill(block, offset, size, 0xa5)),
            State(name) => fakes::set(name, odd(index)),
        }
    }
    if let Some(other) = other {
        load(other);
    }
    let mut frame = Frame::new(vcpu, core::ptr::null_mut(), None);
    vcpu.with_vmcb(|block| reset_vcpu(&mut frame, block, vcpu, Start::Startup(0)));
    reset(vcpu);
}

#[test]
fn what_is_listed_is_reset_when_a_life_begins() {
    for is_elsewhere in [false, true] {
        let vcpus = vcpus(2);
        vcpus.iter().for_each(|vcpu| reset(vcpu));
        begin_again(vcpus[0], is_elsewhere.then_some(vcpus[1]));
        for (name, _, home, value) in REGISTERS {
            let found = match *home {
                Block(offset, size) => vcpus[0].with_vmcb(|block| read(block, offset, size)),
                State(name) => fakes::get(name),
            };
            assert_eq!(found, *value, "{name}");
        }
    }
}

#[test]
fn a_reset_leaves_nothing_of_the_whole_control_block() {
    let vcpu = vcpus(1)[0];
    let fresh = |mut block: Box<Vmcb>| {
        let mut frame = Frame::new(vcpu, core::ptr::null_mut(), None);
        reset_vcpu(&mut frame, &mut block, vcpu, Start::Boot);
        (0..512).map(|word| read(&block, word * 8, 8)).collect::<Vec<_>>()
    };
    let mut dirty = Vmcb::boxed();
    fill(&mut dirty, 0, size_of::<Vmcb>(), 0xa5);
    assert_eq!(fresh(dirty), fresh(Vmcb::boxed()));
}
