// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All CPUs, which go step by step together: set up, send, let in, mask. The first one leads.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use turnstile_guests::psci::status;
use turnstile_guests::test::Outcome;
use turnstile_guests::{check, check_eq, cpu, gic, irq, smp, timer};

use crate::account::{self, MAX_CPUS, PRIVATE};
use crate::line;

/// How deep handlers are nested: what the stacks hold.
pub const DEEPEST: u32 = 5;
/// SGIs of this number and above are sent by the handlers of private interrupts, the others beforehand.
const SENT_BY_HANDLERS: core::ops::Range<u32> = PRIVATE.start - 8..PRIVATE.end - 8;
/// How long a CPU waits for the others, in microseconds.
const PATIENCE: u64 = 40_000_000;

/// How many times CPUs have come to the end of a step, all together; and each of them.
static ARRIVED: AtomicU32 = AtomicU32::new(0);
static STEPS: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];
/// The last round of which everything was taken.
static DONE: AtomicU32 = AtomicU32::new(0);
/// The leader has given up: nobody waits any more.
static BROKEN: AtomicBool = AtomicBool::new(false);
static LATE: AtomicBool = AtomicBool::new(false);
static ELSEWHERE: AtomicBool = AtomicBool::new(false);
static DEPTH: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];
static DEEPEST_SEEN: AtomicU32 = AtomicU32::new(0);
/// What each CPU took and nobody has deactivated: words of 32 INTIDs, the private ones first.
static OWED: [[AtomicU32; 4]; MAX_CPUS] = [const { [const { AtomicU32::new(0) }; 4] }; MAX_CPUS];

/// Returns one of 31 priorities, in an order that is not that of the INTIDs.
pub fn priority(intid: u32, round: u32) -> u8 {
    ((intid * 7 + round * 11) % 31 * 8) as u8
}

/// Returns how deep handlers were nested.
pub fn deepest() -> u32 {
    DEEPEST_SEEN.load(SeqCst)
}

/// Runs `lead` here while all other CPUs do their part; they are stopped also when it fails. With `late`,
/// interrupts are deactivated after their end; with `elsewhere`, the shared ones by another CPU.
pub fn with(late: bool, elsewhere: bool, lead: impl FnOnce() -> Outcome) -> Outcome {
    LATE.store(late, SeqCst);
    ELSEWHERE.store(elsewhere, SeqCst);
    BROKEN.store(false, SeqCst);
    for count in
        STEPS.iter().chain(&DEPTH).chain(OWED.iter().flatten()).chain([&ARRIVED, &DONE, &DEEPEST_SEEN])
    {
        count.store(0, SeqCst);
    }
    irq::set_handler(Some(handle));
    irq::set_finisher(late.then_some(owe as fn(u32)));
    open_interface();
    for index in smp::others() {
        check_eq!(smp::start(index, follow, 0), status::SUCCESS, "CPU_ON of cpu {index}");
    }
    let outcome = lead();
    cpu::mask_irq();
    BROKEN.store(true, SeqCst);
    irq::set_finisher(None);
    gic::set_eoi_mode(false);
    for index in smp::others() {
        check!(smp::wait_off(index), "cpu {index} does not go off");
    }
    outcome
}

fn open_interface() {
    gic::init_cpu();
    gic::set_priority_mask(0xff);
    gic::set_eoi_mode(LATE.load(SeqCst));
}

/// What all CPUs but the leader do, until it has no more rounds.
fn follow(_: u64) {
    open_interface();
    for round in 1.. {
        set_up(round);
        step();
        send();
        step();
        step();
        if BROKEN.load(SeqCst) {
            break;
        }
        cpu::unmask_irq();
        while DONE.load(SeqCst) < round && !BROKEN.load(SeqCst) {
            deactivate();
            timer::delay(20);
        }
        close();
    }
    cpu::mask_irq();
}

/// Ends a round, on the leader.
pub fn finish(round: u32) {
    DONE.store(round, SeqCst);
    close();
}

/// Masks interrupts, and deactivates what is left when all have done so.
fn close() {
    cpu::mask_irq();
    step();
    deactivate();
    step();
}

/// Waits until all CPUs have come here.
pub fn step() {
    let Some(steps) = STEPS.get(cpu::this().index()) else { return };
    let all = (steps.fetch_add(1, SeqCst) + 1) * smp::count() as u32;
    ARRIVED.fetch_add(1, SeqCst);
    let arrived = || ARRIVED.load(SeqCst) >= all || BROKEN.load(SeqCst);
    if !timer::wait(PATIENCE, arrived) {
        BROKEN.store(true, SeqCst);
    }
}

/// Sets up this CPU's private interrupts.
pub fn set_up(round: u32) {
    for intid in (0..16).chain(PRIVATE) {
        let mixed = priority(intid + cpu::this().index() as u32, round);
        // Each makes the next one pending: in every other round that one preempts it.
        let rising = 0xf0 - ((intid % 16) * 16) as u8;
        gic::set_priority(intid, if intid >= 16 && round.is_multiple_of(2) { rising } else { mixed });
        if intid >= 16 {
            gic::set_edge(intid, true);
        }
        gic::enable(intid);
    }
}

/// Makes the first of this CPU's private interrupts pending and sends its SGIs to all CPUs, itself included.
pub fn send() {
    gic::set_pending(PRIVATE.start);
    (0..16).filter(|sgi| !SENT_BY_HANDLERS.contains(sgi)).for_each(send_sgi);
}

fn send_sgi(sgi: u32) {
    if account::sends(cpu::this().index(), sgi) {
        gic::send_sgi(gic::sgi_to_others(sgi));
        gic::send_sgi(gic::sgi_value(sgi, cpu::affinity()));
    }
}

/// Handles an interrupt, and lets those of higher priority in.
fn handle(intid: u32) {
    match intid {
        0..16 => account::enter_sgi(intid),
        _ if PRIVATE.contains(&intid) => {
            send_sgi(intid - 8);
            if PRIVATE.contains(&(intid + 1)) {
                gic::set_pending(intid + 1);
            }
        }
        _ if line::is(intid) => line::set(false),
        _ => {}
    }
    let Some(depth) = DEPTH.get(cpu::this().index()) else { return };
    let now = depth.fetch_add(1, SeqCst) + 1;
    DEEPEST_SEEN.fetch_max(now, SeqCst);
    if now < DEEPEST {
        cpu::unmask_irq();
        timer::delay(2);
        cpu::mask_irq();
    }
    depth.fetch_sub(1, SeqCst);
}

/// Notes that an interrupt's priority was dropped and its deactivation is to come.
fn owe(intid: u32) {
    let words = OWED.get(cpu::this().index());
    if let Some(word) = words.and_then(|words| words.get(intid as usize / 32)) {
        word.fetch_or(1 << (intid % 32), SeqCst);
    }
}

/// Deactivates what is owed: this CPU's private interrupts, and its own shared ones or its neighbor's.
pub fn deactivate() {
    let this = cpu::this().index();
    let neighbor = if ELSEWHERE.load(SeqCst) { (this + 1) % smp::count() } else { this };
    for (number, cpu) in [this, neighbor, neighbor, neighbor].into_iter().enumerate() {
        let Some(word) = OWED.get(cpu).and_then(|words| words.get(number)) else { continue };
        if word.load(Relaxed) == 0 {
            continue;
        }
        let owed = word.swap(0, SeqCst);
        (0..32).filter(|bit| owed >> bit & 1 != 0).for_each(|bit| gic::deactivate(number as u32 * 32 + bit));
    }
}
