// SPDX-License-Identifier: Apache-2.0 OR MIT
//! POWER: decisions against a table written out by hand, and what guests are told.

use turnstile_mitigation::State::{self, Mitigated, Unaffected, Vulnerable};
use turnstile_mitigation::power64::{
    Branches, Cache, Characteristics, Choice, Decision, Feature, Features, Machine, Said, decide,
};

/// Firmware that says so of these, and nothing of the others: `-` before a name is "disabled".
fn machine(said: &'static [&'static str]) -> Machine {
    let features =
        Features::read(|name| match said.iter().find(|entry| entry.trim_start_matches('-') == name) {
            Some(entry) if entry.starts_with('-') => Said::Disabled,
            Some(_) => Said::Enabled,
            None => Said::Nothing,
        });
    Machine { in_order: false, power9: true, features: Some(features) }
}

/// A POWER9 whose firmware has all that there is for it.
const POWER9: &[&str] = &[
    "inst-spec-barrier-ori31,31,0",
    "inst-l1d-flush-trig2",
    "fw-l1d-thread-split",
    "fw-count-cache-flush-bcctr2,0,0",
    "needs-count-cache-flush-on-context-switch",
    "speculation-policy-favor-security",
    "needs-l1d-flush-msr-pr-0-to-1",
    "needs-l1d-flush-msr-hv-1-to-0",
    "needs-spec-barrier-for-bound-checks",
];
/// A POWER10's.
const POWER10: &[&str] = &[
    "inst-spec-barrier-ori31,31,0",
    "fw-bcctrl-serialized",
    "fw-count-cache-disabled",
    "speculation-policy-favor-security",
    "-needs-l1d-flush-msr-pr-0-to-1",
    "-needs-l1d-flush-msr-hv-1-to-0",
    "needs-spec-barrier-for-bound-checks",
    "no-need-l1d-flush-msr-pr-1-to-0",
    "no-need-l1d-flush-kernel-on-user-access",
    "no-need-store-drain-on-priv-state-switch",
];
/// One that needs nothing.
const SAFE: &[&str] = &[
    "fw-bcctrl-serialized",
    "-needs-l1d-flush-msr-pr-0-to-1",
    "-needs-l1d-flush-msr-hv-1-to-0",
    "-needs-spec-barrier-for-bound-checks",
    "no-need-store-drain-on-priv-state-switch",
];

fn done(decision: &Decision) -> (Branches, Cache, bool, bool) {
    (decision.branches, decision.cache, decision.barriers, decision.bounds)
}

const NOTHING: (Branches, Cache, bool, bool) = (Branches::Nothing, Cache::Nothing, false, false);
const SAFE_STATES: [State; 5] = [Unaffected; 5];

#[test]
fn each_machine_gets_what_its_firmware_says() {
    let unknown = Machine { power9: true, ..Machine::default() };
    let old = machine(&[
        "needs-count-cache-flush-on-context-switch",
        "inst-l1d-flush-ori30,30,0",
        "inst-l1d-flush-trig2",
    ]);
    let fast = machine(&["fw-bcctrl-serialized", "-speculation-policy-favor-security"]);
    let cases = [
        (machine(POWER9), (Branches::Assisted, Cache::Register, true, true), [Mitigated; 5]),
        (
            machine(POWER10),
            (Branches::LinkStack, Cache::Nothing, false, true),
            [Unaffected, Mitigated, Unaffected, Unaffected, Mitigated],
        ),
        (machine(SAFE), NOTHING, SAFE_STATES),
        (Machine { in_order: true, ..Machine::default() }, NOTHING, SAFE_STATES),
        // What the firmware says goes before that.
        (
            Machine { in_order: true, ..machine(POWER9) },
            (Branches::Assisted, Cache::Register, true, true),
            [Mitigated; 5],
        ),
        // The better of two flushes, and branches where no instruction is offered.
        (
            old,
            (Branches::Software, Cache::Instruction, true, true),
            [Mitigated, Mitigated, Mitigated, Mitigated, Vulnerable],
        ),
        // Firmware that says nothing: everything is tried, and not relied on where it has to help.
        (
            unknown,
            (Branches::Software, Cache::Loads, true, true),
            [Vulnerable, Mitigated, Mitigated, Mitigated, Vulnerable],
        ),
        // Its owner has put speed first.
        (fast, NOTHING, [Unaffected, Unaffected, Vulnerable, Vulnerable, Vulnerable]),
    ];
    for (machine, expected, states) in cases {
        let decision = decide(&machine, Choice::Auto);
        assert_eq!((done(&decision), decision.states), (expected, states), "{machine:?}");
    }
}

#[test]
fn nothing_is_done_where_nothing_is_wanted_and_that_is_said() {
    let off = decide(&machine(POWER9), Choice::Off);
    assert_eq!((done(&off), off.states), (NOTHING, [Vulnerable; 5]));
    assert!(off.is_nothing() && off.is_remarkable());
    assert_eq!(
        off.to_string(),
        "each exit flushes nothing, each entry nothing; \
         open to guests: branch targets, returns, stores, data cache, bounds checks"
    );
    assert!(!decide(&machine(SAFE), Choice::Auto).is_remarkable());
}

#[test]
fn everything_can_be_forced() {
    let emulator = Machine { in_order: true, ..Machine::default() };
    let assisted = decide(&emulator, Choice::Assisted);
    assert_eq!(done(&assisted), (Branches::Assisted, Cache::Instruction, true, true));
    assert_eq!(
        assisted.to_string(),
        "each exit flushes link stack and count cache (bcctr 2,0,0), each entry the data cache (ori 30,30,0), \
         with barriers on both and behind bounds checks"
    );
    let software = decide(&emulator, Choice::Software);
    assert_eq!(done(&software), (Branches::Software, Cache::Loads, true, true));
    // An instruction that this machine does not have remedies nothing.
    let old = decide(&machine(&["needs-count-cache-flush-on-context-switch"]), Choice::Assisted);
    assert_eq!(old.states, [Vulnerable, Mitigated, Mitigated, Vulnerable, Vulnerable]);
}

#[test]
fn guests_are_told_the_truth() {
    let told = |machine: &Machine| {
        let Characteristics { character, behaviour } = Characteristics::of(machine);
        (character, behaviour)
    };
    assert_eq!(told(&machine(POWER9)), (0x9840_0000_0000_0000, 0xe600_0000_0000_0000));
    let power10 = Machine { power9: false, ..machine(POWER10) };
    assert_eq!(told(&power10), (0xc100_0000_0000_0000, 0xa3c0_0000_0000_0000));
    assert_eq!(told(&machine(SAFE)), (0x4000_0000_0000_0000, 0x8040_0000_0000_0000));
    // An emulator's guests need nothing; of a machine whose firmware says nothing they hear what is needed at worst.
    let emulator = Machine { in_order: true, ..Machine::default() };
    assert_eq!(told(&emulator), (0x4000_0000_0000_0000, 0x81c0_0000_0000_0000));
    let unknown = Machine { power9: true, ..Machine::default() };
    assert_eq!(told(&unknown), (0, 0xe000_0000_0000_0000));
}

#[test]
fn words_are_read() {
    for (line, expected) in [
        ("", Choice::Auto),
        ("link=framed mitigations=off", Choice::Off),
        ("mitigations=off mitigations=software", Choice::Software),
        ("mitigations=assisted mitigations=loop:8", Choice::Assisted),
        ("mitigations=auto", Choice::Auto),
    ] {
        assert_eq!(Choice::from_line(line), expected, "{line}");
    }
}

#[test]
fn every_feature_is_asked_for_once() {
    for (place, feature) in Feature::ALL.iter().enumerate() {
        assert!(!Feature::ALL[..place].iter().any(|other| other.name() == feature.name()));
        let only = Features::read(|name| if name == feature.name() { Said::Enabled } else { Said::Nothing });
        for other in Feature::ALL {
            assert_eq!(only.has(*other), other == feature, "{other:?}");
        }
    }
}
