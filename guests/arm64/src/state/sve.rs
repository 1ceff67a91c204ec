// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers of the Scalable Vector Extension: Z0–Z31, P0–P15, FFR, FPCR, FPSR, ZCR_EL1. For one CPU at a time.

use core::arch::asm;
use core::cell::UnsafeCell;

use super::{features, field, fp, word};
use crate::{read_sysreg, write_sysreg};

/// The longest vector of the architecture, in bytes.
const LONGEST: usize = 256;
/// Z0–Z31, then P0–P15 and FFR, which have a bit for each byte of a vector.
const BYTES: usize = 32 * LONGEST + 17 * LONGEST / 8;

#[repr(C, align(16))]
struct Area(UnsafeCell<[u8; BYTES]>);

// SAFETY: only one CPU calls these functions.
unsafe impl Sync for Area {}

static AREA: Area = Area(UnsafeCell::new([0; BYTES]));

/// ZCR_EL1.LEN that asks for the longest vector there is.
const LEN_MOST: u64 = 0xf;
/// CPACR_EL1.ZEN and FPEN: the guest itself traps neither SVE nor FP.
const ENABLED: u64 = 3 << 16 | 3 << 20;

/// Says whether this machine has SVE, and enables it if so.
pub fn exists() -> bool {
    let exists = field(features(), 32) != 0;
    if exists {
        write_sysreg!("cpacr_el1", read_sysreg!("cpacr_el1") | ENABLED);
    }
    exists
}

/// Returns the vector length in bytes with the ZCR_EL1 of the moment.
pub fn length() -> usize {
    let length: usize;
    // SAFETY: computes a number.
    unsafe {
        asm!(
            ".arch_extension sve", "rdvl {}, #1",
            ".arch_extension nosve", ".arch_extension nosimd", ".arch_extension nofp",
            out(reg) length, options(nostack),
        );
    }
    length
}

/// Returns the byte that belongs to a place of the area, whose vectors have `length` bytes.
fn byte(seed: u64, place: usize, length: usize) -> u8 {
    let predicates = 32 * length;
    let ffr = predicates + 16 * (length / 8);
    // FFR holds a row of ones from bit 0 only; zero for the seed zero.
    let ffr_byte = if seed == 0 { 0 } else { (2 << (seed % 8)) as u8 - 1 };
    match place {
        _ if place == ffr => ffr_byte,
        _ if place > ffr => 0,
        _ => word(seed, place as u64 / 8).to_le_bytes()[place % 8],
    }
}

fn each_byte(length: usize) -> impl Iterator<Item = usize> {
    0..32 * length + 17 * (length / 8)
}

/// Fills the registers.
pub fn fill(seed: u64) {
    write_sysreg!("S3_0_C1_C2_0", LEN_MOST);
    let length = length();
    let area = AREA.0.get().cast::<u8>();
    for place in each_byte(length) {
        // SAFETY: inside the area, which nobody else uses now.
        unsafe { area.add(place).write(byte(seed, place, length)) };
    }
    // SAFETY: loads from the area; this program is compiled without these registers.
    unsafe {
        asm!(
            ".arch_extension sve",
            "ldr p0, [{p}, #16, mul vl]",
            "wrffr p0.b",
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
            "ldr p\\n\\(), [{p}, #\\n, mul vl]",
            ".endr",
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
            "ldr z\\n\\(), [{z}, #\\n, mul vl]",
            ".endr",
            "msr fpcr, {control}", "msr fpsr, {status}",
            ".arch_extension nosve", ".arch_extension nosimd", ".arch_extension nofp",
            z = in(reg) area, p = in(reg) area.wrapping_add(32 * length),
            control = in(reg) fp::control(seed), status = in(reg) fp::status(seed),
            options(nostack),
        );
    }
}

/// Stores the registers to the area; returns FPCR and FPSR.
fn store(length: usize) -> (u64, u64) {
    let area = AREA.0.get().cast::<u8>();
    let (control, status): (u64, u64);
    // SAFETY: stores into the area, which nobody else uses now. P0 gets its value back.
    unsafe {
        asm!(
            ".arch_extension sve",
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
            "str z\\n\\(), [{z}, #\\n, mul vl]",
            ".endr",
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
            "str p\\n\\(), [{p}, #\\n, mul vl]",
            ".endr",
            "rdffr p0.b",
            "str p0, [{p}, #16, mul vl]",
            "ldr p0, [{p}]",
            "mrs {control}, fpcr", "mrs {status}, fpsr",
            ".arch_extension nosve", ".arch_extension nosimd", ".arch_extension nofp",
            z = in(reg) area, p = in(reg) area.wrapping_add(32 * length),
            control = out(reg) control, status = out(reg) status,
            options(nostack),
        );
    }
    (control, status)
}

/// Says whether the registers are as filled. After a reset ZCR_EL1 is zero, and all vectors are looked at.
pub fn holds(seed: u64) -> bool {
    let limit = read_sysreg!("S3_0_C1_C2_0");
    if seed == 0 {
        write_sysreg!("S3_0_C1_C2_0", LEN_MOST);
    }
    let length = length();
    let control = store(length);
    let area = AREA.0.get().cast::<u8>();
    // SAFETY: inside the area, which nobody else uses now.
    let same = each_byte(length).all(|place| unsafe { area.add(place).read() } == byte(seed, place, length));
    same && control == (fp::control(seed), fp::status(seed)) && limit == if seed == 0 { 0 } else { LEN_MOST }
}
