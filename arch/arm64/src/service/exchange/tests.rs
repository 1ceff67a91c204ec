// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::collections::BTreeMap;
use std::vec::Vec;

use super::*;
use crate::cpu::mode::{Nvhe, Vhe};
use crate::cpu::regs::fakes::{self, Access};
use crate::exit::tests::cpu_area;
use crate::state::{pauth, traps};

const OWN: Own = Own { pc: 0x1000, state: 0x2000, sp: 0x3000, thread: 0x4000 };

/// This test's CPU.
fn cpu() -> &'static PerCpu {
    fakes::reset();
    let cpu = cpu_area(0);
    fakes::set("TPIDR_EL2", core::ptr::from_ref(cpu) as u64);
    cpu
}

fn written(log: &[Access]) -> Vec<&'static str> {
    let names = log.iter().filter_map(|access| match access {
        Access::Write(name, _) => Some(*name),
        Access::Read(_) => None,
    });
    names.collect()
}

/// Enters and leaves a service that changes all registers there are; returns what was written on the way in.
fn round<M: Mode>(open: Open) -> BTreeMap<&'static str, u64> {
    let cpu = cpu();
    fakes::set("TPIDR_EL2", core::ptr::from_ref(cpu) as u64);
    traps::set(open);
    fakes::take_log();
    let registers = [
        "HCR_EL2",
        "VBAR_EL2",
        "ELR_EL2",
        "SPSR_EL2",
        "SP_EL0",
        "TPIDR_EL0",
        "TPIDRRO_EL0",
        "VTTBR_EL2",
        "SCTLR_EL1",
        "CNTKCTL_EL1",
        "CPTR_EL2",
        "MDSCR_EL1",
        "PMUSERENR_EL0",
        "PMCR_EL0",
        "APGAKeyLo_EL1",
        "APGAKeyHi_EL1",
    ];
    let guests = |n: u64| (0x1_0000 * (n + 1)) | 1;
    registers.iter().zip(0..).for_each(|(name, n)| fakes::set(name, guests(n)));
    let (to_close, mut closed) = (ToClose::now::<M>(cpu), Closed::default());
    // SAFETY: registers of the test.
    let inside = unsafe {
        if to_close.is_any() {
            to_close.close(&mut closed);
        }
        let guests = exchange_enter::<M>(cpu);
        let log = fakes::take_log();
        let inside = written(&log).into_iter().map(|name| (name, fakes::get(name))).collect();
        // Whatever a service can write, it has.
        ["SP_EL0", "TPIDR_EL0", "ELR_EL2", "SPSR_EL2"].iter().for_each(|name| fakes::set(name, 0xbad));
        leave::<M>(guests);
        if to_close.is_any() {
            to_close.open(&closed);
        }
        inside
    };
    for (name, n) in registers.iter().zip(0..) {
        assert_eq!(fakes::get(name), guests(n), "{name} is the guest's again");
    }
    inside
}

unsafe fn exchange_enter<M: Mode>(cpu: &PerCpu) -> Guests {
    // SAFETY: the caller's promise.
    unsafe { enter::<M>(cpu, 0x0007_0000_0000_5000, OWN) }
}

#[test]
fn with_vhe_the_address_space_is_the_upper_range() {
    pauth::note_use();
    let inside = round::<Vhe>(Open::NONE);
    assert_eq!(inside["TTBR1_EL2"], 0x0007_0000_0000_5000);
    assert_eq!(inside["HCR_EL2"], 0x1_0001 | TGE);
    let own = ["ELR_EL2", "SPSR_EL2", "SP_EL0", "TPIDR_EL0", "TPIDRRO_EL0"].map(|name| inside[name]);
    assert_eq!(own, [0x1000, 0x2000, 0x3000, 0x4000, 0]);
    assert_eq!(["APGAKeyLo_EL1", "APGAKeyHi_EL1"].map(|name| inside[name]), [0, 0]);
    assert_eq!(inside.len(), 10, "and nothing else is written: {inside:x?}");
}

#[test]
fn without_vhe_stage_2_alone_translates_and_el1_has_no_say() {
    let inside = round::<Nvhe>(Open::NONE);
    assert_eq!(inside["VTTBR_EL2"], 0x0007_0000_0000_5000);
    assert_eq!(inside["HCR_EL2"], 0x1_0001 | TGE | DC);
    assert_eq!((inside["SCTLR_EL1"], inside["CNTKCTL_EL1"]), (0x30d0_1814, 0));
    assert!(!inside.contains_key("TTBR1_EL2"));
}

#[test]
fn what_the_guest_has_open_is_closed_meanwhile() {
    let all = Open::FP | Open::SVE | Open::PMU | Open::DEBUG | Open::PAUTH;
    let inside = round::<Vhe>(all);
    assert_eq!((inside["MDSCR_EL1"], inside["PMUSERENR_EL0"], inside["PMCR_EL0"] & 1), (MDSCR, 0, 0));
    assert!(!inside.contains_key("CPTR_EL2"), "it traps at EL0 as it is");
    let inside = round::<Nvhe>(all);
    assert_eq!((inside["MDSCR_EL1"], inside["PMUSERENR_EL0"], inside["CPTR_EL2"]), (MDSCR, 0, CPTR));
    assert_eq!(inside["HCR_EL2"] & PAUTH, 0);
}

/// FPEN and ZEN of 1: neither EL2 nor a guest's EL1 and EL0 trap, but EL0 does while TGE is 1.
#[test]
fn with_vhe_vectors_are_open_to_guests_alone() {
    assert_eq!((Vhe::CPTR_FP, Vhe::CPTR_SVE), (1 << 20, 1 << 16));
}

#[test]
fn keys_that_any_guest_has_left_are_nobodys() {
    let cpu = cpu();
    fakes::set("TPIDR_EL2", core::ptr::from_ref(cpu) as u64);
    pauth::note_use();
    fakes::set("APGAKeyLo_EL1", 5);
    fakes::set("APGAKeyHi_EL1", 6);
    let (to_close, mut closed) = (ToClose::now::<Vhe>(cpu), Closed::default());
    // SAFETY: registers of the test.
    unsafe {
        to_close.close(&mut closed);
        assert_eq!((fakes::get("APGAKeyLo_EL1"), fakes::get("APGAKeyHi_EL1")), (0, 0));
        to_close.open(&closed);
    }
    assert_eq!((fakes::get("APGAKeyLo_EL1"), fakes::get("APGAKeyHi_EL1")), (5, 6));
    assert!(!ToClose::now::<Nvhe>(cpu).is_any(), "PACGA traps where E2H is 0");
}

#[test]
fn a_cpu_begins_with_an_upper_range_of_nothing() {
    cpu();
    fakes::set("TCR_EL2", 0x2_0080_3519);
    fakes::set("ID_AA64MMFR2_EL1", 1 << 60);
    start_cpu_in::<Vhe>();
    assert_eq!(
        fakes::get("TCR_EL2"),
        0x0080_0002_b559_3519,
        "E0PD0, TG1, SH1, ORGN1, IRGN1, A1, T1SZ; no EPD1"
    );
    assert_eq!(fakes::get("TTBR1_EL2") & 0xfff, 0);
    assert!(EMPTY.0.iter().all(|entry| entry.load(core::sync::atomic::Ordering::Relaxed) == 0));
    fakes::take_log();
    start_cpu_in::<Nvhe>();
    assert_eq!(fakes::take_log(), []);
}
