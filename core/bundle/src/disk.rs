// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a disk, and what it must satisfy.

use crate::check::check_name;
use crate::disk_error::{DiskError, DiskLabel};
use crate::error::BundleError;
use crate::{MAX_DISK, MAX_DISK_NAME, MAX_DISKS};

/// A disk: memory of the machine in which a service keeps what its guest writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpec<'a> {
    /// Its name, as a VM's but shorter, unique among the disks.
    pub name: &'a str,
    /// What it contains at first, followed by zeros; zeros alone if there is none.
    pub image: Option<&'a [u8]>,
    /// Its size in bytes.
    pub size: u64,
    /// Whether its guests can only read it.
    pub read_only: bool,
}

impl DiskSpec<'_> {
    /// The bytes of a sector, of which a disk has a whole number.
    pub const SECTOR: u64 = 512;
    /// The most bytes of a disk.
    pub const MAX_SIZE: u64 = MAX_DISK;

    /// Checks what concerns this disk alone.
    fn check(&self) -> Result<(), DiskError> {
        check_name(self.name).map_err(DiskError::Name)?;
        if self.name.len() > MAX_DISK_NAME {
            return Err(DiskError::NameTooLong(self.name.len()));
        }
        let image = self.image.map_or(0, <[u8]>::len) as u64;
        if self.image.is_some() && image == 0 {
            Err(DiskError::EmptyImage)
        } else if self.size == 0 || !self.size.is_multiple_of(Self::SECTOR) {
            Err(DiskError::Size(self.size))
        } else if self.size < image {
            Err(DiskError::BelowImage { size: self.size, image })
        } else if self.size > Self::MAX_SIZE {
            Err(DiskError::TooLarge(self.size))
        } else {
            Ok(())
        }
    }
}

/// Checks the disks of a bundle, each alone and all together.
///
/// # Errors
///
/// Says the first thing that is wrong, and with which disk.
pub fn validate_disks(disks: &[DiskSpec<'_>]) -> Result<(), BundleError> {
    if disks.len() > MAX_DISKS {
        return Err(BundleError::TooManyDisks(disks.len()));
    }
    for (index, disk) in disks.iter().enumerate() {
        let same = || disks.iter().take(index).position(|earlier| earlier.name == disk.name);
        let problem = disk.check().err().or_else(|| same().map(DiskError::SameName));
        if let Some(problem) = problem {
            return Err(BundleError::Disk { disk: DiskLabel::new(index, disk.name), problem });
        }
    }
    Ok(())
}
