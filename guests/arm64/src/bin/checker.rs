// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts every interrupt for a long time: none may be lost, none may come twice. All CPUs wake at about the same
//! moments, by either timer, send an SGI to every CPU, themselves too, and sleep again. An SGI goes out only when the
//! one before it, from the same CPU to the same one, was taken: so no two can become one.
//!
//! Options: those of [`checker`](turnstile_guests_common::checker), `seed=`.
#![no_std]
#![no_main]

use turnstile_guests::gic::{self, Version};
use turnstile_guests::random::{self, Random};
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{cpu, entry, irq, mmu, smp};
use turnstile_guests_common::checker::{Account, Grid, Ledger, Member};

entry!(main);

const TIMERS: [Timer; 2] = [Timer::Virtual, Timer::Physical];
/// Timers as in [`TIMERS`]. Each CPU sends the SGI of its own number, so that also a GICv3 tells whose it is.
static LEDGER: Ledger<2> = Ledger::new();

fn main() {
    mmu::enable();
    gic::init();
    irq::set_handler(Some(handle));
    LEDGER.run(smp::count(), smp::start_others, work);
}

fn handle(intid: u32) {
    let this = cpu::this().index();
    if let Some(index) = TIMERS.iter().position(|timer| timer.intid() == intid) {
        TIMERS[index & 1].set_control(0);
        return LEDGER.ring(this, index).take(timer::now());
    }
    // A GICv2 may say that another CPU sent it than was to.
    if gic::version() == Version::Gicv2 && u32::from(gic::v2::last_sender(intid)) != intid {
        LEDGER.enter_strange();
    }
    LEDGER.ipi(intid as usize, this).take(timer::now());
}

/// One of this CPU's timers.
struct Ring {
    timer: Timer,
    account: &'static Account,
    grid: Grid,
}

impl Ring {
    fn new(index: usize) -> Self {
        let account = LEDGER.ring(cpu::this().index(), index);
        // The two timers ring in turn.
        Ring { timer: TIMERS[index & 1], account, grid: Grid::of_options(index as u64) }
    }

    fn set(&mut self, random: &mut Random) {
        let due = self.grid.about_next(random);
        self.account.send(due);
        // The physical count is another one.
        self.timer.set_compare(self.timer.now() + due.saturating_sub(timer::now()));
        self.timer.set_control(timer::ENABLE);
    }
}

/// What each CPU does until everything was sent and taken.
fn work(_: u64) {
    let (this, count) = (cpu::this().index(), smp::count());
    let mut random = random::stream(this as u64);
    gic::init_cpu();
    (0..count as u32).for_each(gic::enable);
    TIMERS.iter().for_each(|timer| gic::enable(timer.intid()));
    let mut member = Member::join(&LEDGER.crew, this, count);
    let mut rings = [0, 1].map(Ring::new);
    rings.iter_mut().for_each(|ring| ring.set(&mut random));
    cpu::mask_irq();
    while !LEDGER.crew.is_broken() && rings.iter().any(|ring| ring.account.is_open()) {
        // A pending interrupt ends the wait, although it is masked: nothing comes between looking and waiting.
        cpu::wfi();
        cpu::unmask_irq();
        cpu::mask_irq();
        for ring in &mut rings {
            if !LEDGER.awaits(ring.account) && !member.may_leave(send(this)) {
                ring.set(&mut random);
            }
        }
    }
    TIMERS.iter().for_each(|timer| timer.set_control(0));
    member.leave();
}

/// Sends an SGI to each CPU that took the last one; when the time is over, says whether all did.
fn send(this: usize) -> bool {
    LEDGER.send_to_all(this, smp::count(), |receiver| {
        gic::send_sgi(gic::sgi_value(this as u32, smp::affinity(receiver)));
    })
}
