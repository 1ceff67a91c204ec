// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Uses the device of a service that misbehaves, which lies where `virt`'s machine has such a device; and sees that nothing that the
//! service does changes anything of this program's registers, and that nothing that this program has opened to its own EL0 is open
//! to the service or acts on it: vectors, counters, debug registers, keys, and the system registers that EL0 obeys or reaches.
//!
//! With several CPUs, all use the service at once, and the others go on with that while it misbehaves.
//!
//! What is not here is SP_EL0, which is this program's stack pointer: it does not come this far if that changes.
#![no_std]
#![no_main]

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use turnstile_guests::console::Console;
use turnstile_guests::state::{self, Present, pauth, pmu};
use turnstile_guests::{cpu, entry, mmio, mmu, println, read_sysreg, smp, write_sysreg};
use turnstile_guests_common::service::{self, Device, INSTRUCTION, SHOWN};

entry!(main);

const PRESENT: Present = Present(&state::ALL);
const BASE: u64 = 0x090d_0000;
const SEED: u64 = 0x5eed;

/// SCTLR_EL1: UMA, EnRCTX, DZE, UCT, nTWI, nTWE, E0E, UCI. All of it is for EL0, which this program has not.
const FOR_EL0: u64 = 1 << 9 | 1 << 10 | 1 << 14 | 1 << 15 | 1 << 16 | 1 << 18 | 1 << 24 | 1 << 26;
/// CNTKCTL_EL1: all counters and timers.
const TIMERS: u64 = 0x303;
/// PMUSERENR_EL0: everything.
const COUNTERS: u64 = 0xf;
/// MDSCR_EL1: SS and MDE. Without KDE they act on EL0 alone.
const DEBUG: u64 = 1 | 1 << 15;
/// DBGWCR<n>_EL1: E, PAC EL0, loads and stores, any byte, 2 GiB.
const WATCH: u64 = 1 | 2 << 1 | 3 << 3 | 0xff << 5 | 31 << 24;
/// Where services are: without VHE in the lowest 2 GiB, with VHE in these.
const UPPER: u64 = 0xffff_ff80_0000_0000;
/// How often each CPU has something done, when there are several.
const TIMES: u64 = 500;
/// The device's registers: the deeds that it has begun; what the last one has returned.
const BEGUN: u64 = 0;
const RESULT: u64 = 24;
/// The first of what [`SHOWN`] executes: TPIDR_EL0, TPIDRRO_EL0, PACGA.
const REGISTERS: [u64; 2] = [0, 1];
const CODE: u64 = 2;
/// And the number of the others.
const OTHERS: core::ops::Range<u64> = 3..8;

/// The CPUs that have done all that.
static DONE: AtomicU64 = AtomicU64::new(0);
/// The other CPUs are to end.
static END: AtomicBool = AtomicBool::new(false);

/// A register: its name, what it is to be, and how it is read.
type Register = (&'static str, u64, fn() -> u64);

/// System registers that a service could change, or that act on EL0: name, what they have, what this program finds in them.
const SYSTEM: [Register; 7] = [
    ("tpidr_el0", SEED, || read_sysreg!("tpidr_el0")),
    ("tpidrro_el0", SEED + 1, || read_sysreg!("tpidrro_el0")),
    ("cntkctl_el1", TIMERS, || read_sysreg!("cntkctl_el1")),
    ("sctlr_el1", FOR_EL0, || read_sysreg!("sctlr_el1") & FOR_EL0),
    ("contextidr_el1", SEED + 2, || read_sysreg!("contextidr_el1") & 0xffff_ffff),
    ("elr_el1", SEED << 2, || read_sysreg!("elr_el1")),
    ("spsr_el1", 0x3c5, || read_sysreg!("spsr_el1")),
];

fn fill_system() {
    write_sysreg!("tpidr_el0", SEED);
    write_sysreg!("tpidrro_el0", SEED + 1);
    write_sysreg!("cntkctl_el1", TIMERS);
    write_sysreg!("sctlr_el1", read_sysreg!("sctlr_el1") | FOR_EL0);
    write_sysreg!("contextidr_el1", SEED + 2);
    write_sysreg!("elr_el1", SEED << 2);
    write_sysreg!("spsr_el1", 0x3c5);
}

/// Says what is not as it was filled, in facilities and in system registers.
fn check(behind: &str) {
    for state in PRESENT.wrong(SEED) {
        println!("@error {} behind {behind}: changed", state.name);
    }
    check_system(behind);
}

fn check_system(behind: &str) {
    for (name, expected, read) in SYSTEM {
        if read() != expected {
            println!("@error {name} behind {behind}: {:#x} instead of {expected:#x}", read());
        }
    }
}

fn read(at: u64) -> u64 {
    mmio::read64(BASE + at)
}

/// Uses the device, together with the others: none of what it is told gets lost.
fn together() {
    fill_system();
    for _ in 0..TIMES {
        // The deed that does nothing.
        mmio::write64(BASE + BEGUN, 0);
    }
    check_system("what all have done at once");
    DONE.fetch_add(1, Relaxed);
}

/// Another CPU: what it reads while the service misbehaves is no matter, that it goes on is.
fn beside(_: u64) {
    together();
    while !END.load(Relaxed) {
        read(RESULT);
        check_system("what another CPU does");
    }
}

fn main() {
    mmu::enable();
    if smp::others().next().is_some() {
        if !smp::start_others(beside) {
            return;
        }
        together();
        while DONE.load(Relaxed) != smp::count() as u64 {
            cpu::relax();
        }
        let expected = TIMES * smp::count() as u64;
        if read(BEGUN) != expected {
            println!("@error {} accesses have reached the service, not {expected}", read(BEGUN));
        }
    }
    misbehaves();
    END.store(true, Relaxed);
    smp::others().for_each(|index| {
        smp::wait_off(index);
    });
    println!("@end");
}

fn misbehaves() {
    let write = |at, value| {
        mmio::write64(BASE + at, value);
        // A deed.
        if at == BEGUN {
            check("a deed");
        }
    };
    let device = Device { read, write };
    if pauth::exists() {
        pauth::enable();
    }
    PRESENT.fill(SEED);
    fill_system();
    let code = if pauth::has_generic() { pauth::code(SEED, SEED) } else { 0 };
    service::run(&mut Console, &device);
    check("all deeds");
    open();
    let device = Device { write: |at, value| mmio::write64(BASE + at, value), ..device };
    let (mut counted, mut refused) = (0, 0);
    for round in 0..2 {
        if !service::answers(&device, SEED + round) {
            println!("@error what this program has set for its EL0 acts on the service");
            return;
        }
        counted = counts();
        if counted > 20 {
            println!("@error {counted} instructions counted around one access");
        }
        refused = closed(&device, code);
    }
    check_system("what is closed");
    opened();
    if pauth::has_generic() && pauth::code(SEED, SEED) != code {
        println!("@error pauth: the key makes another code");
    }
    general();
    println!("@own {PRESENT}refused={refused} counted={counted}");
}

/// Opens to EL0, and lets act on it, all that there is.
fn open() {
    if pmu::has_counters() {
        pmu::stop();
        pmu::set(0, pmu::INST_RETIRED, 0);
        write_sysreg!("pmuserenr_el0", COUNTERS);
        write_sysreg!("pmcntenset_el0", 1);
        write_sysreg!("pmcr_el0", pmu::ENABLE | pmu::LONG_CYCLES);
    }
    write_sysreg!("dbgwvr0_el1", 0);
    write_sysreg!("dbgwcr0_el1", WATCH);
    write_sysreg!("dbgwvr1_el1", UPPER);
    write_sysreg!("dbgwcr1_el1", WATCH);
    write_sysreg!("mdscr_el1", DEBUG);
}

/// Sees that it is still so.
fn opened() {
    if read_sysreg!("mdscr_el1") != DEBUG {
        println!("@error MDSCR_EL1 is {:#x}", read_sysreg!("mdscr_el1"));
    }
    if !pmu::has_counters() {
        return;
    }
    if read_sysreg!("pmuserenr_el0") != COUNTERS {
        println!("@error PMUSERENR_EL0 is {:#x}", read_sysreg!("pmuserenr_el0"));
    }
    if read_sysreg!("pmcr_el0") & (pmu::ENABLE | pmu::LONG_CYCLES) != pmu::ENABLE | pmu::LONG_CYCLES {
        println!("@error PMCR_EL0 is {:#x}", read_sysreg!("pmcr_el0"));
    }
}

/// Returns how many instructions are counted around an access.
fn counts() -> u64 {
    if !pmu::has_counters() {
        return 0;
    }
    let before = pmu::count(0);
    read(RESULT);
    pmu::count(0) - before
}

/// Sees that a service has no instruction that it must not have, and nothing of this program's in the registers that it has. Returns
/// how many instructions were refused.
fn closed(device: &Device, code: u64) -> u64 {
    let mut refused = 0;
    for number in 0.. {
        match service::does(device, INSTRUCTION, [number, 0]) {
            None => refused += 1,
            // There is no such instruction.
            Some(0) => break,
            Some(_) => println!("@error a service has instruction {number}"),
        }
    }
    for number in REGISTERS {
        let value = service::does(device, SHOWN, [number, 0]);
        if value != Some(0) {
            println!("@error a service sees {value:x?} in register {number}");
        }
    }
    if pauth::has_generic() && service::does(device, SHOWN, [CODE, SEED]) == Some(code) {
        println!("@error a service signs by this program's key");
    }
    for number in OTHERS {
        if service::does(device, SHOWN, [number, u64::MAX]).is_none() {
            println!("@error a service crashes on what it may: {number}");
        }
    }
    refused
}

/// Sees that general registers and flags are as they were behind an access.
fn general() {
    let wrong: u64;
    // SAFETY: a load from the device; all registers that are changed are named, or put back.
    unsafe {
        asm!(
            "stp x18, x19, [sp, #-32]!",
            "stp x29, x30, [sp, #16]",
            ".irp n, 2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30",
            "mov x\\n, #\\n",
            ".endr",
            "msr nzcv, x1",
            "ldr x1, [x0]",
            "mrs x0, nzcv",
            "and x0, x0, #0xf0000000",
            "eor x0, x0, #0x60000000",
            ".irp n, 2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30",
            "sub x\\n, x\\n, #\\n",
            "orr x0, x0, x\\n",
            ".endr",
            "ldp x29, x30, [sp, #16]",
            "ldp x18, x19, [sp], #32",
            inout("x0") BASE => wrong, inout("x1") 0x6000_0000_u64 => _, out("x2") _, out("x3") _, out("x4") _, out("x5") _, out("x6") _,
            out("x7") _, out("x8") _, out("x9") _, out("x10") _, out("x11") _, out("x12") _, out("x13") _, out("x14") _,
            out("x15") _, out("x16") _, out("x17") _, out("x20") _, out("x21") _, out("x22") _, out("x23") _, out("x24") _,
            out("x25") _, out("x26") _, out("x27") _, out("x28") _,
        );
    }
    cpu::synchronize();
    if wrong != 0 {
        println!("@error general registers: differences in {wrong:#x}");
    }
}
