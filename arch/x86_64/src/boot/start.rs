// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From `boot.S` to the hypervisor's main function: console, machine, memory, interrupts, CPUs.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Arguments;
use core::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use spin::Once;
use turnstile_firmware::{BootInfo, Machine, Range, boot, find_rsdp};

use super::area;
use super::host::Host;
use crate::board::discover::{self, EarlyMemory};
use crate::board::mitigation::{self, Choice};
use crate::board::power;
use crate::board::uart::{COM1, COM1_IRQ};
use crate::cpu::descriptors;
use crate::cpu::regs::{CR0, CR4, EFER, VM_HSAVE_PA, cr0, cr4, efer};
use crate::cpu::{self, PerCpu, STACK_TAIL};
use crate::irq::{idt, interrupts, ioapic, lapic};
use crate::memory::{self, Plan};
use crate::state::asid::Asids;
use crate::state::facility;
use crate::time;
use turnstile_arch_common::console;
use turnstile_arch_common::phases::{Phase, TIMES};
use turnstile_arch_common::println;
use turnstile_arch_common::startup::boot_first;

unsafe extern "Rust" {
    /// The hypervisor's main function, on the boot CPU, once the machine is set up.
    safe fn turnstile_main(host: &'static Host) -> !;
    /// The hypervisor's main function of every other CPU it started.
    safe fn turnstile_cpu_main(cpu: &'static PerCpu) -> !;
}

unsafe extern "C" {
    static boot_stack_end: u8;
    static mut boot_fault_stack_end: u8;
    fn turnstile_on_stack(argument: u64, stack_end: u64, function: extern "C" fn(u64) -> !) -> !;
}

/// The boot CPU's area until the real one exists.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "named by boot.S")]
static mut boot_cpu: PerCpu = PerCpu::new(0, 0, 0, 0, 0);

static HOST: Once<Host> = Once::new();

/// Says whether a stack's block that ends there is the boot CPU's first one.
pub(crate) fn is_boot_stack(end: u64) -> bool {
    end == (&raw const boot_stack_end) as u64
}

/// Says why the machine cannot be used, and stops.
fn refuse(reason: Arguments<'_>) -> ! {
    println!("turnstile: cannot run here: {reason}");
    console::flush();
    power::off();
    cpu::halt();
}

/// First Rust code of the boot CPU: 64-bit mode, boot-time tables, boot stack.
#[unsafe(no_mangle)]
extern "C" fn turnstile_primary(magic: u32, info: u32, begin: u64) -> ! {
    TIMES.begin(begin);
    COM1.start();
    console::set(&COM1);
    println!("turnstile {} (SVM)", env!("CARGO_PKG_VERSION"));
    // SAFETY: no other CPU runs yet, nothing else refers to these statics, and the tables are not in use.
    unsafe {
        let area = &raw mut boot_cpu;
        area::fill(&mut *area, Asids::none());
        (*area).stack_end = (&raw const boot_stack_end) as u64;
        (*area).fault_stack_end = (&raw const boot_fault_stack_end) as u64;
        let slot = ((*area).fault_stack_end - STACK_TAIL + 8) as *mut *const PerCpu;
        slot.write(area);
        idt::build();
        descriptors::load(&*area);
        idt::begin();
    }
    let info = match boot::read(&EarlyMemory, magic, info.into()) {
        Ok(info) => info,
        Err(error) => refuse(format_args!("{error}")),
    };
    let rsdp = info.rsdp.or_else(|| find_rsdp(&EarlyMemory));
    let Some(machine) = Machine::read(&EarlyMemory, rsdp) else {
        refuse(format_args!("there are neither ACPI nor MultiProcessor tables that name its CPUs"))
    };
    power::set(machine.power);
    if let Err(refusal) = discover::check_this_cpu() {
        refuse(format_args!("{refusal}"));
    }
    set_up(&info, &machine)
}

/// Takes memory, interrupts and the clock, and goes on on the boot CPU's own stack.
fn set_up(info: &BootInfo<'_>, machine: &Machine) -> ! {
    let Some(trampoline) = trampoline_page(info) else {
        refuse(format_args!("no page below 640 KiB is free, where other CPUs have to start"))
    };
    let bootargs = copy_command_line(info.command_line);
    let mut devices: ArrayVec<Range, 24> = ArrayVec::new();
    devices.push(Range { base: machine.local_apic, size: 4096 });
    devices.extend(machine.io_apics.iter().map(|apic| Range { base: apic.address, size: ioapic::SIZE }));
    devices.extend(power::registers(&machine.power).map(|base| Range { base, size: 8 }));
    let plan = Plan {
        regions: &info.memory,
        in_use: info.module,
        devices: &devices,
        trampoline,
        cpus: machine.cpus.len(),
    };
    crate::cpu::svm::discover();
    TIMES.end(Phase::Early, time::ticks());
    if let Err(error) = memory::init(&plan) {
        refuse(format_args!("{error}"));
    }
    TIMES.end(Phase::Memory, time::ticks());
    lapic::keep_mode(machine.local_apic);
    lapic::enable();
    ioapic::mask_all(&machine.io_apics);
    if !time::measure(machine.power.timer) {
        println!("turnstile: no timer to measure the CPU's by: taken for 1 GHz");
    }
    lapic::prefer_x2apic();
    lapic::enable();
    time::set_from_clock(machine.power.century);
    let cpus = per_cpu_areas(machine, lapic::id());
    let first = cpus[0];
    let routed = ioapic::route(
        &machine.io_apics,
        machine.isa[usize::from(COM1_IRQ)],
        interrupts::CONSOLE,
        first.apic_id,
    );
    HOST.call_once(|| Host {
        cpus,
        bundle: info.module.map(|module| {
            // SAFETY: mapped read-only for ever; the boot loader put the bundle there.
            unsafe { core::slice::from_raw_parts(module.base as *const u8, module.size as usize) }
        }),
        bootargs,
        model: model(),
        console_intid: routed.then_some(interrupts::CONSOLE.into()),
        trampoline,
        ivrs: machine.iommus.clone(),
        unnamed: machine.iommus.unnamed(&machine.io_apics),
        bridge: Once::new(),
    });
    // SAFETY: the area lives for ever and its stack is mapped and unused.
    unsafe { turnstile_on_stack(0, first.stack_end, primary_on_stack) }
}

/// Finds a free page in which other CPUs can start: the highest one below 640 KiB.
fn trampoline_page(info: &BootInfo<'_>) -> Option<u64> {
    /// The last page holds the firmware's data in many machines, even if the memory map does not say so.
    const END: u64 = 0x9_f000;
    let usable = info.memory.iter().filter(|region| region.usable);
    let last = usable.filter_map(|region| {
        let end = region.range.base.saturating_add(region.range.size).min(END);
        let page = (end & !0xfff).checked_sub(4096)?;
        (page >= region.range.base && page >= 0x1000).then_some(page)
    });
    last.max()
}

/// Copies the command line to where it stays: the boot loader's memory goes to guests.
fn copy_command_line(line: &str) -> &'static str {
    static LINE: Once<ArrayVec<u8, { boot::MAX_COMMAND_LINE }>> = Once::new();
    let bytes = LINE.call_once(|| line.bytes().take(boot::MAX_COMMAND_LINE).collect());
    core::str::from_utf8(bytes).unwrap_or("")
}

/// What the CPU calls itself (CPUID Fn8000_0002 to 4).
fn model() -> &'static str {
    if cpu::cpuid(0x8000_0000, 0)[0] < 0x8000_0004 {
        return "x86-64";
    }
    let bytes =
        (0x8000_0002..=0x8000_0004u32).flat_map(|leaf| cpu::cpuid(leaf, 0)).flat_map(u32::to_le_bytes);
    let name: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    Box::leak(String::from_utf8_lossy(&name).trim().into())
}

/// Makes the areas of all CPUs, the boot CPU's first.
fn per_cpu_areas(machine: &Machine, boot: u32) -> Vec<&'static PerCpu> {
    let mut ids: Vec<u32> = machine.cpus.iter().copied().collect();
    if !boot_first(&mut ids, |id| *id == boot) {
        refuse(format_args!("the firmware's tables do not name the CPU it was booted on ({boot:#x})"));
    }
    if !lapic::has_x2apic() && ids.iter().any(|id| *id > 254) {
        println!("turnstile: without an x2APIC only CPUs with APIC ids below 255 are used");
        ids.retain(|id| *id < 255);
    }
    let area = |(index, id): (usize, u32)| -> Result<&'static PerCpu, memory::Error> {
        let (stack_end, fault_stack_end) = (memory::stack()?, memory::stack()?);
        let cpu = PerCpu::new(stack_end, fault_stack_end, memory::pages(1)?, index, id);
        let cpu = Box::leak(Box::new(cpu));
        area::fill(cpu, Asids::of_machine(index));
        let area: &'static PerCpu = cpu;
        for end in [stack_end, fault_stack_end] {
            // SAFETY: the last word of a mapped stack that nobody uses yet.
            unsafe { ((end - STACK_TAIL + 8) as *mut *const PerCpu).write(area) };
        }
        Ok(area)
    };
    match ids.into_iter().enumerate().map(area).collect() {
        Ok(areas) => areas,
        Err(error) => refuse(format_args!("{error}")),
    }
}

extern "C" fn primary_on_stack(_: u64) -> ! {
    let Some(host) = HOST.get() else { cpu::halt() };
    start_cpu(host, host.cpus[0]);
    if host.console_intid.is_some() {
        console::enable_receive_interrupt();
    }
    turnstile_main(host)
}

/// Sets this CPU up: its tables, the bits of its control registers, SVM, and interrupts, which arrive from now on where the
/// global interrupt flag is opened for them.
fn start_cpu(host: &Host, area: &'static PerCpu) {
    // SAFETY: the area is this CPU's; control registers and SVM are set as the hypervisor runs, and nothing is open to guests
    // yet. The host save page is this CPU's own.
    unsafe {
        descriptors::load(area);
        idt::begin();
        CR0.write(CR0.read() & !(cr0::TS | cr0::EM) | cr0::WP | cr0::MP | cr0::NE);
        CR4.write(CR4.read() | control_features());
        EFER.write(EFER.read() | efer::NXE | efer::SVME);
        VM_HSAVE_PA.write(area.host_save);
        lapic::enable();
        facility::start_cpu();
        core::arch::asm!("clgi", "sti", options(nostack));
    }
    mitigation::start_cpu(Choice::from_line(host.bootargs));
    facility::set_barrier(mitigation::between());
    area.kick_token.store(lapic::kick_token(area.apic_id), Ordering::Relaxed);
    area.online.store(true, Ordering::Release);
}

/// Features of CR4 that the hypervisor uses, where the CPU has them (CPUID Fn0000_0007).
fn control_features() -> u64 {
    let [_, ebx, ecx, _] = if cpu::cpuid(0, 0)[0] >= 7 { cpu::cpuid(7, 0) } else { [0; 4] };
    let has = |register: u32, bit: u32, feature: u64| if register & (1 << bit) != 0 { feature } else { 0 };
    cr4::MCE | has(ebx, 7, cr4::SMEP) | has(ebx, 20, cr4::SMAP) | has(ecx, 2, cr4::UMIP)
}

/// First Rust code of the other CPUs: final tables, own stack.
#[unsafe(no_mangle)]
extern "C" fn turnstile_secondary(area: &'static PerCpu) -> ! {
    let Some(host) = HOST.get() else { cpu::halt() };
    start_cpu(host, area);
    turnstile_cpu_main(area)
}
