// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kinds of work.

use crate::isa::Isa;

/// The word for all of them.
pub const ALL: &str = "linux-work";

/// A kind of work, which the program of `guests/linux` does.
#[derive(Debug, PartialEq)]
pub struct Work {
    /// Its name.
    pub name: &'static str,
    /// What one operation is.
    pub what: &'static str,
    /// How often it is done in a boot: so often that the timer's interrupts and what the kernel does now and then have their
    /// usual share.
    pub operations: u64,
    /// The most that it may take on Turnstile on arm64, AMD64 and POWER, where without a hypervisor it takes 1. Each is the measured ratio and a
    /// little more: two boots of one kernel differ by some million instructions, and with one CPU its scheduler takes 14,100 to 14,800 for the
    /// same two switches, with a hypervisor and without.
    ceilings: [f64; 3],
}

/// All kinds, in the order in which a guest does them.
pub const WORK: [Work; 4] = [
    Work {
        name: "pipe-1cpu",
        what: "a byte to another process and back, one CPU",
        operations: 16_000,
        ceilings: [1.035, 1.03, 1.03],
    },
    Work {
        name: "pipe-2cpus",
        what: "a byte to a process on another CPU and back",
        operations: 48_000,
        ceilings: [1.015, 1.025, 1.03],
    },
    Work {
        name: "fork-exec",
        what: "fork, exec of a tiny program, its end",
        operations: 2000,
        ceilings: [1.015, 1.035, 1.30],
    },
    Work {
        name: "sleep-1ms",
        what: "a sleep of a millisecond",
        operations: 500,
        ceilings: [1.020, 1.25, 1.20],
    },
];

impl Work {
    /// The most that it may take on Turnstile, where without a hypervisor it takes 1.
    pub fn ceiling(&self, isa: Isa) -> f64 {
        let [arm64, x86_64, power64] = self.ceilings;
        match isa {
            Isa::Arm64 => arm64,
            Isa::X86_64 => x86_64,
            Isa::Power64 => power64,
        }
    }
}

/// Takes the kinds of work out of names of rows: returns them, and the other names.
pub fn split(names: &[String]) -> (Vec<&'static Work>, Vec<String>) {
    let is = |work: &Work, name: &String| name == work.name || name == ALL;
    let work = WORK.iter().filter(|work| names.iter().any(|name| is(work, name))).collect();
    let others = names.iter().filter(|name| !WORK.iter().any(|work| is(work, name))).cloned().collect();
    (work, others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split() {
        let split = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let (work, others) = super::split(&names);
            (work.iter().map(|work| work.name).collect::<Vec<_>>(), others)
        };
        assert_eq!(split(&[]), (vec![], vec![]), "they are measured only when asked for");
        let (work, others) = split(&["sleep-1ms", "self-sgi", "pipe-1cpu"]);
        assert_eq!((work, others), (vec!["pipe-1cpu", "sleep-1ms"], vec!["self-sgi".to_owned()]));
        assert_eq!(split(&[ALL]).0.len(), WORK.len());
    }

    #[test]
    fn a_row_has_one_name() {
        for isa in Isa::ALL {
            let rows = crate::bench::rows::of(isa);
            assert!(WORK.iter().all(|work| rows.iter().all(|row| row.name != work.name)), "{isa}");
        }
    }
}
