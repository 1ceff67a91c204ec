// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checks of the built system that are not scenarios, in the order in which they are made.

use super::{
    Verdict, ablation, bench_errors, benching, firmware, guarded, image, metering, mitigations, peers, weight,
};
use crate::failure::Result;
use crate::layout::Layout;
use crate::setup;
use crate::setup::qemu::Qemu;

/// One check.
pub struct Check {
    /// Its name in the suite.
    pub name: &'static str,
    /// Makes it; the images are built.
    pub run: fn(&Layout, &Qemu) -> Verdict,
}

/// All checks.
pub const CHECKS: [Check; 16] = [
    Check {
        name: "images/hot-path",
        run: |layout, _| image::hot_path(&setup::images::program(layout)).into(),
    },
    Check { name: "images/guarded", run: |layout, _| guarded::check(&setup::images::program(layout)).into() },
    Check { name: "images/ablation", run: |layout, _| ablation::only_there(layout).into() },
    Check { name: "arm64/meter", run: |layout, qemu| metering::agree(layout, qemu).into() },
    Check { name: "arm64/meter/slowdown", run: |layout, qemu| metering::slowdown(layout, qemu).into() },
    Check { name: "arm64/bench", run: |layout, qemu| benching::budgets(layout, qemu).into() },
    Check { name: "arm64/bench/matrix", run: |layout, qemu| benching::matrix(layout, qemu).into() },
    Check { name: "arm64/bench/statistics", run: |layout, qemu| benching::statistics(layout, qemu).into() },
    Check { name: "arm64/bench/repeatable", run: |layout, qemu| benching::repeatable(layout, qemu).into() },
    Check { name: "arm64/bench/mitigations", run: |layout, qemu| mitigations::prices(layout, qemu).into() },
    Check { name: "arm64/mitigations/firmware", run: |layout, qemu| firmware::check(layout, qemu).into() },
    Check { name: "arm64/bench/errors", run: |layout, qemu| bench_errors::check(layout, qemu).into() },
    Check {
        name: "arm64/bench/broken-peer",
        run: |layout, qemu| {
            with(setup::peers::xen(layout), |_| bench_errors::broken_peer(layout, qemu).into())
        },
    },
    Check { name: "arm64/peers", run: peers::check },
    Check { name: "arm64/ablation/effects", run: |layout, qemu| ablation::effects(layout, qemu).into() },
    Check {
        name: "arm64/linux/weight",
        run: |layout, qemu| {
            with(setup::debian::ensure(layout), |debian| weight::compare(layout, &qemu.path, debian).into())
        },
    },
];

/// Skips a check whose packages cannot be fetched.
fn with<T>(fetched: Result<T>, check: impl FnOnce(T) -> Verdict) -> Verdict {
    match fetched {
        Ok(packages) => check(packages),
        Err(failure) => Verdict::Skipped(failure.to_string()),
    }
}
