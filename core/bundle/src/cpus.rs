// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists of physical CPUs, and who is on each of them.

use core::fmt;

use crate::MAX_PHYSICAL_CPUS;
use crate::error::SpecError;
use crate::spec::{Schedule, VmSpec};

/// A list of physical CPUs, by their indexes: a view of the caller's numbers or of the bundle.
#[derive(Clone, Copy)]
pub struct CpuList<'a>(Cells<'a>);

#[derive(Clone, Copy)]
enum Cells<'a> {
    Native(&'a [u16]),
    BigEndian(&'a [[u8; 4]]),
}

impl<'a> CpuList<'a> {
    /// Makes a list of these indexes.
    #[must_use]
    pub const fn new(cpus: &'a [u16]) -> CpuList<'a> {
        CpuList(Cells::Native(cpus))
    }

    /// Makes a list from the cells of a device tree.
    pub(crate) const fn from_cells(cells: &'a [[u8; 4]]) -> CpuList<'a> {
        CpuList(Cells::BigEndian(cells))
    }

    /// Returns the number of CPUs.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Cells::Native(cpus) => cpus.len(),
            Cells::BigEndian(cells) => cells.len(),
        }
    }

    /// Says whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the CPU at `index`. One that is too large for any machine stays so.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<u16> {
        match self.0 {
            Cells::Native(cpus) => cpus.get(index).copied(),
            Cells::BigEndian(cells) => {
                cells.get(index).map(|&cell| u16::try_from(u32::from_be_bytes(cell)).unwrap_or(u16::MAX))
            }
        }
    }

    /// Returns the CPUs in their order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + use<'a> {
        let list = *self;
        (0..list.len()).filter_map(move |index| list.get(index))
    }

    /// Checks that every CPU can exist and is named once.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let mut seen = [false; MAX_PHYSICAL_CPUS];
        for cpu in self.iter() {
            match seen.get_mut(usize::from(cpu)) {
                None => return Err(SpecError::CpuOutOfRange(cpu)),
                Some(true) => return Err(SpecError::CpuTwice(cpu)),
                Some(seen) => *seen = true,
            }
        }
        Ok(())
    }
}

impl PartialEq for CpuList<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for CpuList<'_> {}

impl fmt::Debug for CpuList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Which VM is on each physical CPU: of those that share one, the first.
pub(crate) struct Tenants([Option<Tenant>; MAX_PHYSICAL_CPUS]);

#[derive(Clone, Copy)]
struct Tenant {
    vm: u8,
    pinned: bool,
}

/// A CPU that a VM cannot have because of an earlier one.
pub(crate) struct Conflict {
    /// The CPU.
    pub cpu: u16,
    /// The earlier VM's index.
    pub with: usize,
    /// Whether the earlier VM is pinned to the CPU.
    pub pinned: bool,
}

impl Tenants {
    /// Makes a machine without VMs.
    pub(crate) const fn new() -> Tenants {
        Tenants([None; MAX_PHYSICAL_CPUS])
    }

    /// Puts a VM whose list was checked on its CPUs.
    pub(crate) fn admit(&mut self, index: usize, vm: &VmSpec<'_>) -> Result<(), Conflict> {
        let pinned = vm.schedule == Schedule::Pinned;
        for cpu in vm.cpus.iter() {
            let Some(tenant) = self.0.get_mut(usize::from(cpu)) else { continue };
            match tenant {
                None => *tenant = Some(Tenant { vm: index as u8, pinned }),
                Some(other) if pinned || other.pinned => {
                    return Err(Conflict { cpu, with: usize::from(other.vm), pinned: other.pinned });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
