// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks after which this machine cannot go on: the hypervisor stops it with a report, or it spins until it is stopped.

use core::arch::asm;

use turnstile_guests_x86_64::apic::{self, PAGE};
use turnstile_guests_x86_64::exception;
use turnstile_guests_x86_64::mmu::{self, entry};
use turnstile_guests_x86_64::{boot, cpu, crash, io_apic, mmio, power, smp, timer};

/// Their names.
pub const ATTACKS: &[(&str, fn())] = &[
    ("triple-fault", || power::triple_fault()),
    ("triple-fault-other", triple_fault_other),
    ("gates-in-device", gates_in_device),
    ("stack-in-device", stack_in_device),
    ("descriptors-in-device", descriptors_in_device),
    ("tables-in-device", tables_in_device),
    ("tables-outside", tables_outside),
    ("root-in-device", root_in_device),
    ("root-outside", || crash::die("tables")),
    ("state-refused", state_refused),
    ("task-switch", task_switch),
    ("fault-loop", || crash::die("fault-loop")),
    ("spin", || crash::die("spin")),
    ("halt", || crash::die("halt")),
    ("timer-storm", timer_storm),
];

/// Another CPU shuts down: so does the machine.
fn triple_fault_other() {
    smp::start(1, |_| power::triple_fault(), 0);
    timer::wait(1_000_000, || false);
}

/// The table of gates is the I/O APIC.
fn gates_in_device() {
    cpu::load_idt(io_apic::base(), 4095);
    // SAFETY: here and below, nothing of this program is relied on afterwards.
    unsafe { asm!("ud2", options(noreturn)) }
}

/// The stack is the APIC's page, and an exception comes whose gate has no stack of its own.
fn stack_in_device() {
    exception::set_gate(6, 0);
    // SAFETY: as above.
    unsafe { asm!("mov rsp, {}", "ud2", in(reg) PAGE + 0x800, options(noreturn)) }
}

/// The table of descriptors is the I/O APIC, and a segment is loaded.
fn descriptors_in_device() {
    cpu::load_gdt(io_apic::base(), 0xffff);
    // SAFETY: as above.
    unsafe { asm!("mov es, {0:e}", "ud2", in(reg) 0x18, options(noreturn)) }
}

/// A page table is the I/O APIC.
fn tables_in_device() {
    let window = mmu::set_upper(1, io_apic::base() | entry::USUAL);
    mmio::read32(window);
}

/// A page table is where nothing is.
fn tables_outside() {
    let window = mmu::set_upper(1, crash::outside() | entry::USUAL);
    mmio::read32(window);
}

/// The root of the page tables is the I/O APIC.
fn root_in_device() {
    // SAFETY: as above.
    unsafe { asm!("mov cr3, {}", "ud2", in(reg) io_apic::base(), options(noreturn)) }
}

/// The APIC's timer as fast as it goes: whoever gets through to the next instruction, it is not this program.
fn timer_storm() {
    apic::set_timer(0x73, apic::PERIODIC, 1);
    cpu::unmask();
    crash::die("spin");
}

/// A bit of CR4 that this CPU does not have. CPUs refuse it by an exception; QEMU does not, but VMRUN does.
fn state_refused() {
    turnstile_guests_x86_64::write_control!("cr4", turnstile_guests_x86_64::read_control!("cr4") | 1 << 13);
    cpu::cpuid(0, 0);
}

/// A task switch, as 32-bit systems have it: by a far jump to another task's segment.
fn task_switch() {
    // An available 32-bit task state segment in memory of zeros.
    let base = boot::image().1.next_multiple_of(mmu::WINDOW_SIZE);
    cpu::set_spare(0x67 | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24) << 56, 0);
    // To 32-bit code, out of long mode, and to a task that lies in the image.
    // SAFETY: as above.
    unsafe {
        asm!(
            "push 0x18",
            "lea rax, [rip + 2f]",
            "push rax",
            "retfq",
            ".code32",
            "2:",
            "mov eax, cr0",
            "and eax, 0x7fffffff",
            "mov cr0, eax",
            "mov ecx, 0xc0000080",
            "rdmsr",
            "and eax, 0xfffffeff",
            "wrmsr",
            "ljmp 0x40, 0",
            "3:",
            "hlt",
            "jmp 3b",
            ".code64",
            options(noreturn),
        )
    }
}
