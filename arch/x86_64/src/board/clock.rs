// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A PC's real-time clock.

use turnstile_firmware::clock;

use crate::cpu::{self, ports};

/// Looks at the clock before it is taken for dead.
const PATIENCE: u32 = 10_000_000;

/// Reads the seconds since 1970, zero if what it shows is no time; `century` is the register that the firmware's tables name.
/// `None` if it stands still.
pub fn read(century: Option<u8>) -> Option<u64> {
    const NMI_ENABLED: u8 = 0;
    const UPDATE: u8 = 1 << 7;
    let read = |register: u8| {
        // SAFETY: the index and data ports of a PC's real-time clock, which nobody else drives.
        unsafe {
            ports::write8(0x70, NMI_ENABLED | register);
            ports::read8(0x71)
        }
    };
    let values = || clock::REGISTERS.map(read);
    for _ in 0..PATIENCE {
        if read(clock::REGISTER_A) & UPDATE != 0 {
            cpu::relax();
            continue;
        }
        let (first, second) = (values(), values());
        if first == second {
            return Some(clock::seconds(first, read(clock::REGISTER_B), century.map(read)).unwrap_or(0));
        }
    }
    None
}
