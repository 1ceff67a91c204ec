// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Switches on the host, against fakes.

use std::vec::Vec;

use turnstile_sched::Class;
use turnstile_vgic::{Context, Host, Model, RemoteOp, VcpuGic, VirtualInterface};
use turnstile_vm::attention::{Posted, Reasons};

use super::thread::{load, load_in, put_in};
use super::*;
use crate::cpu::mode::{Mode, Nvhe, Vhe};
use crate::cpu::regs::fakes::{self, Access};
use crate::exit::tests::{cpu_area, numbered_vm_of};
use crate::irq::{Gicv2, Gicv3, PPI_PHYSICAL_TIMER, PPI_PMU, PPI_VIRTUAL_TIMER};
use crate::memory::demand::Later;
use crate::state::Facility;
use crate::state::pmu::Kind;
use crate::vcpu::facility;
use crate::vm::Thread;

/// Nobody hears of anything.
struct Deaf;

impl Host for Deaf {
    fn post(&self, _: usize, _: u32) {}

    fn is_resident(&self, _: usize) -> bool {
        true
    }

    fn remote<V: VirtualInterface>(&self, _: &mut VcpuGic, _: &mut V, _: usize, _: RemoteOp) -> u64 {
        0
    }
}

/// A CPU that the vCPUs of several VMs share: how many each has, and whether it keeps statistics.
fn machine<const N: usize>(vms: [(usize, bool); N]) -> Vec<&'static Vcpu> {
    machine_with(vms, Kind::Off)
}

/// [`machine`] with a PMU.
fn machine_with<const N: usize>(vms: [(usize, bool); N], pmu: Kind) -> Vec<&'static Vcpu> {
    fakes::reset();
    fakes::set("ICH_VTR_EL2", 4 << 29 | 6 << 26 | 3);
    fakes::set("ICH_ELRSR_EL2", 0xf);
    fakes::set("CNTFRQ_EL0", 1_000_000);
    fakes::set("ID_AA64PFR0_EL1", 1 << 28);
    let cpu = cpu_area(0);
    fakes::set("TPIDR_EL2", core::ptr::from_ref(cpu) as u64);
    let mut all = Vec::new();
    for (id, (vcpus, statistics)) in (0u8..).zip(vms) {
        let vm = numbered_vm_of(id, Model::Gicv3, vcpus, pmu, false, statistics);
        let first = all.len();
        let thread = |number: usize| Thread::new(number as u32, 4096, None);
        let threads =
            (0..vcpus).map(|n| &*Box::leak(Box::new(Vcpu::new(vm, n, cpu, Some(thread(first + n))))));
        let threads: Vec<_> = threads.collect();
        vm.set_vcpus(threads.clone());
        vm.prepare(u64::from(id) + 100, (u64::from(id) + 1) << 12, Later::Nothing);
        all.extend(threads);
    }
    let tenant = |vcpu: &&'static Vcpu| Tenant { vcpu, class: Class::Fair { weight: 100 }, cpus: [0].into() };
    start(all.iter().map(tenant).collect(), Box::leak(Box::new([cpu])));
    fakes::take_log();
    all
}

#[test]
fn who_is_woken_by_a_load_is_for_the_loaded_one_to_look_for() {
    let threads = machine([(3, false)]);
    let [loaded, woken, parked] = threads[..] else { panic!("there are three") };
    let vm = loaded.vm;

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

fn put(vcpu: &'static Vcpu) -> Option<u64> {
    put_by::<Vhe, Gicv3>(vcpu)
}

/// Puts a vCPU, which is ready to be loaded again.
fn put_by<M: Mode, G: Gic>(vcpu: &'static Vcpu) -> Option<u64> {
    let deadline = put_in::<M, G>(vcpu, vcpu.thread.as_ref().expect("it shares a CPU"));
    vcpu.attention.put();
    deadline
}

#[test]
fn two_vcpus_of_a_vm_share_no_translations_of_their_first_stage() {
    let threads = machine([(2, false), (1, false)]);
    let [one, two, other] = threads[..] else { panic!("there are three") };
    let forgets = |vcpu| {
        fakes::take_instructions();
        load(vcpu);
        put(vcpu);
        fakes::take_instructions().contains(&"tlbi vmalle1")
    };
    assert!(forgets(one), "nobody knows who was here");
    assert!(!forgets(one));
    forgets(other);
    assert!(!forgets(one), "another VM's are under another VMID");
    assert!(forgets(two));
    forgets(other);
    assert!(forgets(one));
    assert!(!forgets(other));
}

#[test]
fn a_vcpu_has_its_vm_and_its_vectors() {
    let threads = machine([(2, false), (1, true)]);
    for vcpu in [threads[0], threads[2], threads[1], threads[1], threads[2]] {
        load(vcpu);
        let residence = vcpu.vm.residence();
        let registers = ["VTCR_EL2", "VTTBR_EL2", "VMPIDR_EL2", "CNTVOFF_EL2", "VBAR_EL2"];
        let timed = u64::from(vcpu.statistics.is_some());
        let expected = [residence.vtcr, residence.vttbr, vcpu.vmpidr, residence.cntvoff, timed];
        assert_eq!(registers.map(fakes::get), expected);
        put(vcpu);
    }
}

/// What each register of the first holds while it runs is nowhere while the second does, and is back with the first.
#[test]
fn a_switch_takes_along_all_that_it_brought() {
    let threads = machine([(1, false), (1, false)]);
    let [one, two] = threads[..] else { panic!("there are two") };
    load(one);
    put(one);
    let log = fakes::take_log().into_iter();
    let read: std::collections::BTreeSet<_> = log
        .filter_map(|access| match access {
            Access::Read(name) => Some(name),
            Access::Write(..) => None,
        })
        .filter(|name| !name.starts_with("ID_") && !name.starts_with("CNTPCT") && *name != "TPIDR_EL2")
        .filter(|name| !["ICH_VTR_EL2", "CNTFRQ_EL0", "ICH_ELRSR_EL2", "ICH_HCR_EL2"].contains(name))
        .collect();
    assert!(read.len() > 38, "{read:?}");
    load(one);
    let values: Vec<_> = read.iter().copied().zip(0x5ec_0000..).collect();
    values.iter().for_each(|(name, value)| fakes::set(name, *value));
    put(one);
    load(two);
    for (name, value) in &values {
        assert_ne!(fakes::get(name), *value, "{name} shows in another VM");
    }
    put(two);
    load(one);
    for (name, value) in &values {
        assert_eq!(fakes::get(name), *value, "{name}");
    }
}

/// A physical timer interrupt that a vCPU holds: inactive while the vCPU is in no CPU, and its line low.
fn held_comes_and_goes<M: Mode, G: Gic>(control: &'static str, deactivate: &'static str) {
    let threads = machine([(1, false)]);
    let vcpu = threads[0];
    load_in::<M, G>(vcpu);
    fakes::set(control, 5);
    // SAFETY: the test has one thread.
    let gic = unsafe { &mut vcpu.owned().gic };
    let _ = gic.inject_ppi_hw(&mut G::interface(), PPI_VIRTUAL_TIMER, PPI_VIRTUAL_TIMER);
    assert_eq!(gic.held(), 1 << PPI_VIRTUAL_TIMER);
    fakes::take_log();
    assert_eq!(put_by::<M, G>(vcpu), None, "it is pending, and not waited for");
    let log = fakes::take_log();
    let at = |wanted: Access| log.iter().position(|access| *access == wanted);
    let (low, inactive) =
        (at(Access::Write(control, 0)), at(Access::Write(deactivate, PPI_VIRTUAL_TIMER.into())));
    assert!(low.is_some() && inactive > low, "it would fire again: {low:?}, {inactive:?}");
    assert_eq!(fakes::get(control), 0);

    // Where lines are looked at, the mode is the machine's.
    fakes::set("CNTV_CTL_EL02", 5);
    load_in::<M, G>(vcpu);
    assert_eq!(gic.held(), 1 << PPI_VIRTUAL_TIMER, "the line is high again");
    let log = fakes::take_log();
    let at = |wanted: Access| log.iter().position(|access| *access == wanted);
    let high = at(Access::Write(control, 5));
    assert!(high.is_some());
    if deactivate == "GICC_DIR" {
        let active = at(Access::Write("GICD_ISACTIVER0", 1 << PPI_VIRTUAL_TIMER));
        assert!(active.is_some() && active < high, "it would fire once more: {active:?}, {high:?}");
    } else {
        assert_eq!(vcpu.cpu.redistributor.read32(0x1_0300), 1 << PPI_VIRTUAL_TIMER);
    }
}

#[test]
fn a_timer_interrupt_that_a_vcpu_holds_is_active_while_it_is_in_a_cpu() {
    held_comes_and_goes::<Vhe, Gicv3>("CNTV_CTL_EL02", "ICC_DIR_EL1");
    held_comes_and_goes::<Nvhe, Gicv3>("CNTV_CTL_EL0", "ICC_DIR_EL1");
    held_comes_and_goes::<Vhe, Gicv2>("CNTV_CTL_EL02", "GICC_DIR");
}

/// Counters stand still while their vCPU is in no CPU; an interrupt of theirs that it has not taken is there when it is back.
#[test]
fn a_pmu_interrupt_that_waits_stays_over_a_switch() {
    const COUNTS: u64 = 1;
    let threads = machine_with([(1, false)], Kind::Owned);
    let vcpu = threads[0];
    fakes::set("ID_AA64DFR0_EL1", 1 << 8);
    load(vcpu);
    assert!(facility::claim(vcpu, Facility::Pmu));
    fakes::set("PMCR_EL0", COUNTS);
    ["PMOVSSET_EL0", "PMINTENSET_EL1"].into_iter().for_each(|name| fakes::set(name, 1));
    // SAFETY: the test has one thread.
    let gic = unsafe { &mut vcpu.owned().gic };
    let _ = gic.inject_ppi_hw(&mut Gicv3::interface(), PPI_PMU, PPI_PMU);
    put(vcpu);
    assert_eq!(fakes::get("PMCR_EL0") & COUNTS, 0, "it counts what others do");
    load(vcpu);
    assert_eq!((fakes::get("PMCR_EL0") & COUNTS, gic.held()), (COUNTS, 1 << PPI_PMU));
}

#[test]
fn a_vcpu_that_is_put_is_waited_for_by_the_timer_that_it_has_armed() {
    let threads = machine([(1, false)]);
    let vcpu = threads[0];
    load(vcpu);
    fakes::set("CNTV_CTL_EL02", 1);
    fakes::set("CNTV_CVAL_EL02", 5000);
    fakes::set("CNTP_CTL_EL02", 3);
    fakes::set("CNTP_CVAL_EL02", 1000);
    assert_eq!(put(vcpu), Some(vcpu.vm.cntvoff() + 5000));
    load(vcpu);
    fakes::set("CNTP_CTL_EL02", 1);
    assert_eq!(put(vcpu), Some(1000));
    assert_eq!(["CNTV_CTL_EL02", "CNTP_CTL_EL02"].map(fakes::get), [0, 0], "silent meanwhile");
    // Another CPU asks for its interrupts: the lines are as they would be now.
    let lines = |now| {
        fakes::set("CNTPCT_EL0", now);
        crate::vm::peers::lines(vcpu) >> PPI_PHYSICAL_TIMER & 1
    };
    assert_eq!([999, 1000].map(lines), [0, 1]);
}
