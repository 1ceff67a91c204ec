// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checks of the built system that are not scenarios, in the order in which they are made.

use std::path::Path;

use turnstile::failure::Result;
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::setup;
use turnstile::setup::debian::Flavour;
use turnstile::setup::qemu::Qemu;

use super::report::Verdict;
use super::{
    ablation, bench_errors, benching, bochs, control, eoi, features_power, firmware, guarded, guarded_power,
    guarded_x86, image, image_power, image_x86, linux_devices, metering, mitigations, mitigations_power,
    package, peers, registers, registers_power, registers_x86, weight, work,
};

/// Makes a check; the images are built.
type Make = fn(&Layout, &Qemu, Isa) -> Verdict;
/// A check of an architecture: its name there, and how it is made.
type Entry = (&'static str, Make);

/// One check.
pub struct Check {
    /// Its name in the suite.
    pub name: String,
    /// The architecture that it is about.
    pub isa: Isa,
    make: Make,
}

impl Check {
    fn new(isa: Isa, &(name, make): &Entry) -> Self {
        // As in `images/build`: where no architecture is named, that is arm64.
        let bare = isa == Isa::Arm64 && name.starts_with("images/");
        Check { name: if bare { name.to_owned() } else { format!("{isa}/{name}") }, isa, make }
    }

    /// Makes it.
    pub fn make(&self, layout: &Layout, qemu: &Qemu) -> Verdict {
        (self.make)(layout, qemu, self.isa)
    }
}

/// All checks of the usual run.
pub fn usual() -> impl Iterator<Item = Check> {
    let first = ON_ONE.iter().map(|entry| Check::new(Isa::Arm64, entry));
    let each = Isa::ALL
        .into_iter()
        .flat_map(|isa| own(isa).iter().chain(&EACH).map(move |entry| Check::new(isa, entry)));
    each.chain(first)
}

/// Those that only the long run makes.
pub fn long() -> impl Iterator<Item = Check> {
    let each = LONG.iter().flat_map(|entry| Isa::ALL.into_iter().map(move |isa| Check::new(isa, entry)));
    let others = [Isa::X86_64, Isa::Power64].into_iter();
    let others = others.flat_map(|isa| ON_ONE.iter().map(move |entry| Check::new(isa, entry)));
    each.chain(others).chain(LONG_OF_ONE.iter().map(|(isa, entry)| Check::new(*isa, entry)))
}

/// The checks of each architecture.
const EACH: [Entry; 3] = [
    ("bench", |layout, qemu, isa| benching::budgets(layout, qemu, isa).into()),
    ("bench/matrix", |layout, qemu, isa| benching::matrix(layout, qemu, isa).into()),
    ("bench/statistics", |layout, qemu, isa| benching::statistics(layout, qemu, isa).into()),
];

/// Those of which one architecture is enough in the usual run: what they are about is mostly the same on all.
const ON_ONE: [Entry; 3] = [
    ("ablation/effects", |layout, qemu, isa| ablation::effects(layout, qemu, isa).into()),
    ("peers", peers::usual),
    ("package", |layout, qemu, isa| package::check(layout, qemu, isa).into()),
];

/// The checks of each architecture in the long run.
const LONG: [Entry; 8] = [
    ("peers/others", peers::others),
    ("peers/disks", peers::disks),
    ("linux/work", |layout, qemu, isa| in_linux(layout, qemu, isa, work::usual)),
    ("linux/work-others", |layout, qemu, isa| in_linux(layout, qemu, isa, work::others)),
    ("linux/devices-all", |layout, qemu, isa| in_linux(layout, qemu, isa, linux_devices::all)),
    ("bench/statistics-all", |layout, qemu, isa| benching::all_statistics(layout, qemu, isa).into()),
    ("bench/platforms", |layout, qemu, isa| benching::platforms(layout, qemu, isa).into()),
    ("package/for-others", |layout, qemu, isa| package::check_for_others(layout, qemu, isa).into()),
];

/// The checks of one architecture alone in the long run.
const LONG_OF_ONE: [(Isa, Entry); 5] = [
    (Isa::Arm64, ("peers/networks", peers::networks)),
    (Isa::Power64, ("peers/networks", peers::networks)),
    // Processor time, which is no count: what else the computer does shows in it.
    (Isa::Arm64, ("meter/slowdown", |layout, qemu, _| metering::slowdown(layout, qemu).into())),
    (
        Isa::Arm64,
        ("bench/broken-peer", |layout, qemu, _| {
            with(setup::peers::xen(layout), |_| bench_errors::broken_peer(layout, qemu).into())
        }),
    ),
    (Isa::X86_64, ("eoi/linux", |layout, qemu, _| eoi::check_linux(layout, qemu).into())),
];

/// The checks of one architecture alone.
const fn own(isa: Isa) -> &'static [Entry] {
    match isa {
        Isa::Arm64 => &ARM64,
        Isa::X86_64 => &X86_64,
        Isa::Power64 => &POWER64,
    }
}

const ARM64: [Entry; 13] = [
    ("images/hot-path", |layout, _, isa| of_image(layout, isa, image::hot_path)),
    ("images/registers", |layout, _, isa| of_image(layout, isa, registers::check)),
    ("images/guarded", |layout, _, isa| of_image(layout, isa, guarded::check)),
    ("images/ablation", |layout, _, _| ablation::only_there(layout).into()),
    ("boot/flat", |layout, qemu, isa| weight::boots(layout, &qemu.path, isa).into()),
    ("control", |layout, qemu, _| control::check(layout, qemu).into()),
    ("meter", |layout, qemu, _| metering::agree(layout, qemu).into()),
    ("bench/repeatable", |layout, qemu, _| benching::repeatable(layout, qemu).into()),
    ("bench/mitigations", |layout, qemu, _| mitigations::prices(layout, qemu).into()),
    ("mitigations/firmware", |layout, qemu, _| firmware::check(layout, qemu).into()),
    ("bench/errors", |layout, qemu, _| bench_errors::check(layout, qemu).into()),
    ("linux/devices", |layout, qemu, isa| in_linux(layout, qemu, isa, linux_devices::usual)),
    ("linux/weight", |layout, qemu, isa| {
        with(setup::debian::ensure(layout, isa, Flavour::Cloud), |debian| {
            weight::compare(layout, &qemu.path, debian).into()
        })
    }),
];

const X86_64: [Entry; 10] = [
    ("boot/flat", |layout, qemu, isa| weight::boots(layout, &qemu.path, isa).into()),
    ("eoi/load", |layout, qemu, _| eoi::check(layout, qemu).into()),
    ("linux/weight", |layout, qemu, _| weight::outside(layout, &qemu.path).into()),
    ("bochs", |layout, _, _| bochs::check(layout)),
    ("images/hot-path", |layout, _, isa| of_image(layout, isa, image_x86::hot_path)),
    ("images/guarded", |layout, _, isa| of_image(layout, isa, guarded_x86::check)),
    ("images/registers", |layout, _, isa| of_image(layout, isa, registers_x86::check)),
    ("bench/mitigations", |layout, qemu, _| mitigations::prices_of_pcs(layout, qemu).into()),
    ("images/no-vectors", |layout, _, isa| of_image(layout, isa, image_x86::no_vectors)),
    ("images/permissions", |layout, _, isa| of_image(layout, isa, image_x86::permissions)),
];

const POWER64: [Entry; 6] = [
    ("bench/mitigations", |layout, qemu, _| mitigations_power::prices(layout, qemu).into()),
    ("mitigations/firmware", |layout, qemu, _| features_power::firmware(layout, qemu).into()),
    ("images/guarded", |layout, _, isa| of_image(layout, isa, guarded_power::check)),
    ("images/hot-path", |layout, _, isa| of_image(layout, isa, image_power::hot_path)),
    ("images/no-vectors", |layout, _, isa| of_image(layout, isa, image_power::no_vectors)),
    ("images/registers", |layout, _, isa| of_image(layout, isa, registers_power::check)),
];

/// Makes a check with Debian's Linux.
fn in_linux(layout: &Layout, qemu: &Qemu, isa: Isa, check: fn(&Layout, &Qemu, Isa) -> Result<()>) -> Verdict {
    with(setup::debian::ensure(layout, isa, Flavour::Cloud), |_| check(layout, qemu, isa).into())
}

/// Checks the built image of an architecture.
fn of_image(layout: &Layout, isa: Isa, check: fn(&Path) -> std::result::Result<(), String>) -> Verdict {
    check(&setup::images::program(layout, isa)).into()
}

/// Skips a check whose packages cannot be fetched.
fn with<T>(fetched: Result<T>, check: impl FnOnce(T) -> Verdict) -> Verdict {
    match fetched {
        Ok(packages) => check(packages),
        Err(failure) => Verdict::Skipped(failure.to_string()),
    }
}
