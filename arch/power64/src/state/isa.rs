// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The architecture's list of special-purpose registers, as far as a guest reaches them without an interrupt, and what becomes
//! of each when another guest runs: a register of the list that is not moved has to have a reason.

use std::vec::Vec;

use super::registers::{
    Branches, Common, Emulated, Modes, Monitor, Newer, NewerEmulated, NewerMonitor, RunLatch, Transactions,
};
use crate::cpu::regs::{DEC, HASHPKEYR};

/// What becomes of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is in a group, so it is stored and loaded, and a life begins with its reset value. Those of transactions: where
    /// nothing keeps a guest from them.
    Moved,
    /// It is another name of the register with this number, or part of it.
    Alias(u32),
    /// Exits store it in the frame.
    Frame,
    /// It is stored as the time at which it rings.
    Decrementer,
    /// The hypervisor's own branches change it in every exit: no guest finds what another has left.
    Overwritten,
    /// It says something of the machine, and no guest writes it.
    Machine,
}
use Fate::{Alias, Decrementer, Frame, Machine, Moved, Overwritten};

/// Power ISA 3.0B and 3.1B, Book III, 4.4.4 (5.4.4 of 3.1B): all that problem state or privileged state other than the
/// hypervisor's may read or write, in the order of their numbers. Those without the privilege's bit are in problem state, too.
const REACHED: &[(u32, &str, Fate)] = &[
    (1, "XER", Frame),
    (3, "DSCR", Alias(17)),
    (8, "LR", Frame),
    (9, "CTR", Frame),
    (13, "AMR", Alias(29)),
    (17, "DSCR", Moved),
    (18, "DSISR", Moved),
    (19, "DAR", Moved),
    (22, "DEC", Decrementer),
    (26, "SRR0", Moved),
    (27, "SRR1", Moved),
    (28, "CFAR", Overwritten),
    (29, "AMR", Moved),
    (48, "PIDR", Moved),
    (61, "IAMR", Moved),
    (128, "TFHAR", Moved),
    (129, "TFIAR", Moved),
    (130, "TEXASR", Moved),
    (131, "TEXASRU", Alias(130)),
    (136, "CTRL", Alias(152)),
    (144, "TIDR", Moved),
    (152, "CTRL", Moved),
    (153, "FSCR", Moved),
    (157, "UAMOR", Moved),
    (159, "PSPB", Moved),
    (176, "DPDES", Moved),
    (256, "VRSAVE", Moved),
    (259, "SPRG3", Alias(275)),
    (268, "TB", Machine),
    (269, "TBU", Machine),
    (272, "SPRG0", Moved),
    (273, "SPRG1", Moved),
    (274, "SPRG2", Moved),
    (275, "SPRG3", Moved),
    (287, "PVR", Machine),
    (308, "SPURR", Machine),
    (309, "PURR", Machine),
    (446, "TIR", Machine),
    (455, "HDEXCR", Machine),
    (468, "HASHKEYR", Moved),
    (736, "SIER2", Alias(752)),
    (737, "SIER3", Alias(753)),
    (738, "MMCR3", Alias(754)),
    (752, "SIER2", Moved),
    (753, "SIER3", Moved),
    (754, "MMCR3", Moved),
    (768, "SIER", Alias(784)),
    (769, "MMCR2", Alias(785)),
    (770, "MMCRA", Alias(786)),
    (771, "PMC1", Alias(787)),
    (772, "PMC2", Alias(788)),
    (773, "PMC3", Alias(789)),
    (774, "PMC4", Alias(790)),
    (775, "PMC5", Alias(791)),
    (776, "PMC6", Alias(792)),
    (779, "MMCR0", Alias(795)),
    (780, "SIAR", Alias(796)),
    (781, "SDAR", Alias(797)),
    (782, "MMCR1", Alias(798)),
    (784, "SIER", Moved),
    (785, "MMCR2", Moved),
    (786, "MMCRA", Moved),
    (787, "PMC1", Moved),
    (788, "PMC2", Moved),
    (789, "PMC3", Moved),
    (790, "PMC4", Moved),
    (791, "PMC5", Moved),
    (792, "PMC6", Moved),
    (795, "MMCR0", Moved),
    (796, "SIAR", Moved),
    (797, "SDAR", Moved),
    (798, "MMCR1", Moved),
    (800, "BESCRS", Alias(806)),
    (801, "BESCRSU", Alias(806)),
    (802, "BESCRR", Alias(806)),
    (803, "BESCRRU", Alias(806)),
    (804, "EBBHR", Moved),
    (805, "EBBRR", Moved),
    (806, "BESCR", Moved),
    (812, "DEXCR", Alias(828)),
    (815, "TAR", Moved),
    (823, "PSSCR", Moved),
    (828, "DEXCR", Moved),
    (848, "IC", Machine),
    (849, "VTB", Machine),
    (896, "PPR", Moved),
    (898, "PPR32", Alias(896)),
    (1023, "PIR", Machine),
];

/// Those that are moved, by group.
const GROUPS: [&[(u32, &str)]; 6] = [
    Common::REGISTERS,
    Newer::REGISTERS,
    Monitor::REGISTERS,
    NewerMonitor::REGISTERS,
    Branches::REGISTERS,
    Transactions::REGISTERS,
];

/// How often a number is in the groups.
fn moved(number: u32) -> usize {
    GROUPS.into_iter().flatten().filter(|(other, _)| *other == number).count()
}

#[test]
fn every_register_that_a_guest_reaches_is_moved_or_has_a_reason() {
    assert!(REACHED.is_sorted_by_key(|(number, ..)| *number));
    for &(number, name, fate) in REACHED {
        assert_eq!(moved(number), usize::from(fate == Moved), "{name} ({number})");
        if let Alias(other) = fate {
            assert_eq!(moved(other), 1, "{name} ({number}) is {other}");
        }
    }
    assert!(REACHED.contains(&(DEC::NUMBER, "DEC", Decrementer)));
}

#[test]
fn what_is_moved_is_what_a_guest_reaches() {
    for &(number, name) in GROUPS.into_iter().flatten() {
        let found = REACHED.iter().find(|(other, ..)| *other == number).map(|(_, name, _)| *name);
        let called = match number {
            RunLatch::NUMBER => Some("CTRL"),
            823 => Some("PSSCR"),
            // Only instructions of the guest use it.
            HASHPKEYR::NUMBER => None,
            _ => Some(name),
        };
        assert_eq!(found, called, "{name} ({number})");
    }
}

/// What only an emulator lets a guest write is under no name that the architecture moves, and what the hypervisor sets no guest
/// reaches.
#[test]
fn no_register_is_moved_twice() {
    let mut numbers: Vec<u32> = GROUPS
        .into_iter()
        .chain([Emulated::REGISTERS, NewerEmulated::REGISTERS, Modes::REGISTERS])
        .flatten()
        .map(|(number, _)| *number)
        .collect();
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), count);
    for &(number, name) in Modes::REGISTERS {
        assert!(!REACHED.iter().any(|(other, ..)| *other == number), "{name}");
    }
}
