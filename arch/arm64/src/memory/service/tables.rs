// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of a service: those of a tree of EL2's upper address range with VHE, and those of stage 2 without.

use turnstile_arch_common::demand;
use turnstile_arch_common::memory::Error;
use turnstile_machine::map::IPA_BITS;
use turnstile_paging::{
    Memory, PageTable, Permission, PhysAddr, Stage1Attributes, Stage1El0, Stage2, Stage2Attributes, Tables,
};

use crate::memory::{coherence, window};

/// The tables of a service.
pub(super) enum AddressSpace {
    /// Those of the upper address range, with VHE.
    Upper(PageTable<Stage1El0>),
    /// Those of stage 2, without.
    Stage2(PageTable<Stage2>),
}

impl AddressSpace {
    /// Makes empty ones.
    pub(super) fn new(tables: &mut impl Tables, is_vhe: bool) -> Result<Self, Error> {
        Ok(match is_vhe {
            true => Self::Upper(PageTable::new(Stage1El0::new(), tables)?),
            false => Self::Stage2(PageTable::new(Stage2::new(IPA_BITS).ok_or(Error::NoService)?, tables)?),
        })
    }

    /// Returns the address of the root.
    pub(super) fn root(&self) -> u64 {
        match self {
            Self::Upper(table) => table.root().0,
            Self::Stage2(table) => table.root().0,
        }
    }

    /// Shows `size` bytes of the machine's at `host`, as `attributes` say.
    pub(super) fn map(
        &mut self,
        tables: &mut impl Tables,
        place: u64,
        (host, size): (u64, u64),
        attributes: Stage1Attributes,
    ) -> Result<(), Error> {
        let host = PhysAddr(host);
        match self {
            Self::Upper(table) => table.map(tables, place, host, size, attributes)?,
            Self::Stage2(table) => table.map(tables, place, host, size, stage2(attributes))?,
        }
        Ok(())
    }

    /// Prepares for that, block by block, when each is [supplied](Self::supply).
    pub(super) fn map_on_demand(
        &mut self,
        tables: &mut impl Tables,
        place: u64,
        (host, size): (u64, u64),
        attributes: Stage1Attributes,
    ) -> Result<(), Error> {
        let host = PhysAddr(host);
        match self {
            Self::Upper(table) => table.map_on_demand(tables, place, host, size, attributes)?,
            Self::Stage2(table) => table.map_on_demand(tables, place, host, size, stage2(attributes))?,
        }
        Ok(())
    }

    /// Shows the block that contains `place` and is at `host`. False if that was not prepared.
    ///
    /// # Safety
    /// The block is cleared, and nobody else gets here meanwhile.
    pub(super) unsafe fn supply(&self, place: u64, host: u64, attributes: Stage1Attributes) -> bool {
        // SAFETY: the caller's promise; EL2 maps its arena one to one.
        unsafe {
            match self {
                Self::Upper(table) => {
                    demand::supply::<_, window::Window>(&table.blocks(), place, host, attributes)
                }
                Self::Stage2(table) => {
                    demand::supply::<_, window::Window>(&table.blocks(), place, host, stage2(attributes))
                }
            }
        }
    }

    /// Shows the block that contains `place` no more, until it is supplied again. The caller invalidates.
    ///
    /// # Safety
    /// Nobody else gets here meanwhile.
    pub(super) unsafe fn withdraw(&self, place: u64, attributes: Stage1Attributes) {
        // SAFETY: the caller's promise; EL2 maps its arena one to one.
        unsafe {
            match self {
                Self::Upper(table) => {
                    demand::vacate::<_, window::Window>(&table.blocks(), place, attributes);
                }
                Self::Stage2(table) => {
                    demand::vacate::<_, window::Window>(&table.blocks(), place, stage2(attributes));
                }
            }
        }
    }

    /// Shows nothing there any more, on any CPU.
    pub(super) fn unmap(&mut self, tables: &mut impl Tables, place: u64, size: u64) -> Result<(), Error> {
        match self {
            Self::Upper(table) => table.unmap(tables, place, size)?,
            Self::Stage2(table) => table.unmap(tables, place, size)?,
        };
        Ok(())
    }
}

/// Returns what stage 2 says of a piece. Stage 1 is off, and all that it says is Normal and cacheable (HCR_EL2.DC): device
/// registers are those of a device because stage 2 can make it stricter (Arm ARM D8.6).
fn stage2(attributes: Stage1Attributes) -> Stage2Attributes {
    let permission = attributes.permission;
    let of = |kind| Stage2Attributes {
        write: permission == Permission::ReadWrite,
        execute: permission == Permission::ReadExecute,
        ..kind
    };
    match attributes.memory {
        Memory::Device => of(Stage2Attributes::DEVICE),
        _ => coherence::ram(of(Stage2Attributes::RAM)),
    }
}
