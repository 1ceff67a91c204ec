// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a VM has once: virtual processors, interrupt sources, and what the guest has made of them.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use spin::Mutex;
use turnstile_machine::pseries;
use turnstile_papr::hcall::Hcall;
use turnstile_papr::rtas::pci::MESSAGE;
use turnstile_papr::xics::{Ics, Servers};
use turnstile_papr::xive::{Arguments, Failure, Layout, Machine, Queue, Reply, Route, Tables, call};

use super::escalation::Escalation;
use super::firmware::{self, Buffer, Error};
use super::own::{Own, Presentation};
use super::ring::Ring;
use super::{event, host};
use crate::memory::GuestRam;

/// The interrupts of a VM.
pub struct Board {
    /// The number of the first vCPU's virtual processor; the others follow.
    processors: u64,
    /// How each is named in a ring.
    named: Vec<firmware::Processor>,
    kind: Kind,
    /// How many sources each PCI function has been given, by its slot less one.
    given: Vec<AtomicU32>,
}

enum Kind {
    Xive { sources: Sources, tables: Mutex<Tables> },
    Xics(Ics),
}

/// The interrupt sources of a VM.
struct Sources {
    /// Those of vCPUs, by their numbers, and behind them those of devices.
    all: Vec<Source>,
    /// How many are of vCPUs.
    own: usize,
}

/// An interrupt source of the machine, under its name in the guest.
struct Source {
    lisn: u32,
    number: u32,
    buffer: Buffer,
}

/// Guest real addresses that lead to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The guest real address.
    pub guest: u64,
    /// The machine's address.
    pub host: u64,
    /// Bytes.
    pub size: u64,
}

impl Board {
    /// Makes the interrupts of a VM with `vcpus` vCPUs and so many PCI functions. At boot: the firmware is asked for everything.
    ///
    /// # Errors
    /// What the firmware says.
    pub fn new(vcpus: usize, functions: usize, presentation: Presentation) -> Result<Self, Error> {
        let processors = host::allocate_processors(vcpus)?;
        let named = (processors..).take(vcpus).map(firmware::enable_processor).collect::<Result<_, _>>()?;
        let devices = pseries::TERMINAL_SOURCE..pseries::pci_source(1 + functions as u64, 0);
        let kind = match presentation {
            Presentation::Xics => Kind::Xics(Ics::new(devices.start, devices.len())),
            Presentation::Xive => {
                let own = pseries::ipi_sources(vcpus);
                let all = (0..own).chain(devices).map(Source::new).collect::<Result<Vec<_>, _>>()?;
                let store_eoi = all.iter().all(|source| source.buffer.store_eoi);
                let layout = Layout {
                    trigger: pseries::esb,
                    management: |lisn| pseries::esb(lisn) + pseries::INTERRUPT_PAGE,
                    store_eoi,
                };
                let tables = Mutex::new(Tables::new(vcpus, all.iter().map(|source| source.lisn), layout));
                Kind::Xive { sources: Sources { all, own: own as usize }, tables }
            }
        };
        let given = (0..functions).map(|_| AtomicU32::new(0)).collect();
        Ok(Self { processors, named, kind, given })
    }

    /// Gives so many sources to the PCI function in a slot, or as many as there are; returns how many.
    pub(crate) fn give(&self, slot: u64, count: u32) -> u32 {
        let Some(given) = self.given(slot) else { return 0 };
        let count = count.min(pseries::PCI_SOURCES);
        given.store(count, Ordering::Relaxed);
        count
    }

    /// Returns a source of the PCI function in a slot; `None` if it has not been given so many.
    pub(crate) fn pci_source(&self, slot: u64, number: u32) -> Option<u32> {
        let given = self.given(slot)?.load(Ordering::Relaxed);
        (number < given).then(|| pseries::pci_source(slot, number))
    }

    fn given(&self, slot: u64) -> Option<&AtomicU32> {
        self.given.get(usize::try_from(slot.checked_sub(1)?).ok()?)
    }

    /// A PCI function writes a message to an address: for one of `servers`. False if nothing is there, or no function has been given
    /// that source.
    pub fn message(&self, servers: &impl Servers, address: u64, data: u64) -> bool {
        let place = data.wrapping_sub(pseries::pci_source(1, 0).into());
        let (slot, number) =
            (place / u64::from(pseries::PCI_SOURCES), place % u64::from(pseries::PCI_SOURCES));
        let source = self.pci_source(slot.saturating_add(1), number as u32);
        let Some(source) = source.filter(|_| address == MESSAGE) else { return false };
        self.raise(servers, source);
        true
    }

    /// Returns how the guest sees its interrupt controller.
    #[inline(always)] // One load.
    pub fn presentation(&self) -> Presentation {
        match self.kind {
            Kind::Xive { .. } => Presentation::Xive,
            Kind::Xics(_) => Presentation::Xics,
        }
    }

    /// Returns the sources of a guest that uses XICS.
    #[inline(always)] // One comparison.
    pub fn ics(&self) -> Option<&Ics> {
        match &self.kind {
            Kind::Xics(ics) => Some(ics),
            Kind::Xive { .. } => None,
        }
    }

    /// Makes what vCPU `index` has for itself.
    pub fn own(&self, index: usize) -> Own {
        let named = self.named.get(index).copied().unwrap_or_default();
        let escalation = match self.kind {
            Kind::Xive { .. } => Escalation::New(self.processors + index as u64),
            Kind::Xics(_) => Escalation::None,
        };
        Own::new(Ring::new(named.cam, named.keeps), self.presentation(), escalation)
    }

    /// Returns what of the controller a guest reaches itself: its own sources' event state buffers, and the ring of whichever
    /// of its vCPUs is resident where it looks. Nothing of other VMs.
    pub fn windows(&self) -> impl Iterator<Item = Window> + '_ {
        let sources: &[Source] = match &self.kind {
            Kind::Xive { sources, .. } => &sources.all,
            Kind::Xics(_) => &[],
        };
        let window = |guest, host| Window { guest, host, size: pseries::INTERRUPT_PAGE };
        let buffers = sources.iter().flat_map(move |source| {
            let guest = pseries::esb(source.lisn);
            [
                window(guest, source.buffer.trigger),
                window(guest + pseries::INTERRUPT_PAGE, source.buffer.management),
            ]
        });
        let ring = (!sources.is_empty()).then(host::controller).flatten().map(move |controller| {
            window(pseries::TIMA.base + pseries::TIMA_OS_PAGE * pseries::INTERRUPT_PAGE, controller.os_page)
        });
        buffers.chain(ring)
    }

    /// A device's interrupt comes: for one of `servers`, the VM's vCPUs.
    pub fn raise(&self, servers: &impl Servers, lisn: u32) {
        match &self.kind {
            Kind::Xics(ics) => ics.trigger(lisn, servers),
            Kind::Xive { sources, .. } => {
                if let Some(source) = sources.get(lisn) {
                    event::trigger(source.buffer.trigger);
                }
            }
        }
    }

    /// Carries out a call of XIVE for the guest, which has this RAM. None of it is for a guest that uses XICS.
    pub(crate) fn call(&self, ram: &GuestRam, number: Hcall, arguments: &Arguments) -> Reply {
        match &self.kind {
            Kind::Xive { tables, .. } => {
                call(&mut tables.lock(), &mut Hardware { board: self, ram }, number, arguments)
            }
            Kind::Xics(_) => Reply::from(turnstile_papr::code::Code::FUNCTION),
        }
    }

    /// A life of the VM ends, or one begins: nothing goes anywhere, and the controller writes to no memory of the guest. Only
    /// while no vCPU runs.
    ///
    /// # Errors
    /// When the firmware does not take back all of it: the controller may write to event queues of the guest.
    pub(crate) fn reset(&self, ram: &GuestRam) -> Result<(), Failure> {
        self.given.iter().for_each(|given| given.store(0, Ordering::Relaxed));
        match &self.kind {
            Kind::Xics(ics) => {
                ics.reset();
                Ok(())
            }
            Kind::Xive { sources, tables } => {
                sources.all.iter().for_each(|source| event::off(source.buffer.management));
                tables.lock().reset(&mut Hardware { board: self, ram })
            }
        }
    }
}

impl Source {
    fn new(lisn: u32) -> Result<Self, Error> {
        let number = firmware::allocate_source()?;
        let source = Self { lisn, number, buffer: firmware::buffer(number)? };
        event::off(source.buffer.management);
        Ok(source)
    }
}

impl Sources {
    /// The source with a number in the guest, if it has such a one.
    #[inline(always)] // On the way of every interrupt of a device.
    fn get(&self, lisn: u32) -> Option<&Source> {
        let place = match lisn.checked_sub(pseries::TERMINAL_SOURCE) {
            Some(device) => self.own + device as usize,
            None => lisn as usize,
        };
        self.all.get(place).filter(|source| source.lisn == lisn)
    }
}

/// The controller, for the calls of one VM.
struct Hardware<'a> {
    board: &'a Board,
    ram: &'a GuestRam,
}

impl Hardware<'_> {
    fn source(&self, lisn: u32) -> Option<&Source> {
        match &self.board.kind {
            Kind::Xive { sources, .. } => sources.get(lisn),
            Kind::Xics(_) => None,
        }
    }

    fn processor(&self, server: u32) -> u64 {
        self.board.processors + u64::from(server)
    }
}

impl From<Error> for Failure {
    fn from(_: Error) -> Self {
        Failure::Hardware
    }
}

impl Machine for Hardware<'_> {
    fn route(&mut self, source: u32, to: Option<Route>) -> Result<(), Failure> {
        let number = self.source(source).ok_or(Failure::Hardware)?.number;
        match to {
            Some(route) => {
                firmware::route(number, self.processor(route.server), route.priority, route.number)?;
            }
            None => firmware::mask(number)?,
        }
        Ok(())
    }

    fn place(&mut self, server: u32, priority: u8, queue: Option<Queue>) -> Result<(), Failure> {
        let processor = self.processor(server);
        let Some(queue) = queue else {
            firmware::remove_queue(processor, priority)?;
            return Ok(());
        };
        let host = self.ram.host_to_keep(queue.address, 1 << queue.shift).ok_or(Failure::Address)?;
        // SAFETY: RAM of this VM, in one piece, which is pinned, and which the VM keeps until `Board::reset` has taken the queue away. What the
        // guest has there is its own affair.
        unsafe { firmware::place_queue(processor, priority, host, queue.shift, true)? };
        Ok(())
    }

    fn load(&mut self, source: u32, offset: u64) -> u64 {
        self.source(source).map_or(u64::MAX, |source| event::load(source.buffer.management, offset))
    }

    fn store(&mut self, source: u32, offset: u64, value: u64) {
        if let Some(source) = self.source(source) {
            event::store(source.buffer.management, offset, value);
        }
    }

    fn synchronize(&mut self, source: u32) {
        if let Some(source) = self.source(source) {
            // What it could say is of no use to a guest.
            let _ = firmware::synchronize(source.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_source_of_that_number_and_no_other() {
        let devices = pseries::TERMINAL_SOURCE..pseries::pci_source(2, 0);
        let buffer = || Buffer { management: 0, trigger: 0, store_eoi: false };
        let source = |lisn| Source { lisn, number: 7 + lisn, buffer: buffer() };
        let (own, last) = (3, devices.end - 1);
        let sources =
            Sources { all: (0..own).chain(devices.clone()).map(source).collect(), own: own as usize };
        let found = |lisn| sources.get(lisn).map(|source| source.number);
        for lisn in (0..own).chain(devices.clone()) {
            assert_eq!(found(lisn), Some(7 + lisn), "{lisn:x}");
        }
        // Behind those of vCPUs those of devices follow, which have other numbers.
        for lisn in [own, own + 1, own + last - devices.start, devices.start - 1, last + 1, u32::MAX] {
            assert_eq!(found(lisn), None, "{lisn:x}");
        }
    }
}
