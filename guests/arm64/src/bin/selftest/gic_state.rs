// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The states of one interrupt (IHI 0069 chapter 4, IHI 0048 chapter 3): pending, active, enabled, and what their registers show.
//! IRQs stay masked; the tests look at the CPU interface.

use turnstile_guests::gic::{self, offset};
use turnstile_guests::mmio;
use turnstile_guests::platform::platform;
use turnstile_guests::test::{Outcome, Test};
use turnstile_guests::{check, check_eq, cpu, irq, read_sysreg, skip, smp, timer};

pub const TESTS: &[Test] = &[
    Test { name: "gic-identity", run: identity },
    Test { name: "gic-sgi-self", run: sgi_self },
    Test { name: "gic-pending", run: pending },
    Test { name: "gic-pending-cleared", run: pending_cleared },
    Test { name: "gic-enable-while-pending", run: enable_while_pending },
    Test { name: "gic-disable-while-pending", run: disable_while_pending },
    Test { name: "gic-disable-while-active", run: disable_while_active },
    Test { name: "gic-pending-while-active", run: pending_while_active },
    Test { name: "gic-active-written", run: active_written },
    Test { name: "gic-groups", run: groups },
    Test { name: "gic-group0-interrupt", run: group0_interrupt },
    Test { name: "gic-switches", run: switches },
    Test { name: "gic-fields", run: fields },
    Test { name: "gic-bad-ends", run: bad_ends },
];

/// A shared interrupt that no device of the machines here has.
pub const SPI: u32 = 70;
/// A private one that nothing drives.
pub const PPI: u32 = 21;
/// A software-generated one.
const SGI: u32 = 5;
/// No interrupt.
pub const NONE: u32 = 1023;

/// Waits until the CPU interface offers `intid`.
pub fn is_offered(intid: u32) -> bool {
    timer::wait(500_000, || gic::highest_pending() == intid)
}

/// Gives an interrupt that should not come the time to come; returns what is offered.
pub fn offered_after_a_while() -> u32 {
    timer::delay(200);
    gic::highest_pending()
}

fn make_pending(intid: u32) {
    if intid < 16 {
        gic::send_sgi(gic::sgi_value(intid, cpu::affinity()));
    } else {
        gic::set_pending(intid);
    }
}

/// Returns which of these can be disabled: a GICv2 need not offer that for SGIs.
fn those_that_can_be_disabled() -> impl Iterator<Item = u32> {
    [SPI, PPI, SGI].into_iter().filter(|intid| {
        gic::disable(*intid);
        !gic::is_enabled(*intid)
    })
}

fn identity() -> Outcome {
    if gic::version() == gic::Version::Gicv2 {
        skip!("see gicv2-identity");
    }
    let gicd = gic::distributor();
    check!(gic::interrupts() > 96, "{} INTIDs", gic::interrupts());
    check_eq!(mmio::read32(gicd + 0xffe8) >> 4 & 0xf, 3, "GICD_PIDR2.ArchRev");
    check!(mmio::read32(gicd) & 1 << 4 != 0, "affinity routing is off");
    for (index, affinity) in platform().cpus.as_slice().iter().enumerate() {
        let Some(base) = gic::redistributor_of(*affinity) else {
            check!(false, "no redistributor for affinity {affinity:#x}");
            continue;
        };
        let typer = mmio::read64(base + offset::GICR_TYPER);
        check_eq!(typer >> 8 & 0xffff, index as u64, "Processor_Number of cpu {index}");
        let is_last = index + 1 == smp::count();
        check!(typer >> 4 & 1 == u64::from(is_last), "GICR_TYPER.Last of cpu {index}");
        check_eq!(mmio::read32(base + 0xffe8) >> 4 & 0xf, 3, "GICR_PIDR2.ArchRev");
    }
    check!(read_sysreg!("S3_0_C12_C12_5") & 1 == 1, "ICC_SRE_EL1.SRE");
    Ok(())
}

fn sgi_self() -> Outcome {
    for sgi in 0..16 {
        gic::enable(sgi);
    }
    for sgi in 0..16 {
        make_pending(sgi);
    }
    let mut seen = 0u32;
    for _ in 0..16 {
        check!(
            timer::wait(500_000, || gic::highest_pending() < 16),
            "SGIs {:#x} are missing",
            !seen & 0xffff
        );
        let sgi = gic::acknowledge();
        check!(sgi < 16 && seen >> sgi & 1 == 0, "acknowledged {sgi} after {seen:#x}");
        seen |= 1 << sgi;
        gic::end(sgi);
    }
    check_eq!(offered_after_a_while(), NONE, "afterwards");
    Ok(())
}

fn pending() -> Outcome {
    for (intid, edge) in [(SPI, true), (SPI, false), (PPI, true), (SGI, true)] {
        if intid >= 32 {
            gic::set_edge(intid, edge);
        }
        gic::enable(intid);
        make_pending(intid);
        check!(is_offered(intid), "INTID {intid} is not offered");
        check!(gic::is_pending(intid), "ISPENDR of {intid} is clear");
        check!(!gic::is_active(intid), "ISACTIVER of {intid} is set");
        check_eq!(gic::acknowledge(), intid, "acknowledge");
        check!(!gic::is_pending(intid), "ISPENDR of {intid} after acknowledge");
        check!(gic::is_active(intid), "ISACTIVER of {intid} after acknowledge");
        check_eq!(gic::acknowledge(), NONE, "a second acknowledge");
        gic::end(intid);
        check!(!gic::is_active(intid), "ISACTIVER of {intid} after its end");
        check_eq!(offered_after_a_while(), NONE, "afterwards");
    }
    Ok(())
}

fn pending_cleared() -> Outcome {
    for intid in [SPI, PPI, SGI] {
        gic::enable(intid);
        make_pending(intid);
        check!(is_offered(intid), "INTID {intid} is not offered");
        gic::clear_pending(intid);
        check!(!gic::is_pending(intid), "ISPENDR of {intid}");
        check_eq!(offered_after_a_while(), NONE, "after ICPENDR of {intid}");
        make_pending(intid);
        check!(is_offered(intid), "INTID {intid} is not offered again");
        check_eq!(gic::acknowledge(), intid, "acknowledge");
        gic::end(intid);
    }
    Ok(())
}

fn enable_while_pending() -> Outcome {
    for intid in those_that_can_be_disabled() {
        make_pending(intid);
        check_eq!(offered_after_a_while(), NONE, "INTID {intid} while disabled");
        check!(gic::is_pending(intid), "ISPENDR of {intid} while disabled");
        gic::enable(intid);
        check!(gic::is_enabled(intid), "ISENABLER of {intid}");
        check!(is_offered(intid), "INTID {intid} once enabled");
        check_eq!(gic::acknowledge(), intid, "acknowledge");
        gic::end(intid);
    }
    Ok(())
}

fn disable_while_pending() -> Outcome {
    for intid in those_that_can_be_disabled() {
        gic::enable(intid);
        make_pending(intid);
        check!(is_offered(intid), "INTID {intid} is not offered");
        gic::disable(intid);
        check!(!gic::is_enabled(intid), "ICENABLER of {intid}");
        check_eq!(offered_after_a_while(), NONE, "INTID {intid} while disabled");
        check!(gic::is_pending(intid), "ISPENDR of {intid} while disabled");
        gic::enable(intid);
        check!(is_offered(intid), "INTID {intid} once enabled again");
        check_eq!(gic::acknowledge(), intid, "acknowledge");
        gic::end(intid);
    }
    Ok(())
}

fn disable_while_active() -> Outcome {
    for intid in those_that_can_be_disabled() {
        gic::enable(intid);
        make_pending(intid);
        check!(is_offered(intid), "INTID {intid} is not offered");
        check_eq!(gic::acknowledge(), intid, "acknowledge");
        gic::disable(intid);
        check!(gic::is_active(intid), "INTID {intid} lost its active state when disabled");
        make_pending(intid);
        gic::end(intid);
        check!(!gic::is_active(intid), "INTID {intid} is active after its end");
        check_eq!(offered_after_a_while(), NONE, "INTID {intid} while disabled");
        gic::enable(intid);
        check!(is_offered(intid), "INTID {intid} once enabled again");
        check_eq!(gic::acknowledge(), intid, "acknowledge");
        gic::end(intid);
        check_eq!(offered_after_a_while(), NONE, "afterwards");
    }
    Ok(())
}

fn pending_while_active() -> Outcome {
    for intid in [SPI, PPI, SGI] {
        if intid >= 32 {
            gic::set_edge(intid, true);
        }
        gic::enable(intid);
        make_pending(intid);
        check!(is_offered(intid), "INTID {intid} is not offered");
        check_eq!(gic::acknowledge(), intid, "acknowledge");
        make_pending(intid);
        check!(gic::is_pending(intid) && gic::is_active(intid), "INTID {intid} is not active and pending");
        check_eq!(gic::acknowledge(), NONE, "INTID {intid} while active");
        gic::end(intid);
        check!(is_offered(intid), "INTID {intid} is not offered after its end");
        check_eq!(gic::acknowledge(), intid, "second acknowledge");
        gic::end(intid);
        check_eq!(offered_after_a_while(), NONE, "afterwards");
    }
    Ok(())
}

/// Active by ISACTIVER: not offered while active, and not lost.
fn active_written() -> Outcome {
    for intid in [SPI, PPI, SGI] {
        gic::enable(intid);
        gic::set_active(intid);
        check!(gic::is_active(intid), "ISACTIVER of {intid}");
        make_pending(intid);
        check_eq!(offered_after_a_while(), NONE, "INTID {intid} while active");
        gic::clear_active(intid);
        check!(!gic::is_active(intid), "ICACTIVER of {intid}");
        check!(is_offered(intid), "INTID {intid} once inactive");
        check_eq!(gic::acknowledge(), intid, "acknowledge");
        gic::end(intid);
    }
    Ok(())
}

fn groups() -> Outcome {
    if gic::version() == gic::Version::Gicv2 {
        skip!("see gicv2-groups");
    }
    for intid in [SPI, PPI] {
        gic::enable(intid);
        gic::set_group1(intid, false);
        gic::set_pending(intid);
        timer::delay(200);
        check_eq!(gic::acknowledge(), NONE, "group 0 INTID {intid} by ICC_IAR1_EL1");
        check_eq!(gic::acknowledge_group0(), intid, "by ICC_IAR0_EL1");
        gic::end_group0(intid);
        gic::set_group1(intid, true);
        gic::set_pending(intid);
        check!(is_offered(intid), "group 1 INTID {intid}");
        check_eq!(gic::acknowledge_group0(), NONE, "group 1 INTID {intid} by ICC_IAR0_EL1");
        check_eq!(gic::acknowledge(), intid, "by ICC_IAR1_EL1");
        gic::end(intid);
    }
    Ok(())
}

fn group0_interrupt() -> Outcome {
    if gic::version() == gic::Version::Gicv2 {
        skip!("see gicv2-groups");
    }
    gic::enable(SPI);
    gic::set_group1(SPI, false);
    cpu::unmask_irq();
    gic::set_pending(SPI);
    timer::delay(200);
    check_eq!(irq::count(SPI), 0, "taken while FIQ is masked");
    cpu::unmask_fiq();
    check!(timer::wait(500_000, || irq::count(SPI) == 1), "not taken as FIQ");
    cpu::mask_fiq();
    gic::set_group1(SPI, true);
    gic::set_pending(SPI);
    check!(timer::wait(500_000, || irq::count(SPI) == 2), "not taken as IRQ");
    Ok(())
}

/// Group enables of distributor and CPU interface, and the priority mask.
fn switches() -> Outcome {
    gic::enable(SPI);
    gic::set_distributor_enabled(false);
    gic::set_pending(SPI);
    check_eq!(offered_after_a_while(), NONE, "with the distributor off");
    gic::set_distributor_enabled(true);
    check!(is_offered(SPI), "with the distributor on again");
    gic::set_interface_enabled(false);
    timer::delay(100);
    check_eq!(gic::acknowledge(), NONE, "with the interface off");
    gic::set_interface_enabled(true);
    check!(is_offered(SPI), "with the interface on again");
    gic::set_priority_mask(gic::PRIORITY);
    timer::delay(100);
    check_eq!(gic::acknowledge(), NONE, "with the mask at its priority");
    check!(gic::is_pending(SPI), "pending under the mask");
    gic::set_priority_mask(gic::PRIORITY + 8);
    check_eq!(gic::priority_mask(), gic::PRIORITY + 8, "the mask");
    check!(is_offered(SPI), "with the mask raised");
    check_eq!(gic::acknowledge(), SPI, "acknowledge");
    gic::end(SPI);
    Ok(())
}

/// Priority, configuration and route are kept, in bytes and words; the registers of the private interrupts
/// are not in the distributor.
fn fields() -> Outcome {
    for intid in [PPI, SPI, SPI + 1] {
        for priority in [0, 0x48, 0xf8] {
            gic::set_priority(intid, priority);
            check_eq!(gic::priority(intid), priority, "priority of {intid}");
        }
    }
    let gicd = gic::distributor();
    let gicv3 = gic::version() == gic::Version::Gicv3;
    if gicv3 {
        check_eq!(mmio::read32(gicd + offset::IPRIORITYR), 0, "private priorities in the distributor");
        check_eq!(mmio::read32(gicd + offset::ISENABLER), 0, "private enables in the distributor");
    }
    for edge in [true, false] {
        gic::set_edge(SPI, edge);
        let bits = mmio::read32(gicd + offset::ICFGR + u64::from(SPI / 16) * 4) >> (SPI % 16 * 2) & 3;
        check_eq!(bits, if edge { 2 } else { 0 }, "ICFGR");
    }
    for affinity in [0, 1, 0xff_0012_3456].into_iter().filter(|_| gicv3) {
        gic::set_route(SPI, affinity);
        check_eq!(gic::route(SPI), affinity, "IROUTER");
    }
    gic::set_route(SPI, cpu::affinity());
    Ok(())
}

/// Ends of what was never acknowledged.
fn bad_ends() -> Outcome {
    for intid in [1020, 1021, 1022, 1023] {
        gic::end(intid);
    }
    gic::enable(SPI);
    gic::set_pending(SPI);
    check!(is_offered(SPI), "not offered after ends of special INTIDs");
    check_eq!(gic::acknowledge(), SPI, "acknowledge");
    gic::end(NONE);
    check!(gic::is_active(SPI), "the end of 1023 ended {SPI}");
    check_eq!(gic::running_priority(), gic::PRIORITY, "running priority");
    gic::end(SPI);
    check_eq!(gic::running_priority(), 0xff, "idle priority");
    Ok(())
}
