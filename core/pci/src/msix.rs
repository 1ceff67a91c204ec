// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MSI-X: the table of messages, the pending bits, and when a message goes out (PCI Local Bus Specification 3.0, section 6.8).

/// A message: the value that the function writes, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The address, a multiple of 4.
    pub address: u64,
    /// The data.
    pub data: u32,
}

/// What the control of the capability says of all messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// The function sends messages, and does not assert INTx.
    pub enabled: bool,
    /// All vectors are masked.
    pub masked: bool,
}

impl Control {
    const fn sends(self) -> bool {
        self.enabled && !self.masked
    }
}

/// How many bytes an entry of the table has.
pub const ENTRY: u64 = 16;

#[derive(Clone, Copy, Debug)]
struct Entry {
    message: Message,
    masked: bool,
    pending: bool,
}

impl Entry {
    const RESET: Self = Self { message: Message { address: 0, data: 0 }, masked: true, pending: false };
}

/// The table and the pending bits of `N` vectors, 1 to 2048.
#[derive(Clone, Debug)]
pub struct Msix<const N: usize> {
    entries: [Entry; N],
}

impl<const N: usize> Default for Msix<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Msix<N> {
    /// Makes a table in its reset state: all vectors masked, none pending.
    pub const fn new() -> Self {
        Self { entries: [Entry::RESET; N] }
    }

    /// Reads `size` bytes at `offset` of the table. Only aligned accesses of 4 and 8 bytes are defined; others read as zero.
    pub fn read_table(&self, offset: u64, size: u8) -> u64 {
        let word = |offset: u64| {
            let Some(entry) = self.entries.get((offset / ENTRY) as usize) else { return 0 };
            match offset % ENTRY {
                0 => entry.message.address as u32,
                4 => (entry.message.address >> 32) as u32,
                8 => entry.message.data,
                _ => entry.masked.into(),
            }
        };
        match size {
            4 if offset.is_multiple_of(4) => word(offset).into(),
            8 if offset.is_multiple_of(8) => u64::from(word(offset + 4)) << 32 | u64::from(word(offset)),
            _ => 0,
        }
    }

    /// Writes `size` bytes at `offset` of the table; other accesses than aligned ones of 4 and 8 bytes are ignored. Returns the
    /// message that goes out because its vector was pending and no longer is masked.
    #[must_use = "a message that is not delivered is lost"]
    pub fn write_table(&mut self, offset: u64, size: u8, value: u64, control: Control) -> Option<Message> {
        match size {
            4 if offset.is_multiple_of(4) => self.write_word(offset, value as u32),
            8 if offset.is_multiple_of(8) => {
                self.write_word(offset, value as u32);
                self.write_word(offset + 4, (value >> 32) as u32);
            }
            _ => return None,
        }
        self.send(self.entries.get((offset / ENTRY) as usize)?.pending, (offset / ENTRY) as usize, control)
    }

    fn write_word(&mut self, offset: u64, value: u32) {
        let Some(entry) = self.entries.get_mut((offset / ENTRY) as usize) else { return };
        let address = &mut entry.message.address;
        match offset % ENTRY {
            0 => *address = *address & !0xffff_ffff | u64::from(value & !3),
            4 => *address = *address & 0xffff_ffff | u64::from(value) << 32,
            8 => entry.message.data = value,
            _ => entry.masked = value & 1 != 0,
        }
    }

    /// Reads `size` bytes at `offset` of the pending bits, which cannot be written. Only aligned accesses of 4 and 8 bytes are
    /// defined; others read as zero.
    pub fn read_pending(&self, offset: u64, size: u8) -> u64 {
        if !matches!(size, 4 | 8) || !offset.is_multiple_of(size.into()) {
            return 0;
        }
        let first = usize::try_from(offset).unwrap_or(usize::MAX).saturating_mul(8);
        let bits = self.entries.iter().skip(first).take(8 * usize::from(size));
        bits.enumerate().fold(0, |bits, (at, entry)| bits | u64::from(entry.pending) << at)
    }

    /// The function has an event for a vector: returns the message to deliver. A masked vector becomes pending instead. Without
    /// such a vector, and while MSI-X is disabled, nothing happens.
    #[inline] // On the path of every interrupt of a device.
    #[must_use = "a message that is not delivered is lost"]
    pub fn trigger(&mut self, vector: u16, control: Control) -> Option<Message> {
        self.send(control.enabled, vector.into(), control)
    }

    /// Delivers every pending message that is no longer masked: after a write that has changed the control.
    pub fn settle(&mut self, control: Control, mut deliver: impl FnMut(Message)) {
        if !control.sends() {
            return;
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.pending && !entry.masked) {
            entry.pending = false;
            deliver(entry.message);
        }
    }

    /// Forgets that a vector is pending: what the function would have told has been handled.
    pub fn withdraw(&mut self, vector: u16) {
        if let Some(entry) = self.entries.get_mut(usize::from(vector)) {
            entry.pending = false;
        }
    }

    /// How many words the state has.
    pub const WORDS: usize = 2 * N;

    /// Returns the state, [`Msix::WORDS`] words, for who keeps it over a crash.
    pub fn save(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().flat_map(|entry| {
            let flags = u64::from(entry.masked) << 32 | u64::from(entry.pending) << 33;
            [entry.message.address, u64::from(entry.message.data) | flags]
        })
    }

    /// Makes a table with a state that was saved. Words that are missing are zero; all of them are a state of a table.
    pub fn restore(words: impl IntoIterator<Item = u64>) -> Self {
        let mut words = words.into_iter();
        let mut word = || words.next().unwrap_or(0);
        let entries = [(); N].map(|()| {
            let (address, rest) = (word() & !3, word());
            let message = Message { address, data: rest as u32 };
            Entry { message, masked: rest >> 32 & 1 != 0, pending: rest >> 33 & 1 != 0 }
        });
        Self { entries }
    }

    /// Resets it: all vectors masked, none pending.
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    fn send(&mut self, wanted: bool, vector: usize, control: Control) -> Option<Message> {
        let entry = self.entries.get_mut(vector).filter(|_| wanted)?;
        entry.pending = !control.sends() || entry.masked;
        (!entry.pending).then_some(entry.message)
    }
}
