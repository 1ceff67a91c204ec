// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a disk, and what it must satisfy.

use core::ops::RangeInclusive;

use crate::check::check_name;
use crate::choices::choices;
use crate::disk_error::{DiskError, DiskLabel};
use crate::error::BundleError;
use crate::{MAX_DISK, MAX_DISK_NAME, MAX_DISKS};

choices! {
    /// The kinds of disk controllers that a service can drive.
    DriveKind {
        /// NVM Express.
        #[default]
        Nvme = "nvme",
        /// A virtio block device.
        Virtio = "virtio",
    }
}

/// A disk controller of the machine, which a service drives, and what of the disk behind it is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drive {
    /// Its kind.
    pub kind: DriveKind,
    /// Its number among the machine's controllers of that kind, in the order of their PCI addresses: below [`Drive::CONTROLLERS`].
    pub number: usize,
    /// The number of a partition, from 1 on; without one it is the whole disk.
    pub partition: Option<u32>,
    /// Whether the service is trusted with all memory of the machine: it tells the controller where to write, and without an IOMMU nothing is
    /// in between. The same for all disks of a controller.
    pub trusted: bool,
}

impl Drive {
    /// How many controllers of each kind have a number.
    pub const CONTROLLERS: usize = 16;
    /// What the number of a partition can be.
    pub const PARTITIONS: RangeInclusive<u32> = 1..=128;

    /// Checks what concerns it alone.
    fn check(&self) -> Result<(), DiskError> {
        if self.number >= Self::CONTROLLERS {
            return Err(DiskError::NoController(self.number, Self::CONTROLLERS));
        }
        if let Some(partition) = self.partition.filter(|number| !Self::PARTITIONS.contains(number)) {
            return Err(DiskError::NoPartition(partition, *Self::PARTITIONS.end()));
        }
        Ok(())
    }

    /// Says whether another one is the same controller.
    #[must_use]
    pub fn is_same_controller(&self, other: &Self) -> bool {
        (self.kind, self.number) == (other.kind, other.number)
    }
}

/// A disk: memory of the machine in which a service keeps what its guest writes, or a disk that the machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpec<'a> {
    /// Its name, as a VM's but shorter, unique among the disks.
    pub name: &'a str,
    /// What it contains at first, followed by zeros; zeros alone if there is none.
    pub image: Option<&'a [u8]>,
    /// Its size in bytes; zero of one that the machine has, which knows itself.
    pub size: u64,
    /// Whether its guests can only read it.
    pub read_only: bool,
    /// How many bytes of room there are for what its guest writes over the image, which stays as it is; without it the disk is a copy of the
    /// image.
    pub writes: Option<u64>,
    /// Where it is, if the machine has it: there is no image then.
    pub drive: Option<Drive>,
}

/// The memory that a disk takes, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskMemory {
    /// Its own: the disk, or what is written over its image, and where that is.
    pub own: u64,
    /// What is only read, behind its image with zeros. Disks with the same image, and the same number of blocks here, share it.
    pub shared: u64,
}

impl DiskMemory {
    /// The bytes of a block, of which each has a whole number.
    pub const BLOCK: u64 = 2 << 20;
}

impl DiskSpec<'_> {
    /// The bytes of a sector, of which a disk has a whole number.
    pub const SECTOR: u64 = 512;
    /// The most bytes of a disk.
    pub const MAX_SIZE: u64 = MAX_DISK;
    /// The bytes of a cluster, of which there is room for a whole number of writes.
    pub const CLUSTER: u64 = 4096;
    /// The bytes that say where a cluster is, or what is in one that was written.
    const ENTRY: u64 = 4;

    /// Returns the memory that the disk takes: none if the machine has it.
    #[must_use]
    pub const fn memory(&self) -> DiskMemory {
        let image = match self.image {
            Some(image) => image.len() as u64,
            None => 0,
        };
        let memory = match (self.writes, self.read_only) {
            (Some(writes), _) => {
                let entries = self.size.div_ceil(Self::CLUSTER) + writes / Self::CLUSTER;
                DiskMemory { own: writes + entries * Self::ENTRY, shared: image }
            }
            (None, true) => DiskMemory { own: 0, shared: self.size },
            (None, false) => DiskMemory { own: self.size, shared: 0 },
        };
        let DiskMemory { own, shared } = memory;
        let block = DiskMemory::BLOCK;
        DiskMemory { own: own.next_multiple_of(block), shared: shared.next_multiple_of(block) }
    }

    /// Checks what concerns this disk alone.
    fn check(&self) -> Result<(), DiskError> {
        check_name(self.name).map_err(DiskError::Name)?;
        if self.name.len() > MAX_DISK_NAME {
            return Err(DiskError::NameTooLong(self.name.len()));
        }
        if let Some(drive) = &self.drive {
            return match (self.image, self.size, self.writes) {
                (None, 0, None) => drive.check(),
                _ => Err(DiskError::DriveContents),
            };
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
            self.writes.map_or(Ok(()), |writes| self.check_writes(writes))
        }
    }

    /// Checks how much room there is for writes.
    const fn check_writes(&self, writes: u64) -> Result<(), DiskError> {
        if self.read_only {
            Err(DiskError::WritesReadOnly)
        } else if writes == 0 || !writes.is_multiple_of(Self::CLUSTER) {
            Err(DiskError::Writes(writes))
        } else if writes > self.size.next_multiple_of(Self::CLUSTER) {
            Err(DiskError::WritesTooLarge { writes, size: self.size })
        } else {
            Ok(())
        }
    }

    /// Says why it cannot be there beside the earlier disks.
    fn check_beside(&self, earlier: &[Self]) -> Result<(), DiskError> {
        let same = |is: &dyn Fn(&Self) -> bool| earlier.iter().position(is);
        if let Some(other) = same(&|other| other.name == self.name) {
            return Err(DiskError::SameName(other));
        }
        let Some(drive) = self.drive else { return Ok(()) };
        let beside = |is: &dyn Fn(&Self, &Drive) -> bool| {
            same(&|other| {
                other.drive.is_some_and(|theirs| theirs.is_same_controller(&drive) && is(other, &theirs))
            })
        };
        if let Some(other) = beside(&|_, theirs| theirs.partition.is_none() != drive.partition.is_none()) {
            return Err(DiskError::WholeDisk(other));
        }
        let is_written = |other: &Self| !(other.read_only && self.read_only);
        if let Some(other) = beside(&|other, theirs| theirs.partition == drive.partition && is_written(other))
        {
            return Err(DiskError::SamePart(other));
        }
        match beside(&|_, theirs| theirs.trusted != drive.trusted) {
            Some(other) => Err(DiskError::OtherTrust(other)),
            None => Ok(()),
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
        let earlier = disks.get(..index).unwrap_or(&[]);
        disk.check()
            .and_then(|()| disk.check_beside(earlier))
            .map_err(|problem| BundleError::Disk { disk: DiskLabel::new(index, disk.name), problem })?;
    }
    Ok(())
}
