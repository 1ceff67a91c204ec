// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PSCI and SMCCC against the tables of DEN0022 and DEN0028, written out by hand.
#![cfg(not(loom))]

use proptest::prelude::*;
use turnstile_mitigation::arm64::Answers;
use turnstile_vm::psci::{
    ALREADY_ON, Action, INVALID_ADDRESS, INVALID_PARAMETERS, NOT_SUPPORTED, ON_PENDING, Psci, SUCCESS, Start,
    constant,
};

const RAM: core::ops::Range<u64> = 0x4000_0000..0x5000_0000;
const CPU_ON_64: u32 = 0xc400_0003;
const AFFINITY_INFO_64: u32 = 0xc400_0004;
const CPU_SUSPEND: u32 = 0xc400_0001;

/// Two clusters of two; vCPU 4 far away.
fn psci() -> Psci {
    let psci = Psci::new([0, 1, 0x100, 0x101, 0x05_0000_0000], RAM);
    psci.reset(Start { entry: 0x4020_0000, context: 0x4400_0000 });
    assert_eq!(psci.take_start(0), Some(Start { entry: 0x4020_0000, context: 0x4400_0000 }));
    psci
}

fn on(psci: &Psci, mpidr: u64, entry: u64) -> Action {
    psci.call(0, CPU_ON_64, [mpidr, entry, 77])
}

fn info(psci: &Psci, mpidr: u64, level: u64) -> u64 {
    psci.answer(AFFINITY_INFO_64, mpidr, level).unwrap()
}

#[test]
fn versions_and_constants() {
    let psci = psci();
    assert_eq!(psci.answer(0x8400_0000, 0, 0), Some(0x1_0001));
    assert_eq!(psci.answer(0x8000_0000, 0, 0), Some(0x1_0001));
    assert_eq!(psci.answer(0x8400_0006, 0, 0), Some(2));
    assert_eq!(
        [0x8400_0000, 0x8400_0006, 0x8000_0000].map(constant),
        [Some(0x1_0001), Some(2), Some(0x1_0001)]
    );
    assert_eq!([0x8400_0001, 0x8400_000a, 0xc400_0003].map(constant), [None; 3], "what depends on something");
    assert_eq!([0x8400_001f, 1, 0xc600_0000].map(constant), [Some(NOT_SUPPORTED); 3], "what nobody knows");
    assert_eq!((SUCCESS as i64, NOT_SUPPORTED as i64, INVALID_PARAMETERS as i64), (0, -1, -2));
    assert_eq!((ALREADY_ON as i64, ON_PENDING as i64, INVALID_ADDRESS as i64), (-4, -5, -9));
}

#[test]
fn the_functions_offered_are_exactly_those_of_the_table() {
    let psci = psci();
    let offered: [u32; 15] = [
        0x8400_0000,
        0x8400_0001,
        0x8400_0002,
        0x8400_0003,
        0x8400_0004,
        0x8400_0006,
        0x8400_0008,
        0x8400_0009,
        0x8400_000a,
        0x8400_0012,
        0xc400_0001,
        0xc400_0003,
        0xc400_0004,
        0xc400_0012,
        0x8000_0000,
    ];
    for owner in [0x8000_0000u32, 0x8400_0000, 0xc000_0000, 0xc400_0000, 0x8600_0000, 0, 0x0400_0000] {
        for number in 0..0x100 {
            let function = owner | number;
            let expected = if offered.contains(&function) { SUCCESS } else { NOT_SUPPORTED };
            // A feature is asked for by W1; the upper half of X1 is not looked at.
            let answer = psci.answer(0x8400_000a, u64::from(function) | 0xdead << 32, 0);
            assert_eq!(answer, Some(expected), "{function:#x}");
            if !offered.contains(&function) && function != 0x8000_0001 {
                assert_eq!(psci.answer(function, 0, 0), Some(NOT_SUPPORTED), "{function:#x}");
                assert_eq!(constant(function), Some(NOT_SUPPORTED), "{function:#x}");
                assert_eq!(psci.call(1, function, [0; 3]), Action::Return(NOT_SUPPORTED));
            }
        }
    }
    // SMCCC_ARCH_FEATURES: itself and the version; ARCH_SOC_ID is not offered, nor are workarounds of which nothing is
    // known.
    for (function, expected) in [
        (0x8000_0000, SUCCESS),
        (0x8000_0001, SUCCESS),
        (0x8000_0002, NOT_SUPPORTED),
        (0x8000_8000, NOT_SUPPORTED),
        (0x8000_7fff, NOT_SUPPORTED),
        (0x8000_3fff, NOT_SUPPORTED),
    ] {
        assert_eq!(psci.answer(0x8000_0001, function, 0), Some(expected));
    }
}

#[test]
fn workarounds_are_offered_as_they_are_known_and_their_calls_return() {
    let psci = psci().with_workarounds(Answers { first: 0, second: -2, third: 1 });
    let asked = [0x8000_8000, 0x8000_7fff, 0x8000_3fff].map(|call| psci.answer(0x8000_0001, call, 0));
    assert_eq!(asked.map(|answer| answer.map(|value| value as i64)), [Some(0), Some(-2), Some(1)]);
    // The shortest exit there is; the second one is not offered, whatever the guest asks for.
    assert_eq!(
        [0x8000_8000, 0x8000_3fff, 0x8000_7fff].map(constant),
        [Some(0), Some(0), Some(NOT_SUPPORTED)]
    );
    assert_eq!(psci.answer(0x8000_7fff, 1, 0), Some(NOT_SUPPORTED));
    for call in [0x8000_8000, 0x8000_7fff, 0x8000_3fff] {
        assert_eq!(psci.answer(0x8400_000a, call, 0), Some(NOT_SUPPORTED), "no function of PSCI");
    }
}

#[test]
fn a_vcpu_goes_on_and_off() {
    let psci = psci();
    assert_eq!(info(&psci, 1, 0), 1);
    assert_eq!(on(&psci, 1, 0x4100_0000), Action::Start(1));
    assert_eq!(info(&psci, 1, 0), 2);
    assert!(!psci.is_on(1));
    assert_eq!(on(&psci, 1, 0x4200_0000), Action::Return(ON_PENDING));
    assert_eq!(psci.take_start(1), Some(Start { entry: 0x4100_0000, context: 77 }));
    assert_eq!(psci.take_start(1), None);
    assert!(psci.is_on(1));
    assert_eq!(info(&psci, 1, 0), 0);
    assert_eq!(on(&psci, 1, 0x4100_0000), Action::Return(ALREADY_ON));
    assert_eq!(psci.call(1, 0x8400_0002, [0; 3]), Action::Off);
    assert_eq!(info(&psci, 1, 0), 1);
    assert_eq!(on(&psci, 1, 0x4300_0000), Action::Start(1));
    psci.reset(Start { entry: 0x4020_0000, context: 0 });
    assert_eq!((psci.take_start(1), info(&psci, 1, 0), info(&psci, 0, 0)), (None, 1, 2));
}

#[test]
fn bad_targets_and_entries_are_refused() {
    let psci = psci();
    for target in [2, 0x200, 0x1_0000, 0x8000_0001, 1 << 40 | 1, u64::MAX] {
        assert_eq!(on(&psci, target, 0x4100_0000), Action::Return(INVALID_PARAMETERS), "{target:#x}");
    }
    for entry in [0, 0x3fff_fffc, 0x5000_0000, 0x4100_0001, 0x4100_0002, u64::MAX - 3] {
        assert_eq!(on(&psci, 1, entry), Action::Return(INVALID_ADDRESS), "{entry:#x}");
    }
    assert_eq!(info(&psci, 1, 0), 1);
    assert_eq!(on(&psci, 0x05_0000_0000, 0x4fff_fffc), Action::Start(4));
}

#[test]
fn the_32_bit_convention_looks_at_32_bits() {
    let psci = psci();
    let high = 0xdead_beef_0000_0000;
    let start = psci.call(0, 0x8400_0003, [high | 1, high | 0x4100_0000, high | 9]);
    assert_eq!(start, Action::Start(1));
    assert_eq!(psci.take_start(1), Some(Start { entry: 0x4100_0000, context: 9 }));
    assert_eq!(psci.answer(0x8400_0004, high | 1, high), Some(0));
    // Aff3 cannot be named.
    assert_eq!(psci.answer(0x8400_0004, 0x05_0000_0000, 0), Some(0));
}

#[test]
fn affinity_levels() {
    let psci = psci();
    assert_eq!(info(&psci, 0, 1), 0);
    assert_eq!(info(&psci, 0xff, 1), 0, "Aff0 is not looked at");
    assert_eq!(info(&psci, 0x100, 1), 1);
    assert_eq!(on(&psci, 0x101, 0x4100_0000), Action::Start(3));
    assert_eq!(info(&psci, 0x100, 1), 2);
    psci.take_start(3);
    psci.call(3, 0x8400_0002, [0; 3]);
    assert_eq!(on(&psci, 0x100, 0x4100_0000), Action::Start(2));
    assert_eq!(info(&psci, 0x100, 1), 2, "whichever of them is pending");
    psci.reset(Start { entry: 0x4020_0000, context: 0 });
    psci.take_start(0);
    on(&psci, 0x101, 0x4100_0000);
    psci.take_start(3);
    assert_eq!((info(&psci, 0x100, 1), info(&psci, 0x100, 0)), (0, 1));
    assert_eq!((info(&psci, 0, 2), info(&psci, 0, 3), info(&psci, 0x05_0000_0000, 3)), (0, 0, 1));
    for (target, level) in [(0, 4), (0, u64::MAX), (0x200, 1), (2, 0), (1 << 24, 0), (1 << 40, 0)] {
        assert_eq!(info(&psci, target, level), INVALID_PARAMETERS, "{target:#x} level {level}");
    }
}

#[test]
fn suspend_is_standby() {
    let psci = psci();
    let suspend = |state, entry| psci.call(0, CPU_SUSPEND, [state, entry, 0]);
    assert_eq!(suspend(0, 0), Action::Suspend);
    assert_eq!(suspend(0x0300_ffff, 0), Action::Suspend);
    assert_eq!(suspend(0x0001_0000, 0x4100_0000), Action::Suspend);
    assert_eq!(suspend(0x0001_0000, 0x10), Action::Return(INVALID_ADDRESS));
    for state in [1 << 17, 1 << 23, 1 << 26, 1 << 31, 1 << 32] {
        assert_eq!(suspend(state, 0), Action::Return(INVALID_PARAMETERS), "{state:#x}");
    }
}

#[test]
fn the_system_calls() {
    let psci = psci();
    assert_eq!(psci.call(0, 0x8400_0008, [0; 3]), Action::SystemOff);
    assert_eq!(psci.call(0, 0x8400_0009, [0; 3]), Action::SystemReset);
    for function in [0x8400_0012, 0xc400_0012] {
        assert_eq!(psci.call(0, function, [0; 3]), Action::SystemReset);
        assert_eq!(psci.call(0, function, [1, 0, 0]), Action::Return(INVALID_PARAMETERS));
        assert_eq!(psci.call(0, function, [1 << 31, 0, 0]), Action::Return(INVALID_PARAMETERS));
    }
}

proptest! {
    #[test]
    fn any_call_has_an_answer(calls in prop::collection::vec((0..7usize, any::<u32>(), any::<[u64; 3]>(), any::<bool>()), 1..50)) {
        let psci = psci();
        for (vcpu, function, arguments, near) in calls {
            let function = if near { 0x8400_0000 | function & 0x4000_001f } else { function };
            let asks = psci.answer(function, arguments[0], arguments[1]);
            let action = psci.call(vcpu, function, arguments);
            let fixed = constant(function);
            prop_assert!(fixed.is_none() || fixed == asks);
            if let Some(value) = asks {
                prop_assert_eq!(action, Action::Return(value));
            }
        }
    }
}

#[test]
fn stolen_time_is_offered_where_there_are_records() {
    const ARCH_FEATURES: u32 = 0x8000_0001;
    let plain = Psci::new([0, 1], RAM);
    let shared = Psci::new([0, 1], RAM).with_stolen_time(0x90b_0000);
    let (features, stolen) = (0xc500_0020u32, 0xc500_0021u32);
    for (psci, expected) in [(&plain, NOT_SUPPORTED), (&shared, SUCCESS)] {
        assert_eq!(psci.answer(ARCH_FEATURES, features.into(), 0), Some(expected));
        assert_eq!(psci.answer(features, features.into(), 0), Some(expected));
        assert_eq!(psci.answer(features, stolen.into(), 0), Some(expected));
        assert_eq!(psci.answer(features, 0xc500_0022, 0), Some(NOT_SUPPORTED));
    }
    assert_eq!(plain.call(1, stolen, [0; 3]), Action::Return(NOT_SUPPORTED));
    assert_eq!(shared.call(1, stolen, [0; 3]), Action::Return(0x90b_0040));
}
