// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks and networks of Linux guests take at most so many instructions: Debian's drivers ring, wait and take interrupts as they see fit,
//! where our measuring guests do what a row says.

use turnstile::bench::rows::{self, FEWEST};
use turnstile::bench::runner::{Job, Runner};
use turnstile::bench::subjects::{Subject, difference};
use turnstile::failure::{Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::setup::qemu::Qemu;

/// A row, and the most instructions outside the guests that an operation may take on arm64, AMD64 and POWER: what was measured and a
/// twentieth more. Debian replaces its kernel, and timers ring during operations. `NONE` if the book says why there is no figure.
struct Ceiling {
    row: &'static str,
    most: [u32; 3],
}

/// No figure.
const NONE: u32 = 0;
/// The row of the usual run; each is two boots.
const USUAL: &str = "disk-read";
const CEILINGS: [Ceiling; 8] = [
    Ceiling { row: "packet", most: [2260, 2820, 3380] },
    Ceiling { row: "packet-1500", most: [2480, 3010, 3900] },
    Ceiling { row: "packet-batch", most: [132_060, 132_580, 189_200] },
    Ceiling { row: "segment", most: [14_870, 16_330, 21_220] },
    Ceiling { row: "packet-sleeping", most: [2360, 4030, NONE] },
    Ceiling { row: USUAL, most: [1840, 2170, 2690] },
    Ceiling { row: "disk-write", most: [1850, 2170, 2530] },
    Ceiling { row: "disk-batch", most: [18_870, 21_590, 23_410] },
];

impl Ceiling {
    fn of(&self, isa: Isa) -> f64 {
        let [arm64, x86_64, power64] = self.most;
        f64::from(match isa {
            Isa::Arm64 => arm64,
            Isa::X86_64 => x86_64,
            Isa::Power64 => power64,
        })
    }
}

/// Measures the usual row.
///
/// # Errors
/// Says what is above its ceiling, or what went wrong.
pub fn usual(layout: &Layout, qemu: &Qemu, isa: Isa) -> Result<()> {
    check(layout, qemu, isa, |row| row == USUAL)
}

/// Measures all rows.
///
/// # Errors
/// As [`usual`].
pub fn all(layout: &Layout, qemu: &Qemu, isa: Isa) -> Result<()> {
    check(layout, qemu, isa, |_| true)
}

fn check(layout: &Layout, qemu: &Qemu, isa: Isa, wanted: fn(&str) -> bool) -> Result<()> {
    let has_figure = |ceiling: &&Ceiling| ceiling.of(isa) > f64::from(NONE);
    let ceilings: Vec<_> = CEILINGS.iter().filter(|ceiling| wanted(ceiling.row)).filter(has_figure).collect();
    let names: Vec<_> = ceilings.iter().map(|ceiling| ceiling.row.to_owned()).collect();
    let job = |row| Job::new(Subject::TurnstileLinux, row);
    let jobs: Vec<_> = rows::select(isa, &names)?.into_iter().map(job).collect();
    let results = Runner::new(layout, qemu, isa, FEWEST)?.with_limit(difference::LIMIT).measure(&jobs);
    let mut wrong = Vec::new();
    for (job, result) in jobs.iter().zip(results) {
        let measured = result?.figure.instructions.unwrap_or_default();
        let ceiling =
            ceilings.iter().find(|ceiling| ceiling.row == job.row.name).map(|ceiling| ceiling.of(isa));
        if !ceiling.is_some_and(|most| (1.0..=most).contains(&measured)) {
            wrong.push(format!("{}: {measured} instructions, at most {ceiling:?}", job.row.name));
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => {
            Err(Failure::failed("devices of Linux guests are dearer than they may be")
                .details(wrong.join("\n")))
        }
    }
}
