// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The conversion of ticks against exact arithmetic.

use proptest::prelude::*;
use turnstile_pvclock::Scale;

const SECOND: u128 = 1_000_000_000;

/// What the conversion would be with numbers of any size.
fn exact(ticks: u64, frequency: u64) -> u128 {
    u128::from(ticks) * SECOND / u128::from(frequency)
}

#[test]
fn a_tick_of_a_nanosecond_is_exact() {
    let scale = Scale::new(1_000_000_000);
    assert_eq!(scale, Scale { multiplier: 1 << 31, shift: 1 });
    for ticks in [0, 1, 999, 1 << 40, 1 << 62] {
        assert_eq!(scale.nanoseconds(ticks), ticks);
    }
}

#[test]
fn frequencies_at_the_ends_have_a_scale() {
    for frequency in [0, 1, 2, 1_000, 1 << 32, u64::MAX / 2, u64::MAX] {
        assert!(Scale::new(frequency).multiplier >> 31 == 1, "{frequency}: {:?}", Scale::new(frequency));
    }
    assert_eq!(Scale::new(1).nanoseconds(1), 1_000_000_000);
    assert_eq!(Scale::new(500_000_000).nanoseconds(7), 14);
}

proptest! {
    /// A day in, the clock is off by less than the multiplier's last place allows, and never runs backwards.
    #[test]
    fn a_day_is_a_day(frequency in 1_000_000u64..20_000_000_000, seconds in 0.0f64..86_400.0) {
        let ticks = (frequency as f64 * seconds) as u64;
        let scale = Scale::new(frequency);
        let (found, exact) = (u128::from(scale.nanoseconds(ticks)), exact(ticks, frequency));
        // Half of the last of 32 places, and what a shift to the right drops.
        let dropped = if scale.shift < 0 { (1u128 << -scale.shift) * SECOND / u128::from(frequency) + 1 } else { 0 };
        let allowed = exact / (1 << 32) + 1 + dropped;
        prop_assert!(found.abs_diff(exact) <= allowed, "{found} and {exact}: more than {allowed} apart");
        prop_assert!(scale.nanoseconds(ticks + 1000) >= scale.nanoseconds(ticks));
    }
}
