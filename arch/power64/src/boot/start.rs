// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From `boot.S` to the hypervisor's main function: firmware, console, machine, memory, CPUs.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Arguments;
use core::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use spin::Once;
use turnstile_arch_common::phases::{Phase, TIMES};
use turnstile_arch_common::startup::boot_first;
use turnstile_arch_common::{blob, console, println};
use turnstile_firmware::Range;

use super::area::Area;
use super::fault;
use super::host::Host;
use crate::board::discover::{self, Machine};
use crate::board::{mitigation, opal, power, uart};
use crate::cpu::regs::{HSPRG0, PIR, PVR};
use crate::cpu::{self, PerCpu};
use crate::exit;
use crate::irq;
use crate::memory::{self, partition};
use crate::state;
use crate::time;
use crate::vcpu::frame::Frame;
use crate::vcpu::switch;

unsafe extern "Rust" {
    /// The hypervisor's main function, on the boot CPU, once the machine is set up.
    safe fn turnstile_main(host: &'static Host) -> !;
    /// The hypervisor's main function of every other CPU it started.
    safe fn turnstile_cpu_main(cpu: &'static PerCpu) -> !;
}

#[allow(improper_ctypes, reason = "the area is handed on to a function of this crate")]
unsafe extern "C" {
    static boot_stack_top: u8;
    fn turnstile_on_stack(
        cpu: &'static PerCpu,
        stack_end: u64,
        function: extern "C" fn(&'static PerCpu) -> !,
    ) -> !;
}

const BOOT_FAULT_STACK: usize = 16 * 1024;

#[repr(C, align(16))]
struct Stack([u8; BOOT_FAULT_STACK]);

static mut BOOT_FAULT_STACK_AREA: Stack = Stack([0; BOOT_FAULT_STACK]);

/// The boot CPU's area until the real one exists.
// SAFETY: it is a static, and exposed before it is used.
static mut BOOT_CPU: Area = unsafe { Area::new(0, 0, 0, 0, fault::turnstile_fault) };

static HOST: Once<Host> = Once::new();

/// The word of the command line by which the console is not looked at: so that nothing disturbs a measurement.
pub const NO_INPUT: &str = "input=off";

/// Says why the machine cannot be used, and stops.
fn refuse(reason: Arguments<'_>) -> ! {
    println!("turnstile: cannot run here: {reason}");
    console::flush();
    power::off();
    cpu::halt();
}

/// First Rust code of the boot CPU.
#[unsafe(no_mangle)]
extern "C" fn turnstile_primary(fdt: u64, opal_base: u64, opal_entry: u64, begin: u64) -> ! {
    TIMES.begin(begin);
    // SAFETY: no other CPU runs yet, and nobody else refers to the area; HSPRG0 is the frame at the top of this stack.
    unsafe {
        let area = &raw mut BOOT_CPU;
        area.expose_provenance();
        (*area).cpu.stack_end = (&raw const boot_stack_top) as u64;
        (*area).cpu.fault_stack_end = (&raw const BOOT_FAULT_STACK_AREA) as u64 + BOOT_FAULT_STACK as u64;
        (*(HSPRG0.read() as *mut Frame)).cpu = area.cast();
        opal::set(opal_base, opal_entry);
    }
    console::set(&uart::CONSOLE);
    println!("turnstile {} (HV)", env!("CARGO_PKG_VERSION"));
    // SAFETY: skiboot passes the address of a device tree, and real mode reads all memory.
    let Some(blob) = (unsafe { blob::device_tree(fdt) }) else {
        refuse(format_args!("skiboot has passed no device tree"))
    };
    let (controller, machine) =
        match discover::parse(blob).and_then(|fdt| Ok((irq::host::discover(fdt), discover::machine(fdt)?))) {
            Ok(found) => found,
            Err(error) => refuse(format_args!("{error}")),
        };
    if !machine.radix {
        refuse(format_args!(
            "its CPUs do not translate by radix trees: a POWER9 or newer is needed (under QEMU, -machine powernv9 or powernv10)"
        ));
    }
    if let Err(opal::Error(code)) = opal::set_up_cpus() {
        refuse(format_args!("the firmware cannot set its CPUs up (OPAL_REINIT_CPUS: {code})"));
    }
    // An emulator gives guests the facilities that HFSCR takes away, and keeps doorbells from those that mask interrupts.
    let emulated = machine.model.contains("emulated by qemu");
    mitigation::start(
        &mitigation::Machine { in_order: emulated, power9: is_power9(), features: machine.features },
        mitigation::Choice::from_line(machine.bootargs),
    );
    fault::install();
    state::set_enforced(!emulated);
    time::set_doorbells_wait(emulated);
    exit::illegal::set_inexact(emulated);
    time::set_frequency(machine.timebase.unwrap_or(time::frequency()));
    time::set_from_clock();
    TIMES.end(Phase::Early, time::ticks());
    let Some(controller) = controller else {
        refuse(format_args!("its interrupt controller is no XIVE that the firmware hands over"))
    };
    // SAFETY: of this machine's device tree.
    if let Err(irq::Error(code)) = unsafe { irq::host::init(controller) } {
        refuse(format_args!(
            "the firmware does not hand its interrupt controller over (OPAL_XIVE_RESET: {code})"
        ));
    }
    set_up(&machine, blob)
}

/// Takes memory, makes the areas of the CPUs, and goes on on the boot CPU's own stack.
fn set_up(machine: &Machine<'static>, tree: &'static [u8]) -> ! {
    if let Some(initrd) = machine.initrd
        && !machine.memory.iter().any(|ram| ram.contains(initrd))
    {
        refuse(format_args!("the bundle at {:#x} is not in RAM", initrd.base));
    }
    TIMES.end(Phase::Interrupts, time::ticks());
    let blob = Range { base: tree.as_ptr() as u64, size: tree.len() as u64 };
    let in_use: ArrayVec<Range, 2> = [Some(blob), machine.initrd].into_iter().flatten().collect();
    if let Err(error) = memory::init(machine, &in_use) {
        refuse(format_args!("{error}"));
    }
    let cpus = per_cpu_areas(machine, PIR.read() as u32);
    let first = cpus[0];
    HOST.call_once(|| Host {
        cpus,
        bundle: machine.initrd.map(|initrd| {
            // SAFETY: reserved for ever; the boot loader put the bundle there.
            unsafe { core::slice::from_raw_parts(initrd.base as *const u8, initrd.size as usize) }
        }),
        bootargs: leak(machine.bootargs),
        model: leak(machine.model),
        console_intid: Some(uart::INTERRUPT),
        tree,
        bridges: Once::new(),
    });
    TIMES.end(Phase::Memory, time::ticks());
    // SAFETY: the area lives for ever and its stack is unused.
    unsafe { turnstile_on_stack(first, first.stack_end, primary_on_stack) }
}

fn is_power9() -> bool {
    const POWER9: u64 = 0x4e;
    PVR.read() >> 16 == POWER9
}

fn leak(text: &str) -> &'static str {
    Box::leak(String::from(text).into_boxed_str())
}

/// Makes the areas of all CPUs, the boot CPU's first.
fn per_cpu_areas(machine: &Machine<'_>, boot: u32) -> Vec<&'static PerCpu> {
    let mut numbers: Vec<u32> = machine.cpus.iter().copied().collect();
    if !boot_first(&mut numbers, |pir| *pir == boot) {
        refuse(format_args!("the device tree does not name the CPU it was booted on ({boot:#x})"));
    }
    let area = |(index, pir): (usize, u32)| -> Result<&'static PerCpu, memory::Error> {
        let (stack, fault_stack) = (memory::stack()?, memory::stack()?);
        Ok(Area::leak(index, pir, stack, fault_stack, fault::turnstile_fault))
    };
    match numbers.into_iter().enumerate().map(area).collect() {
        Ok(areas) => areas,
        Err(error) => refuse(format_args!("{error}")),
    }
}

extern "C" fn primary_on_stack(first: &'static PerCpu) -> ! {
    let Some(host) = HOST.get() else { cpu::halt() };
    start_cpu(first);
    // LPCR says by now what becomes of accesses to registers that are not there.
    state::discover();
    if !host.bootargs.split_ascii_whitespace().any(|word| word == NO_INPUT) {
        time::poll_console();
    }
    turnstile_main(host)
}

/// Sets this CPU up.
fn start_cpu(area: &'static PerCpu) {
    partition::load();
    switch::start_cpu();
    irq::start_cpu();
    time::start_cpu();
    area.online.store(true, Ordering::Release);
}

/// First Rust code of the other CPUs, on their own stacks.
#[unsafe(no_mangle)]
extern "C" fn turnstile_secondary(area: &'static PerCpu) -> ! {
    start_cpu(area);
    turnstile_cpu_main(area)
}
