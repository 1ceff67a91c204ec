// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two local APICs that send each other an interrupt. A hypervisor implements `Hardware` over a VMCB and `Bus` over its
//! vCPUs.
//!
//! `cargo run -p turnstile-vapic --example ipi`

use std::cell::RefCell;
use std::num::NonZeroU64;

use turnstile_vapic::{Bus, Context, Hardware, Lapic, Routes, Signal, X2APIC_FIRST};

/// What a vCPU's control block would hold.
#[derive(Default)]
struct Cpu {
    offered: Option<u8>,
    task_priority: u8,
}

impl Hardware for Cpu {
    fn is_waiting(&self) -> bool {
        self.offered.is_some()
    }
    fn offer(&mut self, vector: u8, _unmasked: bool) {
        self.offered = Some(vector);
    }
    fn withdraw(&mut self) {
        self.offered = None;
    }
    fn task_priority(&self) -> u8 {
        self.task_priority
    }
    fn set_task_priority(&mut self, class: u8) {
        self.task_priority = class;
    }
    // No paravirtual EOI, no timer.
    fn eoi_word(&self, _: NonZeroU64) -> bool {
        false
    }
    fn set_eoi_word(&mut self, _: NonZeroU64, _: bool) {}
    fn now(&self) -> u64 {
        0
    }
    fn arm(&mut self, _: u64) {}
}

/// The VM: who is meant by a destination, and what each vCPU was posted.
struct Vm {
    routes: Routes,
    posted: [RefCell<Vec<u8>>; 2],
}

impl Bus for Vm {
    fn routes(&self) -> &Routes {
        &self.routes
    }
    fn post(&self, vcpu: usize, vector: u8, _level: bool) {
        self.posted[vcpu].borrow_mut().push(vector);
    }
    fn signal(&self, _: usize, _: Signal) {}
    fn end_of_interrupt(&self, _: u8) {}
    fn acknowledge(&self, _: u8) -> Option<u8> {
        None
    }
}

fn main() {
    let vm = Vm { routes: Routes::new(2), posted: Default::default() };
    let mut cpus = [0, 1].map(|index| (Lapic::new(index, true), Cpu::default()));
    for (apic, cpu) in &mut cpus {
        let cx = &mut Context { hardware: cpu, bus: &vm };
        apic.reset(cx);
        // IA32_APIC_BASE: the x2APIC on. Then the spurious-interrupt register: the APIC enabled.
        apic.set_base(cx, apic.base() | 1 << 11 | 1 << 10, |_| false).expect("an x2APIC is offered");
        apic.write_msr(cx, X2APIC_FIRST + 0x0f, 0x1ff).expect("the x2APIC is on");
    }
    let [(first, cpu0), (second, cpu1)] = &mut cpus;
    // The interrupt command register of vCPU 0: vector 0x41, fixed, to APIC ID 1.
    let cx = &mut Context { hardware: cpu0, bus: &vm };
    first.write_msr(cx, X2APIC_FIRST + 0x30, 1 << 32 | 0x41).expect("a command that exists");
    let cx = &mut Context { hardware: cpu1, bus: &vm };
    for vector in vm.posted[1].take() {
        second.accept(cx, vector);
    }
    let vector = cx.hardware.offered.take().expect("vCPU 1 is offered the interrupt");
    println!("vCPU 1 takes vector {vector:#x}");
    // The model sees that it was taken when it is next asked; then the guest ends it.
    second.write_msr(cx, X2APIC_FIRST + 0x0b, 0).expect("the EOI register takes zero");
    let in_service: u64 = (0..8).map(|n| second.read_msr(cx, X2APIC_FIRST + 0x10 + n).unwrap_or(1)).sum();
    assert_eq!(in_service, 0, "nothing is in service any more");
}
