// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lives of a VM: how one begins and ends, and the memory that it has meanwhile.

use core::ops::Range;
use core::sync::atomic::Ordering;

use turnstile_arch_common::pooled;
use turnstile_papr::Memory;
use turnstile_papr::process_table::RADIX;
use turnstile_papr::processors::Start;
use turnstile_papr::xive::Failure;
use turnstile_vm::lifecycle::Phase;

use super::objects::{BootState, GUEST_LPCR, Life, Vm};
use crate::cpu;
use crate::cpu::regs::lpcr;
use crate::memory::{GuestRam, kept, partition, user};

impl Vm {
    /// Prepares the VM's next life: its partition-scoped tables, its RAM, and what its first vCPU begins with. Nothing if the VM
    /// runs.
    pub fn prepare(&self, tables: u64, ram: GuestRam, boot: BootState) {
        if matches!(self.lifecycle.phase(), Phase::Running | Phase::Stopping(_)) {
            return;
        }
        // SAFETY: no vCPU runs; the CPU of the first vCPU alone gets here, and starts the VM afterwards.
        unsafe { self.life.begin(Life { tables, boot, ram }) };
        // What the firmware has not taken back is in memory that nobody gets; it was kept when the life before ended.
        let _ = self.reset_interrupts();
        self.vcpus().iter().for_each(|vcpu| vcpu.forget());
        let little_endian = boot.little_endian;
        self.processors.reset(Start { entry: boot.pc, argument: boot.r3, little_endian });
        let order = if little_endian { lpcr::ILE } else { 0 };
        self.lpcr.store(GUEST_LPCR | order, Ordering::Relaxed);
        // Every life has its own, which no other VM can find out.
        self.hash_key.store(cpu::random().unwrap_or(0), Ordering::Relaxed);
        self.process_table.store(RADIX, Ordering::Relaxed);
        partition::set(self.lpid(), tables, RADIX);
    }

    /// Nothing goes anywhere any more, and the controller writes to no memory of the guest. Only while no vCPU runs.
    ///
    /// # Errors
    /// As [`crate::irq::Board::reset`].
    pub fn reset_interrupts(&self) -> Result<(), Failure> {
        let result = self.board.reset(&self.life().ram);
        if self.board.ics().is_some() {
            self.vcpus().iter().for_each(|vcpu| vcpu.interrupts.icp.reset());
        }
        result
    }

    /// Nothing is translated for this partition any more: its memory is given back, unless the interrupt controller may still
    /// write to it. No vCPU runs.
    pub fn end(&self) {
        if self.reset_interrupts().is_err() {
            kept::keep(self.life().ram.clone());
        }
        partition::set(self.lpid(), 0, 0);
    }

    /// Says whether its memory comes from a pool. From [`Vm::prepare`] until it is given back.
    pub fn is_pooled(&self) -> bool {
        self.life().ram.pooled().is_some()
    }

    /// Says whether `address` is in a block of a pool that it has. As [`Vm::is_pooled`].
    pub fn has_block(&self, address: u64) -> bool {
        self.life().ram.has(address)
    }

    /// Gives the whole blocks of these parts of its memory back to the pool that they came from, but those that the hypervisor or the interrupt controller keeps
    /// addresses of; returns how many. For who came out last in a pause, while all vCPUs are out, when no service reaches these blocks any
    /// more.
    pub fn give_back(&self, parts: &[Range<u64>]) -> u64 {
        // SAFETY: the caller's promise; what is kept of addresses beyond an exit is pinned, and what the vCPUs share with the hypervisor.
        unsafe { self.life().ram.give_back(parts, || partition::invalidate(self.lpid())) }
    }

    /// The VM was paused for so many ticks. The time base is the machine's and has gone on; guests with an area are told that the time
    /// was stolen.
    pub fn stood_still(&self, _ticks: u64) {}

    /// Sets what translates the processes of the guest, which runs, and makes all CPUs forget what they knew.
    pub fn set_process_table(&self, entry: u64) {
        self.process_table.store(entry, Ordering::Relaxed);
        partition::set_process_table(self.lpid(), entry);
    }
}

impl Vm {
    /// Does something with each part of its RAM that has one physical address, if all `size` bytes have: the address, and which of the bytes
    /// it is.
    #[inline(always)] // Two callers: usually it is one part.
    fn each_part(&self, address: u64, size: usize, mut act: impl FnMut(u64, Range<usize>)) -> bool {
        let ram = &self.life().ram;
        if let Some(host) = ram.host(address, size as u64) {
            act(host, 0..size);
            return true;
        }
        // Blocks of a pool are anywhere.
        let all = ram.pooled().is_some()
            && pooled::parts(address, size as u64).all(|(part, size)| ram.host(part, size).is_some());
        if all {
            for (part, size) in pooled::parts(address, size as u64) {
                let start = (part - address) as usize;
                if let Some(host) = ram.host(part, size) {
                    act(host, start..start + size as usize);
                }
            }
        }
        all
    }
}

/// The RAM of a VM that runs, by guest real addresses: for exits of its vCPUs.
impl Memory for Vm {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.each_part(address, bytes.len(), |host, part| {
            if let Some(bytes) = bytes.get_mut(part) {
                // SAFETY: RAM of this VM, which runs.
                unsafe { user::copy_from(host, bytes) };
            }
        })
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        self.each_part(address, bytes.len(), |host, part| {
            if let Some(bytes) = bytes.get(part) {
                // SAFETY: as above.
                unsafe { user::copy_to(host, bytes) };
            }
        })
    }
}
