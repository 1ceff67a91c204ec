// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ways from one mode of the APIC to another, and the page of memory (Intel SDM vol. 3, section 11.12.5).

use turnstile_guests_x86_64::apic::{self, icr, register};
use turnstile_guests_x86_64::cpu::{self, feature, msr};
use turnstile_guests_x86_64::exception::vector;
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{check, check_eq, mmio, skip, trap};

use crate::log;

pub const TESTS: &[Test] = &[
    Test { name: "modes-transitions", run: transitions },
    Test { name: "modes-reserved", run: reserved },
    Test { name: "modes-xapic", run: xapic },
    Test { name: "modes-xapic-registers", run: xapic_registers },
    Test { name: "modes-xapic-priority", run: xapic_priority },
    Test { name: "modes-xapic-logical", run: xapic_logical },
    Test { name: "modes-x2apic-page", run: x2apic_page },
    Test { name: "modes-x2apic-logical", run: x2apic_logical },
];

fn faults(value: u64) -> bool {
    trap::caught(|| cpu::write_msr(msr::APIC_BASE, value)).is_some_and(|trap| trap.vector == vector::GP)
}

fn transitions() -> Outcome {
    if !cpu::has(feature::X2APIC) {
        skip!("no x2APIC");
    }
    let base = cpu::read_msr(msr::APIC_BASE);
    let (off, xapic, x2apic) = (base & !0xc00, base & !0x400 | 0x800, base | 0xc00);
    check!(faults(off | 0x400), "from the x2APIC to x2APIC without enable");
    check!(faults(xapic), "from the x2APIC to the xAPIC");
    cpu::write_msr(msr::APIC_BASE, off);
    check!(faults(x2apic), "from off to the x2APIC");
    check!(faults(off | 0x400), "from off to x2APIC without enable");
    cpu::write_msr(msr::APIC_BASE, xapic);
    check_eq!(cpu::read_msr(msr::APIC_BASE), xapic, "APIC_BASE");
    let trap = trap::caught(|| _ = cpu::read_msr(msr::X2APIC + 3));
    check!(trap.is_some_and(|trap| trap.vector == vector::GP), "the xAPIC has MSRs");
    cpu::write_msr(msr::APIC_BASE, x2apic);
    check_eq!(cpu::read_msr(msr::APIC_BASE), x2apic, "APIC_BASE");
    Ok(())
}

fn reserved() -> Outcome {
    let base = cpu::read_msr(msr::APIC_BASE);
    check!(faults(base | 1), "bit 0");
    check!(faults(base | 1 << 9), "bit 9");
    check!(faults(base | 1 << 63), "bit 63");
    check_eq!(cpu::read_msr(msr::APIC_BASE), base, "APIC_BASE afterwards");
    Ok(())
}

fn xapic() -> Outcome {
    apic::init_as(false);
    log::begin();
    apic::send_to_self(0x61);
    apic::send_to(apic::id(), 0x71);
    check!(log::wait_for(2), "{} of 2 came", log::count());
    check!(log::is(&[0x71, 0x61]), "they came in another order");
    check_eq!(u64::from(apic::id()), cpu::initial_apic_id() & 0xff, "the identifier");
    Ok(())
}

fn xapic_registers() -> Outcome {
    apic::init_as(false);
    let page = |offset: u32| apic::PAGE + u64::from(offset);
    for (offset, value, expected) in [
        (register::TPR, 0x1234_5678, 0x78),
        (register::LDR, u32::MAX, 0xff00_0000),
        (register::DFR, 0x0fff_ffff, 0x0fff_ffff),
        (register::DFR, u32::MAX, u32::MAX),
        (register::LVT_TIMER, apic::MASKED | 0x31, apic::MASKED | 0x31),
        (register::TIMER_DIVIDE, 0xffff_fff9, 9),
    ] {
        mmio::write32(page(offset), value);
        check_eq!(mmio::read32(page(offset)), expected, "register {offset:#x}");
    }
    let version = mmio::read32(page(register::VERSION));
    mmio::write32(page(register::VERSION), 0);
    check_eq!(mmio::read32(page(register::VERSION)), version, "the version after a write");
    Ok(())
}

fn xapic_priority() -> Outcome {
    apic::init_as(false);
    log::begin();
    mmio::write32(apic::PAGE + u64::from(register::TPR), 0x60);
    for vector in [0x41, 0x81, 0x61, 0xf0] {
        apic::send_to_self(vector);
    }
    log::wait(100);
    check!(log::is(&[0xf0, 0x81]), "TPR 0x60 does not let in just what is above");
    mmio::write32(apic::PAGE + u64::from(register::TPR), 0);
    check!(log::wait_for(4), "{} of 4 came", log::count());
    check!(log::is(&[0xf0, 0x81, 0x61, 0x41]), "not in the order of their priorities");
    Ok(())
}

/// Flat and cluster model.
fn xapic_logical() -> Outcome {
    apic::init_as(false);
    log::begin();
    let logical = |destination: u32, vector: u8| {
        apic::send(destination, icr::LOGICAL | icr::ASSERT | u64::from(vector));
    };
    apic::write(register::LDR, 0x20 << 24);
    logical(0x20, 0x61);
    logical(0xe0, 0x62);
    logical(0x40, 0x63);
    log::wait(100);
    check!(log::is(&[0x62, 0x61]), "the flat model reaches others");
    apic::write(register::DFR, 0x0fff_ffff);
    apic::write(register::LDR, 0x32 << 24);
    log::begin();
    logical(0x32, 0x61);
    logical(0x3f, 0x62);
    logical(0x31, 0x63);
    logical(0x22, 0x64);
    log::wait(100);
    check!(log::is(&[0x62, 0x61]), "the cluster model reaches others");
    Ok(())
}

/// The page is memory without a device while the APIC is driven by MSRs.
fn x2apic_page() -> Outcome {
    if !apic::is_x2apic() || crate::is_bare() {
        skip!("no x2APIC, or QEMU's, which has both");
    }
    let tpr = apic::PAGE + u64::from(register::TPR);
    apic::write(register::TPR, 0x20);
    mmio::write32(tpr, 0x70);
    check_eq!(apic::read(register::TPR), 0x20, "TPR after a write to the page");
    mmio::read32(tpr);
    Ok(())
}

fn x2apic_logical() -> Outcome {
    if !apic::is_x2apic() {
        skip!("no x2APIC");
    }
    let ldr = apic::read(register::LDR);
    check_eq!(ldr, (apic::id() >> 4) << 16 | 1 << (apic::id() & 15), "LDR");
    log::begin();
    apic::send(ldr, icr::LOGICAL | icr::ASSERT | 0x61);
    apic::send(ldr & 0xffff_0000 | (!ldr & 0xffff), icr::LOGICAL | icr::ASSERT | 0x62);
    apic::send(u32::MAX, icr::ASSERT | 0x63);
    log::wait(100);
    check!(log::is(&[0x63, 0x61]), "{} came, {:#x} first", log::count(), log::first());
    Ok(())
}
