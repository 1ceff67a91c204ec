// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Uses the device of a service that misbehaves, which lies where a PC's machine has such a device. What the CPU has of this guest is
//! looked at after each deed. The guest helps the service as far as it can: its LDT is the service's memory, and the breakpoints that
//! it has armed are at the service's addresses. Its other vCPUs use the device all the while.
#![no_std]
#![no_main]

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use turnstile_guests_common::service::{self, Device};
use turnstile_guests_x86_64::console::Console;
use turnstile_guests_x86_64::cpu::{self, msr};
use turnstile_guests_x86_64::state::{fp, msrs, xsave};
use turnstile_guests_x86_64::{entry, mmio, println, read_control, smp, write_control};

entry!(main);

const BASE: u64 = 0xfed8_0000;
/// Where programs of services are, for breakpoints and descriptors.
const PROGRAM: u64 = 0x6000_0000_0000;
/// Of the values in registers.
const SEED: u64 = 5;
/// The selector of the spare descriptor.
const SPARE: u16 = 0x40;
/// DR7 with four breakpoints: execution at the first address, and accesses of eight bytes at the others.
const ARMED: u64 = 0x400 | 0x55 | 0xbbb << 20;

/// Where the service says whether it was begun anew with what it keeps: 0, 1, or ones if it could not answer.
const KEPT: u64 = BASE + 32;

/// Set when the other vCPUs are to end.
static OVER: AtomicBool = AtomicBool::new(false);
/// How often they have used the device.
static USED: AtomicU64 = AtomicU64::new(0);
/// How often something has changed.
static CHANGED: AtomicU32 = AtomicU32::new(0);

fn main() {
    // An LDT of 64 KiB.
    let low = 0xffff | (PROGRAM & 0xff_ffff) << 16 | 0x82 << 40 | (PROGRAM >> 24 & 0xff) << 56;
    cpu::set_spare(low, PROGRAM >> 32);
    // SAFETY: nothing of this program uses the LDT.
    unsafe { asm!("lldt {:x}", in(reg) SPARE, options(nostack)) };
    arm();
    fp::fill(SEED);
    if xsave::exists() {
        xsave::fill(SEED);
    }
    msrs::fill(SEED);
    let write = |at, value| {
        mmio::write64(BASE + at, value);
        check(at);
    };
    let others = smp::count() > 1 && smp::start_others(bother);
    service::run(&mut Console, &Device { read: |at| mmio::read64(BASE + at), write });
    disarm();
    if others {
        OVER.store(true, Ordering::Relaxed);
        let ended = smp::others().all(smp::wait_done);
        println!("@others used={} ended={ended}", USED.load(Ordering::Relaxed));
    }
}

/// Uses the device until it is over.
fn bother(_: u64) {
    while !OVER.load(Ordering::Relaxed) {
        let found = mmio::read64(KEPT);
        if !matches!(found, 0 | 1 | u64::MAX) {
            println!("@error another vCPU has read {found:#x}");
            return;
        }
        USED.fetch_add(1, Ordering::Relaxed);
    }
}

fn arm() {
    write_control!("dr0", PROGRAM);
    write_control!("dr1", PROGRAM + 0x3000);
    write_control!("dr2", PROGRAM + 0x4000);
    write_control!("dr3", PROGRAM + 0x5000);
    write_control!("dr7", ARMED);
}

fn disarm() {
    write_control!("dr7", 0x400_u64);
}

/// Looks whether everything is as `main` has left it.
fn check(at: u64) {
    let (fs, gs, ldt): (u16, u16, u16);
    // SAFETY: reads selectors.
    unsafe {
        asm!("mov {0:x}, fs", "mov {1:x}, gs", "sldt {2:x}", out(reg) fs, out(reg) gs, out(reg) ldt, options(nomem, nostack));
    }
    let debug = [read_control!("dr0"), read_control!("dr3"), read_control!("dr7")];
    let found = [
        fs == cpu::selector::DATA && gs == cpu::selector::DATA && ldt == SPARE,
        debug == [PROGRAM, PROGRAM + 0x5000, ARMED],
        msrs::holds(SEED),
        cpu::read_msr(msr::GS_BASE) == core::ptr::from_ref(cpu::this()) as u64,
        fp::holds(SEED),
        !xsave::exists() || xsave::holds(SEED),
    ];
    if found.contains(&false) && CHANGED.fetch_add(1, Ordering::Relaxed) == 0 {
        println!("@error behind a write to register {at} this guest's state is not what it was: {found:?}");
    }
}
