// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hypercalls, instructions of virtual machines, vectors of all kinds, and the same from privilege level 3.

use core::arch::asm;

use turnstile_guests_common::stack::Stack;
use turnstile_guests_x86_64::cpu::selector;
use turnstile_guests_x86_64::exception::{self, vector};
use turnstile_guests_x86_64::probe::{self, place};
use turnstile_guests_x86_64::{boot, io_apic, kvm, println, random, trap};

use crate::{Tally, is_bare, stride};

/// All numbers that some hypervisor has, and others, with arguments of all kinds.
pub fn hypercalls(tally: &mut Tally) {
    if is_bare() {
        return;
    }
    let mut random = random::stream(14);
    for round in 0..50_000 / stride() {
        let number = if round % 2 == 0 { random.below(16) } else { random.special() };
        let mut arguments = core::array::from_fn(|_| random.special());
        if number & 0xffff_ffff == kvm::call::SEND_IPI {
            // INIT would stop this CPU.
            arguments[3] &= !0x700;
        }
        tally.add(trap::caught(|| _ = kvm::hypercall(number, arguments)).is_some());
    }
    // The other vendor's instruction.
    // SAFETY: answers in RAX, or is invalid.
    tally.add(trap::caught(|| unsafe { asm!("vmcall", inout("rax") 0x7fff => _) }).is_some());
}

/// Instructions of SVM and of other extensions that no guest has: all are invalid.
pub fn svm(tally: &mut Tally) {
    if is_bare() {
        return;
    }
    let codes: [(&str, &[u8]); 14] = [
        ("vmrun", &[0x0f, 0x01, 0xd8]),
        ("vmload", &[0x0f, 0x01, 0xda]),
        ("vmsave", &[0x0f, 0x01, 0xdb]),
        ("stgi", &[0x0f, 0x01, 0xdc]),
        ("clgi", &[0x0f, 0x01, 0xdd]),
        ("skinit", &[0x0f, 0x01, 0xde]),
        ("invlpga", &[0x0f, 0x01, 0xdf]),
        // VMMCALL with a prefix, which is not counted where the CPU does not name the next instruction: what is behind it is harmless
        // from its last byte on, too (FPREM, or CLC).
        ("vmgexit", &[0xf3, 0x0f, 0x01, 0xd9, 0xf8]),
        ("rsm", &[0x0f, 0xaa]),
        ("monitor", &[0x0f, 0x01, 0xc8]),
        ("mwait", &[0x0f, 0x01, 0xc9]),
        ("vmxoff", &[0x0f, 0x01, 0xc4]),
        ("getsec", &[0x0f, 0x37]),
        ("invlpgb", &[0x0f, 0x01, 0xfe]),
    ];
    let mut random = random::stream(15);
    for (name, code) in codes {
        for round in 0..200 / stride().min(200) {
            let mut registers = probe::pattern(round as u64);
            let values = [0, boot::image().1, io_apic::base(), 1 << 40, random.special()];
            registers[place::RAX] = values[round % values.len()];
            registers[place::RCX] = random.special();
            // SAFETY: if it were valid, it would be the hypervisor's mistake.
            let result = unsafe { probe::execute(code, &registers, 0) };
            tally.add(result.is_err());
            let invalid = result.is_err_and(|trap| trap.vector == vector::UD);
            if !invalid && round == 0 && !["vmgexit", "monitor", "mwait", "invlpgb"].contains(&name) {
                println!("@error {name} is no #UD");
            }
        }
    }
}

/// INT of every vector, with and without a gate.
pub fn vectors(tally: &mut Tally) {
    for vector in 0..=255_u8 {
        // NMI and machine check would only be counted.
        if matches!(u64::from(vector), vector::NMI | vector::MC) {
            continue;
        }
        for open in [false, true] {
            if open && vector < 32 {
                exception::open_gate(vector);
            }
            // SAFETY: the handlers come back, or the trap is taken.
            tally.add(unsafe { probe::execute(&[0xcd, vector], &probe::pattern(1), 0) }.is_err());
        }
        exception::reset_gate(vector);
    }
}

/// Executes code at privilege level 3: it ends by an exception in any case, for INT3's gate is not its own.
fn at_level3(code: &[u8]) -> Option<trap::Trap> {
    static STACK: Stack<1024> = Stack::new();
    let mut all = [0xcc_u8; probe::LONGEST];
    all[..code.len()].copy_from_slice(code);
    // SAFETY: the slot is for this.
    unsafe { probe::write(probe::slot(), &all) };
    trap::caught(|| {
        // SAFETY: the exception's handler returns to here, by its own stack.
        unsafe {
            asm!(
                "push {ss}", "push {rsp}", "push 0x3002", "push {cs}", "push {rip}", "iretq",
                ss = in(reg) u64::from(selector::USER_DATA), cs = in(reg) u64::from(selector::USER_CODE),
                rsp = in(reg) STACK.top(), rip = in(reg) probe::slot(),
                in("rax") 0x7fff, in("rcx") 0x10, in("rdx") 0x80, in("rdi") io_apic::base() + io_apic::WINDOW,
            );
        }
    })
}

/// What user programs try. RFLAGS.IOPL is 3: ports are theirs.
pub fn user(tally: &mut Tally) {
    exception::open_gate(vector::BP as u8);
    let codes: [&[u8]; 22] = [
        &[0x90],
        &[0x0f, 0xa2],
        &[0x0f, 0x01, 0xd9],
        &[0x0f, 0x01, 0xc1],
        &[0x0f, 0x01, 0xd8],
        &[0x0f, 0x01, 0xdd],
        &[0x0f, 0x32],
        &[0x0f, 0x30],
        &[0x0f, 0x31],
        &[0x0f, 0x33],
        &[0xf4],
        &[0xe4, 0x21],
        &[0xe6, 0x80],
        &[0xed],
        &[0x0f, 0x20, 0xc0],
        &[0x0f, 0x22, 0xd8],
        &[0x44, 0x0f, 0x20, 0xc0],
        &[0x0f, 0x01, 0x17],
        &[0x0f, 0x08],
        &[0x8b, 0x07],
        &[0x89, 0x07],
        &[0xf3, 0x90],
    ];
    for round in 0..20 {
        for code in codes {
            let trap = at_level3(code);
            tally.add(trap.is_some());
            if trap.is_none() && round == 0 {
                println!("@error {code:x?} came back from level 3 without an exception");
            }
        }
    }
    exception::reset_gate(vector::BP as u8);
}
