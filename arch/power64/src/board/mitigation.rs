// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeping guests from steering the hypervisor's speculation, and from reading by their own what others have left: what the
//! machine's firmware says is needed, decided once, at boot.
//!
//! What that is, `turnstile_mitigation` decides. On a machine that needs something, four instructions of `vectors.S` and
//! every return from a call are replaced by branches to guards (`guards.S`), before the vectors are put into their place; one that needs nothing keeps vectors that
//! know nothing of guards.
#![cfg_attr(not(any(target_os = "none", test)), allow(dead_code, reason = "the host has no vectors"))]

use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_mitigation::power64::{Branches, Cache, Characteristics, Decision};

pub use turnstile_mitigation::power64::{Choice, Feature, Features, Machine, Said};

/// How many guards there are of one kind.
const KIND: usize = 4;
/// How many there are of all kinds.
const GUARDS: usize = 4 * KIND + 1;

/// An instruction that a guard replaces, in the order in which `guards.S` lists their kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the vector of calls.
    Call = 0,
    /// In what all other exits have in common.
    Exit = 1,
    /// The returns from calls.
    ReturnCall = 2,
    /// The return from all other exits.
    ReturnExit = 3,
    /// Behind the check of a call's number.
    Checked = 4,
}

const PLACES: [Place; 5] = [Place::Call, Place::Exit, Place::ReturnCall, Place::ReturnExit, Place::Checked];

/// Bytes of an instruction: of the barrier that a guard begins with.
const BARRIER: u64 = 4;

/// The guard of a place: its number among all, and how far behind its beginning it is entered. `None` if there is none.
const fn guard(decision: &Decision, place: Place) -> Option<(usize, u64)> {
    let variant = match place {
        Place::Call | Place::Exit => match decision.branches {
            Branches::Nothing => 0,
            Branches::LinkStack => 1,
            Branches::Assisted => 2,
            Branches::Software => 3,
        },
        Place::ReturnCall | Place::ReturnExit => match decision.cache {
            Cache::Nothing => 0,
            Cache::Instruction => 1,
            Cache::Register => 2,
            Cache::Loads => 3,
        },
        Place::Checked if decision.bounds => return Some((GUARDS - 1, 0)),
        Place::Checked => return None,
    };
    match (variant, decision.barriers) {
        (0, false) => None,
        (_, barriers) => Some((place as usize * KIND + variant, if barriers { 0 } else { BARRIER })),
    }
}

/// The instruction B, from one address to another (Power ISA 3.0B Book I, 2.4).
const fn branch(from: u64, to: u64) -> u32 {
    const OPCODE: u32 = 18 << 26;
    OPCODE | to.wrapping_sub(from) as u32 & 0x03ff_fffc
}

/// What guests are told.
static TOLD: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// What H_GET_CPU_CHARACTERISTICS answers.
pub fn characteristics() -> Characteristics {
    let [character, behaviour] = TOLD.each_ref().map(|told| told.load(Ordering::Relaxed));
    Characteristics { character, behaviour }
}

/// Decides what a machine does, does it, and says so. On the boot CPU, before the vectors are copied to where interrupts begin.
#[cfg(target_os = "none")]
pub(crate) fn start(machine: &Machine, choice: Choice) {
    let decision = turnstile_mitigation::power64::decide(machine, choice);
    let told = Characteristics::of(machine);
    TOLD[0].store(told.character, Ordering::Relaxed);
    TOLD[1].store(told.behaviour, Ordering::Relaxed);
    for place in PLACES {
        if let Some((number, offset)) = guard(&decision, place) {
            // SAFETY: one of the guards that are listed for this place.
            unsafe { install(place, number, offset) };
        }
    }
    if decision.is_remarkable() {
        turnstile_arch_common::println!("turnstile: {decision}");
    }
}

/// Replaces the instruction of a place by a branch to a guard.
///
/// # Safety
/// Nobody executes the vectors meanwhile, nor before they are copied, and the guard does what the instruction did.
#[cfg(target_os = "none")]
unsafe fn install(place: Place, number: usize, offset: u64) {
    unsafe extern "C" {
        static turnstile_guards: [u64; GUARDS];
        static turnstile_call_entered: u8;
        static turnstile_exit_entered: u8;
        static turnstile_return_exit: u8;
        static turnstile_call_checked: u8;
    }
    let one = match place {
        Place::Call => &raw const turnstile_call_entered,
        Place::Exit => &raw const turnstile_exit_entered,
        Place::ReturnCall => core::ptr::null(),
        Place::ReturnExit => &raw const turnstile_return_exit,
        Place::Checked => &raw const turnstile_call_checked,
    } as u64;
    let places = if place == Place::ReturnCall { call_returns() } else { core::slice::from_ref(&one) };
    for &at in places {
        // SAFETY: a table of `guards.S`; the image's own code, which real mode does not keep from being written, and which
        // no other CPU executes yet.
        unsafe {
            let to = turnstile_guards[number] + offset;
            (at as *mut u32).write_volatile(branch(at, to));
        }
        crate::cpu::synchronize_code();
    }
}

/// The addresses of the instructions by which calls return to guests: that of the vectors first.
#[cfg(target_os = "none")]
pub(crate) fn call_returns() -> &'static [u64] {
    unsafe extern "C" {
        static turnstile_call_returns: u64;
        static turnstile_call_returns_end: u64;
    }
    let (start, end) = (&raw const turnstile_call_returns, &raw const turnstile_call_returns_end);
    // SAFETY: a list of `calls.S`, which nobody writes.
    unsafe { core::slice::from_raw_parts(start, end.offset_from_unsigned(start)) }
}

#[cfg(test)]
mod tests {
    use turnstile_mitigation::power64::decide;

    use super::*;

    fn guards(choice: Choice) -> [Option<(usize, u64)>; 5] {
        let emulator = Machine { in_order: true, ..Machine::default() };
        let decision = decide(&emulator, choice);
        PLACES.map(|place| guard(&decision, place))
    }

    #[test]
    fn each_place_gets_its_guard() {
        assert_eq!(guards(Choice::Auto), [None; 5], "nothing is replaced where nothing is needed");
        let at = |numbers: [usize; 5]| numbers.map(|number| Some((number, 0)));
        assert_eq!(guards(Choice::Assisted), at([2, 6, 9, 13, 16]));
        assert_eq!(guards(Choice::Software), at([3, 7, 11, 15, 16]));
    }

    #[test]
    fn who_needs_no_barrier_begins_behind_it() {
        let features = Features::read(|name| match name {
            "fw-count-cache-disabled" | "no-need-store-drain-on-priv-state-switch" => Said::Enabled,
            name if name.starts_with("needs-") => Said::Disabled,
            _ => Said::Nothing,
        });
        let machine = Machine { in_order: false, power9: false, features: Some(features) };
        let decision = decide(&machine, Choice::Auto);
        assert_eq!(
            PLACES.map(|place| guard(&decision, place)),
            [Some((1, 4)), Some((5, 4)), None, None, None]
        );
    }

    #[test]
    fn branches_lead_there_and_back() {
        assert_eq!(branch(0x1000, 0x1008), 0x4800_0008);
        assert_eq!(branch(0x1008, 0x1000), 0x4bff_fff8);
    }
}
