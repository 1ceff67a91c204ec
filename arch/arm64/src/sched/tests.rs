// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Switches on the host, against fakes.

use std::vec::Vec;

use turnstile_sched::Class;
use turnstile_vgic::{Host, Model, VcpuGic, VirtualInterface};
use turnstile_vm::attention::{Posted, Reasons};

use super::thread::load;
use super::*;
use crate::exit::tests::{cpu_area, vm_of};
use crate::facility::pmu::Kind;
use crate::irq::Gicv3;
use crate::regs::fakes;

/// Nobody hears of anything.
struct Deaf;

impl Host for Deaf {
    fn post(&self, _: usize, _: u32) {}

    fn remote<V: VirtualInterface>(&self, _: &mut VcpuGic, _: &mut V, _: usize, _: RemoteOp) -> u64 {
        0
    }
}

#[test]
fn who_is_woken_by_a_load_is_for_the_loaded_one_to_look_for() {
    fakes::reset();
    fakes::set("ICH_VTR_EL2", 4 << 29 | 4 << 26 | 3);
    fakes::set("ICH_ELRSR_EL2", 0xf);
    fakes::set("CNTFRQ_EL0", 1_000_000);
    let vm = vm_of(Model::Gicv3, 3, Kind::Off, false, false);
    let cpu = cpu_area(0);
    fakes::set("TPIDR_EL2", core::ptr::from_ref(cpu) as u64);
    let thread = |number: usize| Thread::new(number as u32, 4096, None);
    let threads: Vec<_> =
        (0..3).map(|n| &*Box::leak(Box::new(Vcpu::new(vm, n, cpu, Some(thread(n)))))).collect();
    vm.set_vcpus(threads.clone());
    let tenant = |vcpu: &&'static Vcpu| Tenant { vcpu, class: Class::Fair { weight: 100 }, cpus: [0].into() };
    start(threads.iter().map(tenant).collect(), Box::leak(Box::new([cpu])));
    let [loaded, woken, parked] = threads[..] else { panic!("there are three") };

    // An interrupt that one of them has, and that goes to another one while the first is in no CPU.
    const SPI: u32 = 40;
    // SAFETY: the test has one thread.
    let (gic, writer) = unsafe { (&mut loaded.owned().gic, &mut parked.owned().gic) };
    let cx = &mut Context { vgic: &vm.vgic, vif: &mut Gicv3::interface(), host: &Deaf };
    gic.load(cx);
    gic.power_on(cx);
    gic.dist_write(cx, 0, 4, 2);
    gic.dist_write(cx, 0x100 + SPI / 32 * 4, 4, 1 << (SPI % 32));
    gic.dist_write(cx, 0x200 + SPI / 32 * 4, 4, 1 << (SPI % 32));
    gic.deliver(cx, SPI);
    // Its list register is in use: the guest has not looked.
    fakes::set("ICH_ELRSR_EL2", 0xe);
    gic.put(cx.vif);
    writer.dist_write(cx, 0x6000 + 8 * SPI, 8, 1);

    load(parked);
    woken.attention.load(1 << 16);
    assert!(woken.attention.park());
    assert!(parked.attention.park());
    load(loaded);
    assert_eq!(woken.attention.take(), Reasons::INBOX);
    assert_eq!(loaded.attention.take(), Reasons::RESCHEDULE);
    assert_eq!(parked.attention.post(Reasons::INBOX), Posted::Wake, "it can still be woken");
}
