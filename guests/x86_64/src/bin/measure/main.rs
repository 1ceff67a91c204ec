// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures one kind of exit. Options: `row=` its name; those of measuring guests ([`bench`]).
//!
//! | row | one operation |
//! |---|---|
//! | `null-hypercall` | VMMCALL of a number that no hypercall has |
//! | `cpuid` | CPUID leaf 0 |
//! | `msr-write` | WRMSR of KVM_POLL_CONTROL, or of the x2APIC's TPR where it is not offered |
//! | `port-read` | IN from the mask register of the 8259 |
//! | `io-user`, `io-device` | IN from the scratch register of the UART: a service, and in the hypervisor |
//! | `io-apic` | a read of the I/O APIC's version register |
//! | `device-access-la57` | the same with five levels of page tables |
//! | `absent`, `absent-port` | a read where there is no memory and no device, a read of a port that no device has |
//! | `x2apic-self-ipi-eoi`, `x2apic-self-ipi-pv-eoi` | an interrupt to itself by MSR, taken and ended, without and with paravirtual EOI |
//! | `xapic-self-ipi-eoi`, `xapic-self-ipi-pv-eoi` | the same by memory |
//! | `xapic-self-ipi-eoi-la57` | by memory, with five levels of page tables |
//! | `timer-interrupt` | the APIC's timer set by a deadline, its interrupt taken and ended |
//! | `sleep-wake` | the same, and HLT meanwhile |
//! | `ipi-running` | an interrupt to another CPU, which polls memory; it answers through memory |
//! | `ipi-halted` | an interrupt to another CPU in HLT, which sends one back to this one in HLT |
//! | `vcpu-switch` | the same, counted singly: for two CPUs that share one |
//! | `vcpu-switch-fp` | the same with vector registers in use |
//! | `halt-wake` | HLT with the own interrupt pending |
//! | `first-touch` | the first write to a page of memory |
#![no_std]
#![no_main]

mod ipi;
mod plain;
mod self_ipi;
mod timer;
mod touch;

use turnstile_guests_x86_64::{entry, options, println};

entry!(main);

fn main() {
    let row = options::get("row").unwrap_or("null-hypercall");
    match row {
        "null-hypercall" => plain::null_hypercall(),
        "cpuid" => plain::cpuid(),
        "msr-write" => plain::msr_write(),
        "port-read" => plain::port_read(),
        "io-user" | "io-device" => plain::uart(row),
        "io-apic" => plain::io_apic(row),
        "device-access-la57" => {
            if plain::five_levels() {
                plain::io_apic(row);
            }
        }
        "absent" => plain::absent(),
        "absent-port" => plain::absent_port(),
        "x2apic-self-ipi-eoi" => self_ipi::measure(row, true, false),
        "x2apic-self-ipi-pv-eoi" => self_ipi::measure(row, true, true),
        "xapic-self-ipi-eoi" => self_ipi::measure(row, false, false),
        "xapic-self-ipi-pv-eoi" => self_ipi::measure(row, false, true),
        "xapic-self-ipi-eoi-la57" => {
            if plain::five_levels() {
                self_ipi::measure(row, false, false);
            }
        }
        "timer-interrupt" => timer::interrupt(),
        "sleep-wake" => timer::sleep(),
        "halt-wake" => self_ipi::halt_wake(),
        "ipi-running" => ipi::running(),
        "ipi-halted" => ipi::handoff(row, 1),
        "vcpu-switch" | "vcpu-switch-fp" => ipi::handoff(row, 2),
        "first-touch" => touch::measure(),
        _ => println!("@error row={row} is none of this guest's"),
    }
}
