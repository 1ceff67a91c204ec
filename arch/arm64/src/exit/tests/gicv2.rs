// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same on a GICv2, and for GICv2 guests on a GICv3.

use turnstile_vgic::{Host, Model, RemoteOp, VcpuGic, VirtualInterface};

use super::machine::machine_of;
use super::*;
use crate::irq::gich::Gich;
use crate::irq::legacy::IchLegacy;
use crate::irq::{CpuInterface, Gicv2, Gicv3Legacy};
use crate::vm::Vm;

/// Where the guest's GICD_SGIR is.
const SGIR: u64 = 0x0800_0f00;
/// ISS of a word written by register 2, or read to it: valid, translation fault at level 3.
const STORE: u64 = LOAD | 1 << 6;
const LOAD: u64 = 1 << 24 | 2 << 22 | 2 << 16 | 0x07;

fn gicv2(vcpus: usize) -> (&'static Vm, Frame) {
    let (vm, frame) = machine_of::<Gicv2>(Model::Gicv2, vcpus, false, false);
    for vcpu in vm.vcpus() {
        let token = 1 << (16 + vcpu.index);
        vcpu.cpu.set_kick_token(token);
        vcpu.attention.put();
        vcpu.attention.load(token);
    }
    (vm, frame)
}

/// An access of the guest at `address`.
fn access<G: Gic>(frame: &mut Frame, address: u64, iss: u64) -> (u32, Vec<Access>) {
    fakes::set("HPFAR_EL2", address >> 8 & !0xf);
    fakes::set("FAR_EL2", address & 0xfff);
    let (code, log) = exit_by::<G>(frame, class::DATA_ABORT, iss);
    (code, log.into_iter().filter(is_gic).collect())
}

fn is_gic(access: &Access) -> bool {
    let (Access::Read(name) | Access::Write(name, _)) = access;
    name.starts_with("GIC") || super::is_gic(access)
}

#[test]
fn null_hypercall_touches_no_interrupt_controller() {
    let (_, mut frame) = gicv2(1);
    frame.set(0, 0x8400_0000);
    assert_eq!(exit_by::<Gicv2>(&mut frame, class::HVC64, 0), (0, vec![READ_ESR]));
}

#[test]
fn self_sgi_is_one_list_register_write() {
    let (_, mut frame) = gicv2(1);
    frame.set(2, 2 << 24 | 3);
    let (code, log) = access::<Gicv2>(&mut frame, SGIR, STORE);
    assert_eq!((code, log), (0, vec![Access::Write("GICH_LR0", 0b01 << 28 | 3)]));
    assert_eq!(fakes::get("ELR_EL2"), 0x4000_0004);
}

#[test]
fn sgi_to_another_vcpu_posts_and_kicks_once() {
    let (vm, mut frame) = gicv2(4);
    // To all but itself.
    frame.set(2, 1 << 24 | 5);
    let (code, log) = access::<Gicv2>(&mut frame, SGIR, STORE);
    let kicks = [17, 18, 19].map(|bit| Access::Write("GICD_SGIR", 1 << bit));
    assert_eq!((code, &log[..]), (0, &kicks[..]));
    assert_eq!(access::<Gicv2>(&mut frame, SGIR, STORE), (0, vec![]), "kicked already");
    assert!(vm.vcpus()[1..].iter().all(|vcpu| vcpu.attention.is_pending()));
}

#[test]
fn kick_delivers_what_was_posted_with_its_sender() {
    let (vm, mut frame) = gicv2(2);
    let me = vm.vcpus()[0];
    struct Word<'a>(&'a Vcpu);
    impl Host for Word<'_> {
        fn post(&self, _: usize, intid: u32) {
            let _ = self.0.attention.post(Reasons::sgi(intid));
        }
        fn is_resident(&self, _: usize) -> bool {
            true
        }
        fn remote<V: VirtualInterface>(&self, _: &mut VcpuGic, _: &mut V, _: usize, _: RemoteOp) -> u64 {
            0
        }
    }
    vm.vgic.post_sgi(&Word(me), 0, 7, 1);
    let kick = 1 << 10;
    fakes::set("GICC_IAR", kick);
    let code = whole::interrupt::<Gicv2>(&mut frame);
    let expected = [
        Access::Read("GICC_IAR"),
        Access::Write("GICC_EOIR", kick),
        Access::Write("GICC_DIR", kick),
        Access::Write("GICH_LR0", 0b01 << 28 | 1 << 10 | 7),
    ];
    assert_eq!((code, fakes::take_log()), (0, expected.to_vec()));
}

#[test]
fn timer_interrupt_is_acknowledged_and_one_list_register() {
    let (_, mut frame) = gicv2(1);
    fakes::set("GICC_IAR", 27);
    let code = whole::interrupt::<Gicv2>(&mut frame);
    let lr = 1 << 31 | 0b01 << 28 | 27 << 10 | 27;
    let expected = [Access::Read("GICC_IAR"), Access::Write("GICC_EOIR", 27), Access::Write("GICH_LR0", lr)];
    assert_eq!((code, fakes::take_log()), (0, expected.to_vec()));
}

#[test]
fn interrupts_of_the_machine_reach_the_full_tier_as_they_were_acknowledged() {
    let (_, mut frame) = gicv2(1);
    fakes::set("GICC_IAR", 33);
    assert_eq!(whole::interrupt::<Gicv2>(&mut frame), Code::IRQ | 33);
    fakes::set("GICC_IAR", 1023);
    assert_eq!(whole::interrupt::<Gicv2>(&mut frame), 0);
}

#[test]
fn distributor_read_touches_no_interrupt_controller() {
    let (_, mut frame) = gicv2(2);
    assert_eq!(access::<Gicv2>(&mut frame, 0x0800_0004, LOAD), (0, vec![]));
    assert_eq!(frame.get(2), 3 | 1 << 5, "GICD_TYPER: 96 SPIs, two vCPUs");
}

#[test]
fn only_a_word_stored_to_gicd_sgir_sends() {
    let (vm, mut frame) = gicv2(2);
    frame.set(2, 1 << 24);
    let byte = STORE & !(3 << 22);
    let walk = STORE | 1 << 7;
    let invalid = STORE & !(1 << 24);
    let permission = STORE & !0x3f | 0x0f;
    for (address, iss) in [
        (SGIR, byte),
        (SGIR, walk),
        (SGIR, invalid),
        (SGIR, permission),
        (SGIR + 4, STORE),
        (SGIR + 0x1_0000, STORE),
        (0x0900_0f00, STORE),
    ] {
        assert_eq!(access::<Gicv2>(&mut frame, address, iss), (Code::SYNC, vec![]), "{iss:#x}");
    }
    assert!(!vm.vcpus()[1].attention.is_pending());
    assert_eq!(fakes::get("ELR_EL2"), 0x4000_0000);
}

#[test]
fn an_sgi_is_light_whatever_register_it_comes_from() {
    for register in [18, 19, 29, 30] {
        let (vm, mut frame) = gicv2(2);
        frame.set(register, 1 << 24 | 6);
        let store = STORE & !(31 << 16) | (register as u64) << 16;
        assert_eq!(access::<Gicv2>(&mut frame, SGIR, store).0, 0, "x{register}");
        assert_eq!(vm.vcpus()[1].attention.take(), Reasons::sgi(6), "x{register}");
    }
}

#[test]
fn the_system_registers_of_a_gicv3_are_undefined() {
    let (vm, mut frame) = gicv2(2);
    frame.set(2, 1 << 1);
    // ICC_SGI1R_EL1 and ICC_DIR_EL1.
    for (crm, op2) in [(11, 5), (11, 1)] {
        let iss = system_register(3, 0, 12, crm, op2, 2, false);
        assert_eq!(exit_by::<Gicv2>(&mut frame, class::SYSTEM_REGISTER, iss), (Code::SYNC, vec![READ_ESR]));
        // SAFETY: the test's only thread.
        let owned = unsafe { vm.vcpus()[0].owned() };
        sysreg::full::<Gicv2>(&mut frame, vm.vcpus()[0], owned, iss as u32);
        assert_eq!(fakes::get("ESR_EL12") >> 26, 0, "an unknown reason");
        fakes::take_log();
    }
    assert!(!vm.vcpus()[1].attention.is_pending());
}

#[test]
fn deactivation_by_the_guest_is_seen_by_the_model() {
    let (vm, mut frame) = gicv2(1);
    let vcpu = vm.vcpus()[0];
    // SAFETY: the test's only thread.
    let owned = unsafe { vcpu.owned() };
    // A write to GICD_ISACTIVER0 makes PPI 20 active, one to GICV_DIR ends that.
    vm.with_gic::<Gicv2, _>(|cx| owned.gic.dist_write(cx, 0x300, 4, 1 << 20));
    let active = |owned: &mut crate::vm::Owned| {
        vm.with_gic::<Gicv2, _>(|cx| owned.gic.dist_read(cx, 0x300, 4)) >> 20 & 1
    };
    // As the hardware would hold it.
    fakes::set("GICH_LR0", 0b10 << 28 | 20);
    assert_eq!(active(owned), 1);
    frame.set(2, 20);
    fakes::set("HPFAR_EL2", 0x0801_1000 >> 8);
    fakes::set("FAR_EL2", 0);
    let nobody = crate::vm::monitor();
    mmio::data_abort::<Gicv2>(&mut frame, vcpu, owned, nobody, STORE as u32);
    assert_eq!(active(owned), 0);
}

#[test]
fn list_registers_and_conditions_are_clear_when_a_cpu_starts() {
    fakes::reset();
    fakes::set("GICH_VTR", 4 << 29 | 4 << 26 | 3);
    Gich::start_cpu();
    let expected = [
        Access::Read("GICH_VTR"),
        Access::Write("GICH_LR0", 0),
        Access::Write("GICH_LR1", 0),
        Access::Write("GICH_LR2", 0),
        Access::Write("GICH_LR3", 0),
        Access::Write("GICH_HCR", 1),
        Access::Write("GICH_APR", 0),
        Access::Write("GICH_VMCR", 0),
    ];
    let mut log = fakes::take_log();
    log.dedup();
    log.retain(|access| *access != Access::Read("GICH_VTR"));
    assert_eq!(log, expected[1..]);
    assert_eq!((Gich::list_registers(), Gich::priority_bits()), (4, 5));
}

#[test]
fn on_a_gicv3_the_list_register_names_the_sender_too() {
    let (vm, mut frame) = machine_of::<Gicv3Legacy>(Model::Gicv2, 2, false, false);
    frame.set(2, 2 << 24 | 3);
    let (code, log) = access::<Gicv3Legacy>(&mut frame, SGIR, STORE);
    assert_eq!((code, log), (0, vec![Access::Write("ICH_LR0_EL2", 0b01 << 62 | 3)]));
    // SAFETY: the test's only thread.
    let owned = unsafe { vm.vcpus()[0].owned() };
    let _ = owned.gic.inject_sgi_from(&mut IchLegacy, 4, 1);
    assert_eq!(fakes::get("ICH_LR1_EL2"), 0b01 << 62 | 1 << 10 | 4);
    fakes::set("ICC_IAR1_EL1", 27);
    fakes::take_log();
    assert_eq!(whole::interrupt::<Gicv3Legacy>(&mut frame), 0);
    assert_eq!(fakes::take_log()[0], Access::Read("ICC_IAR1_EL1"));
}
