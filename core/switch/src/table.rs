// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which address is behind which port. The table is bounded, and so is what one port can have of it.

use crate::address::Address;

/// How many places an address may be in.
const WAYS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// 0 if there is none: no packet comes from there.
    address: Address,
    seen: u64,
    port: u8,
}

/// A table with 4 * `SETS` places for `P` ports.
#[derive(Debug)]
pub struct Table<const P: usize, const SETS: usize> {
    sets: [[Entry; WAYS]; SETS],
    /// How many entries each port has.
    counts: [u32; P],
    /// How long an address is remembered, in nanoseconds.
    age: u64,
}

impl<const P: usize, const SETS: usize> Table<P, SETS> {
    /// How many entries a port has at most.
    const SHARE: u32 = (SETS * WAYS / 2) as u32;

    /// Makes an empty table that remembers addresses for `age` nanoseconds.
    pub const fn new(age: u64) -> Self {
        let none = Entry { address: Address::new([0; 6], 0), seen: 0, port: 0 };
        Self { sets: [[none; WAYS]; SETS], counts: [0; P], age }
    }

    /// How many entries a port has.
    pub fn count(&self, port: usize) -> u32 {
        self.counts.get(port).copied().unwrap_or(0)
    }

    #[inline] // On the path of every packet.
    fn set(address: Address) -> usize {
        address.hash() as usize % SETS
    }

    /// The port behind which an address is, if that is known.
    #[inline(always)] // On the path of every packet.
    pub fn find(&self, address: Address, now: u64) -> Option<usize> {
        let set = self.sets.get(Self::set(address))?;
        let found = set.iter().find(|entry| entry.address == address && entry.address.mac() != 0)?;
        (now.saturating_sub(found.seen) <= self.age).then_some(found.port.into())
    }

    /// An address was seen behind a port. False if it is not known to be there.
    #[inline(always)] // On the path of every packet.
    pub fn renew(&mut self, address: Address, port: usize, now: u64) -> bool {
        let age = self.age;
        let Some(set) = self.sets.get_mut(Self::set(address)) else { return false };
        let Some(entry) = set.iter_mut().find(|entry| entry.address == address) else { return false };
        let is_known =
            address.mac() != 0 && usize::from(entry.port) == port && now.saturating_sub(entry.seen) <= age;
        if is_known {
            entry.seen = now;
        }
        is_known
    }

    /// An address was seen behind a port. One that was behind another has moved.
    pub fn learn(&mut self, address: Address, port: usize, now: u64) {
        let Some(set) = self.sets.get_mut(Self::set(address)) else { return };
        if let Some(entry) = set.iter_mut().find(|entry| entry.address == address) {
            if usize::from(entry.port) != port {
                Self::recount(&mut self.counts, entry.port.into(), port);
            }
            (entry.seen, entry.port) = (now, port as u8);
            return;
        }
        let full = self.counts.get(port).is_none_or(|&count| count >= Self::SHARE);
        // A port with its share takes from itself alone; others take an empty place, or the one that was not seen for longest.
        let places = set
            .iter_mut()
            .filter(|entry| !full || usize::from(entry.port) == port && entry.address.mac() != 0);
        let Some(entry) = places.min_by_key(|entry| (entry.address.mac() != 0, entry.seen)) else { return };
        if entry.address.mac() != 0 {
            Self::drop_one(&mut self.counts, entry.port.into());
        }
        *entry = Entry { address, seen: now, port: port as u8 };
        self.counts.iter_mut().skip(port).take(1).for_each(|count| *count += 1);
    }

    /// Forgets what is behind a port.
    pub fn forget(&mut self, port: usize) {
        let entries = self.sets.as_flattened_mut().iter_mut();
        entries.filter(|entry| usize::from(entry.port) == port).for_each(|entry| *entry = Entry::default());
        self.counts.iter_mut().skip(port).take(1).for_each(|count| *count = 0);
    }

    /// Forgets an address, in all VLANs.
    pub fn forget_address(&mut self, mac: [u8; 6]) {
        let mac = Address::new(mac, 0).mac();
        for entry in self.sets.as_flattened_mut().iter_mut().filter(|entry| entry.address.mac() == mac) {
            if mac != 0 {
                Self::drop_one(&mut self.counts, entry.port.into());
            }
            *entry = Entry::default();
        }
    }

    fn recount(counts: &mut [u32; P], from: usize, to: usize) {
        Self::drop_one(counts, from);
        counts.iter_mut().skip(to).take(1).for_each(|count| *count += 1);
    }

    fn drop_one(counts: &mut [u32; P], port: usize) {
        counts.iter_mut().skip(port).take(1).for_each(|count| *count = count.saturating_sub(1));
    }
}
