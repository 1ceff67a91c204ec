// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control registers and debug registers with values of all kinds.

use core::arch::asm;

use turnstile_guests_x86_64::cpu::{self, feature};
use turnstile_guests_x86_64::state::xsave;
use turnstile_guests_x86_64::{random, read_control, trap, write_control};

use crate::{Tally, is_bare, stride};

/// Writes a value, and the old one right behind it.
macro_rules! shake {
    ($tally:expr, $name:literal, $value:expr, $old:expr) => {{
        let (value, old): (u64, u64) = ($value, $old);
        $tally.add(
            trap::caught(|| {
                // SAFETY: the program cannot tell what it was in between.
                unsafe {
                    asm!(concat!("mov ", $name, ", {}"), concat!("mov ", $name, ", {}"), in(reg) value, in(reg) old,
                        options(nostack));
                }
            })
            .is_some(),
        );
    }};
}

/// CR0, CR4, CR8, XCR0.
pub fn registers(tally: &mut Tally) {
    let (cr0, cr4) = (read_control!("cr0"), read_control!("cr4"));
    // PAE, LA57, SMEP, SMAP and CET decide whether this program's pages can be used.
    let needed: u64 = 1 << 5 | 1 << 12 | 1 << 20 | 1 << 21 | 1 << 23;
    let mut random = random::stream(17);
    for _ in 0..5000 / stride() {
        let value = random.special();
        // With paging and protection: QEMU takes their end in 64-bit code for an order, and the program would be gone.
        // Of the other bits, those that there are: QEMU takes more, and VMRUN refuses them then (see `fatal`).
        let valid = value & 0x6005_002e | 0x8000_0011;
        let valid = if valid & 1 << 30 == 0 { valid & !(1 << 29) } else { valid };
        shake!(tally, "cr0", if is_bare() { cr0 ^ (value & 0x4_002a) } else { valid }, cr0);
        let kept = cr4 & needed;
        // Those that there are, for the same reason.
        let valid: u64 = if is_bare() { 0x1_07df } else { 0x47_0fdf };
        shake!(tally, "cr4", value & valid & !needed | kept, cr4);
        shake!(tally, "cr4", cr4 ^ (1 << random.below(64) & valid & !needed), cr4);
        shake!(tally, "cr8", value, 0);
        shake!(tally, "cr2", value, 0);
        if !is_bare() {
            // LA57 cannot change in long mode.
            shake!(tally, "cr4", cr4 ^ 1 << 12, cr4);
        }
        // LMSW cannot take protection away.
        // SAFETY: sets TS, EM and MP at most, which are put back.
        tally.add(trap::caught(|| unsafe { asm!("lmsw {0:x}", in(reg) value) }).is_some());
        write_control!("cr0", cr0);
    }
    if cpu::has(feature::XSAVE) {
        xsave::enable();
        let old = xsave::xcr0();
        for _ in 0..2000 / stride() {
            let value = random.special();
            tally.add(trap::caught(|| xsave::set_xcr0(value)).is_some());
        }
        xsave::set_xcr0(old);
        write_control!("cr4", cr4);
    }
}

/// DR0 to DR7, with breakpoints on everything, and general detection.
pub fn debug(tally: &mut Tally) {
    let mut random = random::stream(18);
    let quiet = || {
        write_control!("dr7", 0x400);
        write_control!("dr6", 0xffff_0ff0);
    };
    for _ in 0..2000 / stride() {
        let value = random.special();
        // The ones that are enabled are far from this program.
        tally.add(trap::caught(|| write_control!("dr0", value | 1 << 46)).is_some());
        tally.add(trap::caught(|| write_control!("dr3", value)).is_some());
        tally.add(trap::caught(|| write_control!("dr6", value)).is_some());
        let far = value & 0xffff_ffff_000f_2f03;
        tally.add(trap::caught(|| write_control!("dr7", far)).is_some());
        tally.add(trap::caught(|| _ = read_control!("dr7")).is_some());
        // General detection, which the first exception takes back.
        let _ = trap::caught(quiet);
        quiet();
    }
    // I/O breakpoints on a port.
    write_control!("cr4", read_control!("cr4") | 8);
    write_control!("dr0", 0x21);
    write_control!("dr7", 0x401 | 2 << 16);
    tally.add(trap::caught(|| _ = turnstile_guests_x86_64::port::read8(0x21)).is_some());
    quiet();
    write_control!("cr4", read_control!("cr4") & !8);
}
