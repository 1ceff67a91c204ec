// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The 64 vector-scalar registers, which the floating-point and vector registers are part of, and the status register (Power
//! ISA 3.0B Book I, chapters 4, 6 and 7).

use core::arch::asm;
use core::cell::UnsafeCell;

use super::word;
use crate::cpu::{self, msr};
use crate::platform::MAX_CPUS;

/// Words of all registers, and of the status register.
const WORDS: usize = 2 * 64 + 2;

#[repr(C, align(128))]
struct Image(UnsafeCell<[u64; WORDS]>);

// SAFETY: each is used by one CPU.
unsafe impl Sync for Image {}

static IMAGES: [Image; MAX_CPUS] = [const { Image(UnsafeCell::new([0; WORDS])) }; MAX_CPUS];

fn image() -> *mut [u64; WORDS] {
    IMAGES[cpu::this().index()].0.get()
}

/// Lets this CPU use all of them from now on.
pub fn enable() {
    cpu::set_msr(cpu::msr() | msr::FP | msr::VEC | msr::VSX);
}

/// Gives all registers values of their own.
pub fn fill(seed: u64) {
    enable();
    let image = image();
    let words = core::array::from_fn(|index| word(seed, index as u64));
    // SAFETY: this CPU's own; lxvd2x and lfd read the image, mtfsf writes the status: the rounding mode alone, so that no
    // exception is enabled. The program has nothing in these registers.
    unsafe {
        image.write_volatile(words);
        (*image)[WORDS - 2] = seed & 3;
        asm!(
            "addi 4, 3, 1024",
            ".long 0xc8040000",             // lfd f0, 0(r4)
            ".long 0xfdfe058e | 0x02000000",    // mtfsf 255, f0, 1, 0
            ".set vsr, 0",
            ".rept 32",
            ".long 0x7c001e98 | (vsr << 21)",   // lxvd2x vsr, 0, r3
            "addi 3, 3, 16",
            ".set vsr, vsr + 1",
            ".endr",
            ".set vsr, 0",
            ".rept 32",
            ".long 0x7c001e99 | (vsr << 21)",   // lxvd2x vsr + 32, 0, r3
            "addi 3, 3, 16",
            ".set vsr, vsr + 1",
            ".endr",
            inout("r3") image as u64 => _, out("r4") _, options(nostack),
        );
    }
}

/// Says whether they hold the values of a seed; zero is for those after a reset.
pub fn holds(seed: u64) -> bool {
    enable();
    let image = image();
    // SAFETY: as above; what is stored is the image. The status comes last, through a register that has been stored.
    let words = unsafe {
        asm!(
            ".set vsr, 0",
            ".rept 32",
            ".long 0x7c001f98 | (vsr << 21)",   // stxvd2x vsr, 0, r3
            "addi 3, 3, 16",
            ".set vsr, vsr + 1",
            ".endr",
            ".set vsr, 0",
            ".rept 32",
            ".long 0x7c001f99 | (vsr << 21)",   // stxvd2x vsr + 32, 0, r3
            "addi 3, 3, 16",
            ".set vsr, vsr + 1",
            ".endr",
            ".long 0xfc00048e",             // mffs f0
            ".long 0xd8030000",             // stfd f0, 0(r3)
            "addi 4, 3, -1024",
            ".long 0x7c002698",             // lxvd2x vsr0, 0, r4: as it was
            inout("r3") image as u64 => _, out("r4") _, options(nostack),
        );
        image.read_volatile()
    };
    let registers = words.iter().take(128).enumerate();
    registers.into_iter().all(|(index, value)| *value == word(seed, index as u64))
        && words[WORDS - 2] == seed & 3
}
