// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits as often as it is told, for tests of whoever counts them, and then waits for ever.
//!
//! Options: `hypercalls=` PSCI_VERSION by HVC, `calls=` the same by SMC, `registers=` reads of an ID register,
//! `reads=` of GICD_TYPER, `timers=` waits for a timer interrupt by WFI, `suspends=` by PSCI CPU_SUSPEND, of 20 ms
//! each. All else that it does is the same for any numbers.
#![no_std]
#![no_main]

use turnstile_guests::gic::offset::TYPER;
use turnstile_guests::mmio::read32;
use turnstile_guests::platform::{Conduit, platform};
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{cpu, entry, gic, irq, measured_loop, mmu, options, println, psci};

entry!(main);

const WAIT_MICROSECONDS: u64 = 20_000;

fn main() {
    let Some(gicd) = platform().gicd else {
        println!("@error the device tree has no GICv3");
        return;
    };
    mmu::enable();
    gic::init();
    irq::set_handler(Some(silence));
    gic::enable(Timer::Virtual.intid());
    each("hypercalls", || version(Conduit::Hvc));
    each("calls", || version(Conduit::Smc));
    each("registers", || measured_loop!(1_u64, ["mrs x0, id_aa64isar0_el1"], out("x0") _,));
    each("reads", || {
        read32(gicd.base + TYPER);
    });
    each("timers", || wait_for_timer(cpu::wfi));
    each("suspends", || wait_for_timer(suspend));
    println!("@done exits");
    loop {
        cpu::wfi();
    }
}

/// Does something as often as the option says.
fn each(option: &str, mut act: impl FnMut()) {
    (0..options::number(option, 0)).for_each(|_| act());
}

fn version(conduit: Conduit) {
    let [version, ..] = psci::smccc(conduit, [psci::function::VERSION, 0, 0, 0, 0, 0, 0, 0]);
    if version >> 16 == 0 {
        println!("@error PSCI_VERSION is {version:#x}");
    }
}

fn suspend() {
    let status = psci::call(psci::function::CPU_SUSPEND, [0; 3]);
    if status != psci::status::SUCCESS {
        println!("@error CPU_SUSPEND returned {status}");
    }
}

/// Lets the timer fire once; the mask closes the gap between looking and waiting.
fn wait_for_timer(wait: impl Fn()) {
    let due = timer::now() + timer::ticks(WAIT_MICROSECONDS);
    cpu::mask_irq();
    Timer::Virtual.set_compare(due);
    Timer::Virtual.set_control(timer::ENABLE);
    while timer::now() < due {
        wait();
    }
    cpu::unmask_irq();
    while Timer::Virtual.control() & timer::ENABLE != 0 {
        cpu::relax();
    }
}

fn silence(_intid: u32) {
    Timer::Virtual.set_control(0);
}
