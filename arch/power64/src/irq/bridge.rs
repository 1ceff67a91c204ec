// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PCI host bridges behind which services have devices.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use dtoolkit::fdt::Fdt;
use pci_types::{ConfigRegionAccess, PciAddress};
use spin::Mutex;
use turnstile_arch_common::pci::{Fault, HostBridge, Reach, Unlent, Wiring};
use turnstile_firmware::Range;

use super::device;
use crate::board::pci::{self, LentTable, Message, Phb};
use crate::cpu::{self, PerCpu};

/// A host bridge.
pub struct Bridge {
    phb: Phb,
    /// How many of its messages are taken.
    taken: AtomicU32,
    /// Functions that services drive: each is the partitionable endpoint with its number here and one more. The firmware's is number 0.
    driven: Mutex<Vec<Driven>>,
    /// The CPUs, by their indexes.
    cpus: &'static [&'static PerCpu],
}

/// A function that a service drives.
struct Driven {
    function: PciAddress,
    /// It has its own memory alone, and nobody has been told yet that it has reached for other.
    is_watched: bool,
    /// It reaches its own memory alone, and what it is lent.
    is_guarded: bool,
    /// The table of what it is lent.
    lent: Option<LentTable>,
}

impl Bridge {
    /// Finds the host bridges of the machine with this device tree and these CPUs. Nothing of them is touched.
    pub fn find(fdt: Fdt<'_>, cpus: &'static [&'static PerCpu]) -> Vec<Self> {
        let bridge = |phb| Self { phb, taken: AtomicU32::new(0), driven: Mutex::new(Vec::new()), cpus };
        pci::bridges(fdt).into_iter().map(bridge).collect()
    }

    /// Returns the partitionable endpoint that a function is, and makes it one if it is none yet. `None` if there are no more.
    fn endpoint(&self, function: PciAddress) -> Option<u64> {
        let mut driven = self.driven.lock();
        if let Some(at) = driven.iter().position(|driven| driven.function == function) {
            return Some(at as u64 + 1);
        }
        let endpoint = Some(driven.len() as u64 + 1).filter(|number| *number < self.phb.endpoints)?;
        self.phb.separate(function, endpoint).ok()?;
        driven.push(Driven { function, is_watched: false, is_guarded: false, lent: None });
        Some(endpoint)
    }
}

impl ConfigRegionAccess for Bridge {
    unsafe fn read(&self, address: PciAddress, offset: u16) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.phb.read(address, offset) }
    }

    unsafe fn write(&self, address: PciAddress, offset: u16, value: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.phb.write(address, offset, value) };
    }
}

impl HostBridge for Bridge {
    fn buses(&self) -> (u8, u8) {
        self.phb.buses
    }

    fn room(&self) -> Option<(u64, u64)> {
        self.phb.window.map(|window| (window.bus, window.size))
    }

    fn physical(&self, bus: u64) -> Option<u64> {
        self.phb.physical(bus)
    }

    fn reach(&self, function: PciAddress, memory: Range, trusted: bool) -> Option<Reach> {
        let endpoint = self.endpoint(function)?;
        if trusted {
            return Some(Reach { bus: self.phb.reach_all(endpoint, memory.base)?, guarded: false });
        }
        let bus = self.phb.reach_only(endpoint, memory)?;
        let mut driven = self.driven.lock();
        driven
            .iter_mut()
            .filter(|driven| driven.function == function)
            .for_each(|driven| (driven.is_watched, driven.is_guarded) = (true, true));
        Some(Reach { bus, guarded: true })
    }

    fn lend(&self, function: PciAddress, pieces: &[Range]) -> Result<Vec<u64>, Unlent> {
        let mut all = self.driven.lock();
        let mut guarded = (1..).zip(all.iter_mut()).filter(|(_, driven)| driven.is_guarded);
        let found = guarded.find(|(_, driven)| driven.function == function);
        let (endpoint, driven) = found.ok_or(Unlent::NoTables)?;
        if driven.lent.is_some() {
            return Err(Unlent::NoAnswer);
        }
        let table = LentTable::new(pieces).ok_or(Unlent::NoTables)?;
        let buses = self.phb.lend(endpoint, pieces, driven.lent.insert(table));
        if buses.is_none() {
            // A firmware that refuses has changed nothing.
            driven.lent = None;
        }
        buses.ok_or(Unlent::NoTables)
    }

    /// The table is free when nobody reads it any more.
    fn take_back(&self, function: PciAddress) -> bool {
        let mut all = self.driven.lock();
        let mut numbered = (1..).zip(all.iter_mut());
        let Some((endpoint, driven)) = numbered.find(|(_, driven)| driven.function == function) else {
            return true;
        };
        if driven.lent.is_none() {
            return true;
        }
        let is_back = self.phb.take_back(endpoint).is_ok();
        if is_back {
            driven.lent = None;
        }
        is_back
    }

    /// The bridge stops who has reached for what is not its own, and says no address.
    fn faults(&self, take: &mut dyn FnMut(Fault)) {
        let mut driven = self.driven.lock();
        for (endpoint, driven) in (1..).zip(driven.iter_mut()).filter(|(_, driven)| driven.is_watched) {
            if self.phb.is_frozen(endpoint) {
                driven.is_watched = false;
                take(Fault { function: driven.function, address: None });
            }
        }
    }

    unsafe fn load(&self, address: u64) -> Option<u32> {
        // SAFETY: the caller's promise.
        Some(unsafe { load(address) })
    }

    unsafe fn store(&self, address: u64, value: u32) -> Option<()> {
        store(address, value);
        // Before loads of what it selects: they are not ordered behind it by themselves (Power ISA 3.0B Book II, 1.7.1).
        cpu::sync();
        Some(())
    }

    fn takes_messages(&self) -> bool {
        true
    }

    /// By messages alone: the four pins are those of all functions behind the bridge, so one service could mask another's.
    fn connect(&self, function: PciAddress, wiring: Wiring, cpu: usize) -> Option<u32> {
        let Wiring::Messages { table, vectors } = wiring else { return None };
        let pir = self.cpus.get(cpu)?.pir;
        let endpoint = self.endpoint(function)?;
        let message = self.phb.message(endpoint, self.taken.fetch_add(1, Ordering::Relaxed))?;
        let number = device::connect(message.source, cpu, pir).ok()?;
        for vector in 0..vectors.into() {
            fill(table + vector * ENTRY, message);
        }
        Some(number)
    }

    fn mask(&self, number: u32, masked: bool) {
        device::mask(number, masked);
    }
}

/// Bytes of an entry of a table of messages (PCI Local Bus Specification 3.0, section 6.8.2).
const ENTRY: u64 = 16;

/// Writes an entry of a table of messages, not masked: whichever vector the driver chooses, it is the same message.
fn fill(entry: u64, message: Message) {
    let words = [message.address as u32, (message.address >> 32) as u32, message.data, 0];
    for (offset, word) in (0..).step_by(4).zip(words) {
        store(entry + offset, word);
    }
}

/// Loads a register of a PCI function, which is little-endian.
///
/// # Safety
/// As with [`HostBridge::load`].
unsafe fn load(address: u64) -> u32 {
    #[cfg(target_os = "none")]
    // SAFETY: the caller's promise.
    unsafe {
        crate::cpu::inhibited::load32(address).swap_bytes()
    }
    #[cfg(not(target_os = "none"))]
    {
        let _ = address;
        crate::cpu::regs::fakes::get("BAR") as u32
    }
}

/// Stores to a register of a PCI function, which is little-endian.
fn store(address: u64, value: u32) {
    #[cfg(target_os = "none")]
    // SAFETY: in a BAR of a function that nobody drives yet: its messages interrupt, and no more, or the caller's promise.
    unsafe {
        crate::cpu::inhibited::store32(address, value.swap_bytes());
    }
    #[cfg(not(target_os = "none"))]
    {
        let _ = address;
        crate::cpu::regs::fakes::write("MSIX", value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::pci::tests::{asked, machine};

    /// Bytes of a large page.
    const LARGE: u64 = 2 << 20;

    #[test]
    fn what_a_function_is_lent_is_taken_back_before_its_table_is_free() {
        let phb = machine()[0];
        let id = 3;
        let bridge = Bridge { phb, taken: AtomicU32::new(0), driven: Mutex::new(Vec::new()), cpus: &[] };
        let calls = asked(0);
        let [trusted, guarded] = [0, 1].map(|device| PciAddress::new(0, 1, device, 0));
        let memory = Range { base: 0x10_0000, size: 0x1000 };
        let pieces = [Range { base: 8 * LARGE, size: 3 * LARGE }, Range { base: 64 * LARGE, size: LARGE }];
        assert_eq!(bridge.lend(guarded, &pieces), Err(Unlent::NoTables), "it has nothing");
        bridge.reach(trusted, memory, true).unwrap();
        bridge.reach(guarded, memory, false).unwrap();
        assert_eq!(bridge.lend(trusted, &pieces), Err(Unlent::NoTables), "nothing keeps it to that");
        let odd = [Range { base: 8 * LARGE + 0x1000, size: LARGE }];
        assert_eq!(bridge.lend(guarded, &odd), Err(Unlent::NoTables), "no whole large pages");
        assert!(bridge.take_back(guarded) && bridge.take_back(trusted));
        calls.take();
        for _ in 0..2 {
            let second = 1 << 59;
            assert_eq!(bridge.lend(guarded, &pieces), Ok(Vec::from([second, second + 3 * LARGE])));
            assert_eq!(bridge.lend(guarded, &pieces), Err(Unlent::NoAnswer), "once");
            let (token, arguments) = calls.take().remove(0);
            let [.., table, bytes, page] = arguments[..7] else { panic!("{arguments:?}") };
            assert_eq!((token, &arguments[..4], bytes, page), (44, &[id, 2, 5, 1][..], 4096, LARGE));
            assert_eq!(table % bytes, 0);
            // SAFETY: the table, which is there until it is taken back.
            let entries = (0..6).map(|at| unsafe { (table as *const u64).add(at).read_volatile() });
            let pages = [8, 9, 10, 64].map(|at| ((at * LARGE) | 3).to_be());
            assert_eq!(entries.collect::<Vec<_>>(), [&pages[..], &[0, 0]].concat());
            assert!(bridge.take_back(guarded));
            // The window leads nowhere, and then what was cached is forgotten.
            let asked = calls.take();
            assert_eq!(asked.len(), 2);
            assert_eq!((asked[0].0, &asked[0].1[..7]), (44, &[id, 2, 5, 0, 0, 0, LARGE][..]));
            assert_eq!((asked[1].0, &asked[1].1[..3]), (126, &[id, 1, 2][..]));
        }
    }

    #[test]
    fn what_the_firmware_does_not_take_back_is_not_known_to_be() {
        let phb = machine()[0];
        let bridge = Bridge { phb, taken: AtomicU32::new(0), driven: Mutex::new(Vec::new()), cpus: &[] };
        let calls = asked(0);
        let function = PciAddress::new(0, 1, 0, 0);
        bridge.reach(function, Range { base: 0x10_0000, size: 0x1000 }, false).unwrap();
        bridge.lend(function, &[Range { base: 0, size: LARGE }]).unwrap();
        drop(calls);
        let calls = asked(-6);
        assert!(!bridge.take_back(function));
        assert!(bridge.driven.lock()[0].lent.is_some(), "its table may be in use");
        drop(calls);
    }

    #[test]
    fn a_firmware_that_refuses_a_window_has_lent_nothing() {
        let phb = machine()[0];
        let bridge = Bridge { phb, taken: AtomicU32::new(0), driven: Mutex::new(Vec::new()), cpus: &[] };
        let function = PciAddress::new(0, 1, 0, 0);
        let pieces = [Range { base: 0, size: LARGE }];
        let calls = asked(0);
        bridge.reach(function, Range { base: 0x10_0000, size: 0x1000 }, false).unwrap();
        drop(calls);
        let calls = asked(-1);
        assert_eq!(bridge.lend(function, &pieces), Err(Unlent::NoTables));
        drop(calls);
        let calls = asked(0);
        assert!(bridge.take_back(function));
        assert!(calls.take().is_empty(), "there is nothing to be taken back");
        assert_eq!(bridge.lend(function, &pieces), Ok(Vec::from([1 << 59])));
    }

    #[test]
    fn each_function_is_an_endpoint_and_is_told_of_once() {
        let mut phb = machine()[0];
        phb.endpoints = 3;
        let bridge = Bridge { phb, taken: AtomicU32::new(0), driven: Mutex::new(Vec::new()), cpus: &[] };
        let calls = asked(0);
        let [first, second, third] = [0, 1, 2].map(|device| PciAddress::new(0, 1, device, 0));
        let memory = Range { base: 0x10_0000, size: 0x1000 };
        let reach = |function, trusted| bridge.reach(function, memory, trusted);
        assert_eq!(reach(first, true), Some(Reach { bus: 0x10_0000, guarded: false }));
        assert_eq!(reach(second, false), Some(Reach { bus: 0x1000, guarded: true }));
        assert_eq!(reach(third, false), None, "there are not so many");
        assert_eq!([first, second].map(|function| bridge.endpoint(function)), [Some(1), Some(2)]);
        let made =
            calls.take().into_iter().filter(|(token, _)| *token == 31).map(|(_, made)| (made[1], made[2]));
        assert_eq!(made.collect::<Vec<_>>(), [(1, 0x100), (2, 0x108)], "each once");
        let faults = || {
            let mut found = Vec::new();
            bridge.faults(&mut |fault| found.push(fault));
            found
        };
        assert_eq!(faults(), [Fault { function: second, address: None }]);
        assert_eq!(faults(), []);
    }
}
