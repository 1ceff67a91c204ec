// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts between CPUs: SGIs to one, to some, to all others; shared interrupts routed elsewhere.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use turnstile_guests::psci::status;
use turnstile_guests::test::{Outcome, Test};
use turnstile_guests::{check, check_eq, cpu, gic, irq, skip, smp, timer};

use crate::gic_state::{NONE, SPI, offered_after_a_while};
use crate::is_bare;

pub const TESTS: &[Test] = &[
    Test { name: "gic-sgi-each", run: || with_cpus(sgi_each) },
    Test { name: "gic-sgi-answer", run: || with_cpus(sgi_answer) },
    Test { name: "gic-sgi-broadcast", run: || with_cpus(sgi_broadcast) },
    Test { name: "gic-sgi-list", run: || with_cpus(sgi_list) },
    Test { name: "gic-sgi-absent", run: sgi_absent },
    Test { name: "gic-sgi-storm", run: || with_cpus(sgi_storm) },
    Test { name: "gic-route", run: || with_cpus(route) },
    Test { name: "gic-route-absent", run: route_absent },
];

static READY: AtomicU32 = AtomicU32::new(0);
static STOP: AtomicU32 = AtomicU32::new(0);
/// An SGI by which the others answer, or 0 for none; it goes to the CPU with index `ANSWER_TO`.
static ANSWER: AtomicU32 = AtomicU32::new(0);
static ANSWER_TO: AtomicU32 = AtomicU32::new(0);

const PING: u32 = 2;
const PONG: u32 = 7;

fn listen(_: u64) {
    gic::init_cpu();
    (0..16).for_each(gic::enable);
    cpu::unmask_irq();
    READY.fetch_add(1, SeqCst);
    while STOP.load(SeqCst) == 0 {
        cpu::wfi();
    }
    cpu::mask_irq();
}

fn answer(intid: u32) {
    if intid == PING && ANSWER.load(SeqCst) != 0 {
        let target = smp::affinity(ANSWER_TO.load(SeqCst) as usize);
        gic::send_sgi(gic::sgi_value(ANSWER.load(SeqCst), target));
    }
}

/// Runs a test while all other CPUs listen; they are stopped also when it fails.
fn with_cpus(test: fn() -> Outcome) -> Outcome {
    if smp::count() < 2 {
        skip!("one CPU");
    }
    READY.store(0, SeqCst);
    STOP.store(0, SeqCst);
    ANSWER.store(0, SeqCst);
    irq::set_handler(Some(answer));
    for index in smp::others() {
        check_eq!(smp::start(index, listen, 0), status::SUCCESS, "CPU_ON of cpu {index}");
    }
    let others = smp::count() - 1;
    let started = timer::wait(2_000_000, || READY.load(SeqCst) as usize == others);
    let outcome = if started { test() } else { Ok(()) };
    STOP.store(1, SeqCst);
    // Wakes those that wait; any interrupt does.
    gic::send_sgi(gic::sgi_to_others(15));
    for index in smp::others() {
        check!(smp::wait_off(index), "cpu {index} does not go off");
    }
    check!(started, "{} of {others} CPUs are ready", READY.load(SeqCst));
    outcome
}

fn sgi_each() -> Outcome {
    for sgi in [0, PING, 14] {
        for target in smp::others() {
            irq::reset_counts();
            gic::send_sgi(gic::sgi_value(sgi, smp::affinity(target)));
            check!(timer::wait(1_000_000, || irq::count_on(target, sgi) == 1), "SGI {sgi} to cpu {target}");
            timer::delay(100);
            for index in 0..smp::count() {
                check_eq!(irq::count_on(index, sgi), u32::from(index == target), "SGIs on cpu {index}");
            }
        }
    }
    Ok(())
}

fn sgi_answer() -> Outcome {
    let this = cpu::this().index();
    ANSWER_TO.store(this as u32, SeqCst);
    ANSWER.store(PONG, SeqCst);
    gic::enable(PONG);
    cpu::unmask_irq();
    for (count, target) in (1..).zip(smp::others().cycle().take(100)) {
        gic::send_sgi(gic::sgi_value(PING, smp::affinity(target)));
        check!(timer::wait(1_000_000, || irq::count_on(this, PONG) == count), "no answer from cpu {target}");
    }
    cpu::mask_irq();
    Ok(())
}

fn sgi_broadcast() -> Outcome {
    gic::enable(PING);
    for round in 1..=10 {
        gic::send_sgi(gic::sgi_to_others(PING));
        for index in smp::others() {
            let arrived = timer::wait(1_000_000, || irq::count_on(index, PING) == round);
            check!(arrived, "broadcast {round} on cpu {index}");
        }
        check_eq!(offered_after_a_while(), NONE, "on the sender");
    }
    Ok(())
}

/// All CPUs of the sender's cluster, itself included, in one write.
fn sgi_list() -> Outcome {
    let this = cpu::this().index();
    let cluster = cpu::affinity() & !0xf;
    let members = || (0..smp::count()).filter(|index| smp::affinity(*index) & !0xf == cluster);
    gic::enable(PING);
    cpu::unmask_irq();
    let list = members().fold(0u16, |list, index| list | 1 << (smp::affinity(index) & 0xf));
    gic::send_sgi(gic::sgi_to_list(PING, cluster, list));
    for index in members() {
        check!(timer::wait(1_000_000, || irq::count_on(index, PING) == 1), "cpu {index}");
    }
    // All but itself, by leaving its bit out.
    let list = list & !(1 << (smp::affinity(this) & 0xf));
    gic::send_sgi(gic::sgi_to_list(PING, cluster, list));
    for index in members().filter(|index| *index != this) {
        check!(timer::wait(1_000_000, || irq::count_on(index, PING) == 2), "cpu {index}, second");
    }
    timer::delay(200);
    cpu::mask_irq();
    check_eq!(irq::count_on(this, PING), 1, "on the sender");
    Ok(())
}

fn sgi_absent() -> Outcome {
    gic::enable(PING);
    if gic::version() == gic::Version::Gicv2 {
        // CPUs that do not exist, none, and the reserved filter.
        let absent = 0xffu64 & !((1 << smp::count()) - 1);
        let reserved = if is_bare() { 0 } else { 3 << 24 | 0xff << 16 };
        for value in [absent << 16, 0, reserved] {
            gic::send_sgi(value | u64::from(PING));
        }
    } else {
        for value in [0xffff_u64 & !1 | 0xf << 44, 0xff << 48 | 0xffff, 0xff << 32 | 1, 0xff << 16 | 1, 0] {
            gic::send_sgi(value | u64::from(PING) << 24);
        }
    }
    check_eq!(offered_after_a_while(), NONE, "afterwards");
    gic::send_sgi(gic::sgi_value(PING, cpu::affinity()));
    check!(timer::wait(500_000, || gic::acknowledge() == PING), "an SGI to itself");
    gic::end(PING);
    Ok(())
}

/// Many SGIs while the others may handle several at once: none is lost for good, the last always arrives.
fn sgi_storm() -> Outcome {
    for round in 0..200u32 {
        for sgi in 0..15 {
            gic::send_sgi(gic::sgi_to_others((sgi + round) % 15));
        }
    }
    for index in smp::others() {
        for sgi in 0..15 {
            let count = || irq::count_on(index, sgi);
            check!(timer::wait(1_000_000, || count() >= 1 && count() <= 200), "SGI {sgi} on cpu {index}");
        }
        let before = irq::count_on(index, 3);
        gic::send_sgi(gic::sgi_value(3, smp::affinity(index)));
        check!(timer::wait(1_000_000, || irq::count_on(index, 3) > before), "the last on cpu {index}");
    }
    Ok(())
}

fn route() -> Outcome {
    static WHERE: AtomicU32 = AtomicU32::new(0);
    fn note(_: u32) {
        WHERE.store(cpu::this().index() as u32 + 1, SeqCst);
    }
    irq::set_handler(Some(note));
    gic::set_edge(SPI, true);
    gic::enable(SPI);
    for (count, target) in (1..).zip(smp::others()) {
        gic::set_route(SPI, smp::affinity(target));
        gic::set_pending(SPI);
        check!(timer::wait(1_000_000, || irq::count(SPI) == count), "not taken on cpu {target}");
        // Counted first, then noted.
        timer::wait(1_000, || WHERE.load(SeqCst) == target as u32 + 1);
        check_eq!(WHERE.load(SeqCst), target as u32 + 1, "taken on (index + 1)");
    }
    check_eq!(offered_after_a_while(), NONE, "here");
    gic::set_route(SPI, cpu::affinity());
    gic::set_pending(SPI);
    check!(timer::wait(500_000, || gic::acknowledge() == SPI), "not offered when routed here");
    gic::end(SPI);
    Ok(())
}

fn route_absent() -> Outcome {
    if gic::version() == gic::Version::Gicv2 && smp::count() == 1 {
        skip!("a GICv2 of one CPU has no targets to choose");
    }
    if gic::version() == gic::Version::Gicv2 && is_bare() {
        skip!("QEMU's own GICv2 forgets what has no target");
    }
    gic::set_edge(SPI, true);
    gic::enable(SPI);
    gic::set_route(SPI, 0xff_00fe_fdfc);
    gic::set_pending(SPI);
    check_eq!(offered_after_a_while(), NONE, "with an absent target");
    check!(gic::is_pending(SPI), "it is not pending any more");
    gic::set_route(SPI, cpu::affinity());
    check!(timer::wait(500_000, || gic::acknowledge() == SPI), "not offered once routed here");
    gic::end(SPI);
    Ok(())
}
