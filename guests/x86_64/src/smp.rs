// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starting the other CPUs by INIT and start-up interrupts (Intel SDM vol. 3, section 10.4.4).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use turnstile_guests_common::stack::Stack;

use crate::apic::{self, icr};
use crate::cpu::{self, Cpu};
use crate::mmu::TABLES;
use crate::platform::{MAX_CPUS, platform};
use crate::{exception, port, power, println, pv_eoi, timer, trap};

/// Where the first instructions of a started CPU lie: a page below 1 MiB, which the start-up interrupt names.
pub const TRAMPOLINE: u64 = 0x8000;

const STACK: usize = 16 << 10;
/// For a CPU to begin its work, in microseconds: CPUs that share one of an emulator's threads take turns of 100 ms.
pub const PATIENCE: u64 = 2_000_000;

static STACKS: [Stack<STACK>; MAX_CPUS] = [const { Stack::new() }; MAX_CPUS];

unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_end: u8;
    static trampoline_cr3: u8;
    static trampoline_cpu: u8;
}

/// Returns the number of CPUs.
pub fn count() -> usize {
    platform().cpus.as_slice().len()
}

/// Returns the APIC identifier of the CPU with this number, or one that no CPU has.
pub fn apic_id(index: usize) -> u32 {
    platform().cpus.as_slice().get(index).copied().unwrap_or(0xfe)
}

/// Returns the numbers of all CPUs but the one that runs this.
pub fn others() -> impl Iterator<Item = usize> + Clone {
    let this = cpu::this().index();
    (0..count()).filter(move |index| *index != this)
}

/// Puts the first instructions of a started CPU to where they are executed.
fn prepare(cpu: &'static Cpu) {
    let start = &raw const trampoline_start;
    let place = |symbol: *const u8| TRAMPOLINE + (symbol as u64 - start as u64);
    // SAFETY: the page is memory that nothing of this program is in; one CPU is started at a time.
    unsafe {
        let length = (&raw const trampoline_end).offset_from(start) as usize;
        core::ptr::copy(start, TRAMPOLINE as *mut u8, length);
        (place(&raw const trampoline_cr3) as *mut u64).write_volatile(TABLES.0.get() as u64);
        (place(&raw const trampoline_cpu) as *mut u64).write_volatile(&raw const *cpu as u64);
    }
}

/// Lets the CPU with this number do `work(argument)`, with interrupts masked and its APIC as after INIT, and then go
/// offline. Returns whether it has begun.
pub fn start(index: usize, work: fn(u64), argument: u64) -> bool {
    let cpu = cpu::of(index);
    cpu.stack_top.store(STACKS[index].top() - 8, Relaxed);
    cpu.index.store(index as u64, Relaxed);
    cpu.apic_id.store(u64::from(apic_id(index)), Relaxed);
    cpu.work.set(work, argument);
    let began = cpu.began.load(Relaxed);
    prepare(cpu);
    send_init(index);
    let end = timer::now() + timer::ticks(200);
    while timer::now() < end {
        cpu::relax();
    }
    for _ in 0..2 {
        send_startup(index, (TRAMPOLINE >> 12) as u8);
        if timer::wait(PATIENCE / 2, || cpu.began.load(Acquire) != began) {
            return true;
        }
    }
    false
}

/// Lets all CPUs but this one do `work(0)`; returns whether they have begun, and prints which one has not.
pub fn start_others(work: fn(u64)) -> bool {
    let failed = others().find(|index| !start(*index, work, 0));
    if let Some(index) = failed {
        println!("@error CPU {index} does not start");
    }
    failed.is_none()
}

/// Sends INIT to the CPU with this number.
pub fn send_init(index: usize) {
    apic::send(apic_id(index), icr::INIT | icr::ASSERT);
}

/// Sends a start-up interrupt to the CPU with this number.
pub fn send_startup(index: usize, page: u8) {
    apic::send(apic_id(index), icr::STARTUP | icr::ASSERT | u64::from(page));
}

/// Waits until the CPU with this number has ended the work that it has begun last; returns whether it has.
pub fn wait_done(index: usize) -> bool {
    let cpu = cpu::of(index);
    timer::wait(5_000_000, || cpu.ended.load(Acquire) == cpu.began.load(Acquire))
}

/// Where the firmware finds the address at which it is to go on behind a reset of the processors: IP and CS.
const RESUME: [u64; 2] = [0x467, 0x469];

/// Lets the first CPU, which executes this, reset itself by `reset` with the shutdown code by which firmware goes on where memory
/// says. Returns whether it has gone on there; if not, `reset` has returned. The APIC is as after INIT.
pub fn resume_behind(reset: impl FnOnce()) -> bool {
    let cpu = cpu::of(0);
    cpu.stack_top.store(STACKS[0].top() - 8, Relaxed);
    // SAFETY: the first CPU alone does this, behind the reset below, and on another stack.
    cpu.work.set(|_| unsafe { trap::leave() }, 0);
    prepare(cpu);
    for (place, value) in RESUME.into_iter().zip([0, (TRAMPOLINE >> 4) as u16]) {
        // SAFETY: the BIOS data area, in which nothing of this program is.
        unsafe { (place as *mut u16).write_unaligned(value) };
    }
    port::write8(0x70, 0x0f);
    port::write8(0x71, 0x0a);
    trap::caught(reset).is_some_and(|trap| trap.vector == trap::LEFT)
}

/// The first Rust code of a started CPU.
pub extern "C" fn secondary_main(cpu: &'static Cpu) -> ! {
    cpu::init(cpu.index());
    exception::load();
    apic::init_cpu();
    cpu.began.fetch_add(1, Release);
    cpu.work.run();
    cpu::mask();
    pv_eoi::disable();
    cpu.ended.store(cpu.began.load(Relaxed), Release);
    power::halt()
}
