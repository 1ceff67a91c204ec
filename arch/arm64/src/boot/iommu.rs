// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's IOMMUs: they keep PCI functions that services drive to the memory that is theirs, and all others from any.

use alloc::vec::Vec;

use arrayvec::ArrayVec;
use spin::Mutex;
use turnstile_arch_common::mmio::Registers;
use turnstile_arch_common::pci::{Fault, PciAddress, Range, Unlent};
use turnstile_iommu::smmu::{self, Error, MAX_STREAMS, Platform, Smmu};
use turnstile_paging::{PhysAddr, Tables};

use crate::board::discover::iommu::SmmuNode;
use crate::cpu::{self, PerCpu};
use crate::irq::controller::Controller;
use crate::memory::with_tables;

/// An SMMU in use.
pub struct Iommu {
    node: SmmuNode,
    controller: &'static Controller,
    state: Mutex<State>,
}

/// What is changed while functions get memory, and when they stray.
struct State {
    registers: Registers,
    smmu: Smmu,
    /// The functions that have memory, by their streams.
    functions: Vec<(u32, PciAddress)>,
}

/// The SMMU's registers, beside memory for tables.
struct Reached<'a, T> {
    registers: Registers,
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

    /// No CPU uses them, and what an SMMU has cached is its driver's to forget.
    fn invalidate(&mut self, _address: u64, _size: u64) {}
}

impl<T: Tables> Platform for Reached<'_, T> {
    fn get32(&self, offset: u32) -> u32 {
        self.registers.read32(offset as usize)
    }

    fn set32(&mut self, offset: u32, value: u32) {
        self.registers.write32(offset as usize, value);
    }

    fn set64(&mut self, offset: u32, value: u64) {
        self.registers.write64(offset as usize, value);
    }

    fn synchronize(&self) {
        // Stores to memory before those to registers, and loads of registers before those of memory: an SMMU need not be in the CPUs' inner
        // shareable domain, so it is the whole system.
        cpu::dsb_sy();
    }
}

impl Iommu {
    /// Starts one, whose streams have numbers below this. No function behind it reaches anything from then on.
    ///
    /// # Errors
    /// When it cannot be used.
    ///
    /// # Safety
    /// Its registers must be mapped as device memory for ever, and nobody else may drive it.
    pub unsafe fn start(
        node: SmmuNode,
        controller: &'static Controller,
        streams: u64,
    ) -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        let registers = unsafe { Registers::new(node.registers.base) };
        let smmu = with_tables(|tables| Smmu::start(&mut Reached { registers, tables }, streams))?;
        let state = Mutex::new(State { registers, smmu, functions: Vec::new() });
        Ok(Self { node, controller, state })
    }

    /// Returns what the device tree calls it.
    pub fn phandle(&self) -> u32 {
        self.node.phandle
    }

    /// Lets a function, which is this stream, reach this memory and nothing else. False if that cannot be.
    pub fn reach(&self, function: PciAddress, stream: u32, memory: Range) -> bool {
        let State { registers, smmu, functions } = &mut *self.state.lock();
        let registers = *registers;
        let memory = (memory.base, memory.size);
        let reached = with_tables(|tables| smmu.reach(&mut Reached { registers, tables }, stream, memory));
        if reached.is_ok() {
            functions.push((stream, function));
        }
        reached.is_ok()
    }

    /// Lets a stream that has memory reach these pieces, too.
    ///
    /// # Errors
    /// When that cannot be, or the SMMU does not answer.
    pub fn lend(&self, stream: u32, pieces: &[Range]) -> Result<(), Unlent> {
        let State { registers, smmu, .. } = &mut *self.state.lock();
        let registers = *registers;
        let pieces: Vec<_> = pieces.iter().map(|piece| (piece.base, piece.size)).collect();
        with_tables(|tables| smmu.lend(&mut Reached { registers, tables }, stream, &pieces)).map_err(unlent)
    }

    /// Takes that back. False if the SMMU does not say that nothing of it is reached any more.
    pub fn take_back(&self, stream: u32) -> bool {
        let State { registers, smmu, .. } = &mut *self.state.lock();
        let registers = *registers;
        with_tables(|tables| smmu.take_back(&mut Reached { registers, tables }, stream)).is_ok()
    }

    /// Has its faults interrupt a CPU; returns the interrupt's number, if it has one.
    pub fn watch(&self, cpu: &PerCpu) -> Option<u32> {
        let spi = self.node.events?;
        if !self.controller.connect_spi(spi, cpu.affinity, cpu.kick_token()) {
            return None;
        }
        self.controller.mask_spi(spi.intid, false);
        Some(spi.intid)
    }

    /// Hands over the first fault of each function.
    pub fn faults(&self, take: &mut dyn FnMut(Fault)) {
        let mut found: ArrayVec<Fault, MAX_STREAMS> = ArrayVec::new();
        let mut state = self.state.lock();
        let State { registers, smmu, functions } = &mut *state;
        let registers = *registers;
        let record = &mut |fault: smmu::Fault| {
            let whose = functions.iter().find(|(stream, _)| *stream == fault.stream);
            let fault = whose.map(|&(_, function)| Fault { function, address: fault.address });
            found.extend(fault.filter(|_| !found.is_full()));
        };
        // Without memory there is no SMMU, either.
        let _ = with_tables(|tables| {
            smmu.faults(&mut Reached { registers, tables }, record);
            Ok::<_, Error>(())
        });
        // Whoever is told takes its time.
        drop(state);
        found.into_iter().for_each(take);
    }
}

/// What an error says of a stream that was to be lent memory.
fn unlent(error: Error) -> Unlent {
    match error {
        Error::Paging(_) | Error::TooMany | Error::NoStream(_) => Unlent::NoTables,
        Error::Stuck(_) | Error::Refused | Error::Taken(_) | Error::Feature(_) => Unlent::NoAnswer,
    }
}

#[cfg(test)]
pub(super) mod tests;
