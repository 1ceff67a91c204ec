// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the seeds measured, in cycles of real machines, beside the same techniques' instructions here.

use turnstile_techniques::{Set, Technique};

use super::super::document::{AblationRow, SeedRow};
use super::find;

/// A seed's figures for one row: the change in per cent, on each of its platforms.
struct Recorded {
    row: &'static str,
    percent: &'static [f64],
}

/// A seed that measured operations that are rows here.
struct Seed {
    name: &'static str,
    what: &'static str,
    rows: &'static [Recorded],
}

/// How sources end: what was taken off here.
pub const OWN: &str = "its techniques";
pub const EVERY: &str = "all techniques";

/// The seeds that have such figures.
const SEEDS: [Seed; 2] = [
    Seed {
        name: "000",
        what: "A, B, C-v2, C-v3",
        rows: &[
            Recorded { row: "null-hypercall", percent: &[-38.0, -39.0, -21.0, -20.0] },
            Recorded { row: "sysreg-trap", percent: &[-40.0, -40.0, -25.0, -24.0] },
            Recorded { row: "self-sgi", percent: &[-25.0, -23.0, -10.0, -15.0] },
        ],
    },
    // Its cycles: 3181 to 752, 3992 to 1604, 6665 to 7630, 14155 to 2526.
    Seed {
        name: "004",
        what: "non-VHE to VHE",
        rows: &[
            Recorded { row: "null-hypercall", percent: &[-76.4] },
            Recorded { row: "io-kernel", percent: &[-59.8] },
            Recorded { row: "io-user", percent: &[14.5] },
            Recorded { row: "virtual-ipi", percent: &[-82.2] },
        ],
    },
];

impl Seed {
    /// The techniques that come from it.
    fn set(&self) -> Set {
        let own = Technique::ALL.into_iter().filter(|technique| technique.seed() == self.name);
        own.fold(Set::NONE, Set::with)
    }
}

/// The sets that have to be measured for [`compare`], beside none and all.
pub fn sets() -> Vec<Set> {
    SEEDS.iter().map(Seed::set).collect()
}

/// Puts what the seeds measured beside what their own techniques do here, and what all do.
pub fn compare(figures: &[AblationRow]) -> Vec<SeedRow> {
    let mut compared = Vec::new();
    for seed in &SEEDS {
        for (off, here) in [(seed.set(), OWN), (Set::ALL, EVERY)] {
            for recorded in seed.rows {
                let instructions = |off: Set| {
                    find(figures, recorded.row, &off.to_string()).map(|figure| figure.instructions)
                };
                let (Some(with), Some(without)) = (instructions(Set::NONE), instructions(off)) else {
                    continue;
                };
                let percent = (with - without) / without * 100.0;
                compared.push(SeedRow {
                    row: recorded.row.to_owned(),
                    source: format!("seed {}: {}; here {here}", seed.name, seed.what),
                    seed_percent: recorded.percent.to_vec(),
                    here_percent: (percent * 10.0).round() / 10.0,
                });
            }
        }
    }
    compared
}
