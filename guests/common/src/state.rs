// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that a hypervisor may leave in the CPU when it runs somebody else, in registers of several kinds. Each is filled with
//! values that a seed gives, and compared with them later.

use core::fmt;

/// Registers of one kind.
pub struct State {
    /// What the report calls them.
    pub name: &'static str,
    /// Says whether this machine has them.
    pub exists: fn() -> bool,
    /// Fills them with the values of a seed, which is not zero.
    pub fill: fn(u64),
    /// Says whether they hold the values of a seed; zero is for those after a reset.
    pub holds: fn(u64) -> bool,
}

/// Returns the word that belongs to a seed and a register; zero for the seed zero.
pub fn word(seed: u64, register: u64) -> u64 {
    // Odd factors: no seed but zero gives zero, and no two registers the same.
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(2 * register + 1)
}

/// Returns the seed of a round, from 0 on, of the VM with this number.
pub fn seed(number: u64, round: u64) -> u64 {
    number << 16 | (round + 1) << 1 | 1
}

/// Those of the kinds that this machine has; printed, their names.
#[derive(Clone, Copy)]
pub struct Present(pub &'static [State]);

impl Present {
    /// Returns them.
    pub fn states(self) -> impl Iterator<Item = &'static State> {
        self.0.iter().filter(|state| (state.exists)())
    }

    /// Fills them all.
    pub fn fill(self, seed: u64) {
        self.states().for_each(|state| (state.fill)(seed));
    }

    /// Returns those that do not hold the values of a seed.
    pub fn wrong(self, seed: u64) -> impl Iterator<Item = &'static State> {
        self.states().filter(move |state| !(state.holds)(seed))
    }
}

impl fmt::Display for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.states().try_for_each(|state| write!(f, "{} ", state.name))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString;

    use super::*;

    static STATES: [State; 3] = [
        State { name: "fp", exists: || true, fill: |_| {}, holds: |seed| seed == 0 },
        State { name: "none", exists: || false, fill: |_| panic!("it is not there"), holds: |_| false },
        State { name: "keys", exists: || true, fill: |_| {}, holds: |_| true },
    ];

    #[test]
    fn only_what_exists_is_looked_at() {
        let present = Present(&STATES);
        assert_eq!(present.to_string(), "fp keys ");
        present.fill(1);
        assert_eq!(present.wrong(0).count(), 0);
        assert!(present.wrong(1).map(|state| state.name).eq(["fp"]));
    }

    #[test]
    fn seeds_and_words_differ() {
        assert_eq!(word(0, 3), 0);
        assert_ne!(word(seed(1, 0), 0), word(seed(1, 0), 1));
        assert_ne!(seed(1, 0), seed(2, 0));
        assert_ne!(seed(1, 0), seed(1, 1));
    }
}
