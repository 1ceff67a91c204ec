// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From `boot.S` to the hypervisor's main function: console, machine, memory, interrupt controller, CPUs.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use spin::Once;
use turnstile_arch_common::mmio::Registers;
use turnstile_arch_common::phases::{Phase, TIMES};
use turnstile_arch_common::startup::boot_first;
use turnstile_arch_common::{console, println};
use turnstile_firmware::Range;

use super::area::{self, Area};
use super::early::device_tree;
use super::host::Host;
use crate::board::discover::{self, Conduit, CpuNode, GicNode, Machine};
use crate::board::mitigation::{self, Choice};
use crate::board::uart::{self, Uart};
use crate::board::{power, psci};
use crate::cpu::{self, PerCpu, mode, regs};
use crate::irq::controller::{self, Controller};
use crate::irq::{self, gicv2};
use crate::memory::coherence;
use crate::memory::host as memory;
use crate::service;
use crate::time;
use crate::vcpu::frame::Frame;
use crate::vcpu::switch;

unsafe extern "Rust" {
    /// The hypervisor's main function, on the boot CPU, once the machine is set up.
    safe fn turnstile_main(host: &'static Host) -> !;
    /// The hypervisor's main function of every other CPU it started.
    safe fn turnstile_cpu_main(cpu: &'static PerCpu) -> !;
}

const BOOT_FAULT_STACK: usize = 16 * 1024;

#[repr(C, align(16))]
struct Stack([u8; BOOT_FAULT_STACK]);

unsafe extern "C" {
    static boot_stack_top: u8;
    fn turnstile_on_stack(argument: u64, stack: u64, function: extern "C" fn(u64) -> !) -> !;
}

static mut BOOT_FAULT_STACK_AREA: Stack = Stack([0; BOOT_FAULT_STACK]);
static HOST: Once<Host> = Once::new();

/// Affinity fields of MPIDR_EL1.
const AFFINITY: u64 = 0xff_00ff_ffff;

/// Says why the machine cannot be used, and stops.
fn refuse(reason: core::fmt::Arguments<'_>) -> ! {
    println!("turnstile: cannot run here: {reason}");
    console::flush();
    power::off();
    cpu::halt();
}

/// First Rust code of the boot CPU: EL2, MMU on with the boot tables.
#[unsafe(no_mangle)]
extern "C" fn turnstile_primary(dtb: u64, begin: u64) -> ! {
    TIMES.begin(begin);
    let affinity = regs::MPIDR_EL1.read() & AFFINITY;
    let stacks = [
        (&raw const boot_stack_top) as u64,
        (&raw const BOOT_FAULT_STACK_AREA) as u64 + BOOT_FAULT_STACK as u64,
    ];
    // SAFETY: no other CPU runs yet, and no reference to the area has been made.
    unsafe { area::begin(affinity, stacks) };
    let Some(blob) = device_tree(dtb) else { cpu::halt() };
    let Ok(fdt) = discover::parse(blob) else { cpu::halt() };
    let uart = discover::uart(fdt);
    if let Some(node) = uart {
        // SAFETY: the boot tables map everything but RAM in use as device memory, the final ones this port.
        let uart = unsafe { Uart::new(node.kind, node.registers.base) };
        uart.start(node.clock);
        uart::use_as_console(uart);
    }
    let mode = if mode::is_vhe() { "VHE" } else { "nVHE" };
    println!("turnstile {} ({mode})", env!("CARGO_PKG_VERSION"));
    let machine = match discover::machine(fdt) {
        Ok(machine) => machine,
        Err(error) => refuse(format_args!("{error}")),
    };
    if machine.psci == Some(Conduit::Smc) {
        psci::set_present();
    }
    if let Some(manager) = machine.power {
        // SAFETY: the boot tables map it as device memory, as do the final ones.
        power::set_manager(unsafe { Registers::new(manager.base) });
    }
    let gic = match machine.gic.clone() {
        Ok(gic) => gic,
        Err(error) => refuse(format_args!("{error}")),
    };
    check_cpu(&gic);
    if let Some(initrd) = machine.initrd
        && !machine.memory.iter().any(|ram| ram.contains(initrd))
    {
        refuse(format_args!("the bundle at {:#x} is not in RAM", initrd.base));
    }
    let fdt_range = Range { base: dtb, size: blob.len() as u64 };
    TIMES.end(Phase::Early, time::ticks());
    set_up_memory(&machine, &gic, fdt_range, uart.map(|node| node.registers));
    TIMES.end(Phase::Memory, time::ticks());
    if let Some(rtc) = machine.rtc {
        // SAFETY: mapped as device memory by the tables just built.
        time::set_from(unsafe { Registers::new(rtc.base) });
    }
    irq::set_gicv2(matches!(gic, GicNode::V2(_)));
    // SAFETY: the regions are mapped as device memory by the tables just built.
    let controller = unsafe { Controller::start(gic) };
    let (cpus, nodes) = per_cpu_areas(&machine, &controller, affinity);
    let host = HOST.call_once(|| Host {
        cpus,
        nodes,
        bundle: machine.initrd.map(|initrd| {
            // SAFETY: mapped read-only for ever; the boot loader put the bundle there.
            unsafe { core::slice::from_raw_parts(initrd.base as *const u8, initrd.size as usize) }
        }),
        bootargs: machine.bootargs,
        model: machine.model,
        console_intid: uart.and_then(|node| node.intid),
        controller,
        tree: fdt,
        bridges: Once::new(),
        iommus: Once::new(),
    });
    let first = host.cpus[0];
    // SAFETY: the area lives for ever and its stack is mapped and unused.
    unsafe {
        regs::TPIDR_EL2.write(first as *const PerCpu as u64);
        turnstile_on_stack(0, first.stack_top, primary_on_stack)
    }
}

fn check_cpu(gic: &GicNode) {
    if matches!(gic, GicNode::V3(_)) && regs::ID_AA64PFR0_EL1.read() >> 24 & 0xf == 0 {
        refuse(format_args!("the CPU has no GICv3 system register interface"));
    }
    if cfg!(feature = "ablation") && matches!(gic, GicNode::V2(_)) {
        refuse(format_args!(
            "an image for ablation needs a GICv3, whose registers its naive paths know (under QEMU: -machine \
             virt,gic-version=3)"
        ));
    }
    if regs::ID_AA64MMFR0_EL1.read() >> 28 & 0xf == 0xf {
        refuse(format_args!("the CPU has no 4 KiB translation granule"));
    }
}

fn set_up_memory(machine: &Machine<'_>, gic: &GicNode, fdt: Range, uart: Option<Range>) {
    coherence::choose();
    let in_use: arrayvec::ArrayVec<Range, 2> = [Some(fdt), machine.initrd].into_iter().flatten().collect();
    let others = uart.into_iter().chain(machine.rtc).chain(machine.power);
    let devices: arrayvec::ArrayVec<Range, 12> = controller::devices(gic).into_iter().chain(others).collect();
    if let Err(error) = memory::init(machine, &in_use, &devices, &controller::fixed(gic)) {
        refuse(format_args!("{error}"));
    }
}

/// Makes the areas of all CPUs that the interrupt controller has something for, the boot CPU's first.
fn per_cpu_areas(
    machine: &Machine<'_>,
    controller: &Controller,
    boot: u64,
) -> (Vec<&'static PerCpu>, Vec<CpuNode>) {
    let mut nodes: Vec<CpuNode> = machine.cpus.iter().copied().collect();
    boot_first(&mut nodes, |node| node.affinity == boot);
    if irq::is_gicv2() && nodes.len() > gicv2::MAX_CPUS {
        println!("turnstile: a GICv2 has {} CPUs; the others are not used", gicv2::MAX_CPUS);
        nodes.truncate(gicv2::MAX_CPUS);
    }
    let mut areas = Vec::new();
    nodes.retain(|node| {
        let Some(redistributor) = controller.redistributor(node.affinity) else {
            println!("turnstile: CPU {:#x} has no redistributor and is not used", node.affinity);
            return false;
        };
        let stacks = memory::cpu_stack(areas.len()).and_then(|stack| Ok((stack, memory::fault_stack()?)));
        let (stack, fault_stack_top) = match stacks {
            Ok(stacks) => stacks,
            Err(error) => refuse(format_args!("{error}")),
        };
        let stacks = [stack - size_of::<Frame>() as u64, fault_stack_top];
        let area = Area::new(areas.len(), node.affinity, stacks, redistributor);
        areas.push(area.settle());
        true
    });
    if areas.first().is_none_or(|area| area.affinity != boot) {
        refuse(format_args!("the device tree does not name the CPU it was booted on ({boot:#x})"));
    }
    (areas, nodes)
}

extern "C" fn primary_on_stack(_: u64) -> ! {
    let Some(host) = HOST.get() else { cpu::halt() };
    let first = host.cpus[0];
    start_cpu_interface(host, first);
    host.controller.probe();
    if let Some(intid) = host.console_intid {
        host.controller.enable_spi(intid, first.affinity, first.kick_token());
        console::enable_receive_interrupt();
    }
    turnstile_main(host)
}

fn start_cpu_interface(host: &Host, cpu: &PerCpu) {
    mitigation::start_cpu(cpu, Choice::from_line(host.bootargs));
    cpu.set_kick_token(host.controller.start_cpu(cpu.affinity, cpu.redistributor));
    switch::start_cpu();
    service::start_cpu();
    cpu.online.store(true, Ordering::Release);
}

/// First Rust code of the other CPUs: final tables, own stack.
#[unsafe(no_mangle)]
extern "C" fn turnstile_secondary(cpu: &'static PerCpu) -> ! {
    let Some(host) = HOST.get() else { cpu::halt() };
    if !coherence::fits() {
        println!(
            "turnstile: CPU {} lacks FEAT_S2FWB or CTR_EL0.IDC, which the first CPU has: it and those after it are not used",
            cpu.index
        );
        cpu::halt();
    }
    start_cpu_interface(host, cpu);
    turnstile_cpu_main(cpu)
}
