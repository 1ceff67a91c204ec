// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions that access ports.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use turnstile_guests_x86_64::probe::{self, place};
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{check, check_eq, port};

pub const TESTS: &[Test] = &[
    Test { name: "emulation-string-io", run: string_io },
    Test { name: "emulation-port-sizes", run: port_sizes },
];

/// Memory that INS writes and OUTS reads.
static WORD: AtomicU32 = AtomicU32::new(0);

/// INS, OUTS, with and without REP: the scratch register of COM1 and the 8259's mask take what memory holds.
fn string_io() -> Outcome {
    let byte = WORD.as_ptr() as u64;
    let scratch = u64::from(turnstile_guests_x86_64::console::SCR);
    for (name, code, count) in [("outsb", &[0x6e][..], 0), ("rep outsb", &[0xf3, 0x6e], 4)] {
        WORD.store(0x4433_2211, SeqCst);
        let mut registers = probe::pattern(5);
        registers[place::RDX] = scratch;
        registers[place::RSI] = byte;
        registers[place::RCX] = count;
        // SAFETY: a port that keeps a byte.
        let result = unsafe { probe::execute(code, &registers, 0) };
        let Ok((after, _)) = result else {
            check!(false, "{name} traps");
            return Ok(());
        };
        let moved = count.max(1);
        check_eq!(after[place::RSI], byte + moved, "{name}: RSI");
        check_eq!(after[place::RCX], 0, "{name}: RCX");
        check_eq!(port::read8(scratch as u16), if count == 0 { 0x11 } else { 0x44 }, "{name}: the port");
    }
    for (name, code, count) in [("insb", &[0x6c][..], 0), ("rep insb", &[0xf3, 0x6c], 3)] {
        port::write8(scratch as u16, 0x77);
        WORD.store(0, SeqCst);
        let mut registers = probe::pattern(5);
        registers[place::RDX] = scratch;
        registers[place::RDI] = byte;
        registers[place::RCX] = count;
        // SAFETY: the word is nobody's.
        let result = unsafe { probe::execute(code, &registers, 0) };
        let Ok((after, _)) = result else {
            check!(false, "{name} traps");
            return Ok(());
        };
        check_eq!(after[place::RDI], byte + count.max(1), "{name}: RDI");
        check_eq!(WORD.load(SeqCst), if count == 0 { 0x77 } else { 0x77_7777 }, "{name}: memory");
    }
    Ok(())
}

/// A read changes just as much of RAX as it has bits, and of 32 bits clears the upper half.
fn port_sizes() -> Outcome {
    let mut registers = probe::pattern(5);
    registers[place::RDX] = u64::from(turnstile_guests_x86_64::console::SCR);
    port::write8(turnstile_guests_x86_64::console::SCR, 0x5a);
    let before = registers[place::RAX];
    // SAFETY: reads of a port that keeps a byte.
    let result = unsafe { probe::execute(&[0xec], &registers, 0) };
    let Ok((after, _)) = result else {
        check!(false, "in al, dx traps");
        return Ok(());
    };
    check_eq!(after[place::RAX], before & !0xff | 0x5a, "in al, dx");
    registers[place::RDX] = 0x80;
    for (name, code, mask) in [("in ax, dx", &[0x66, 0xed][..], !0xffff), ("in eax, dx", &[0xed], 0)] {
        // SAFETY: as above.
        let result = unsafe { probe::execute(code, &registers, 0) };
        let Ok((after, _)) = result else {
            check!(false, "{name} traps");
            return Ok(());
        };
        check_eq!(after[place::RAX] & mask, before & mask, "{name}");
        check!(mask != 0 || after[place::RAX] >> 32 == 0, "{name} leaves the upper half");
    }
    Ok(())
}
