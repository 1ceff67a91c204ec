// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other CPUs: start, stop, real mode, a reset of all.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use turnstile_guests_x86_64::apic::{self, icr};
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{check, check_eq, cpu, irq, mmio, port, power, skip, smp, timer};

use crate::others;

pub const TESTS: &[Test] = &[
    Test { name: "cpus-start", run: start },
    Test { name: "cpus-real-mode", run: real_mode },
    Test { name: "cpus-init", run: init },
    Test { name: "cpus-startup-ignored", run: startup_ignored },
    Test { name: "cpus-state", run: state },
    Test { name: "cpus-resume", run: resume },
    Test { name: "cpus-tsc", run: tsc },
];

static VALUE: AtomicU64 = AtomicU64::new(0);

fn start() -> Outcome {
    fn work(value: u64) {
        VALUE.fetch_add(value, SeqCst);
    }
    for round in 1..=3 {
        VALUE.store(0, SeqCst);
        others::start(work, round)?;
        for index in smp::others() {
            check!(smp::wait_done(index), "CPU {index} does not end");
        }
        check_eq!(VALUE.load(SeqCst), round * (smp::count() as u64 - 1), "what all did");
    }
    Ok(())
}

// Real-mode code, for the page that the start-up interrupt names; it answers in that page. The handler of its interrupt is
// 128 bytes behind the start.
global_asm!(
    r#"
    .section .rodata.real, "a"
    .balign 128
    .code16
    .global real_start, real_end
real_start:
    mov     ax, cs
    mov     ds, ax
    mov     word ptr [0xf00], ax
    mov     dword ptr [0xf04], edx
    mov     eax, cr0
    mov     dword ptr [0xf08], eax
    xor     eax, eax
    cpuid
    mov     dword ptr [0xf0c], ebx
    in      al, 0x21
    mov     byte ptr [0xf10], al
    xor     ax, ax
    mov     es, ax
    mov     ss, ax
    mov     sp, 0x9e00
    mov     word ptr es:[0x1c0], 128
    mov     ax, cs
    mov     word ptr es:[0x1c2], ax
    int     0x70
    mov     dword ptr [0xf14], 0x600dc0de
3:  cli
    hlt
    jmp     3b
    .balign 128
    mov     dword ptr [0xf18], 0x17007000
    iret
real_end:
    .code64
    "#
);

unsafe extern "C" {
    static real_start: u8;
    static real_end: u8;
}

const REAL_PAGE: u64 = 0x9000;

fn real_mode() -> Outcome {
    if smp::count() == 1 {
        skip!("one CPU");
    }
    let start = &raw const real_start;
    // SAFETY: the page is memory that nothing of this program is in.
    unsafe {
        core::ptr::write_bytes(REAL_PAGE as *mut u8, 0, 4096);
        core::ptr::copy(start, REAL_PAGE as *mut u8, (&raw const real_end).offset_from(start) as usize);
    }
    turnstile_guests_x86_64::port::write8(turnstile_guests_x86_64::pic::MASK, 0xfb);
    smp::send_init(1);
    timer::wait(200, || false);
    smp::send_startup(1, (REAL_PAGE >> 12) as u8);
    let word = |offset: u64| mmio::read32(REAL_PAGE + offset);
    check!(timer::wait(1_000_000, || word(0xf14) == 0x600d_c0de), "it does not come to its end");
    smp::send_init(1);
    check_eq!(word(0xf00) & 0xffff, 0x900, "CS");
    let [signature, ..] = cpu::cpuid(1, 0);
    check_eq!(word(0xf04), signature, "EDX after INIT");
    check_eq!(word(0xf08) & 0x8000_0011, 0x10, "CR0 after INIT");
    let [_, vendor, ..] = cpu::cpuid(0, 0);
    check_eq!(word(0xf0c), vendor, "CPUID's EBX");
    check_eq!(word(0xf10) & 0xff, 0xfb, "the 8259's mask");
    check_eq!(word(0xf18), 0x1700_7000, "the interrupt through the vector table");
    Ok(())
}

/// INIT stops a CPU wherever it is, and it can be started again.
fn init() -> Outcome {
    fn spin(_: u64) {
        loop {
            VALUE.fetch_add(1, SeqCst);
            cpu::relax();
        }
    }
    if smp::count() == 1 {
        skip!("one CPU");
    }
    for round in 0..5 {
        check!(smp::start(1, spin, 0), "CPU 1 does not start in round {round}");
        let before = VALUE.load(SeqCst);
        check!(timer::wait(100_000, || VALUE.load(SeqCst) != before), "CPU 1 does not run");
        smp::send_init(1);
        // It may be under way for a moment, and so may be its last store.
        timer::wait(10_000, || false);
        let stopped = VALUE.load(SeqCst);
        timer::wait(1000, || false);
        check_eq!(VALUE.load(SeqCst), stopped, "what CPU 1 counts after INIT");
    }
    Ok(())
}

/// A CPU that runs does not care for start-up interrupts.
fn startup_ignored() -> Outcome {
    others::start(others::take, 1)?;
    for index in smp::others() {
        smp::send_startup(index, 0);
    }
    timer::wait(1000, || false);
    others::stop()
}

/// A CPU that is started again finds its APIC as after INIT: nothing pending.
fn state() -> Outcome {
    fn look(_: u64) {
        cpu::unmask();
        timer::wait(100, || false);
        cpu::mask();
        VALUE.store(u64::from(irq::count(0x61)) | 1 << 32, SeqCst);
    }
    fn hold(_: u64) {
        while !others::are_to_stop() {
            cpu::relax();
        }
    }
    others::start(hold, 0)?;
    // Interrupts are masked there, so it stays pending.
    apic::send_to(smp::apic_id(1), 0x61);
    others::stop()?;
    VALUE.store(0, SeqCst);
    check!(smp::start(1, look, 0), "CPU 1 does not start again");
    check!(smp::wait_done(1), "CPU 1 does not end");
    check_eq!(VALUE.load(SeqCst), 1 << 32, "what CPU 1 took");
    Ok(())
}

/// With the shutdown code that says so, a reset of the processors lets the first one go on where the guest wants it, with its
/// memory and devices as they are; the others wait.
fn resume() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU resets the machine");
    }
    fn count(_: u64) {
        while !others::are_to_stop() {
            VALUE.fetch_add(1, SeqCst);
            cpu::relax();
        }
    }
    let init = || apic::send(apic::id(), icr::INIT | icr::ASSERT);
    let fast = || {
        port::write8(0x92, port::read8(0x92) & !1);
        port::write8(0x92, 1);
    };
    let ways: [(&str, fn()); 5] = [
        ("INIT", init),
        ("port 0x64", || port::write8(0x64, 0xfe)),
        ("port 0x92", fast),
        ("port 0xcf9", || port::write8(0xcf9, 4)),
        ("a triple fault", || power::triple_fault()),
    ];
    for (name, way) in ways {
        others::set_stop(false);
        let is_started = smp::count() > 1 && smp::start(1, count, 0);
        port::write8(turnstile_guests_x86_64::console::SCR, 0x5a);
        let resumed = smp::resume_behind(|| {
            way();
            timer::wait(100_000, || false);
        });
        turnstile_guests_x86_64::test::rest();
        check!(resumed, "{name} does not let the first CPU go on");
        port::write8(0x70, 0x0f);
        check_eq!(port::read8(0x71), 0, "the shutdown code behind {name}");
        check_eq!(port::read8(turnstile_guests_x86_64::console::SCR), 0x5a, "a device behind {name}");
        check!(
            cpu::read_msr(cpu::msr::APIC_BASE) & 1 << 8 != 0,
            "it is the boot CPU no longer, behind {name}"
        );
        // A CPU that it shares with others may be away for some turns.
        let patience = if name == "INIT" { 1_000_000 } else { 300 };
        let before = VALUE.load(SeqCst);
        let runs = timer::wait(patience, || VALUE.load(SeqCst) != before);
        others::set_stop(true);
        if is_started {
            check!(runs == (name == "INIT"), "CPU 1 runs behind {name}: {runs}");
            check!(smp::start(1, |_| {}, 0) && smp::wait_done(1), "CPU 1 does not start behind {name}");
        }
    }
    Ok(())
}

/// Time-stamp counters of all CPUs agree.
fn tsc() -> Outcome {
    fn read(_: u64) {
        VALUE.store(timer::now(), SeqCst);
        while !others::are_to_stop() {
            cpu::relax();
        }
    }
    if smp::count() == 1 {
        skip!("one CPU");
    }
    for index in smp::others() {
        others::set_stop(false);
        VALUE.store(0, SeqCst);
        let before = timer::now();
        check!(smp::start(index, read, 0), "CPU {index} does not start");
        check!(timer::wait(1_000_000, || VALUE.load(SeqCst) != 0), "CPU {index} does not answer");
        let (there, after) = (VALUE.load(SeqCst), timer::now());
        check!(
            before <= there && there <= after,
            "CPU {index} is at {there:#x}, between {before:#x} and {after:#x}"
        );
        others::set_stop(true);
        check!(smp::wait_done(index), "CPU {index} does not stop");
    }
    Ok(())
}
