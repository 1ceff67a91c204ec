// SPDX-License-Identifier: Apache-2.0 OR MIT
//! U-Boot for QEMU's `virt`, from Debian, downloaded once into the cache as an ordinary user.

use std::path::{Path, PathBuf};

use super::fetch::{Fetch, find};
use super::{Lock, debian};
use crate::failure::{Failure, Result};
use crate::isa::Isa;
use crate::layout::Layout;

const PACKAGE: &str = "u-boot-qemu";
const FILE: &str = "usr/lib/u-boot/qemu_arm64/u-boot.bin";

fn folder(layout: &Layout) -> PathBuf {
    layout.cache().join("debian").join(Isa::Arm64.debian()).join("u-boot")
}

/// Returns the file if it is in the cache; downloads nothing.
pub fn cached(layout: &Layout) -> Option<PathBuf> {
    Some(folder(layout).join("u-boot.bin")).filter(|file| file.is_file())
}

/// Returns the file, downloading it if it is not in the cache.
pub fn ensure(layout: &Layout) -> Result<PathBuf> {
    let folder = folder(layout);
    let _lock = Lock::take(&folder, "lock")?;
    if cached(layout).is_none() {
        fetch(&folder).map_err(|failure| failure.context_line("Debian's U-Boot cannot be fetched"))?;
    }
    cached(layout).ok_or_else(|| Failure::failed("Debian's U-Boot is not where it was put"))
}

fn fetch(folder: &Path) -> Result<()> {
    let title = "fetching Debian's U-Boot for QEMU's `virt`".into();
    let fetch = Fetch::begin(folder, title, Isa::Arm64, debian::RELEASE)?;
    let files = fetch.download("downloading".into(), &[PACKAGE])?;
    debian::unpack(find(&files, PACKAGE)?, FILE, &folder.join("u-boot.bin"))?;
    fetch.done();
    Ok(())
}
