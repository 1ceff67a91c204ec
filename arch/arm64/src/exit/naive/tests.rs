// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The chain on the host: what goes out comes back, from memory.

use std::collections::BTreeMap;
use std::vec::Vec;

use turnstile_techniques::Architecture;

use super::*;
use crate::cpu::regs::fakes::{self, Access};
use crate::exit::tests::machine;
use crate::irq::ich;

/// What a register holds when the hypervisor has used it meanwhile.
const GARBAGE: u64 = 0xdead_0000_0000_0000;

/// The techniques whose state goes out and comes back.
const SWITCHED: [Technique; 7] = [
    Technique::El1Resident,
    Technique::TimerResident,
    Technique::InterfaceResident,
    Technique::MaintenanceOnDemand,
    Technique::LrInUse,
    Technique::TrapsConstant,
    Technique::DebugResident,
];

fn switched_registers(technique: Technique) -> usize {
    match technique {
        Technique::El1Resident => 23,
        Technique::TimerResident => 5,
        Technique::InterfaceResident => 9,
        Technique::MaintenanceOnDemand => 1,
        Technique::LrInUse => 4,
        Technique::TrapsConstant => 7,
        // One breakpoint and one watchpoint, of two registers each, and MDSCR_EL1.
        _ => 5,
    }
}

#[test]
fn what_goes_out_comes_back_from_memory() {
    for technique in SWITCHED {
        let (vm, mut frame) = machine(1, false);
        // Seven preemption bits: all active priority registers exist.
        fakes::set("ICH_VTR_EL2", 4 << 29 | 6 << 26 | 3);
        // Every register that the second half loads gets a value of its own, before the vCPU begins.
        let hooks: Vec<Hook> = chain(Set::of(technique)).collect();
        let [out, back] = hooks[..] else { panic!("{technique}: {} links", hooks.len()) };
        let touched = {
            // SAFETY: the test's only thread.
            unsafe { vm.vcpus()[0].saved() }.begin();
            fakes::take_log();
            out(&mut frame);
            back(&mut frame);
            fakes::take_log()
        };
        let names = touched.iter().filter_map(|access| match access {
            Access::Write(name, _) => Some(*name),
            Access::Read(_) => None,
        });
        let guest: BTreeMap<&str, u64> = names.zip(1..).collect();
        assert_eq!(guest.len(), switched_registers(technique), "{technique}: {guest:?}");
        guest.iter().for_each(|(name, value)| fakes::set(name, *value));
        // SAFETY: as above.
        unsafe { vm.vcpus()[0].saved() }.begin();
        out(&mut frame);
        guest.keys().for_each(|name| fakes::set(name, GARBAGE));
        fakes::take_log();
        back(&mut frame);
        for (name, value) in &guest {
            assert_eq!(fakes::get(name), *value, "{technique}: {name}");
        }
        assert!(fakes::take_log().iter().all(|access| matches!(access, Access::Write(..))), "{technique}");
    }
}

#[test]
fn outside_the_guest_its_interrupts_are_off() {
    let (vm, mut frame) = machine(1, false);
    // SAFETY: the test's only thread.
    unsafe { vm.vcpus()[0].saved() }.begin();
    for name in ["ICH_LR0_EL2", "ICH_LR3_EL2", "ICH_HCR_EL2", "CNTV_CTL_EL02", "CNTP_CTL_EL02"] {
        fakes::set(name, 1);
    }
    for hook in [hooks::timers_out, hooks::maintenance_out, hooks::list_registers_out] {
        hook(&mut frame);
    }
    for name in ["ICH_LR0_EL2", "ICH_LR3_EL2", "ICH_HCR_EL2", "CNTV_CTL_EL02", "CNTP_CTL_EL02"] {
        assert_eq!(fakes::get(name), 0, "{name}");
    }
}

#[test]
fn all_list_registers_are_read_and_the_model_learns() {
    let (vm, mut frame) = machine(1, false);
    // SAFETY: the test's only thread.
    let owned = unsafe { vm.vcpus()[0].owned() };
    let _ = owned.gic.inject_sgi(&mut ich::Ich, 5);
    assert_ne!(fakes::get("ICH_LR0_EL2"), 0);
    // The guest has handled it.
    fakes::set("ICH_LR0_EL2", 0);
    fakes::set("ICH_ELRSR_EL2", 0xf);
    fakes::take_log();
    hooks::read_list_registers(&mut frame);
    let log = fakes::take_log();
    for name in ["ICH_ELRSR_EL2", "ICH_LR0_EL2", "ICH_LR1_EL2", "ICH_LR2_EL2", "ICH_LR3_EL2"] {
        assert!(log.contains(&Access::Read(name)), "{name}: {log:?}");
    }
    // What was handled is known to be: the next one needs no look at the list register.
    let _ = owned.gic.inject_sgi(&mut ich::Ich, 5);
    assert!(!fakes::take_log().contains(&Access::Read("ICH_LR0_EL2")));
}

#[test]
fn what_was_posted_is_found_without_the_attention_word() {
    let (vm, mut frame) = machine(2, false);
    let me = vm.vcpus()[0];
    let _ = me.inbox.post(&me.attention, 3);
    me.attention.take();
    fakes::take_log();
    hooks::look_through(&mut frame);
    assert!(fakes::take_log().contains(&Access::Write("ICH_LR0_EL2", 0b01 << 62 | 1 << 60 | 3)));
    // SAFETY: the test's only thread.
    assert!(unsafe { me.saved() }.lock.try_lock().is_some(), "the lock is given back");
}

#[test]
fn the_chain_is_what_is_off_and_ends() {
    assert_eq!(chain(Set::NONE).count(), 0);
    assert!(chain(Set::ALL).count() < LINKS, "a zero has to follow");
    let in_handlers =
        [Technique::LightExit, Technique::IndexedDispatch, Technique::IndexedVsBinary, Technique::SgiRoutes];
    for technique in Technique::ALL.into_iter().filter(|technique| technique.is_on(Architecture::Arm64)) {
        assert_eq!(chain(Set::of(technique)).count() == 0, in_handlers.contains(&technique), "{technique}");
    }
}
