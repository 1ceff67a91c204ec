// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was sent, and what was taken: each interrupt, by the CPU that took it and, of a GICv2's SGIs, by sender.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use turnstile_guests::gic::{self, Version, offset};
use turnstile_guests::platform::platform;
use turnstile_guests::{cpu, irq, mmio, smp};

/// Most CPUs of the accounts.
pub const MAX_CPUS: usize = 8;

/// Of each CPU: the SGIs it took from each sender (with GICv3, which does not know it, from 0).
static SGIS: [[[AtomicU32; MAX_CPUS]; 16]; MAX_CPUS] =
    [const { [const { [const { AtomicU32::new(0) }; MAX_CPUS] }; 16] }; MAX_CPUS];

/// The private interrupts that nothing drives on the machines here: PPIs 16 to 22.
pub const PRIVATE: core::ops::Range<u32> = 16..23;

/// Sets all accounts to zero.
pub fn reset() {
    SGIS.iter().flatten().flatten().for_each(|count| count.store(0, Relaxed));
    irq::reset_counts();
}

/// Returns the shared interrupts that no device has.
pub fn shared() -> impl Iterator<Item = u32> {
    let machine = platform();
    let uart = machine.uart.map(|uart| uart.intid);
    (32..gic::interrupts().min(128))
        .filter(move |intid| Some(*intid) != uart && Some(*intid) != machine.rtc_intid)
}

/// Returns the same as words of the registers with one bit for each.
pub fn shared_words() -> impl Iterator<Item = (u64, u32)> {
    (1..4).map(|word| {
        let in_word = shared().filter(|intid| u64::from(intid / 32) == word);
        (word, in_word.fold(0, |mask, intid| mask | 1 << (intid % 32)))
    })
}

/// Enters an SGI that this CPU took.
pub fn enter_sgi(sgi: u32) {
    let sender = if gic::version() == Version::Gicv2 { gic::v2::last_sender(sgi) } else { 0 };
    if let Some(count) = SGIS
        .get(cpu::this().index())
        .and_then(|sgis| sgis.get(sgi as usize))
        .and_then(|senders| senders.get(usize::from(sender)))
    {
        count.fetch_add(1, Relaxed);
    }
}

/// Says whether this CPU sends this SGI. With GICv3, where those of several senders would be one, each has its own.
pub fn sends(cpu: usize, sgi: u32) -> bool {
    gic::version() == Version::Gicv2 || sgi as usize % smp::count() == cpu
}

/// Returns how many senders an SGI is counted by.
fn senders() -> usize {
    if gic::version() == Version::Gicv2 { smp::count() } else { 1 }
}

/// Returns how many interrupts are pending: what this CPU's registers tell, and as many private ones of each other.
pub fn waiting() -> usize {
    let pending = |word: u64| mmio::read32(gic::distributor() + offset::ISPENDR + 4 * word);
    let shared: u32 = shared_words().map(|(word, mask)| (pending(word) & mask).count_ones()).sum();
    let sgis = match gic::version() {
        Version::Gicv2 => (0..16).map(|sgi| gic::v2::senders(sgi).count_ones()).sum(),
        Version::Gicv3 => (0..16).filter(|sgi| gic::is_pending(*sgi)).count() as u32,
    };
    let private = PRIVATE.filter(|intid| gic::is_pending(*intid)).count();
    shared as usize + (sgis as usize + private) * smp::count()
}

/// Something that was not taken as often as it was sent.
pub struct Wrong {
    intid: u32,
    cpu: usize,
    sender: usize,
    count: u32,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { intid, cpu, sender, count } = self;
        write!(f, "INTID {intid} (cpu {cpu}, sender {sender}) was taken {count} times")
    }
}

/// Returns the first interrupt that was not taken exactly as often as there were rounds.
pub fn first_wrong(rounds: u32) -> Option<Wrong> {
    let wrong = |intid, cpu, sender, count| (count != rounds).then_some(Wrong { intid, cpu, sender, count });
    let sgis = || {
        SGIS.iter().enumerate().take(smp::count()).find_map(|(cpu, sgis)| {
            (0..).zip(sgis).find_map(|(sgi, counts)| {
                let mut counts = counts.iter().enumerate().take(senders());
                counts.find_map(|(sender, count)| wrong(sgi, cpu, sender, count.load(Relaxed)))
            })
        })
    };
    let private = || {
        (0..smp::count())
            .find_map(|cpu| PRIVATE.into_iter().find_map(|id| wrong(id, cpu, cpu, irq::count_on(cpu, id))))
    };
    let shared = || shared().find_map(|intid| wrong(intid, 0, 0, irq::count(intid)));
    shared().or_else(private).or_else(sgis)
}
