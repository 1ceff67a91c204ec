// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every special-purpose register that this program reaches, by number: those of the architecture, and those that an
//! implementation has besides. What each keeps of a value is found out by writing and reading it.
//!
//! Left out are those that change by themselves, those that this program runs on, and those that [`super::sprs`] knows.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::word;
use crate::platform::MAX_CPUS;
use crate::{cpu, trap};

/// How many numbers there are.
const COUNT: usize = 1024;

// Two instructions for each number: the field has its halves exchanged (Power ISA 3.0B Book III, 4.4.4).
global_asm!(
    r#"
    .section .text.numbers, "ax"
    .global numbers_read, numbers_write
    .balign 8
numbers_read:
    .set    spr, 0
    .rept   1024
    .long   0x7c6002a6 | ((spr & 31) << 16) | ((spr >> 5) << 11)    // mfspr r3, spr
    blr
    .set    spr, spr + 1
    .endr
numbers_write:
    .set    spr, 0
    .rept   1024
    .long   0x7c6003a6 | ((spr & 31) << 16) | ((spr >> 5) << 11)    // mtspr spr, r3
    blr
    .set    spr, spr + 1
    .endr
    "#
);

unsafe extern "C" {
    fn numbers_read();
    fn numbers_write();
}

type Access = extern "C" fn(u64) -> u64;

fn access(first: u64, number: usize) -> Access {
    // SAFETY: two instructions for each number: the access to the register, of or from R3, and the return.
    unsafe { core::mem::transmute::<u64, Access>(first + 8 * number as u64) }
}

/// Reads a register; `None` if there is none of this number: it is an exception, or changes nothing.
pub fn read(number: usize) -> Option<u64> {
    let access = access(numbers_read as *const () as u64, number);
    let mut values = [0, u64::MAX];
    for value in &mut values {
        trap::expect(|| *value = access(*value)).ok()?;
    }
    (values != [0, u64::MAX]).then_some(values[1])
}

/// Writes a register; nothing if that is an exception.
fn write(number: usize, value: u64) {
    let access = access(numbers_write as *const () as u64, number);
    let _ = trap::expect(|| _ = access(value));
}

/// Says whether a register is none of this kind.
fn is_left_out(number: usize) -> bool {
    matches!(
        number,
        // Transactions: the machine state has them off.
        128..=131
        // XER, LR, CTR, DEC, SRR0, SRR1, CFAR, the time base, PURR, SPURR, IC, VTB: they change.
        | 1 | 8 | 9 | 22 | 26 | 27 | 28 | 268 | 269 | 308 | 309 | 848 | 849
        // DSCR, AMR, DSISR, DAR, PIDR, UAMOR, VRSAVE, EBBHR, EBBRR, TAR: others know them, some by two numbers.
        | 3 | 13 | 17 | 18 | 19 | 29 | 48 | 157 | 256 | 804 | 805 | 815
        // SPRG0 to SPRG3: this program's own.
        | 259 | 272..=275
        // PIR: the machine's, which is another one where the vCPU goes to another CPU.
        | 1023
        // PMC1 to PMC4, MMCR0, SIAR, SDAR, MMCR1, by two numbers.
        | 771..=774 | 779..=782 | 787..=790 | 795..=798
    )
}

/// Those that are not zero when a vCPU begins: CTRL, PVR, TIR, PPR, PPR32.
fn may_be_set(number: usize) -> bool {
    matches!(number, 136 | 287 | 446 | 896 | 898)
}

/// What the registers of each CPU have kept.
static IMAGES: [[AtomicU64; COUNT]; MAX_CPUS] = [const { [const { AtomicU64::new(0) }; COUNT] }; MAX_CPUS];

fn image() -> &'static [AtomicU64; COUNT] {
    &IMAGES[cpu::this().index()]
}

/// What the image has of a register: zero, too, if there is none of this number.
fn kept(number: usize) -> u64 {
    read(number).unwrap_or(0)
}

fn numbers() -> impl Iterator<Item = usize> {
    (0..COUNT).filter(|number| !is_left_out(*number))
}

/// Gives all of them values of their own, and notes what they keep.
pub fn fill(seed: u64) {
    for number in numbers() {
        // The lowest bits of words are much the same.
        write(number, word(seed, 300 + number as u64).rotate_left(32));
    }
    for number in numbers() {
        image()[number].store(kept(number), Relaxed);
    }
}

/// Returns the first register that is not what it was, or, for the seed zero, not as at the beginning of a life.
pub fn first_wrong(seed: u64) -> Option<usize> {
    numbers().find(|number| match seed {
        0 => kept(*number) != 0 && !may_be_set(*number),
        _ => kept(*number) != image()[*number].load(Relaxed),
    })
}

/// Says whether they hold what they held when they were filled.
pub fn holds(seed: u64) -> bool {
    first_wrong(seed).is_none()
}
