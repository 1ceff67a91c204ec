// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's IOMMUs: they keep PCI functions that services drive to the memory and the interrupt that are theirs, and all others from any.

use alloc::vec::Vec;

use arrayvec::ArrayVec;
use spin::Mutex;
use turnstile_arch_common::mmio::Registers;
use turnstile_arch_common::pci::{Fault, PciAddress, Range, Unlent};
use turnstile_firmware::MAX_IO_APICS;
use turnstile_firmware::ivrs::Ivrs;
use turnstile_iommu::amd_vi::{self, AmdVi, Error, MAX_FUNCTIONS, MAX_UNITS, Platform};
use turnstile_paging::{PhysAddr, Tables};

use crate::memory::with_tables;

/// Bytes of an IOMMU's registers that its driver uses.
#[cfg(any(target_os = "none", test))]
pub const REGISTERS: u64 = 0x4000;

/// The IOMMUs in use.
pub struct Iommu {
    /// What is behind them.
    ivrs: Ivrs,
    state: Mutex<State>,
}

/// What is changed while functions get something, and when they stray.
struct State {
    units: Units,
    driver: AmdVi,
    /// The functions that have memory or a message, by what they are taken for.
    functions: ArrayVec<(u16, PciAddress), { 2 * MAX_FUNCTIONS }>,
}

/// The registers of each.
type Units = ArrayVec<Registers, MAX_UNITS>;

/// What can be changed of what a function reaches.
enum Change<'a> {
    Memory(Range),
    Message { vector: u8, destination: u8 },
    Lend(&'a [(u64, u64)]),
    TakeBack,
}

/// The registers, beside memory for tables.
struct Reached<'a, T> {
    units: &'a Units,
    tables: &'a mut T,
}

impl<T: Tables> Tables for Reached<'_, T> {
    fn allocate(&mut self, bytes: u64) -> Option<PhysAddr> {
        self.tables.allocate(bytes)
    }

    fn free(&mut self, table: PhysAddr, bytes: u64) {
        self.tables.free(table, bytes);
    }

    fn read(&self, table: PhysAddr, index: usize) -> u64 {
        self.tables.read(table, index)
    }

    fn write(&mut self, table: PhysAddr, index: usize, entry: u64) {
        self.tables.write(table, index, entry);
    }

    /// No CPU uses them, and what an IOMMU has cached is its driver's to forget.
    fn invalidate(&mut self, _address: u64, _size: u64) {}
}

impl<T: Tables> Platform for Reached<'_, T> {
    fn get32(&self, unit: usize, offset: u32) -> u32 {
        self.units.get(unit).map_or(u32::MAX, |registers| registers.read32(offset as usize))
    }

    fn set32(&mut self, unit: usize, offset: u32, value: u32) {
        if let Some(registers) = self.units.get(unit) {
            registers.write32(offset as usize, value);
        }
    }

    fn synchronize(&self) {
        // Stores are seen in their order, registers being uncacheable, and so are loads (APM vol. 2, 7.1); the compiler keeps to volatile accesses' order.
    }
}

impl Iommu {
    /// Starts all of a machine. No function behind them reaches anything from then on.
    ///
    /// # Errors
    /// When one cannot be used.
    ///
    /// # Safety
    /// The registers of all must be mapped as device memory for ever, and nobody else may drive them.
    pub unsafe fn start(ivrs: Ivrs) -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        let units: Units = ivrs.iommus.iter().map(|iommu| unsafe { Registers::new(iommu.address) }).collect();
        let flags: ArrayVec<u8, MAX_UNITS> = ivrs.iommus.iter().map(|iommu| iommu.flags).collect();
        let io_apics: ArrayVec<u16, MAX_IO_APICS> =
            ivrs.io_apics.iter().map(|named| named.requester).collect();
        let driver =
            with_tables(|tables| AmdVi::start(&mut Reached { units: &units, tables }, &flags, &io_apics))?;
        Ok(Self { state: Mutex::new(State { units, driver, functions: ArrayVec::new() }), ivrs })
    }

    /// Says whether a function is behind them.
    pub fn is_before(&self, function: PciAddress) -> bool {
        self.ivrs.requester(number(function)).is_some()
    }

    /// Returns the functions that they are themselves.
    pub fn functions(&self) -> impl Iterator<Item = PciAddress> {
        self.ivrs.iommus.iter().map(|iommu| address(iommu.function))
    }

    /// Lets a function reach this memory and nothing else. False if that cannot be.
    pub fn reach(&self, function: PciAddress, memory: Range) -> bool {
        self.give(function, &Change::Memory(memory))
    }

    /// Has the only message that a function may send interrupt the CPU with this local APIC by this vector. Returns what it writes.
    pub fn message(&self, function: PciAddress, vector: u8, destination: u8) -> Option<u32> {
        self.give(function, &Change::Message { vector, destination }).then_some(amd_vi::MESSAGE)
    }

    /// Gives a function something for ever.
    fn give(&self, function: PciAddress, gift: &Change<'_>) -> bool {
        let Some(Ok(id)) = self.change(function, gift) else { return false };
        self.state.lock().functions.try_push((id, function)).is_ok()
    }

    /// Changes what a function reaches. Returns what it is taken for; `None` if it is not behind them.
    fn change(&self, function: PciAddress, change: &Change<'_>) -> Option<Result<u16, Error>> {
        let id = self.ivrs.requester(number(function))?;
        let State { units, driver, .. } = &mut *self.state.lock();
        let changed = with_tables(|tables| {
            let reached = &mut Reached { units, tables };
            match *change {
                Change::Memory(memory) => driver.reach(reached, id, (memory.base, memory.size)),
                Change::Message { vector, destination } => driver.message(reached, id, (vector, destination)),
                Change::Lend(pieces) => driver.lend(reached, id, pieces),
                Change::TakeBack => driver.take_back(reached, id),
            }
        });
        Some(changed.map(|()| id))
    }

    /// Lets a function that has memory reach these pieces, too.
    ///
    /// # Errors
    /// When that cannot be, or an IOMMU does not answer.
    pub fn lend(&self, function: PciAddress, pieces: &[Range]) -> Result<(), Unlent> {
        let pieces: Vec<_> = pieces.iter().map(|piece| (piece.base, piece.size)).collect();
        let changed = self.change(function, &Change::Lend(&pieces)).ok_or(Unlent::NoTables)?;
        changed.map(|_| ()).map_err(unlent)
    }

    /// Takes that back. False if an IOMMU does not say that nothing of it is reached any more.
    pub fn take_back(&self, function: PciAddress) -> bool {
        matches!(self.change(function, &Change::TakeBack), Some(Ok(_)))
    }

    /// Hands over the first fault of each function.
    pub fn faults(&self, take: &mut dyn FnMut(Fault)) {
        let mut found: ArrayVec<Fault, MAX_FUNCTIONS> = ArrayVec::new();
        let mut state = self.state.lock();
        let State { units, driver, functions } = &mut *state;
        let record = &mut |fault: amd_vi::Fault| {
            let whose = functions.iter().find(|(id, _)| *id == fault.function);
            let fault = whose.map(|&(_, function)| Fault { function, address: fault.address });
            found.extend(fault.filter(|_| !found.is_full()));
        };
        // Without memory there is no IOMMU, either.
        let _ = with_tables(|tables| {
            driver.faults(&mut Reached { units, tables }, record);
            Ok::<_, Error>(())
        });
        // Whoever is told takes its time.
        drop(state);
        found.into_iter().for_each(take);
    }
}

/// What an error says of a function that was to be lent memory.
fn unlent(error: Error) -> Unlent {
    match error {
        Error::Paging(_) | Error::TooMany => Unlent::NoTables,
        Error::Stuck(_) | Error::Taken(_) | Error::Feature(_) => Unlent::NoAnswer,
    }
}

/// A function's number as a requester.
fn number(function: PciAddress) -> u16 {
    u16::from(function.bus()) << 8 | u16::from(function.device()) << 3 | u16::from(function.function())
}

/// The function with this number.
fn address(number: u16) -> PciAddress {
    PciAddress::new(0, (number >> 8) as u8, (number >> 3) as u8 & 0x1f, number as u8 & 7)
}

#[cfg(test)]
mod tests {
    use turnstile_firmware::ivrs;

    use super::*;

    /// A table of an IOMMU with these registers, with all functions of bus 0 behind it.
    fn described(registers: &'static [u32]) -> Ivrs {
        let mut ivrs = Ivrs::default();
        ivrs.iommus.push(ivrs::Iommu { function: 2, address: registers.as_ptr() as u64, flags: 0 });
        ivrs.behind.push(ivrs::Behind { first: 0x18, last: 0xff, alias: None });
        ivrs
    }

    #[test]
    fn one_that_cannot_be_used_is_not() {
        for (features, error) in
            [(0, Error::Feature("command that invalidates all")), (1 << 6, Error::Stuck("COMPLETION_WAIT"))]
        {
            let mut registers = vec![0; REGISTERS as usize / 4];
            registers[0x30 / 4] = features;
            // SAFETY: memory of a test, for ever.
            let started = unsafe { Iommu::start(described(registers.leak())) };
            assert_eq!(started.err(), Some(error));
        }
    }

    #[test]
    fn one_that_does_not_answer_is_not_taken_for_one_without_tables() {
        for error in [Error::Stuck("COMPLETION_WAIT"), Error::Taken(3)] {
            assert_eq!(unlent(error), Unlent::NoAnswer);
        }
        for error in [Error::Paging(turnstile_paging::Error::OutOfTables), Error::TooMany] {
            assert_eq!(unlent(error), Unlent::NoTables);
        }
    }

    #[test]
    fn a_function_has_a_number_as_a_requester() {
        for (bus, device, function, requester) in [(0, 3, 0, 0x18), (1, 0, 7, 0x107), (0xff, 0x1f, 7, 0xffff)]
        {
            let all = PciAddress::new(0, bus, device, function);
            assert_eq!((number(all), address(requester)), (requester, all));
        }
    }
}
