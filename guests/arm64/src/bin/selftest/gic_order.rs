// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many interrupts on one CPU: order of priorities, preemption, both EOI modes, and more of them pending or
//! active than any list registers hold.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use turnstile_guests::test::{Outcome, Test};
use turnstile_guests::{check, check_eq, cpu, gic, irq, timer};

use crate::gic_state::{NONE, SPI, is_offered, offered_after_a_while};

pub const TESTS: &[Test] = &[
    Test { name: "gic-priority-order", run: priority_order },
    Test { name: "gic-preemption", run: preemption },
    Test { name: "gic-preemption-interrupt", run: preemption_interrupt },
    Test { name: "gic-priority-changed", run: priority_changed },
    Test { name: "gic-eoi-mode", run: eoi_mode },
    Test { name: "gic-eoi-mode-out-of-order", run: eoi_mode_out_of_order },
    Test { name: "gic-many-pending", run: many_pending },
    Test { name: "gic-many-interrupts", run: many_interrupts },
    Test { name: "gic-many-active", run: many_active },
    Test { name: "gic-many-disabled", run: many_disabled },
    Test { name: "gic-nested", run: nested },
];

/// The shared interrupts used in bulk: 64, none of a device.
const FIRST: u32 = 40;
const MANY: u32 = 64;

fn set_up(intid: u32, priority: u8) {
    gic::set_edge(intid, true);
    gic::set_priority(intid, priority);
    gic::enable(intid);
}

fn priority_order() -> Outcome {
    gic::set_priority_mask(0xff);
    let priorities = [(SPI, 0x90), (SPI + 1, 0x20), (SPI + 2, 0xd0), (SPI + 3, 0x50)];
    for (intid, priority) in priorities {
        set_up(intid, priority);
        gic::set_pending(intid);
    }
    for (intid, priority) in [(SPI + 1, 0x20), (SPI + 3, 0x50), (SPI, 0x90), (SPI + 2, 0xd0)] {
        check!(is_offered(intid), "INTID {intid} is not next");
        check_eq!(gic::acknowledge(), intid, "acknowledge");
        check_eq!(gic::running_priority(), priority, "running priority");
        gic::end(intid);
    }
    Ok(())
}

fn preemption() -> Outcome {
    gic::set_priority_mask(0xff);
    for (step, priority) in (0..).zip([0xe0, 0xa0, 0x60, 0x20]) {
        set_up(SPI + step, priority);
    }
    for step in 0..4 {
        gic::set_pending(SPI + step);
        check!(is_offered(SPI + step), "INTID {} does not preempt", SPI + step);
        check_eq!(gic::acknowledge(), SPI + step, "acknowledge");
    }
    // Lower than what runs: offered only when that is done.
    set_up(SPI + 4, 0x80);
    gic::set_pending(SPI + 4);
    timer::delay(200);
    check_eq!(gic::acknowledge(), NONE, "a lower priority preempts");
    gic::end(SPI + 3);
    check_eq!(gic::running_priority(), 0x60, "after one end");
    check_eq!(gic::acknowledge(), NONE, "0x80 preempts 0x60");
    gic::end(SPI + 2);
    check!(timer::wait(500_000, || gic::acknowledge() == SPI + 4), "0x80 does not preempt 0xa0");
    for intid in [SPI + 4, SPI + 1, SPI] {
        gic::end(intid);
    }
    check_eq!(gic::running_priority(), 0xff, "at the end");
    Ok(())
}

static DEPTH: AtomicU32 = AtomicU32::new(0);
static DEEPEST: AtomicU32 = AtomicU32::new(0);

/// Makes the next higher one pending and lets it in.
fn go_deeper(intid: u32) {
    let depth = DEPTH.fetch_add(1, SeqCst) + 1;
    DEEPEST.fetch_max(depth, SeqCst);
    if intid < SPI + 3 {
        gic::set_pending(intid + 1);
        cpu::unmask_irq();
        timer::wait(100_000, || irq::count(intid + 1) > 0 && DEPTH.load(SeqCst) == depth);
        cpu::mask_irq();
    }
    DEPTH.fetch_sub(1, SeqCst);
}

fn preemption_interrupt() -> Outcome {
    gic::set_priority_mask(0xff);
    for (step, priority) in (0..).zip([0xe0, 0xa0, 0x60, 0x20]) {
        set_up(SPI + step, priority);
    }
    DEEPEST.store(0, SeqCst);
    irq::set_handler(Some(go_deeper));
    cpu::unmask_irq();
    gic::set_pending(SPI);
    check!(timer::wait(1_000_000, || irq::count(SPI) == 1 && DEPTH.load(SeqCst) == 0), "no end");
    cpu::mask_irq();
    check_eq!(DEEPEST.load(SeqCst), 4, "depth");
    for step in 0..4 {
        check_eq!(irq::count(SPI + step), 1, "interrupts {}", SPI + step);
    }
    Ok(())
}

/// A pending interrupt whose priority is raised overtakes another.
fn priority_changed() -> Outcome {
    for (intid, priority) in [(SPI, 0x80), (SPI + 1, 0x90)] {
        set_up(intid, priority);
        gic::set_pending(intid);
    }
    check!(is_offered(SPI), "the higher one is not offered");
    gic::set_priority(SPI + 1, 0x10);
    check!(is_offered(SPI + 1), "the raised one is not offered");
    for intid in [SPI + 1, SPI] {
        check!(timer::wait(500_000, || gic::acknowledge() == intid), "INTID {intid}");
        gic::end(intid);
    }
    Ok(())
}

fn eoi_mode() -> Outcome {
    gic::set_eoi_mode(true);
    for intid in [SPI, 21, 3] {
        if intid >= 32 {
            gic::set_edge(intid, true);
        }
        gic::enable(intid);
        let again = || match intid {
            0..16 => gic::send_sgi(gic::sgi_value(intid, cpu::affinity())),
            _ => gic::set_pending(intid),
        };
        again();
        check!(is_offered(intid), "INTID {intid} is not offered");
        check_eq!(gic::acknowledge(), intid, "acknowledge");
        gic::end(intid);
        check_eq!(gic::running_priority(), 0xff, "running priority after the drop");
        check!(gic::is_active(intid), "INTID {intid} was deactivated by the drop");
        again();
        timer::delay(200);
        check_eq!(gic::acknowledge(), NONE, "INTID {intid} while active");
        gic::deactivate(intid);
        check!(is_offered(intid), "INTID {intid} is not offered after DIR");
        check_eq!(gic::acknowledge(), intid, "second acknowledge");
        gic::end(intid);
        gic::deactivate(intid);
        check!(!gic::is_active(intid), "INTID {intid} is active after DIR");
    }
    check_eq!(offered_after_a_while(), NONE, "afterwards");
    gic::set_eoi_mode(false);
    Ok(())
}

fn eoi_mode_out_of_order() -> Outcome {
    gic::set_eoi_mode(true);
    for intid in [SPI, SPI + 1, SPI + 2] {
        set_up(intid, gic::PRIORITY);
        gic::set_pending(intid);
        check!(is_offered(intid), "INTID {intid} is not offered");
        check_eq!(gic::acknowledge(), intid, "acknowledge");
        gic::end(intid);
    }
    for (intid, left) in [(SPI + 1, [true, false, true]), (SPI, [false, false, true])] {
        gic::deactivate(intid);
        for (step, active) in (0..).zip(left) {
            check!(gic::is_active(SPI + step) == active, "{} after DIR of {intid}", SPI + step);
        }
    }
    gic::deactivate(SPI + 2);
    gic::set_eoi_mode(false);
    Ok(())
}

/// 31 priorities over 64 interrupts, in an order that is not that of their numbers.
fn many_priority(intid: u32) -> u8 {
    ((intid * 7) % 31 * 8) as u8
}

fn set_up_many() {
    gic::set_priority_mask(0xff);
    for intid in FIRST..FIRST + MANY {
        set_up(intid, many_priority(intid));
    }
}

fn many_pending() -> Outcome {
    for _ in 0..3 {
        set_up_many();
        (FIRST..FIRST + MANY).for_each(gic::set_pending);
        let (mut seen, mut last) = (0u64, 0);
        for count in 0..MANY {
            check!(timer::wait(500_000, || gic::highest_pending() != NONE), "nothing after {count}");
            let intid = gic::acknowledge();
            check!((FIRST..FIRST + MANY).contains(&intid), "INTID {intid} after {count}");
            let priority = many_priority(intid);
            check!(priority >= last, "priority {priority:#x} of {intid} after {last:#x}");
            check_eq!(gic::running_priority(), priority, "running priority");
            check!(seen >> (intid - FIRST) & 1 == 0, "INTID {intid} twice");
            seen |= 1 << (intid - FIRST);
            last = priority;
            gic::end(intid);
        }
        check_eq!(offered_after_a_while(), NONE, "afterwards");
    }
    Ok(())
}

static ORDER: AtomicU64 = AtomicU64::new(0);
static DISORDER: AtomicU32 = AtomicU32::new(0);

fn note_order(intid: u32) {
    let priority = u64::from(many_priority(intid));
    if priority < ORDER.swap(priority, SeqCst) {
        DISORDER.fetch_add(1, SeqCst);
    }
}

/// The same, taken as interrupts.
fn many_interrupts() -> Outcome {
    set_up_many();
    ORDER.store(0, SeqCst);
    DISORDER.store(0, SeqCst);
    irq::set_handler(Some(note_order));
    (FIRST..FIRST + MANY).for_each(gic::set_pending);
    cpu::unmask_irq();
    let all = || (FIRST..FIRST + MANY).all(|intid| irq::count(intid) >= 1);
    check!(timer::wait(2_000_000, all), "interrupts are missing");
    timer::delay(200);
    cpu::mask_irq();
    for intid in FIRST..FIRST + MANY {
        check_eq!(irq::count(intid), 1, "interrupts {intid}");
    }
    check_eq!(DISORDER.load(SeqCst), 0, "out of order");
    Ok(())
}

/// 64 active at once, with their priorities dropped; all made pending again meanwhile; deactivated from the
/// last to the first.
fn many_active() -> Outcome {
    set_up_many();
    gic::set_eoi_mode(true);
    (FIRST..FIRST + MANY).for_each(gic::set_pending);
    for count in 0..MANY {
        check!(timer::wait(500_000, || gic::highest_pending() != NONE), "nothing after {count}");
        gic::end(gic::acknowledge());
    }
    for intid in FIRST..FIRST + MANY {
        check!(gic::is_active(intid), "INTID {intid} is not active");
        check!(!gic::is_pending(intid), "INTID {intid} is pending");
    }
    (FIRST..FIRST + MANY).for_each(gic::set_pending);
    check_eq!(offered_after_a_while(), NONE, "while all are active");
    for intid in (FIRST..FIRST + MANY).rev() {
        gic::deactivate(intid);
        check!(is_offered(intid), "INTID {intid} is not offered after DIR");
        check_eq!(gic::acknowledge(), intid, "acknowledge");
        gic::end(intid);
        gic::deactivate(intid);
        check!(!gic::is_active(intid), "INTID {intid} is active");
    }
    gic::set_eoi_mode(false);
    check_eq!(offered_after_a_while(), NONE, "afterwards");
    Ok(())
}

/// Every second one disabled while all are pending, then enabled again.
fn many_disabled() -> Outcome {
    set_up_many();
    (FIRST..FIRST + MANY).for_each(gic::set_pending);
    check!(timer::wait(500_000, || gic::highest_pending() != NONE), "nothing is offered");
    (FIRST..FIRST + MANY).step_by(2).for_each(gic::disable);
    let take = |parity: u32| {
        let mut seen = 0;
        while timer::wait(2_000, || gic::highest_pending() != NONE) {
            let intid = gic::acknowledge();
            check!(intid % 2 == parity, "INTID {intid} in the wrong round");
            gic::end(intid);
            seen += 1;
        }
        check_eq!(seen, MANY / 2, "interrupts in round {parity}");
        Ok(())
    };
    take(1)?;
    (FIRST..FIRST + MANY).step_by(2).for_each(gic::enable);
    take(0)
}

/// As many priorities nested as there are groups of them: each preempts the one before.
fn nested() -> Outcome {
    gic::set_priority_mask(0xff);
    let levels = 15;
    for level in 0..levels {
        set_up(FIRST + level, 0xf0 - (level * 16) as u8);
        gic::set_pending(FIRST + level);
        check!(is_offered(FIRST + level), "level {level} does not preempt");
        check_eq!(gic::acknowledge(), FIRST + level, "acknowledge");
    }
    for level in (0..levels).rev() {
        check_eq!(gic::running_priority(), 0xf0 - (level * 16) as u8, "running priority");
        check!(gic::is_active(FIRST + level), "level {level} is not active");
        gic::end(FIRST + level);
        check!(!gic::is_active(FIRST + level), "level {level} is active after its end");
    }
    check_eq!(gic::running_priority(), 0xff, "at the end");
    Ok(())
}
