// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checks of the built system that are not scenarios, in the order in which they are made.

use super::{
    Verdict, ablation, bench_errors, benching, bochs, eoi, firmware, guarded, image, image_power, image_x86,
    metering, mitigations, peers, weight,
};
use crate::failure::Result;
use crate::isa::Isa;
use crate::layout::Layout;
use crate::setup;
use crate::setup::debian::Flavour;
use crate::setup::qemu::Qemu;

/// One check.
pub struct Check {
    /// Its name in the suite.
    pub name: &'static str,
    /// Makes it; the images are built.
    pub run: fn(&Layout, &Qemu) -> Verdict,
}

impl Check {
    /// The architecture that it is about.
    pub fn isa(&self) -> Isa {
        let named = |isa: &&Isa| self.name.starts_with(&format!("{isa}/"));
        Isa::ALL.iter().find(named).copied().unwrap_or_default()
    }
}

/// All checks.
pub const CHECKS: [Check; 34] = [
    Check {
        name: "images/hot-path",
        run: |layout, _| image::hot_path(&setup::images::program(layout, Isa::Arm64)).into(),
    },
    Check {
        name: "images/guarded",
        run: |layout, _| guarded::check(&setup::images::program(layout, Isa::Arm64)).into(),
    },
    Check { name: "images/ablation", run: |layout, _| ablation::only_there(layout).into() },
    Check { name: "arm64/meter", run: |layout, qemu| metering::agree(layout, qemu).into() },
    Check { name: "arm64/meter/slowdown", run: |layout, qemu| metering::slowdown(layout, qemu).into() },
    Check { name: "arm64/bench", run: |layout, qemu| benching::budgets(layout, qemu, Isa::Arm64).into() },
    Check {
        name: "arm64/bench/matrix",
        run: |layout, qemu| benching::matrix(layout, qemu, Isa::Arm64).into(),
    },
    Check {
        name: "arm64/bench/statistics",
        run: |layout, qemu| benching::statistics(layout, qemu, Isa::Arm64).into(),
    },
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
    Check { name: "arm64/peers", run: |layout, qemu| peers::check(layout, qemu, Isa::Arm64) },
    Check {
        name: "arm64/ablation/effects",
        run: |layout, qemu| ablation::effects(layout, qemu, Isa::Arm64).into(),
    },
    Check {
        name: "arm64/linux/weight",
        run: |layout, qemu| {
            with(setup::debian::ensure(layout, Isa::Arm64, Flavour::Cloud), |debian| {
                weight::compare(layout, &qemu.path, debian).into()
            })
        },
    },
    Check { name: "x86_64/bench", run: |layout, qemu| benching::budgets(layout, qemu, Isa::X86_64).into() },
    Check {
        name: "x86_64/bench/matrix",
        run: |layout, qemu| benching::matrix(layout, qemu, Isa::X86_64).into(),
    },
    Check {
        name: "x86_64/bench/statistics",
        run: |layout, qemu| benching::statistics(layout, qemu, Isa::X86_64).into(),
    },
    Check {
        name: "x86_64/ablation/effects",
        run: |layout, qemu| ablation::effects(layout, qemu, Isa::X86_64).into(),
    },
    Check { name: "x86_64/eoi/load", run: |layout, qemu| eoi::check(layout, qemu).into() },
    Check { name: "x86_64/eoi/linux", run: |layout, qemu| eoi::check_linux(layout, qemu).into() },
    Check { name: "x86_64/peers", run: |layout, qemu| peers::check(layout, qemu, Isa::X86_64) },
    Check { name: "x86_64/bochs", run: |layout, _| bochs::check(layout) },
    Check {
        name: "x86_64/images/hot-path",
        run: |layout, _| image_x86::hot_path(&setup::images::program(layout, Isa::X86_64)).into(),
    },
    Check {
        name: "x86_64/images/no-vectors",
        run: |layout, _| image_x86::no_vectors(&setup::images::program(layout, Isa::X86_64)).into(),
    },
    Check {
        name: "x86_64/images/permissions",
        run: |layout, _| image_x86::permissions(&setup::images::program(layout, Isa::X86_64)).into(),
    },
    Check { name: "power64/bench", run: |layout, qemu| benching::budgets(layout, qemu, Isa::Power64).into() },
    Check {
        name: "power64/bench/matrix",
        run: |layout, qemu| benching::matrix(layout, qemu, Isa::Power64).into(),
    },
    Check {
        name: "power64/bench/statistics",
        run: |layout, qemu| benching::statistics(layout, qemu, Isa::Power64).into(),
    },
    Check {
        name: "power64/ablation/effects",
        run: |layout, qemu| ablation::effects(layout, qemu, Isa::Power64).into(),
    },
    Check { name: "power64/peers", run: |layout, qemu| peers::check(layout, qemu, Isa::Power64) },
    Check {
        name: "power64/images/hot-path",
        run: |layout, _| image_power::hot_path(&setup::images::program(layout, Isa::Power64)).into(),
    },
    Check {
        name: "power64/images/no-vectors",
        run: |layout, _| image_power::no_vectors(&setup::images::program(layout, Isa::Power64)).into(),
    },
];

/// Skips a check whose packages cannot be fetched.
fn with<T>(fetched: Result<T>, check: impl FnOnce(T) -> Verdict) -> Verdict {
    match fetched {
        Ok(packages) => check(packages),
        Err(failure) => Verdict::Skipped(failure.to_string()),
    }
}
