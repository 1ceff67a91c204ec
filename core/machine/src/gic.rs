// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupt controllers that a guest can have, and where their registers are.

use core::fmt;

use crate::region::{MAX_VCPUS, Region};

/// The largest number of vCPUs of a VM with a GICv2, whose registers name CPUs by the bits of a byte (IHI 0048,
/// section 2.1).
pub const MAX_VCPUS_GICV2: usize = 8;
/// The size of one GICv3 redistributor in bytes: the RD and the SGI frame, 64 KiB each.
pub const GICR_STRIDE: u64 = 0x2_0000;
/// The size of the distributor in bytes.
pub const GICD_SIZE: u64 = 0x1_0000;
/// The size of the GICv2 CPU interface in bytes: its last register, `GICC_DIR`, is in the second page.
pub const GICC_SIZE: u64 = 0x2000;

/// The architecture of an interrupt controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GicVersion {
    /// GICv2 (IHI 0048): distributor and CPU interface in memory, at most [`MAX_VCPUS_GICV2`] CPUs.
    V2,
    /// GICv3 (IHI 0069): distributor and redistributors in memory, the CPU interface in system registers.
    V3,
}

impl GicVersion {
    /// Returns the most vCPUs that a VM with such a controller has.
    #[must_use]
    pub const fn max_vcpus(self) -> usize {
        match self {
            GicVersion::V2 => MAX_VCPUS_GICV2,
            GicVersion::V3 => MAX_VCPUS,
        }
    }
}

impl fmt::Display for GicVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            GicVersion::V2 => "GICv2",
            GicVersion::V3 => "GICv3",
        })
    }
}

/// The redistributors of a VM, that of vCPU 0 first: one region, or two if the first has no room for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gicr {
    first: Region,
    second: Region,
}

impl Gicr {
    /// Returns the regions that hold redistributors, in the order of the vCPUs.
    pub fn regions(&self) -> impl Iterator<Item = Region> {
        [self.first, self.second].into_iter().filter(|region| region.size > 0)
    }

    /// Returns the number of redistributors in the first region.
    #[must_use]
    pub const fn in_first(&self) -> usize {
        (self.first.size / GICR_STRIDE) as usize
    }

    /// Says whether a redistributor holds `address`.
    #[must_use]
    pub const fn contains(&self, address: u64) -> bool {
        self.first.contains(address) || self.second.contains(address)
    }

    /// Returns the vCPU whose redistributor holds `address`, and the offset in it.
    #[must_use]
    pub const fn locate(&self, address: u64) -> Option<(usize, u32)> {
        let offset = if self.first.contains(address) {
            address - self.first.base
        } else if self.second.contains(address) {
            address - self.second.base + self.first.size
        } else {
            return None;
        };
        Some(((offset / GICR_STRIDE) as usize, (offset % GICR_STRIDE) as u32))
    }
}

/// Where a machine puts its redistributors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redistributors {
    /// From `base` upwards as many as fit below `limit`; the others in a region of their own, from `more` upwards
    /// or, where RAM reaches that far, behind RAM.
    Upwards { base: u64, limit: u64, more: u64 },
    /// From `base` upwards if they fit below `limit`, else so that the last one ends at `limit`.
    Below { base: u64, limit: u64 },
}

/// The room that a second region of redistributors has, and what its address is a multiple of.
pub(crate) const GICR_MORE_SIZE: u64 = MAX_VCPUS as u64 * GICR_STRIDE;

impl Redistributors {
    /// Places the redistributors of `vcpus` vCPUs in a machine whose RAM ends at `ram_end`.
    pub(crate) const fn place(&self, vcpus: usize, ram_end: u64) -> Gicr {
        let size = vcpus as u64 * GICR_STRIDE;
        let (base, first, more) = match *self {
            Redistributors::Upwards { base, limit, .. } if size <= limit - base => (base, size, 0),
            Redistributors::Upwards { base, limit, more } => {
                let behind_ram = ram_end.next_multiple_of(GICR_MORE_SIZE);
                (base, limit - base, if behind_ram > more { behind_ram } else { more })
            }
            Redistributors::Below { base, limit } if size <= limit - base => (base, size, 0),
            Redistributors::Below { limit, .. } => (limit - size, size, 0),
        };
        Gicr { first: Region { base, size: first }, second: Region { base: more, size: size - first } }
    }
}
