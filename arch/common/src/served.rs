// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices of a VM that services serve, and where they are.

use core::sync::atomic::{AtomicU64, Ordering};

use alloc::vec::Vec;

use spin::Mutex;
use turnstile_service::image::Doorbells;

use crate::service::Service;

/// What the size of a device says that is at no address: all doorbells fit in.
const ANY: u64 = 1 << 62;

/// A device of a VM that a service serves.
pub struct Served<S: 'static> {
    /// The first guest physical address, or port; a BAR has its own ([`Bar::base`]), and this one means nothing.
    pub base: u64,
    /// How many there are, not zero.
    pub size: u64,
    /// Its number in the service.
    pub device: u64,
    /// Where it is rung.
    pub doorbells: Doorbells,
    /// The bits that count of the number of a queue that is rung: those of its member's queues, if a guest says the number.
    pub mask: u64,
    /// What is added to that number: where the queues of its member begin.
    pub bell: u64,
    /// The service.
    pub service: &'static Service<S>,
}

/// A BAR of a PCI function that a service is: a device that moves.
pub struct Bar<S: 'static> {
    base: AtomicU64,
    size: AtomicU64,
    /// The device.
    pub served: Served<S>,
}

impl<S> Served<S> {
    /// Where a device is that is at no address: beyond what a guest can name.
    pub const NOWHERE: u64 = 1 << 63;

    /// Makes a device that is at no address, of a service's first member.
    pub const fn nowhere(device: u64, doorbells: Doorbells, service: &'static Service<S>) -> Self {
        Self { base: Self::NOWHERE, size: ANY, device, doorbells, mask: u64::MAX, bell: 0, service }
    }

    /// Returns the queue that a write of `value` at `offset` rings, if it rings.
    #[inline(always)] // Of each write.
    pub const fn queue(&self, offset: u64, value: u64) -> Option<u64> {
        match self.doorbells.queue(offset, value) {
            Some(queue) => Some((queue & self.mask).wrapping_add(self.bell)),
            None => None,
        }
    }

    fn overlaps(&self, base: u64, size: u64) -> bool {
        overlap((self.base, self.size), (base, size))
    }
}

impl<S> Bar<S> {
    /// Makes a BAR that is not decoded, of a device that is at no address.
    pub const fn new(served: Served<S>) -> Self {
        Self { base: AtomicU64::new(served.base), size: AtomicU64::new(0), served }
    }

    /// Returns the first guest physical address that it decodes.
    #[inline(always)] // A load.
    pub fn base(&self) -> u64 {
        self.base.load(Ordering::Acquire)
    }

    /// Returns how many it decodes.
    #[inline(always)] // A load.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Puts it at other addresses. A CPU that looks meanwhile finds it at the old ones, at none, or at the new ones.
    fn move_to(&self, base: u64, size: u64) {
        self.base.store(Served::<S>::NOWHERE, Ordering::Relaxed);
        // Release: who finds the new size or the new address finds what was stored before it.
        self.size.store(size, Ordering::Release);
        self.base.store(base, Ordering::Release);
    }

    fn overlaps(&self, base: u64, size: u64) -> bool {
        overlap((self.base(), self.size()), (base, size))
    }
}

/// Says whether two ranges of addresses have one in common.
const fn overlap((base, size): (u64, u64), (other, length): (u64, u64)) -> bool {
    base < other.saturating_add(length) && other < base.saturating_add(size)
}

/// What services are to a VM.
pub struct Services<S: 'static> {
    /// Devices in memory that stay where they are.
    pub memory: Vec<Served<S>>,
    /// Devices in memory that move.
    pub bars: Vec<Bar<S>>,
    /// Devices at ports, on a PC.
    pub ports: Vec<Served<S>>,
    /// Who answers the calls of terminals, on POWER: its addresses mean nothing.
    pub terminal: Option<Served<S>>,
    /// The configuration spaces of PCI functions, in the order of their slots, of which the first has number 1: for ways to them that
    /// are no addresses. Their addresses mean nothing.
    pub functions: Vec<Served<S>>,
    /// All services of the VM, each once.
    pub all: Vec<&'static Service<S>>,
    /// One BAR moves at a time.
    moving: Mutex<()>,
}

impl<S> Services<S> {
    /// Returns what there is for a VM without services.
    pub const fn none() -> Self {
        Self {
            memory: Vec::new(),
            bars: Vec::new(),
            ports: Vec::new(),
            terminal: None,
            functions: Vec::new(),
            all: Vec::new(),
            moving: Mutex::new(()),
        }
    }

    /// Says whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the device in memory at an address, and the offset in it.
    #[inline(always)] // Of each access.
    pub fn at_address(&self, address: u64) -> Option<(&Served<S>, u64)> {
        find(&self.memory, address).or_else(|| {
            self.bars.iter().find_map(|bar| {
                let base = bar.base();
                let offset = address.wrapping_sub(base);
                // Once more: it may have moved between the two, and have another size now.
                (offset < bar.size() && bar.base() == base).then_some((&bar.served, offset))
            })
        })
    }

    /// Returns the device at a port, and the offset in it.
    #[inline(always)] // Of each access.
    pub fn at_port(&self, port: u16) -> Option<(&Served<S>, u64)> {
        find(&self.ports, port.into())
    }

    /// Returns the configuration space of the PCI function in a slot.
    pub fn function(&self, slot: u64) -> Option<&Served<S>> {
        self.functions.get(usize::try_from(slot.checked_sub(1)?).ok()?)
    }

    /// Puts a BAR of a service at other addresses: those from `base` on, or none if there are none. False if it has no such device, or
    /// another one is there: then it is nowhere. One that is there already stays: other CPUs find it all the time.
    pub fn move_bar(&self, service: &Service<S>, device: u64, base: u64, size: u64) -> bool {
        let _one = self.moving.lock();
        let is_it = |bar: &&Bar<S>| core::ptr::eq(bar.served.service, service) && bar.served.device == device;
        let Some(moved) = self.bars.iter().find(is_it) else { return false };
        if size != 0 && (moved.base(), moved.size()) == (base, size) {
            return true;
        }
        moved.move_to(Served::<S>::NOWHERE, 0);
        if size == 0 {
            return true;
        }
        let is_taken = self.memory.iter().any(|other| other.overlaps(base, size))
            || self.bars.iter().any(|other| other.overlaps(base, size));
        if !is_taken {
            moved.move_to(base, size);
        }
        !is_taken
    }
}

#[inline(always)] // Of each access.
fn find<S>(devices: &[Served<S>], address: u64) -> Option<(&Served<S>, u64)> {
    devices.iter().find_map(|device| {
        let offset = address.wrapping_sub(device.base);
        (offset < device.size).then_some((device, offset))
    })
}
