// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Xen's hypercalls, as far as a measuring guest needs them (Xen, public/arch-arm.h and public/xen.h).

use core::arch::asm;

/// HYPERVISOR_console_io.
const CONSOLE_IO: u64 = 18;
/// CONSOLEIO_write.
const WRITE: u64 = 0;

/// Writes a byte to Xen's console, where only the first domain's output appears as it is.
pub fn put(byte: u8) {
    let buffer = &raw const byte;
    // SAFETY: Xen reads one byte at the address of `byte`, which it finds in memory and not only in a cache;
    // it changes x0 and x16 at most, and the convention for calls allows it more.
    unsafe {
        asm!(
            "dc civac, x2",
            "dsb sy",
            "hvc #0xea1",
            inout("x0") WRITE => _,
            inout("x1") 1_u64 => _,
            inout("x2") buffer => _,
            inout("x16") CONSOLE_IO => _,
            out("x3") _, out("x4") _, out("x17") _,
            options(nostack),
        );
    }
}
