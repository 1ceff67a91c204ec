// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks where a flat image and its device tree lie, and the banks of flash that the device tree names: erased at first, as
//! they were left after a reset.
//!
//! Finds out by itself which it is. In erased flash it makes its tests, leaves marks behind and resets; where it finds
//! the marks, it checks them and powers off. `load=` is the address at which the image must lie.
#![no_std]
#![no_main]

use core::arch::asm;

use turnstile_guests::mmu::{self, descriptor};
use turnstile_guests::platform::{Region, platform};
use turnstile_guests::{boot, entry, mmio, options, println, psci, trap};

entry!(main);

/// Bytes that are erased and locked at once.
const ERASED: u64 = 256 << 10;
/// Commands, for both chips.
const READ_CELLS: u32 = 0xff_00ff;
const PROGRAM: u32 = 0x40_0040;
const ERASE: u32 = 0x20_0020;
const CONFIRM: u32 = 0xd0_00d0;
const CLEAR_STATUS: u32 = 0x50_0050;
const LOCK: u32 = 0x60_0060;
const SET_LOCK: u32 = 0x01_0001;
const IDENTIFIERS: u32 = 0x90_0090;
const QUERY: u32 = 0x98_0098;
const BUFFER: u32 = 0xe8_00e8;
/// What the status register says.
const READY: u32 = 0x80_0080;
const ERASE_FAILED_BY_LOCK: u32 = 0xa2_00a2;
/// What is left behind for the next life.
const MARK: u32 = 0x6b72_616d;
/// `mov w0, #42` and `ret`.
const CODE: [u32; 2] = [0x5280_0540, 0xd65f_03c0];

/// Counts what is wrong.
struct Check {
    failures: u32,
}

impl Check {
    fn that(&mut self, right: bool, what: &str) {
        if !right {
            println!("  wrong: {what}");
            self.failures += 1;
        }
    }

    fn equal(&mut self, found: u32, expected: u32, what: &str) {
        if found != expected {
            println!("  {what} is {found:#x}, not {expected:#x}");
            self.failures += 1;
        }
    }
}

fn main() {
    mmu::enable();
    let mut check = Check { failures: 0 };
    println!("@boot flash image={:#x} tree={:#x}", boot::image().0, platform().tree);
    check.that(platform().tree == platform().ram().base, "the device tree is at the start of RAM");
    check
        .that(boot::image().0 == options::number("load", boot::image().0), "the image is where it should be");
    let banks = platform().flash.as_slice();
    check.that(!banks.is_empty(), "there is flash");
    let kept = banks.iter().filter(|bank| mmio::read32(bank.end() - 4) == MARK).count();
    for bank in banks {
        // The one that was left at a reset showed something else then.
        check.that(kept > 0 || is_erased(*bank), "flash is erased");
        if kept == 0 {
            try_all(&mut check, *bank);
        } else {
            try_kept(&mut check, *bank);
        }
    }
    let state = if kept == banks.len() { "kept" } else { "erased" };
    println!("@flash {state} banks={} failures={}", banks.len(), check.failures);
    if check.failures > 0 {
        println!("@error {} failures", check.failures);
    }
    // Failures would come again for ever.
    if kept == 0 && check.failures == 0 {
        psci::system_reset();
    }
    psci::system_off();
}

fn is_erased(bank: Region) -> bool {
    (bank.base..bank.end()).step_by(8).all(|address| mmio::read64(address) == !0)
}

/// Commands the chips of a bank.
fn command(bank: Region, offset: u64, command: u32) {
    mmio::write32(bank.base + offset, command);
}

fn status(bank: Region) -> u32 {
    mmio::read32(bank.base + 8)
}

fn program(bank: Region, offset: u64, value: u32) {
    command(bank, offset, PROGRAM);
    command(bank, offset, value);
}

fn erase(bank: Region, offset: u64) {
    command(bank, offset, ERASE);
    command(bank, offset, CONFIRM);
}

fn try_all(check: &mut Check, bank: Region) {
    command(bank, 0, IDENTIFIERS);
    check.equal(mmio::read32(bank.base), 0x89_0089, "the manufacturer");
    command(bank, 0x154, QUERY);
    check.equal(mmio::read32(bank.base + 4 * 0x10), 0x51_0051, "the first letter of QRY");
    check.equal(1 << (mmio::read32(bank.base + 4 * 0x27) as u8), bank.size as u32 / 2, "the size of a chip");
    command(bank, 0, READ_CELLS);

    program(bank, 0x1000, 0x1234_5678);
    check.equal(status(bank), READY, "the status after a program");
    program(bank, 0x1000, 0xffff_0f0f);
    command(bank, 0, READ_CELLS);
    check.equal(mmio::read32(bank.base + 0x1000), 0x1234_0608, "what was programmed twice");
    command(bank, 0x2000, BUFFER);
    command(bank, 0x2000, 0x1_0001);
    CODE.iter().zip([0x2000, 0x2004]).for_each(|(code, offset)| command(bank, offset, *code));
    command(bank, 0x2000, CONFIRM);
    check.equal(status(bank), READY, "the status after a buffer");
    command(bank, 0, READ_CELLS);
    try_as_memory(check, bank);

    program(bank, ERASED, 0);
    erase(bank, 0x1000);
    check.equal(status(bank), READY, "the status after an erase");
    command(bank, 0, READ_CELLS);
    check.that(mmio::read64(bank.base + 0x2000) == !0, "what was erased is");
    check.equal(mmio::read32(bank.base + ERASED), 0, "the block behind what was erased");

    let last = bank.size - ERASED;
    program(bank, bank.size - 4, MARK);
    command(bank, last, LOCK);
    command(bank, last, SET_LOCK);
    erase(bank, last);
    check.equal(status(bank), ERASE_FAILED_BY_LOCK, "the status after the erase of a locked block");
    // The next life must not find them so: what it commands first would be data.
    command(bank, 0, PROGRAM);
}

/// What is programmed can be read in pairs and executed, and stores to it are commands, wherever it is mapped.
fn try_as_memory(check: &mut Check, bank: Region) {
    let window = mmu::set_window(3, Some((bank.base, descriptor::NORMAL)));
    let (low, high): (u32, u32);
    // SAFETY: reads flash.
    unsafe { asm!("ldp {:w}, {:w}, [{}]", out(reg) low, out(reg) high, in(reg) window + 0x2000) };
    check.that([low, high] == CODE, "a pair of words");
    check.that(execute(window + 0x2000) == Some(42), "a program in flash");
    // A store through the window: its physical address has to be found out, and what that takes is left as it was.
    let before: u64;
    // SAFETY: translates the address of this image.
    unsafe {
        asm!("at s1e1r, {}", "isb", "mrs {}, par_el1", in(reg) boot::image().0, out(reg) before);
    }
    mmio::write32(window + 0x40, CLEAR_STATUS);
    mmio::write32(window + 0x40, IDENTIFIERS);
    let after: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, par_el1", out(reg) after) };
    check.that(before == after, "PAR_EL1 over a store");
    check.equal(mmio::read32(bank.base), 0x89_0089, "an identifier through another mapping");
    check.that(execute(window + 0x2000).is_none(), "nothing is executed that is not shown");
    let pair = trap::caught(|| {
        // SAFETY: ends in an exception, which skips it.
        unsafe { asm!("stp xzr, xzr, [{}]", in(reg) window + 0x2000) };
    });
    check.that(pair.is_some(), "a pair is no command");
    command(bank, 0, READ_CELLS);
    check.that(execute(window + 0x2000) == Some(42), "a program that is shown again");
    mmu::set_window(3, None);
}

/// Calls a function; `None` if its first instruction cannot be fetched.
fn execute(address: u64) -> Option<u64> {
    let (result, trap) = trap::expect(|| {
        let result: u64;
        // SAFETY: what lies there are two instructions that return a number.
        unsafe {
            asm!("ic iallu", "dsb sy", "isb", "blr {}", in(reg) address, lateout("x0") result, clobber_abi("C"));
        }
        result
    });
    trap.is_none().then_some(result & 0xffff_ffff)
}

/// What the life before has left.
fn try_kept(check: &mut Check, bank: Region) {
    check.equal(mmio::read32(bank.end() - 4), MARK, "the mark");
    check.equal(mmio::read32(bank.base + ERASED), 0, "what was programmed before the reset");
    let last = bank.size - ERASED;
    erase(bank, last);
    check.equal(status(bank), ERASE_FAILED_BY_LOCK, "the status after the erase of a locked block");
    command(bank, 0, LOCK);
    command(bank, 0, CONFIRM);
    command(bank, 0, CLEAR_STATUS);
    erase(bank, last);
    check.equal(status(bank), READY, "the status after the erase of an unlocked block");
    program(bank, bank.size - 4, MARK);
    command(bank, 0, READ_CELLS);
    check.that(mmio::read64(bank.end() - 16) == !0, "the block that was locked is erased");
}
