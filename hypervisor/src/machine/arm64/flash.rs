// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A VM's flash: the chips of `turnstile_devices`, their cells in memory, and whether the guest reads the cells without an exit.

use alloc::vec::Vec;

use spin::Mutex;
use turnstile_devices::CfiFlash;
use turnstile_machine::map::{Map, Region};

use crate::arch::memory::flash::Access;
use crate::arch::memory::{Error, FlashMemory, GuestMemory};
use crate::arch::vm::Vm;

/// The flash of one VM. It is there from a start on until the VM stays stopped.
pub struct Flash {
    /// Where its banks are.
    regions: Vec<Region>,
    parts: Mutex<Option<Parts>>,
}

struct Parts {
    cells: FlashMemory,
    chips: Vec<CfiFlash>,
}

impl Flash {
    /// Makes that of a machine with `size` bytes in each bank.
    pub fn new(map: &Map, size: u64) -> Self {
        Self { regions: map.flash_banks(size).collect(), parts: Mutex::new(None) }
    }

    /// Returns the bytes of all banks.
    fn size(&self) -> u64 {
        self.regions.iter().map(|region| region.size).sum()
    }

    /// Returns the offset of an address among all cells.
    fn locate(&self, address: u64) -> Option<u64> {
        let bank = self.regions.iter().position(|region| region.contains(address))?;
        let before: u64 = self.regions.iter().take(bank).map(|region| region.size).sum();
        Some(before + (address - self.regions.get(bank)?.base))
    }

    /// Makes erased flash if there is none; what lies in it from the factory is put there then.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn furnish(&self, address: u64, image: &[u8]) -> Result<(), Error> {
        let mut parts = self.parts.lock();
        if self.regions.is_empty() || parts.is_some() {
            return Ok(());
        }
        let mut cells = FlashMemory::new(self.size())?;
        if let Some(offset) = self.locate(address)
            && let Some(place) =
                cells.bytes().get_mut(offset as usize..).and_then(|p| p.get_mut(..image.len()))
        {
            place.copy_from_slice(image);
            cells.clean(offset, image.len() as u64);
        }
        let chips = self.regions.iter().map(|region| CfiFlash::new(region.size)).collect();
        *parts = Some(Parts { cells, chips });
        Ok(())
    }

    /// Maps all of it for a life in `memory`.
    ///
    /// # Errors
    /// When there is no room for tables.
    pub fn map(&self, memory: &mut GuestMemory) -> Result<(), Error> {
        let parts = self.parts.lock();
        let Some(parts) = parts.as_ref() else { return Ok(()) };
        let mut cells = parts.cells.base();
        for region in &self.regions {
            memory.show_flash(region.base, cells, region.size)?;
            cells += region.size;
        }
        Ok(())
    }

    /// Resets the chips for a life in `memory`. Only while no vCPU runs.
    pub fn reset(&self, vm: &Vm, memory: &GuestMemory) {
        if let Some(parts) = self.parts.lock().as_mut() {
            parts.chips.iter_mut().for_each(CfiFlash::reset);
            vm.flash.prepare(memory.tables(), parts.cells.base());
        }
    }

    /// Carries out an access of a vCPU; returns what was read. `None` if it is to be repeated.
    pub fn access(&self, vm: &Vm, access: Access) -> Option<u64> {
        let mut parts = self.parts.lock();
        let Some(Parts { cells, chips }) = parts.as_mut() else { return Some(0) };
        let (bank, offset) = (access.place.bank, access.place.offset);
        let start: u64 = self.regions.iter().take(bank).map(|region| region.size).sum();
        let size = self.regions.get(bank)?.size;
        let (Some(chips), Some(bytes)) =
            (chips.get_mut(bank), cells.bytes().get_mut(start as usize..(start + size) as usize))
        else {
            return Some(0);
        };
        let (read, written) = match access.value {
            None => chips.read(bytes, offset, access.size),
            Some(value) => (0, chips.write(bytes, offset, access.size, value)),
        };
        let shown = chips.shows_cells();
        cells.clean(start + written.changed.start, written.changed.end - written.changed.start);
        if shown != vm.flash.is_shown(bank) {
            vm.flash.show(bank, shown);
        }
        (!written.again).then_some(read)
    }

    /// Gives it up: the VM stays stopped.
    ///
    /// # Errors
    /// When the allocator's books do not allow it.
    pub fn release(&self) -> Result<(), Error> {
        match self.parts.lock().take() {
            Some(parts) => parts.cells.release(),
            None => Ok(()),
        }
    }
}
