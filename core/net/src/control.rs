// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queue of commands (section 5.1.6.5): which packets are received, how many queues are used.

use turnstile_virtio::device::{Cursor, Queue};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::rings::Rings;
use turnstile_virtio::violation::Violation;

/// How many addresses of each kind are kept. With more, all of the kind are received, which section 5.1.6.5.2 allows.
pub const ADDRESSES: usize = 16;
/// How many commands are done in one call.
const COMMANDS: u32 = 16;

const OK: u8 = 0;
const FAILED: u8 = 1;

/// A list of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    list: [[u8; 6]; ADDRESSES],
    count: usize,
    /// There were more than have room.
    all: bool,
}

impl Addresses {
    fn contains(&self, address: &[u8; 6]) -> bool {
        self.all || self.list.iter().take(self.count).any(|own| own == address)
    }
}

/// What the commands have changed. `Copy`: to be kept outside of the device's life, though the initial state is right for any driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// The address of the device.
    pub mac: [u8; 6],
    /// How many pairs of queues receive.
    pub pairs: u16,
    /// All packets are received.
    promiscuous: bool,
    /// All of a kind are received, or none: multicast, unicast, broadcast.
    all_multicast: bool,
    all_unicast: bool,
    no_multicast: bool,
    no_unicast: bool,
    no_broadcast: bool,
    unicast: Addresses,
    multicast: Addresses,
    /// The VLANs that are received, if any was asked for: a bit each.
    vlans: [u64; 64],
    some_vlans: bool,
    /// The driver has announced itself.
    pub announced: bool,
}

/// What commands may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The driver may change its address.
    pub may_change: bool,
    /// How many pairs of queues there are.
    pub pairs: u16,
}

impl Control {
    /// Everything is received, by the first queue.
    pub const fn new(mac: [u8; 6]) -> Self {
        let none = Addresses { list: [[0; 6]; ADDRESSES], count: 0, all: false };
        Self {
            mac,
            pairs: 1,
            promiscuous: true,
            all_multicast: false,
            all_unicast: false,
            no_multicast: false,
            no_unicast: false,
            no_broadcast: false,
            unicast: none,
            multicast: none,
            vlans: [0; 64],
            some_vlans: false,
            announced: false,
        }
    }

    /// Whether the driver wants a packet, by its first bytes.
    #[inline(always)] // On the path of every packet.
    pub fn wants(&self, head: &[u8]) -> bool {
        self.promiscuous || self.has_asked_for(head)
    }

    /// Whether a driver that does not want all packets wants this one.
    #[inline(never)] // The packet's first bytes stay in registers above.
    fn has_asked_for(&self, head: &[u8]) -> bool {
        let Some(to) = head.first_chunk::<6>() else { return false };
        if let [_, _, _, _, _, _, _, _, _, _, _, _, 0x81, 0, high, low, ..] = *head
            && self.some_vlans
        {
            let id = u16::from_be_bytes([high, low]) & 0xfff;
            let word = self.vlans.get(usize::from(id / 64)).copied().unwrap_or(0);
            if word >> (id % 64) & 1 == 0 {
                return false;
            }
        }
        match (*to, to[0] & 1) {
            ([0xff, 0xff, 0xff, 0xff, 0xff, 0xff], _) => !self.no_broadcast,
            (_, 1) => !self.no_multicast && (self.all_multicast || self.multicast.contains(to)),
            _ => *to == self.mac || !self.no_unicast && (self.all_unicast || self.unicast.contains(to)),
        }
    }

    /// Does the commands of the queue. Returns whether the driver wants an interrupt, and whether there may be more. Each new number of pairs is handed to
    /// `keep` before the driver knows that it holds.
    pub fn serve<M: Memory, R: Rings<M>>(
        &mut self,
        queue: &mut Queue<R>,
        memory: &M,
        limits: &Limits,
        mut keep: impl FnMut(u16),
    ) -> Result<(bool, bool), Violation> {
        for _ in 0..COMMANDS {
            let Some(chain) = queue.pop(memory)? else {
                let interrupt = queue.publish(memory)?;
                return Ok((interrupt, queue.arm(memory)?));
            };
            let mut bytes = Cursor::new(chain);
            let before = self.pairs;
            let done = self.command(&mut bytes, memory, limits)?;
            if self.pairs != before {
                keep(self.pairs);
            }
            bytes.write(memory, &[if done { OK } else { FAILED }])?;
            let written = bytes.written();
            queue.complete(memory, bytes.finish(), written)?;
        }
        Ok((queue.publish(memory)?, true))
    }

    /// One command. Returns whether it was done. A command that fails changes nothing.
    fn command<M: Memory>(
        &mut self,
        bytes: &mut Cursor,
        memory: &M,
        limits: &Limits,
    ) -> Result<bool, Violation> {
        let mut kind = [0; 2];
        if bytes.read(memory, &mut kind)? != 2 {
            return Ok(false);
        }
        Ok(match kind {
            // Which packets are received.
            [0, which] => {
                let mut on = [0];
                let is_whole = bytes.read(memory, &mut on)? == 1;
                let flags = [
                    &mut self.promiscuous,
                    &mut self.all_multicast,
                    &mut self.all_unicast,
                    &mut self.no_multicast,
                    &mut self.no_unicast,
                    &mut self.no_broadcast,
                ];
                let flag = flags.into_iter().nth(which.into()).filter(|_| is_whole);
                flag.map(|flag| *flag = on[0] != 0).is_some()
            }
            // Addresses: the table, the device's own.
            [1, 0] => match (Self::table(bytes, memory)?, Self::table(bytes, memory)?) {
                (Some(unicast), Some(multicast)) => {
                    (self.unicast, self.multicast) = (unicast, multicast);
                    true
                }
                _ => false,
            },
            [1, 1] => {
                let mut mac = [0; 6];
                let right = bytes.read(memory, &mut mac)? == 6 && mac[0] & 1 == 0 && limits.may_change;
                if right {
                    self.mac = mac;
                }
                right
            }
            // VLANs: one more, one less.
            [2, which @ (0 | 1)] => {
                let mut id = [0; 2];
                let is_whole = bytes.read(memory, &mut id)? == 2;
                let id = u16::from_le_bytes(id);
                let word = self.vlans.get_mut(usize::from(id / 64)).filter(|_| is_whole);
                self.some_vlans |= word.is_some();
                word.map(|word| match which {
                    0 => *word |= 1 << (id % 64),
                    _ => *word &= !(1 << (id % 64)),
                })
                .is_some()
            }
            [3, 0] => {
                self.announced = true;
                true
            }
            [4, 0] => {
                let mut pairs = [0; 2];
                let is_whole = bytes.read(memory, &mut pairs)? == 2;
                let pairs = u16::from_le_bytes(pairs);
                let right = is_whole && (1..=limits.pairs).contains(&pairs);
                if right {
                    self.pairs = pairs;
                }
                right
            }
            _ => false,
        })
    }

    /// Reads a table of addresses, of which those that have no room are skipped.
    fn table<M: Memory>(bytes: &mut Cursor, memory: &M) -> Result<Option<Addresses>, Violation> {
        let (mut count, mut table) = ([0; 4], Addresses::default());
        if bytes.read(memory, &mut count)? != 4 {
            return Ok(None);
        }
        let count = u32::from_le_bytes(count);
        table.all = count as usize > ADDRESSES;
        table.count = if table.all { 0 } else { count as usize };
        let mut left = u64::from(count) * 6;
        if !table.all {
            for slot in table.list.iter_mut().take(table.count) {
                if bytes.read(memory, slot)? != 6 {
                    return Ok(None);
                }
            }
            return Ok(Some(table));
        }
        while left != 0 {
            let most = u32::try_from(left).unwrap_or(u32::MAX);
            let Some(piece) = bytes.piece(memory, false, most)? else { return Ok(None) };
            left -= u64::from(piece.length);
        }
        Ok(Some(table))
    }
}
