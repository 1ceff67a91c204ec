// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where code runs that was linked elsewhere, told by the code itself: what was executed is looked for in the file.
//!
//! A machine without a register for its exception vectors does not say where they are. POWER's are at a fixed place, to
//! which a hypervisor copies them, and the rest of it runs where firmware has put it.

use std::collections::{BTreeMap, BTreeSet};

use super::reading::Step;

/// Code as a file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Where it was linked.
    pub address: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Fewer bytes in a row than these may be found anywhere.
const FEWEST: usize = 16;

/// The distances by which parts of the code were moved before it was executed, those of most instructions first.
pub fn distances(code: &[Code], steps: &[Step]) -> Vec<u64> {
    let mut left = runs(steps);
    let mut found = Vec::new();
    while let Some(longest) = left.iter().max_by_key(|run| (run.bytes.len(), std::cmp::Reverse(run.address)))
    {
        let best = longest.distances(code).into_iter().max_by_key(|&distance| {
            let explained = left.iter().filter(|run| run.is_at(code, distance)).map(|run| run.bytes.len());
            // Code is moved by a round number: of several places that have the same instructions, this tells which it is.
            (explained.sum::<usize>(), distance.trailing_zeros())
        });
        match best {
            Some(distance) => {
                found.push(distance);
                left.retain(|run| !run.is_at(code, distance));
            }
            // An instruction in it may have been changed: its halves are looked for.
            None => {
                let address = longest.address;
                let at = left.iter().position(|run| run.address == address).map(|at| left.swap_remove(at));
                left.extend(at.into_iter().flat_map(Code::halves));
            }
        }
    }
    found
}

/// What was executed, as stretches of instructions one behind the other.
fn runs(steps: &[Step]) -> Vec<Code> {
    let executed: BTreeMap<u64, Vec<u8>> = steps.iter().map(|step| (step.pc, bytes(&step.bytes))).collect();
    let mut runs: Vec<Code> = Vec::new();
    for (address, bytes) in executed {
        match runs.last_mut() {
            Some(run) if run.end() == address => run.bytes.extend(bytes),
            _ => runs.push(Code { address, bytes }),
        }
    }
    runs.retain(|run| run.bytes.len() >= FEWEST);
    runs
}

/// Reads hexadecimal digits.
fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).map_while(|pair| std::str::from_utf8(pair).ok());
    pairs.map_while(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

impl Code {
    fn end(&self) -> u64 {
        self.address.wrapping_add(self.bytes.len() as u64)
    }

    /// By how much code must have been moved to be these bytes.
    fn distances(&self, code: &[Code]) -> BTreeSet<u64> {
        let places = code.iter().flat_map(|part| {
            let windows = part.bytes.windows(self.bytes.len()).enumerate();
            windows.filter(|(_, window)| *window == self.bytes).map(|(at, _)| part.address + at as u64)
        });
        places.map(|place| self.address.wrapping_sub(place)).collect()
    }

    /// Whether the code is these bytes if it was moved by so much.
    fn is_at(&self, code: &[Code], distance: u64) -> bool {
        let linked = self.address.wrapping_sub(distance);
        code.iter().any(|part| {
            let from = usize::try_from(linked.wrapping_sub(part.address)).ok();
            let there = from.and_then(|from| part.bytes.get(from..from.checked_add(self.bytes.len())?));
            there == Some(&self.bytes)
        })
    }

    /// Both halves, where they are long enough to be looked for.
    fn halves(self) -> Vec<Code> {
        let middle = self.bytes.len() / 2 / 4 * 4;
        if middle < FEWEST {
            return Vec::new();
        }
        let (one, other) = self.bytes.split_at(middle);
        let other = Code { address: self.address.wrapping_add(middle as u64), bytes: other.to_vec() };
        vec![Code { bytes: one.to_vec(), ..self }, other]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instructions that are all different, and some at 0x100 that stand at 0x200, too.
    fn linked() -> Vec<Code> {
        let word = |at: u32| (at | 0x8000_0000).to_le_bytes();
        let mut bytes: Vec<u8> = (0..0x400).step_by(4).flat_map(word).collect();
        bytes.copy_within(0x100..0x120, 0x200);
        vec![Code { address: 0x1000, bytes }]
    }

    fn executed(code: &[Code], from: u64, count: u64, distance: u64) -> Vec<Step> {
        let step = |linked: u64| {
            let at = (linked - code[0].address) as usize;
            let bytes = code[0].bytes[at..at + 4].iter().map(|byte| format!("{byte:02x}")).collect();
            Step { pc: linked.wrapping_add(distance), bytes, ..Step::default() }
        };
        (0..count).map(|index| step(from + 4 * index)).collect()
    }

    #[test]
    fn parts_are_found_where_they_run() {
        let code = linked();
        let vectors = 0_u64.wrapping_sub(0x1000);
        let mut steps = executed(&code, 0x1040, 6, vectors);
        steps.extend(executed(&code, 0x1300, 20, 0x2001_0000));
        steps.extend(executed(&code, 0x1040, 4, vectors));
        assert_eq!(distances(&code, &steps), [0x2001_0000, vectors]);
        assert_eq!(distances(&code, &executed(&code, 0x1300, 20, 0)), [0]);
    }

    #[test]
    fn of_places_with_the_same_instructions_the_round_distance_is_taken() {
        let code = linked();
        assert_eq!(distances(&code, &executed(&code, 0x1100, 8, 0x2001_0000)), [0x2001_0000]);
        assert_eq!(distances(&code, &executed(&code, 0x1200, 8, 0x2001_0000)), [0x2001_0000]);
        // And before that the one that has more of them.
        let mut steps = executed(&code, 0x1200, 8, 0x2001_0004);
        steps.extend(executed(&code, 0x1300, 4, 0x2001_0004));
        assert_eq!(distances(&code, &steps), [0x2001_0004]);
    }

    #[test]
    fn what_is_changed_or_short_or_not_there_does_not_matter() {
        let code = linked();
        let mut steps = executed(&code, 0x1300, 12, 0x2001_0000);
        steps[9].bytes = "00000060".to_owned();
        assert_eq!(distances(&code, &steps), [0x2001_0000]);
        assert!(distances(&code, &steps[..3]).is_empty());
        let elsewhere: Vec<Step> =
            (0..8).map(|pc| Step { pc: pc * 4, bytes: "00000060".into(), ..Step::default() }).collect();
        assert!(distances(&code, &elsewhere).is_empty());
        assert!(distances(&[], &steps).is_empty());
    }
}
