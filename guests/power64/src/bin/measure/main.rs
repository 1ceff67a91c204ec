// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures one kind of exit. Options: `row=` its name; those of measuring guests ([`bench`]).
//!
//! | row | one operation |
//! |---|---|
//! | `null-hypercall` | H_CONFER to nobody in particular, which succeeds at once |
//! | `unknown-hypercall` | a call that no hypervisor has |
//! | `prod-cede` | H_PROD of itself and H_CEDE, which then does not wait |
//! | `io-user`, `io-device` | a character from the terminal, by a call: there is none. A service, and in the hypervisor |
//! | `self-ipi-xics` | H_IPI to itself; the interrupt's handler does H_XIRR, H_IPI, H_EOI |
//! | `self-ipi-xive` | the same by the pages of XIVE, which takes no exit |
//! | `ipi-ceded` | an interrupt to another CPU in H_CEDE, which sends one back to this one in H_CEDE |
//! | `vcpu-switch` | the same, counted singly: for two CPUs that share one |
//! | `vcpu-switch-fp` | the same with vector-scalar registers in use |
//! | `timer-interrupt` | the decrementer set to the past, its interrupt taken |
//! | `sleep-wake` | the decrementer set, H_CEDE until it has expired, its interrupt taken |
//! | `mmio-store` | a byte to a register of a device (`mmio=` another address) |
//! | `mmio-store-translated` | the same with translation on |
//! | `absent` | a load where there is no memory and no device, with translation on |
//! | `first-touch` | the first write to a page of memory (`order=` bytes of a page) |
//! | `facility-fault` | a doorbell to itself by `msgsndp`, taken |
#![no_std]
#![no_main]

mod ipi;
mod plain;
mod self_ipi;
mod timer;
mod touch;
mod xics;

use turnstile_guests_power64::{entry, options, println};

entry!(main);

fn main() {
    let row = options::get("row").unwrap_or("null-hypercall");
    match row {
        "null-hypercall" => plain::null_hypercall(),
        "unknown-hypercall" => plain::unknown_hypercall(),
        "prod-cede" => plain::prod_cede(),
        "io-user" | "io-device" => plain::terminal(row),
        "mmio-store" => plain::mmio_store(),
        "mmio-store-translated" => plain::mmio_store_translated(),
        "absent" => plain::absent(),
        "timer-interrupt" => timer::interrupt(),
        "sleep-wake" => timer::sleep(),
        "facility-fault" => plain::facility_fault(),
        "self-ipi-xics" => self_ipi::xics(),
        "self-ipi-xive" => self_ipi::xive(),
        "ipi-ceded" => ipi::handoff(row, 1),
        "vcpu-switch" | "vcpu-switch-fp" => ipi::handoff(row, 2),
        "first-touch" => touch::measure(),
        _ => println!("@error row={row} is none of this guest's"),
    }
}
