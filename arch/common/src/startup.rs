// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other CPUs of a machine as they come up: all at once.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use alloc::vec::Vec;

use crate::{println, relax};

/// The most CPUs of a machine.
pub const MAX_CPUS: usize = 512;

/// Seconds after which a CPU is taken for dead. Generous: an emulator may run its CPUs in turn.
pub const PATIENCE: u64 = 10;

/// The list in which a CPU that starts finds itself, by what its registers call it. The assembly in which it begins reads it, so the
/// layout is fixed: the number of records, a word that is the same for all, and the records, two words each. Aligned to a
/// cache line, so that nothing else is cleaned with it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Starting {
    count: AtomicU64,
    common: AtomicU64,
    records: [[AtomicU64; 2]; MAX_CPUS],
}

impl Starting {
    /// Makes an empty list.
    pub const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            common: AtomicU64::new(0),
            records: [const { [const { AtomicU64::new(0) }; 2] }; MAX_CPUS],
        }
    }

    /// Fills the list in: what CPUs are called, each with what it needs. Before one of them starts; the caller makes the stores
    /// visible to it.
    pub fn fill(&self, common: u64, records: impl Iterator<Item = [u64; 2]>) {
        let mut count = 0;
        for (record, words) in self.records.iter().zip(records) {
            record.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
            count += 1;
        }
        self.common.store(common, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
    }
}

impl Default for Starting {
    fn default() -> Self {
        Self::new()
    }
}

/// Puts the CPU that boots before all others, which keep their order. False if it is none of them.
pub fn boot_first<T>(cpus: &mut Vec<T>, is_boot: impl FnMut(&T) -> bool) -> bool {
    let Some(at) = cpus.iter().position(is_boot) else { return false };
    let boot = cpus.remove(at);
    cpus.insert(0, boot);
    true
}

/// Waits for CPUs that have been told to start, and reports the first that does not answer. Returns how many run: `count`, or those before
/// that one.
pub fn running<'a>(
    count: usize,
    cpus: impl Iterator<Item = (usize, &'a AtomicBool)>,
    now: impl Fn() -> u64,
    frequency: u64,
) -> usize {
    match wait_for(cpus, now, frequency) {
        Ok(()) => count,
        Err(silent) => {
            println!("turnstile: CPU {silent} was started but does not answer");
            silent
        }
    }
}

/// Waits until each of these CPUs, which have been told to start, has said that it runs: for each as long as [`PATIENCE`], in
/// ticks of `now`.
///
/// # Errors
/// Returns the number of the first one that does not answer.
fn wait_for<'a>(
    cpus: impl Iterator<Item = (usize, &'a AtomicBool)>,
    now: impl Fn() -> u64,
    frequency: u64,
) -> Result<(), usize> {
    for (index, online) in cpus {
        let until = now().saturating_add(PATIENCE.saturating_mul(frequency));
        // With what the CPU has stored before it said so.
        while !online.load(Ordering::Acquire) {
            if now() > until {
                return Err(index);
            }
            relax();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    #[test]
    fn a_cpu_finds_itself_in_the_list() {
        let list = Starting::new();
        list.fill(7, [[0x100, 1], [0x101, 2]].into_iter());
        assert_eq!((list.count.load(Ordering::Relaxed), list.common.load(Ordering::Relaxed)), (2, 7));
        // As assembly reads it.
        assert_eq!(core::mem::offset_of!(Starting, common), 8);
        assert_eq!(core::mem::offset_of!(Starting, records), 16);
        assert_eq!(list.records[1].each_ref().map(|word| word.load(Ordering::Relaxed)), [0x101, 2]);
        list.fill(7, (0..1000).map(|cpu| [cpu, 0]));
        assert_eq!(list.count.load(Ordering::Relaxed), MAX_CPUS as u64);
    }

    #[test]
    fn the_cpu_that_boots_is_the_first() {
        let mut cpus = vec![3, 5, 1, 4];
        assert!(boot_first(&mut cpus, |cpu| *cpu == 1));
        assert_eq!(cpus, [1, 3, 5, 4]);
        assert!(boot_first(&mut cpus, |cpu| *cpu == 1));
        assert!(!boot_first(&mut cpus, |cpu| *cpu == 2));
        assert_eq!(cpus, [1, 3, 5, 4]);
    }

    #[test]
    fn each_cpu_has_its_own_time_to_answer() {
        const FREQUENCY: u64 = 100;
        let flags: [AtomicBool; 3] = Default::default();
        let clock = Cell::new(0);
        // A CPU every eight seconds.
        let now = || {
            clock.set(clock.get() + 1);
            if let Some(flag) = flags.get((clock.get() / (8 * FREQUENCY)) as usize) {
                flag.store(true, Ordering::Relaxed);
            }
            clock.get()
        };
        let cpus = || flags.iter().enumerate().map(|(index, flag)| (index + 1, flag));
        assert_eq!(wait_for(cpus(), now, FREQUENCY), Ok(()));
        flags[1].store(false, Ordering::Relaxed);
        let begin = clock.get();
        assert_eq!(wait_for(cpus(), now, FREQUENCY), Err(2), "it is named");
        assert!((PATIENCE * FREQUENCY..2 * PATIENCE * FREQUENCY).contains(&(clock.get() - begin)));
    }
}
