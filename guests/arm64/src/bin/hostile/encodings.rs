// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every system-register and system-instruction encoding (Arm ARM C5): MRS, MSR, SYS, SYSL.

use turnstile_guests::patch;
use turnstile_guests::random::{self, Random};
use turnstile_guests::trap::class;
use turnstile_guests::{println, write_sysreg};

use crate::{Tally, is_bare};

/// Registers whose values this program stands on: they are read and written back, no more. As
/// (op1, CRn, CRm, op2) of op0 3; `ANY` is all of them.
const KEPT: &[(u32, u32, u32, u32)] = &[
    (0, 1, 0, 0),    // SCTLR_EL1
    (0, 1, 0, 3),    // SCTLR2_EL1
    (0, 1, 4, ANY),  // SCTLRMASK_EL1 and its like
    (0, 2, 0, ANY),  // TTBR0_EL1, TTBR1_EL1, TCR_EL1, TCR2_EL1
    (0, 2, 5, ANY),  // guarded control stack
    (0, 2, 7, ANY),  // TCRMASK_EL1
    (0, 4, 1, 0),    // SP_EL0
    (0, 4, 2, 0),    // SPSel
    (0, 10, 2, ANY), // MAIR_EL1, permission indirection
    (0, 10, 3, ANY), // AMAIR_EL1
    (0, 12, 0, 0),   // VBAR_EL1
    (0, 13, 0, 4),   // TPIDR_EL1
    (3, 4, 2, 1),    // DAIF
    (3, 2, 5, ANY),  // guarded control stack of EL0
];

/// RMR_EL1 resets a machine without EL2; below a hypervisor it does not exist.
const RESET: (u32, u32, u32, u32) = (0, 12, 0, 2);
const ANY: u32 = 8;
const ROW: usize = 128;

fn is_kept(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32) -> bool {
    let is = |(a, b, c, d): (u32, u32, u32, u32)| (a, b, c) == (op1, crn, crm) && (d == op2 || d == ANY);
    op0 == 3 && (KEPT.iter().any(|kept| is(*kept)) || is_bare() && is(RESET))
}

/// Registers: read, write ones, zeros and noise, write back what was read.
pub fn registers(tally: &mut Tally) {
    let mut random = random::stream(3);
    let mut strange = 0;
    for op0 in [2, 3] {
        for op1 in 0..8 {
            for crn in 0..16 {
                strange += row(tally, &mut random, op0, op1, crn);
            }
        }
    }
    println!("  {strange} encodings trapped as something else than UNDEFINED");
    write_sysreg!("cpacr_el1", 3 << 20);
}

/// The 128 registers of one CRn; returns how many trapped in another way than as UNDEFINED.
fn row(tally: &mut Tally, random: &mut Random, op0: u32, op1: u32, crn: u32) -> u32 {
    let fields = |index: usize| (index as u32 / 8, index as u32 % 8);
    let reads = (0..ROW).map(|index| patch::mrs(op0, op1, crn, fields(index).0, fields(index).1));
    let writes = (0..ROW).map(|index| patch::msr(op0, op1, crn, fields(index).0, fields(index).1));
    patch::prepare(reads.chain(writes));
    let mut strange = 0;
    for index in 0..ROW {
        let (crm, op2) = fields(index);
        let kept = is_kept(op0, op1, crn, crm, op2);
        // SAFETY: MRS changes x0 only.
        let (old, trap) = unsafe { patch::run(index, 0) };
        tally.add(trap.is_some());
        let readable = trap.is_none();
        if trap.is_some_and(|trap| trap.class() != class::UNKNOWN) {
            strange += 1;
        }
        let values = [!0, 0, random.number(), random.number() & 0xffff_ffff];
        let tried = if kept { &[] } else { &values[..] };
        let back = [old];
        for value in tried.iter().chain(if readable { &back[..] } else { &[] }) {
            // SAFETY: what the program stands on only gets its own value back; interrupts and debug
            // exceptions are masked.
            let (_, trap) = unsafe { patch::run(ROW + index, *value) };
            tally.add(trap.is_some());
            if trap.is_some_and(|trap| trap.class() != class::UNKNOWN) {
                strange += 1;
            }
        }
    }
    strange
}

#[repr(C, align(4096))]
struct Scratch([u8; 4096]);

/// SYS and SYSL: cache, TLB and address translation maintenance, set/way operations, and all that has no name.
pub fn instructions(tally: &mut Tally) {
    let mut scratch = Scratch([0; 4096]);
    let address = &raw mut scratch.0 as u64;
    let mut random = random::stream(4);
    for op1 in 0..8 {
        for crn in 0..16 {
            let fields = |index: usize| (index as u32 / 8, index as u32 % 8);
            let with_l = |index: usize| patch::mrs(1, op1, crn, fields(index).0, fields(index).1);
            let without = |index: usize| patch::msr(1, op1, crn, fields(index).0, fields(index).1);
            patch::prepare((0..ROW).map(with_l).chain((0..ROW).map(without)));
            for index in 0..2 * ROW {
                let values = [address, 0, random.number() & 0xfffe, address | 1 << 56];
                // By address only at the scratch page: DC ZVA and DC IVAC change memory.
                let takes_address = crn == 7 && (op1 != 0 || fields(index % ROW).0 == 6);
                let values = if takes_address { &values[..1] } else { &values[..] };
                for value in values {
                    // SAFETY: maintenance changes no value but at the scratch page.
                    tally.add(unsafe { patch::run(index, *value) }.1.is_some());
                }
            }
        }
    }
    core::hint::black_box(&scratch);
}
