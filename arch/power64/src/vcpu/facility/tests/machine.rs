// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMs for tests, and the CPU that they run on.

use std::string::String;

use turnstile_vm::lifecycle::OnCrash;

use super::*;
use crate::irq::Board;
use crate::state::discover;
use crate::state::registers::{Emulated, NewerEmulated};
use crate::vm::{Vm, VmParts};

/// Makes a VM with so many vCPUs, pinned to this CPU, of which none has run. The CPU has all registers that any has.
pub(crate) fn vcpus(count: usize) -> Vec<&'static Vcpu> {
    cores(count, 1)
}

/// The same of a VM whose cores have so many threads.
pub(crate) fn cores(count: usize, threads: usize) -> Vec<&'static Vcpu> {
    fakes::reset();
    // A POWER9.
    fakes::set("PVR", 0x4e_1202);
    fakes::set("CTRL", 1);
    for name in HAS {
        fakes::set(name, 1);
    }
    discover();
    Emulated::discover();
    NewerEmulated::discover();
    vm_of(2, count, threads, Presentation::Xics)
}

/// What a CPU may not have.
const HAS: [&str; 23] = [
    "has TIDR",
    "has PSSCRPR",
    "has DEXCR",
    "has HASHKEYR",
    "has HASHPKEYR",
    "has MMCR3",
    "has SIER2",
    "has SIER3",
    "has EAR",
    "has USIER2",
    "has USIER3",
    "has UMMCR3",
    "has USIER",
    "has BESCRS",
    "has BESCRR",
    "has RWMR",
    "has TACR",
    "has TCSCR",
    "has CSIGR",
    "has SPMC1",
    "has SPMC2",
    "has MMCRS",
    "has WORT",
];

/// Makes the vCPU of another VM, with this number.
pub(crate) fn vm(id: u8, presentation: Presentation) -> Vec<&'static Vcpu> {
    vm_of(id, 1, 1, presentation)
}

fn vm_of(id: u8, count: usize, threads: usize, presentation: Presentation) -> Vec<&'static Vcpu> {
    let board = Board::new(count, 2, presentation).expect("the firmware has everything");
    let parts = VmParts {
        id,
        name: String::from("vm"),
        on_crash: OnCrash::Stop,
        statistics: false,
        board,
        vcpus: count,
        threads,
    };
    let vm: &'static Vm = Box::leak(Box::new(Vm::new(parts)));
    vm.set_vcpus(
        (0..count).map(|index| &*Box::leak(Box::new(Vcpu::new(vm, index, cpu::this(), None)))).collect(),
    );
    fakes::take_log();
    vm.vcpus().to_vec()
}
