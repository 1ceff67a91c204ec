// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtual machine and its vCPUs, as exits see them.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use spin::Once;
use turnstile_exitstat::Page;
use turnstile_paging::{BLOCK, Blocks, Partition, PartitionAttributes, PhysAddr};
use turnstile_papr::Memory;
use turnstile_papr::process_table::RADIX;
use turnstile_papr::processors::{Processors, Start};
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::{Lifecycle, OnCrash, Phase, Stop};

use crate::irq;
use crate::memory::{GuestRam, user};
use crate::partition;
use crate::regs::lpcr;
use crate::switch::{BootState, GUEST_LPCR};
use crate::vcpu::Vcpu;

/// A virtual machine. It exists from boot on; what changes from life to life is its memory and its state.
pub struct Vm {
    /// Its number in the bundle.
    pub id: u8,
    /// Its name.
    pub name: String,
    /// What to do when the guest crashes.
    pub on_crash: OnCrash,
    /// Whether its vCPUs keep statistics of their exits.
    pub statistics: bool,
    /// Its interrupt controller.
    pub board: irq::Board,
    /// How its vCPUs start and stop.
    pub processors: Processors,
    /// Start, stop and restart.
    pub lifecycle: Lifecycle,
    /// The process table that its guest has registered, as the partition table has it.
    process_table: AtomicU64,
    /// How its vCPUs run: LPCR.
    lpcr: AtomicU64,
    vcpus: Once<Vec<&'static Vcpu>>,
    life: UnsafeCell<Life>,
}

/// What a VM has for one life.
#[derive(Debug, Default)]
pub struct Life {
    /// The partition-scoped tables, as the partition table has them.
    pub tables: u64,
    /// What its first vCPU begins with.
    pub boot: BootState,
    /// Where its RAM is.
    pub ram: GuestRam,
    /// What maps it on demand, if it is not mapped from the start.
    pub blocks: Option<Blocks<Partition>>,
}

// SAFETY: `life` is written by `Vm::prepare` alone, while no vCPU runs, and read by vCPUs that run.
unsafe impl Sync for Vm {}

/// What a VM is made from.
pub struct VmParts {
    /// See [`Vm::id`].
    pub id: u8,
    /// See [`Vm::name`].
    pub name: String,
    /// See [`Vm::on_crash`].
    pub on_crash: OnCrash,
    /// See [`Vm::statistics`].
    pub statistics: bool,
    /// Its interrupt controller.
    pub board: irq::Board,
    /// How many vCPUs it has.
    pub vcpus: usize,
}

impl Vm {
    /// Makes a VM that has never run.
    pub fn new(parts: VmParts) -> Self {
        Self {
            id: parts.id,
            name: parts.name,
            on_crash: parts.on_crash,
            statistics: parts.statistics,
            board: parts.board,
            processors: Processors::new(parts.vcpus),
            lifecycle: Lifecycle::new(parts.vcpus as u32),
            process_table: AtomicU64::new(RADIX),
            lpcr: AtomicU64::new(GUEST_LPCR),
            vcpus: Once::new(),
            life: UnsafeCell::default(),
        }
    }

    /// The number of its partition: LPID 0 is the hypervisor's.
    #[inline(always)] // An addition.
    pub fn lpid(&self) -> u32 {
        u32::from(self.id) + 1
    }

    /// Gives the VM its vCPUs, once.
    pub fn set_vcpus(&self, vcpus: Vec<&'static Vcpu>) {
        self.vcpus.call_once(|| vcpus);
    }

    /// Returns the vCPUs.
    pub fn vcpus(&self) -> &[&'static Vcpu] {
        self.vcpus.get().map_or(&[], Vec::as_slice)
    }

    /// Returns vCPU `index`.
    #[inline] // Finds the target of an interrupt.
    pub fn vcpu(&self, index: usize) -> Option<&'static Vcpu> {
        self.vcpus().get(index).copied()
    }

    /// Prepares the VM's next life: its partition-scoped tables, its RAM and what maps it on demand, and what its first vCPU
    /// begins with. Nothing if the VM runs.
    pub fn prepare(&self, tables: u64, ram: GuestRam, blocks: Option<Blocks<Partition>>, boot: BootState) {
        if matches!(self.lifecycle.phase(), Phase::Running | Phase::Stopping(_)) {
            return;
        }
        // SAFETY: no vCPU runs; the CPU of the first vCPU alone gets here, and starts the VM afterwards.
        unsafe { *self.life.get() = Life { tables, boot, ram, blocks } };
        self.board.reset(self);
        self.processors.reset(Start { entry: boot.pc, argument: boot.r3 });
        let order = if boot.little_endian { lpcr::ILE } else { 0 };
        self.lpcr.store(GUEST_LPCR | order, Ordering::Relaxed);
        self.set_process_table(RADIX);
    }

    /// LPCR of its vCPUs.
    #[inline(always)] // One load.
    pub fn lpcr(&self) -> u64 {
        self.lpcr.load(Ordering::Relaxed)
    }

    /// Changes what the guest may of that.
    pub fn set_lpcr(&self, mask: u64, value: u64) {
        self.lpcr.fetch_and(!mask | value, Ordering::Relaxed);
        self.lpcr.fetch_or(value, Ordering::Relaxed);
    }

    /// What it has for this life. For its vCPUs, from the start of one to its stop.
    #[inline(always)] // An address computation.
    pub fn life(&self) -> &Life {
        // SAFETY: nobody writes while a vCPU runs; the start of the VM is ordered behind that (`Lifecycle`, `Processors`).
        unsafe { &*self.life.get() }
    }

    /// Sets what translates the guest's processes, and makes all CPUs forget what they knew.
    pub fn set_process_table(&self, entry: u64) {
        self.process_table.store(entry, Ordering::Relaxed);
        partition::set(self.lpid(), self.life().tables, entry);
    }

    /// What translates the guest's processes.
    pub fn process_table(&self) -> u64 {
        self.process_table.load(Ordering::Relaxed)
    }

    /// Nothing is translated for this partition any more: its memory is given back. No vCPU runs.
    pub fn end(&self) {
        self.board.reset(self);
        partition::set(self.lpid(), 0, 0);
    }

    /// Maps the block of memory that the guest has touched first; false if it is none that is mapped on demand. By one store:
    /// another CPU may do the same meanwhile, and stores the same word. Nothing has to be invalidated, since what is not
    /// mapped is in no TLB; and a walk that misses the store faults again.
    #[inline] // Once per exit that maps a block.
    pub fn touch(&self, address: u64) -> bool {
        let life = self.life();
        let Some(blocks) = &life.blocks else { return false };
        let start = address & !(BLOCK - 1);
        let Some(host) = life.ram.host(start, BLOCK) else { return false };
        let read = |table: PhysAddr, index| {
            // SAFETY: the walk yields tables of this VM, which runs, and indexes inside them. Volatile: hardware walkers read and
            // other CPUs write them; an aligned word is read and written at once, in big-endian order.
            u64::from_be(unsafe { (table.0 as *const u64).add(index).read_volatile() })
        };
        let Some(slot) = blocks.slot(start, PhysAddr(host), PartitionAttributes::RAM, read) else {
            return false;
        };
        // SAFETY: as above; the block is RAM of this VM.
        unsafe { ((slot.table.0 as *mut u64).add(slot.index)).write_volatile(slot.entry.to_be()) };
        true
    }

    /// Raises attention with every vCPU.
    pub fn raise_all(&self, reasons: Reasons) {
        for vcpu in self.vcpus() {
            vcpu.post(reasons);
        }
    }

    /// Forgets what its exits cost, for a new life. Only while no vCPU runs: [`Reasons::START`] lets them write again.
    pub fn reset_statistics(&self) {
        self.vcpus().iter().filter_map(|vcpu| vcpu.statistics).for_each(Page::clear);
    }

    /// Begins to stop the VM, if it runs.
    pub fn stop(&self, reason: Stop) {
        if self.lifecycle.begin_stop(reason) {
            self.raise_all(Reasons::STOP);
        }
    }
}

/// The RAM of a VM that runs, by guest real addresses: for exits of its vCPUs.
impl Memory for Vm {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let host = self.life().ram.host(address, bytes.len() as u64);
        // SAFETY: RAM of this VM, which runs.
        host.map(|host| unsafe { user::copy_from(host, bytes) }).is_some()
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let host = self.life().ram.host(address, bytes.len() as u64);
        // SAFETY: as above.
        host.map(|host| unsafe { user::copy_to(host, bytes) }).is_some()
    }
}
