// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a VM has once: the I/O APIC and the table of destinations, the 8259s and the 8254. What they do to its vCPUs is in `vm`.

use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use spin::Mutex;
use turnstile_devices::{I8254, I8259};
use turnstile_pci::address::ConfigPorts;
use turnstile_vapic::{IoApic, NEVER, Routes};

/// The I/O APIC's pin of the 8254's interrupt: the MADT says so; other lines have the pin of their number.
pub(crate) const TIMER_PIN: usize = 2;

/// The interrupt controllers of a VM, and its PCI ports.
pub struct Board {
    pub(crate) routes: Routes,
    /// Nothing but its own accesses, its devices' lines and ends of level-triggered interrupts take this lock.
    pub(crate) ioapic: Mutex<IoApic>,
    pub(crate) legacy: Legacy,
    /// Which configuration space the ports of PCI are to.
    pub(crate) pci: Mutex<ConfigPorts>,
}

impl Board {
    /// Makes those of a VM with so many vCPUs.
    pub fn new(vcpus: usize) -> Self {
        Self {
            routes: Routes::new(vcpus),
            ioapic: Mutex::new(IoApic::new()),
            legacy: Legacy::new(),
            pci: Mutex::new(ConfigPorts::new()),
        }
    }

    /// Returns when the 8254 rings, by this machine's time stamp counter.
    #[inline(always)] // One load.
    pub(crate) fn timer(&self) -> u64 {
        self.legacy.deadline()
    }

    /// The VM was paused for so many ticks: the 8254 rings as much later.
    pub(crate) fn stood_still(&self, ticks: u64) {
        // Under the lock, as all changes of it.
        let _pit = self.legacy.pit.lock();
        let at = self.legacy.deadline();
        if at != NEVER {
            self.legacy.deadline.store(at.saturating_add(ticks), Ordering::Relaxed);
        }
    }

    /// Resets what is shared. Only while no vCPU runs.
    pub fn reset(&self) {
        *self.ioapic.lock() = IoApic::new();
        self.legacy.reset();
        *self.pci.lock() = ConfigPorts::new();
    }
}

/// A read of the mask register is something else: the 8259 is to be polled.
pub(crate) const POLLED: u16 = 0x100;

/// The 8259s and the 8254.
pub(crate) struct Legacy {
    pub(crate) pic: Mutex<I8259>,
    /// What each of the two mask registers reads as, without the lock, or [`POLLED`]: written under it.
    pub(crate) masks: [AtomicU16; 2],
    pub(crate) pit: Mutex<I8254>,
    /// When the 8254 rings, by this machine's time stamp counter.
    pub(crate) deadline: AtomicU64,
}

impl Legacy {
    pub(crate) fn new() -> Self {
        Self {
            pic: Mutex::new(I8259::new()),
            masks: [const { AtomicU16::new(0) }; 2],
            pit: Mutex::new(I8254::new()),
            deadline: AtomicU64::new(NEVER),
        }
    }

    /// Resets them. Only while no vCPU runs.
    pub(crate) fn reset(&self) {
        let mut pic = self.pic.lock();
        *pic = I8259::new();
        self.publish(&pic);
        drop(pic);
        *self.pit.lock() = I8254::new();
        self.deadline.store(NEVER, Ordering::Relaxed);
    }

    /// Makes known what the mask registers read as.
    pub(crate) fn publish(&self, pic: &I8259) {
        for (mask, value) in self.masks.iter().zip(pic.masks()) {
            // Relaxed: who reads it synchronizes with who has written the port as with any device.
            mask.store(value.map_or(POLLED, u16::from), Ordering::Relaxed);
        }
    }

    /// Returns when the 8254 rings, by this machine's time stamp counter.
    #[inline(always)] // One load.
    pub(crate) fn deadline(&self) -> u64 {
        // Relaxed: whoever changes it posts to the first vCPU, which reads it then.
        self.deadline.load(Ordering::Relaxed)
    }
}
