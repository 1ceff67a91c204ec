// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Without its techniques the hypervisor is slower and nothing else: guests work with each of them off, and with all.
//! And each saves something: what saves nothing is no technique.

use turnstile::bench::ablate::{self, recorded::Recorded};
use turnstile::bench::rows;
use turnstile::failure::{Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::setup::images;
use turnstile::setup::qemu::Qemu;
use turnstile_techniques::{Architecture, Set};

use super::image;
use super::programs::no_failures;
use super::scenario::{Ending, Scenario, Step, guest};

/// Rows in which every technique shows; on arm64 fewer than the book has.
const fn telling(isa: Isa) -> &'static [&'static str] {
    match isa {
        Isa::Arm64 => &["null-hypercall", "sysreg-trap", "self-sgi"],
        Isa::X86_64 | Isa::Power64 => ablate::rows(isa),
    }
}

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let each = Set::ALL.on(Architecture::Arm64).iter().map(Set::of).collect::<Vec<_>>();
    // Without all of them each is off once; one by one they are in the long run.
    let mut scenarios: Vec<Scenario> = each.into_iter().map(|off| selftest(off).long()).collect();
    scenarios.extend([Set::NONE, Set::ALL].map(selftest));
    scenarios.extend([Set::NONE, Set::ALL].map(pc_selftest));
    scenarios.push(partition_selftest(Set::NONE));
    scenarios.extend([unknown(), with_statistics()]);
    scenarios
}

/// Everything that a guest on a PC may rely on, on four CPUs.
fn pc_selftest(off: Set) -> Scenario {
    let config = guest("selftest", "selftest", "32MiB", "vcpus = 4");
    let steps = vec![Step::Text("turnstile: without "), Step::Expect(0, "@done passed=")];
    let scenario = Scenario::pc(format!("ablation/selftest-without-{off}"), config, steps);
    scenario.counted().limit(300).without(&off.to_string()).judge(no_failures)
}

/// Everything that a partition may rely on, on four CPUs.
fn partition_selftest(off: Set) -> Scenario {
    let config = guest("selftest", "selftest", "64MiB", "vcpus = 4");
    let steps = vec![Step::Text("turnstile: without "), Step::Expect(0, "@done passed=")];
    let scenario = Scenario::power(format!("ablation/selftest-without-{off}"), config, steps);
    scenario.counted().limit(300).without(&off.to_string()).judge(no_failures)
}

/// Everything that a guest may rely on, on four CPUs.
fn selftest(off: Set) -> Scenario {
    let config = guest("selftest", "selftest", "32MiB", "vcpus = 4\npmu = \"trapped\"");
    let steps = vec![Step::Text("turnstile: without "), Step::Expect(0, "@done passed=")];
    let scenario = Scenario::new(format!("ablation/selftest-without-{off}"), config, steps);
    scenario.counted().without(&off.to_string()).judge(no_failures)
}

/// A technique that there is not: nothing is measured without what was meant.
fn unknown() -> Scenario {
    let config = guest("selftest", "selftest", "32MiB", "");
    let steps = vec![Step::Text("there is no technique \"haste\""), Step::Text("light-exit")];
    let scenario = Scenario::new("ablation/unknown-technique", config, steps);
    scenario.without("haste").ending(Ending::Refused)
}

/// Statistics bring vectors of their own, which would put the techniques back: neither is measured then.
fn with_statistics() -> Scenario {
    let config =
        guest("quiet", "selftest", "32MiB", "") + &guest("timed", "selftest", "32MiB", "statistics = true");
    let steps = vec![Step::Text("without=none and the statistics of VM timed exclude each other")];
    let scenario = Scenario::new("ablation/with-statistics", config, steps);
    scenario.without("none").ending(Ending::Refused)
}

/// The switches are in the image for ablation alone.
pub fn only_there(layout: &Layout) -> Result<()> {
    images::hypervisor_with(layout, Isa::Arm64, ablate::FEATURES)?;
    let (used, ablation) =
        (images::program(layout, Isa::Arm64), images::program_with(layout, Isa::Arm64, ablate::FEATURES));
    if image::without_switches(&ablation, &ablation).is_ok() {
        return Err(Failure::failed("no trace of the switches is found even where they are"));
    }
    image::without_switches(&used, &ablation).map_err(Failure::failed)
}

/// Without each technique some row costs more, and as much as the book says.
pub fn effects(layout: &Layout, qemu: &Qemu, isa: Isa) -> Result<()> {
    let names: Vec<String> = telling(isa).iter().map(|row| (*row).to_owned()).collect();
    let rows = rows::select(isa, &names)?;
    let (ablation, failures) = ablate::measure(layout, qemu, isa, &rows, Set::ALL)?;
    if let Some(failure) = failures.into_iter().next() {
        return Err(failure);
    }
    match ablate::idle(&ablation).as_slice() {
        [] => Recorded::load(layout)?.hold(isa, &ablation),
        idle => Err(Failure::failed(format!("nothing costs more without {}", idle.join(", ")))),
    }
}
