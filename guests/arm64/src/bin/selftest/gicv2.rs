// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What only a GICv2 has (IHI 0048): SGIs that know their sender, targets by mask, groups at one register.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use turnstile_guests::gic::{self, Version, offset, v2};
use turnstile_guests::psci::status;
use turnstile_guests::test::{Outcome, Test};
use turnstile_guests::{check, check_eq, cpu, irq, mmio, skip, smp, timer};

use crate::gic_state::{NONE, SPI, is_offered, offered_after_a_while};
use crate::is_bare;

pub const TESTS: &[Test] = &[
    Test { name: "gicv2-identity", run: || on_gicv2(identity) },
    Test { name: "gicv2-senders", run: || on_gicv2(senders) },
    Test { name: "gicv2-senders-cleared", run: || on_gicv2(senders_cleared) },
    Test { name: "gicv2-senders-while-active", run: || on_gicv2(senders_while_active) },
    Test { name: "gicv2-senders-eoi-mode", run: || on_gicv2(senders_eoi_mode) },
    Test { name: "gicv2-every-sender", run: || on_gicv2(every_sender) },
    Test { name: "gicv2-filters", run: || on_gicv2(filters) },
    Test { name: "gicv2-targets", run: || on_gicv2(targets) },
    Test { name: "gicv2-one-of-many", run: || on_gicv2(one_of_many) },
    Test { name: "gicv2-groups", run: || on_gicv2(groups) },
];

const SGI: u32 = 9;

fn on_gicv2(test: fn() -> Outcome) -> Outcome {
    if gic::version() != Version::Gicv2 {
        skip!("no GICv2");
    }
    test()
}

/// The bits of all CPUs.
fn everybody() -> u8 {
    ((1u32 << smp::count()) - 1) as u8
}

fn identity() -> Outcome {
    let gicd = gic::distributor();
    check_eq!(mmio::read32(gicd + 0xfe8) >> 4 & 0xf, 2, "ICPIDR2.ArchRev");
    let typer = mmio::read32(gicd + offset::TYPER);
    check_eq!(typer >> 5 & 7, smp::count() as u32 - 1, "GICD_TYPER.CPUNumber");
    check_eq!(typer >> 10 & 1, 0, "GICD_TYPER.SecurityExtn");
    // With one CPU, targets may not exist.
    let own = v2::targets(0);
    check!(own == v2::mask_of(cpu::affinity()) || smp::count() == 1 && own == 0, "own targets are {own:#x}");
    check_eq!(mmio::read32(v2::interface() + 0xfc) >> 16 & 0xf, 2, "GICC_IIDR, architecture version");
    Ok(())
}

/// Each sender of the same SGI is one interrupt.
fn senders() -> Outcome {
    gic::enable(SGI);
    v2::set_senders(SGI, everybody());
    check_eq!(v2::senders(SGI), everybody(), "SPENDSGIR");
    let mut seen = 0u8;
    for count in 0..smp::count() {
        check!(is_offered(SGI), "{count} of {} are offered", smp::count());
        let (intid, sender) = v2::acknowledge_with_sender();
        check_eq!(intid, SGI, "acknowledge");
        check!(everybody() & !seen & 1 << sender != 0, "sender {sender} after {seen:#x}");
        seen |= 1 << sender;
        check_eq!(v2::senders(SGI), everybody() & !seen, "SPENDSGIR after {count}");
        v2::end_with_sender(SGI, sender);
    }
    check_eq!(offered_after_a_while(), NONE, "afterwards");
    Ok(())
}

fn senders_cleared() -> Outcome {
    gic::enable(SGI);
    for cleared in 0..=everybody() {
        v2::set_senders(SGI, everybody());
        v2::clear_senders(SGI, cleared);
        check_eq!(v2::senders(SGI), everybody() & !cleared, "SPENDSGIR less {cleared:#x}");
        let mut left = everybody() & !cleared;
        while left != 0 {
            check!(is_offered(SGI), "senders {left:#x} are not offered");
            let (_, sender) = v2::acknowledge_with_sender();
            check!(left & 1 << sender != 0, "sender {sender}, expected of {left:#x}");
            left &= !(1 << sender);
            v2::end_with_sender(SGI, sender);
        }
        check_eq!(gic::highest_pending(), NONE, "less {cleared:#x}");
    }
    // The other registers of pending states do not concern SGIs.
    mmio::write32(gic::distributor() + offset::ISPENDR, 1 << SGI);
    check_eq!(offered_after_a_while(), NONE, "after ISPENDR");
    v2::set_senders(SGI, v2::mask_of(cpu::affinity()));
    mmio::write32(gic::distributor() + offset::ICPENDR, 1 << SGI);
    check!(is_offered(SGI), "ICPENDR took an SGI");
    gic::acknowledge();
    gic::end(SGI);
    Ok(())
}

/// What is sent while an SGI is active comes after it, from each sender.
fn senders_while_active() -> Outcome {
    gic::enable(SGI);
    let own = v2::mask_of(cpu::affinity());
    v2::set_senders(SGI, own);
    check!(is_offered(SGI), "not offered");
    let (_, first) = v2::acknowledge_with_sender();
    v2::set_senders(SGI, everybody());
    check_eq!(offered_after_a_while(), NONE, "while active");
    check_eq!(v2::senders(SGI), everybody(), "SPENDSGIR while active");
    v2::end_with_sender(SGI, first);
    let mut seen = 0u8;
    for _ in 0..smp::count() {
        check!(is_offered(SGI), "nothing after {seen:#x}");
        let (_, sender) = v2::acknowledge_with_sender();
        seen |= 1 << sender;
        v2::end_with_sender(SGI, sender);
    }
    check_eq!(seen, everybody(), "senders");
    check_eq!(offered_after_a_while(), NONE, "afterwards");
    Ok(())
}

/// The same with the deactivation apart from the end.
fn senders_eoi_mode() -> Outcome {
    gic::set_eoi_mode(true);
    gic::enable(SGI);
    v2::set_senders(SGI, everybody());
    let mut seen = 0u8;
    for _ in 0..smp::count() {
        check!(is_offered(SGI), "nothing after {seen:#x}");
        let intid = gic::acknowledge();
        seen |= everybody() & !seen & !v2::senders(SGI);
        gic::end(intid);
        check_eq!(gic::running_priority(), 0xff, "running priority after the drop");
        check!(gic::is_active(SGI), "deactivated by the drop");
        check_eq!(offered_after_a_while(), NONE, "while active");
        gic::deactivate(intid);
    }
    check_eq!(seen, everybody(), "senders");
    check!(!gic::is_active(SGI), "active at the end");
    gic::set_eoi_mode(false);
    Ok(())
}

static SENT: AtomicU32 = AtomicU32::new(0);

fn send_once(to: u64) {
    gic::send_sgi(v2::sgi_value(SGI, to));
    SENT.fetch_add(1, SeqCst);
}

/// All other CPUs send the same SGI before any of them is taken.
fn every_sender() -> Outcome {
    if smp::count() < 2 {
        skip!("one CPU");
    }
    let own = v2::mask_of(cpu::affinity());
    gic::enable(SGI);
    SENT.store(0, SeqCst);
    for index in smp::others() {
        check_eq!(smp::start(index, send_once, cpu::affinity()), status::SUCCESS, "CPU_ON of cpu {index}");
    }
    let others = smp::count() as u32 - 1;
    check!(timer::wait(2_000_000, || SENT.load(SeqCst) == others), "{} have sent", SENT.load(SeqCst));
    for index in smp::others() {
        check!(smp::wait_off(index), "cpu {index} does not go off");
    }
    gic::send_sgi(v2::sgi_to_itself(SGI));
    let mut seen = 0u8;
    for _ in 0..smp::count() {
        check!(is_offered(SGI), "nothing after {seen:#x}");
        let (_, sender) = v2::acknowledge_with_sender();
        check!(seen & 1 << sender == 0, "sender {sender} twice");
        seen |= 1 << sender;
        v2::end_with_sender(SGI, sender);
    }
    check_eq!(seen, everybody(), "senders (own is {own:#x})");
    check_eq!(offered_after_a_while(), NONE, "afterwards");
    Ok(())
}

/// The list, itself, and the reserved filter, as this CPU sees them.
fn filters() -> Outcome {
    let own = u64::from(v2::mask_of(cpu::affinity()));
    gic::enable(SGI);
    for (value, arrives) in [
        (own << 16, true),
        (0xff << 16, true),
        ((0xff & !own) << 16, false),
        (2 << 24, true),
        (2 << 24 | 0xff << 16, true),
        (1 << 24 | 0xff << 16, false),
        (0, false),
        (3 << 24 | 0xff << 16, false),
    ] {
        if value >> 24 == 3 && is_bare() {
            // QEMU's own takes the reserved filter for everybody.
            continue;
        }
        gic::send_sgi(value | u64::from(SGI));
        check_eq!(offered_after_a_while(), if arrives { SGI } else { NONE }, "GICD_SGIR = {value:#x}");
        if arrives {
            gic::end(gic::acknowledge());
        }
    }
    Ok(())
}

fn targets() -> Outcome {
    if smp::count() == 1 {
        skip!("one CPU has no targets to choose");
    }
    for mask in 0..=0xff {
        if mask & !everybody() != 0 && is_bare() {
            // QEMU's own keeps bits of CPUs that do not exist.
            break;
        }
        v2::set_targets(SPI, mask);
        check_eq!(v2::targets(SPI), mask & everybody(), "ITARGETSR of {mask:#x}");
    }
    let word = gic::distributor() + offset::ITARGETSR + u64::from(SPI & !3);
    mmio::write32(word, 0x0102_0100);
    check_eq!(mmio::read32(word), 0x0102_0100, "ITARGETSR by words");
    let own = mmio::read32(gic::distributor() + offset::ITARGETSR);
    mmio::write32(gic::distributor() + offset::ITARGETSR, 0);
    check_eq!(mmio::read32(gic::distributor() + offset::ITARGETSR), own, "the private ones are read-only");
    Ok(())
}

/// An SPI with several targets is taken once.
fn one_of_many() -> Outcome {
    irq::set_handler(None);
    gic::set_edge(SPI, true);
    gic::enable(SPI);
    v2::set_targets(SPI, everybody());
    cpu::unmask_irq();
    for round in 1..=20 {
        gic::set_pending(SPI);
        check!(timer::wait(500_000, || irq::count(SPI) == round), "round {round}: {}", irq::count(SPI));
    }
    timer::delay(200);
    cpu::mask_irq();
    check_eq!(irq::count(SPI), 20, "interrupts");
    Ok(())
}

/// Group 1 is signaled by itself, and acknowledged where AckCtl says so.
fn groups() -> Outcome {
    gic::enable(SPI);
    gic::set_edge(SPI, true);
    gic::set_group1(SPI, true);
    gic::set_pending(SPI);
    timer::delay(200);
    check_eq!(gic::acknowledge(), 1022, "Group 1 without AckCtl");
    v2::set_control(v2::ACK_CTL, true);
    check!(is_offered(SPI), "Group 1 with AckCtl");
    check_eq!(gic::acknowledge(), SPI, "acknowledge");
    gic::end(SPI);
    v2::set_control(v2::ACK_CTL, false);
    gic::set_group1(SPI, false);
    gic::set_pending(SPI);
    check!(is_offered(SPI), "Group 0");
    check_eq!(gic::acknowledge(), SPI, "acknowledge of Group 0");
    gic::end(SPI);
    Ok(())
}
