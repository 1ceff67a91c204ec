// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device trees of real boards that QEMU emulates: it has none of its own for them. They come with Debian's
//! kernel, downloaded once into the cache as an ordinary user.

use std::fs;
use std::path::{Path, PathBuf};

use super::apt::Apt;
use super::{Lock, debian};
use crate::failure::Result;
use crate::isa::Isa;
use crate::layout::Layout;
use crate::ui;

/// Always depends on the newest kernel of the release; that for clouds has no device trees.
const KERNEL_META: &str = "linux-image-arm64";
const RPI4: &str = "bcm2711-rpi-4-b.dtb";

/// Returns the device tree of the Raspberry Pi 4 Model B, downloading it if it is not in the cache.
pub fn rpi4(layout: &Layout) -> Result<PathBuf> {
    let folder = layout.cache().join("debian").join(Isa::Arm64.debian()).join("boards");
    let file = folder.join(RPI4);
    let _lock = Lock::take(&folder, "lock")?;
    if !file.is_file() {
        fetch(&folder, &file).map_err(|failure| {
            failure.context_line("the device tree of the Raspberry Pi 4 cannot be fetched")
        })?;
    }
    Ok(file)
}

fn fetch(folder: &Path, file: &Path) -> Result<()> {
    let step = ui::Step::start("fetching the device tree of the Raspberry Pi 4");
    let apt = Apt::foreign(&folder.join("apt"), Isa::Arm64.debian(), debian::RELEASE)?;
    step.detail("reading the package lists");
    apt.update()?;
    let kernel = apt.dependency(KERNEL_META, "linux-image-")?;
    step.detail(format!("downloading {kernel}"));
    let packages = folder.join("packages");
    // What an interrupted download left is of unknown age.
    let _ = fs::remove_dir_all(&packages);
    for package in apt.download(&[&kernel], &packages)? {
        step.detail("unpacking");
        debian::unpack(&package, &format!("usr/lib/{kernel}/broadcom/{RPI4}"), file)?;
    }
    // The lists and the package are of no use any more, and large.
    let _ = fs::remove_dir_all(folder.join("apt"));
    let _ = fs::remove_dir_all(&packages);
    step.done();
    Ok(())
}
