// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be wrong with the description of a disk.

use core::fmt;

use crate::spec_error::{SpecError, VmLabel};
use crate::{MAX_DISK, MAX_DISK_NAME, MAX_NAME};

/// What is wrong with the description of one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskError {
    /// Its name.
    Name(SpecError),
    /// The name has this many bytes.
    NameTooLong(usize),
    /// The disk of this index has the same name.
    SameName(usize),
    /// Its image is empty.
    EmptyImage,
    /// It has this many bytes, which are no whole sectors, or none.
    Size(u64),
    /// It is smaller than its image.
    BelowImage {
        /// The disk's bytes.
        size: u64,
        /// The image's bytes.
        image: u64,
    },
    /// It has this many bytes, more than any disk may have.
    TooLarge(u64),
    /// There is room for writes, and it cannot be written.
    WritesReadOnly,
    /// There is room for this many bytes of writes, which are no whole clusters, or none.
    Writes(u64),
    /// There is room for more than the disk has.
    WritesTooLarge {
        /// The bytes of room.
        writes: u64,
        /// The disk's bytes.
        size: u64,
    },
    /// The machine has it, and it has an image, a size or room for writes.
    DriveContents,
    /// It is behind a controller with this number, and numbers are below the second one.
    NoController(usize, usize),
    /// It is a partition with this number, and numbers are from 1 to the second one.
    NoPartition(u32, u32),
    /// Of it and the disk of this index, which is behind the same controller, one is the whole disk and the other one a partition.
    WholeDisk(usize),
    /// The disk of this index is the same partition of the same controller's disk, and one of both is written.
    SamePart(usize),
    /// The disk of this index is behind the same controller, and the one is trusted and the other one is not.
    OtherTrust(usize),
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => error.fmt(f),
            Self::NameTooLong(length) => {
                write!(f, "its name has {length} bytes; give one of at most {MAX_DISK_NAME}")
            }
            Self::SameName(other) => write!(f, "disk {other} has the same name; rename one"),
            Self::EmptyImage => f.write_str("its image is empty; give another one, or none"),
            Self::Size(0) => f.write_str("its size is zero; give at least a sector of 512 bytes"),
            Self::Size(size) => write!(f, "its {size} bytes are no whole sectors; give a multiple of 512"),
            Self::BelowImage { size, image } => {
                write!(f, "its {size} bytes do not hold its image's {image}; give at least as many")
            }
            Self::TooLarge(size) => {
                write!(f, "its {size} bytes are too many; give at most {} GiB", MAX_DISK >> 30)
            }
            Self::DriveContents => {
                f.write_str("the machine has it, so it is as it is there; give it no image, no size and no room for writes")
            }
            Self::WritesReadOnly => {
                f.write_str("it is read-only and has room for writes; give it none, or let it be written")
            }
            Self::Writes(writes) => {
                write!(f, "its room for writes, {writes} bytes, is no whole clusters; give a multiple of 4096")
            }
            Self::WritesTooLarge { writes, size } => {
                write!(f, "its room for writes, {writes} bytes, is more than its {size}; give at most as many")
            }
            Self::NoController(number, most) => {
                write!(f, "there is no disk controller {number}; numbers are below {most}")
            }
            Self::NoPartition(number, most) => {
                write!(f, "there is no partition {number}; numbers are from 1 to {most}")
            }
            Self::WholeDisk(other) => {
                write!(f, "disk {other} is behind the same controller, and one of both is the whole disk; give each a partition")
            }
            Self::SamePart(other) => {
                write!(f, "disk {other} is the same part of the same disk; give each its own, or make both read-only")
            }
            Self::OtherTrust(other) => {
                write!(f, "disk {other} is behind the same controller, and one of both is trusted; trust both or none")
            }
        }
    }
}

impl core::error::Error for DiskError {}

/// Which disk an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskLabel(VmLabel);

impl DiskLabel {
    /// Names the disk at `index`.
    #[must_use]
    pub fn new(index: usize, name: &str) -> Self {
        Self(VmLabel::new(index, if name.len() > MAX_NAME { "" } else { name }))
    }
}

impl fmt::Display for DiskLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VmLabel { index, name } = &self.0;
        if name.is_empty() { write!(f, "disk {index}") } else { write!(f, "disk `{name}`") }
    }
}
