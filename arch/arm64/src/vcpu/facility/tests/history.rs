// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accesses, switches, moves and resets in an order of chance: no guest meets a value of another.

use std::collections::HashMap;
use std::vec;

use super::*;

/// What a guest does and expects: its own last value in each register, in whatever life, on whatever CPU.
struct Guest {
    vcpu: &'static Vcpu,
    cpu: usize,
    values: HashMap<&'static str, u64>,
}

impl Guest {
    /// Reads a register as the guest would, compares, and writes another value.
    fn access(&mut self, (register, facility): (&'static str, Facility), value: u64) {
        if traps(facility) {
            assert!(claim(self.vcpu, facility), "{register} traps for ever");
        }
        assert!(!traps(facility));
        let expected = self.values.get(register).copied().unwrap_or(0);
        assert_eq!(fakes::get(register), expected, "{register}");
        // Bits that the architecture has in both of the control registers, none that resets a counter.
        let value = value & !6;
        fakes::set(register, value);
        self.values.insert(register, value);
    }
}

/// A register that stands for its facility: its name, what traps it, and how.
const PROBES: [(&str, Facility); 7] = [
    ("V0", Facility::Vector),
    ("FPCR", Facility::Vector),
    ("PMEVCNTR1_EL0", Facility::Pmu),
    ("PMCR_EL0", Facility::Pmu),
    ("DBGBVR1_EL1", Facility::Debug),
    ("MDSCR_EL1", Facility::Debug),
    ("APDBKeyHi_EL1", Facility::Pauth),
];

fn traps(facility: Facility) -> bool {
    match facility {
        Facility::Vector => closed("CPTR_EL2", CPTR_FP),
        Facility::Pmu => !closed("MDCR_EL2", MDCR_TPM),
        Facility::Debug => !closed("MDCR_EL2", MDCR_TDA),
        Facility::Pauth => closed("HCR_EL2", HCR_PAUTH),
    }
}

/// Three guests on two CPUs: accesses, switches, moves and resets in an order of chance.
#[test]
fn no_history_shows_a_value_of_another() {
    let mut seed = 1u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    let vcpus = vcpus([(Kind::Owned, false); 3]);
    let mut guests = vcpus.map(|vcpu| Guest { vcpu, cpu: 0, values: HashMap::new() });
    let mut elsewhere = HashMap::new();
    fakes::exchange(&mut elsewhere);
    start(1);
    let (mut here, mut resident) = (1, [None; 2]);
    let mut seen = vec![0; 5];
    for _ in 0..50_000 {
        let chosen = random(3) as usize;
        let action = random(8);
        let guest = &mut guests[chosen];
        match (action, resident[here]) {
            (0, _) => {
                fakes::exchange(&mut elsewhere);
                here = 1 - here;
                seen[0] += 1;
            }
            (1, None) if guest.cpu == here => {
                load(guest.vcpu);
                resident[here] = Some(chosen);
                seen[1] += 1;
            }
            (2, Some(now)) => {
                put(guests[now].vcpu);
                resident[here] = None;
                seen[2] += 1;
            }
            (3, now) if now != Some(chosen) && guest.cpu == here => {
                depart(guest.vcpu);
                guest.cpu = 1 - here;
                seen[3] += 1;
            }
            (4, Some(now)) if random(4) == 0 => {
                reset(guests[now].vcpu);
                load(guests[now].vcpu);
                guests[now].values.clear();
                seen[4] += 1;
            }
            (5.., Some(now)) => {
                let probe = PROBES[random(PROBES.len() as u64) as usize];
                let value = random(u64::MAX);
                guests[now].access(probe, value);
            }
            _ => {}
        }
        if resident[here].is_none() {
            assert_eq!(fakes::get("MDSCR_EL1"), 0, "debug exceptions with nobody there");
        }
    }
    assert!(seen.iter().all(|count| *count > 300), "{seen:?}");
}
