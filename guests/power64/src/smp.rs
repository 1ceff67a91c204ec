// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starting the other CPUs by RTAS (LoPAR, section 7.3.8).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use turnstile_guests_common::stack::Stack;

use crate::cpu::{self, Cpu};
use crate::platform::{MAX_CPUS, platform};
use crate::{hcall, irq, println, rtas, timer};

const STACK: usize = 16 << 10;
/// For a CPU to begin its work, in microseconds.
const PATIENCE: u64 = 2_000_000;

static STACKS: [Stack<STACK>; MAX_CPUS] = [const { Stack::new() }; MAX_CPUS];

unsafe extern "C" {
    fn secondary_start();
}

/// Returns the number of CPUs.
pub fn count() -> usize {
    platform().cpus.as_slice().len()
}

/// Returns the interrupt server number of the CPU with this number, or one that no CPU has.
pub fn server(index: usize) -> u32 {
    platform().server(index)
}

/// Returns the numbers of all CPUs but the one that runs this.
pub fn others() -> impl Iterator<Item = usize> + Clone {
    let this = cpu::this().index();
    (0..count()).filter(move |index| *index != this)
}

/// Lets the CPU with this number do `work(argument)`, with interrupts masked, and then stop. Returns whether it has begun.
pub fn start(index: usize, work: fn(u64), argument: u64) -> bool {
    let cpu = cpu::of(index);
    cpu.stack_top.store(STACKS[index % MAX_CPUS].top() - 256, Relaxed);
    cpu.index.store(index as u64, Relaxed);
    cpu.server.store(u64::from(server(index)), Relaxed);
    cpu.work.set(work, argument);
    let began = cpu.began.load(Relaxed);
    let record = &raw const *cpu as u64 as u32;
    let end = timer::now() + timer::ticks(PATIENCE);
    // A CPU that is about to stop cannot be started yet.
    while start_cpu(server(index), secondary_start as *const () as u32, record) != 0 {
        if timer::now() > end {
            return false;
        }
    }
    timer::wait(PATIENCE, || cpu.began.load(Acquire) != began)
}

/// Lets all CPUs but this one do `work(0)`; returns whether they have begun, and prints which one has not.
pub fn start_others(work: fn(u64)) -> bool {
    let failed = others().find(|index| !start(*index, work, 0));
    if let Some(index) = failed {
        println!("@error CPU {index} does not start");
    }
    failed.is_none()
}

/// start-cpu, as it is.
pub fn start_cpu(server: u32, address: u32, argument: u32) -> i32 {
    rtas::call::<0>(platform().tokens.start_cpu, &[server, address, argument]).0
}

/// query-cpu-stopped-state: 0 stopped, 1 stopping, 2 running; or a negative status.
pub fn state(index: usize) -> i32 {
    match rtas::call::<1>(platform().tokens.query_stopped, &[server(index)]) {
        (0, [state]) => state as i32,
        (status, _) => status,
    }
}

/// Waits until the CPU with this number has ended the work that it has begun last; returns whether it has.
pub fn wait_done(index: usize) -> bool {
    let cpu = cpu::of(index);
    timer::wait(5_000_000, || cpu.ended.load(Acquire) == cpu.began.load(Acquire))
}

/// The first Rust code of a started CPU.
pub extern "C" fn secondary_main(cpu: &'static Cpu, big_endian: u64) -> ! {
    cpu::init(cpu.index());
    cpu.big_endian.store(big_endian, Relaxed);
    // Where this belongs to a CPU, and not to all.
    hcall::call(hcall::SET_MODE, [hcall::set_mode::LITTLE_ENDIAN, hcall::set_mode::BYTE_ORDER, 0, 0]);
    irq::init_cpu();
    cpu.began.fetch_add(1, Release);
    cpu.work.run();
    cpu::mask();
    timer::disarm();
    cpu.ended.store(cpu.began.load(Relaxed), Release);
    stop()
}

/// stop-self, with an argument block of this CPU's own: others may be calling RTAS at the same time.
pub fn stop() -> ! {
    #[repr(C, align(32))]
    struct Block([u32; 8]);
    let token = platform().tokens.stop_self.unwrap_or(0);
    let block = Block([token.to_be(), 0, 1_u32.to_be(), 0, 0, 0, 0, 0]);
    rtas::raw(&raw const block.0 as u64);
    crate::power::halt()
}
