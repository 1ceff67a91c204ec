// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What commands do (sections 5 and 6).

use turnstile_block::disk::{Disk, DiskFor};
use turnstile_virtio::device::Span;
use turnstile_virtio::memory::Memory;

use super::controller::Nvme;
use super::queues::{Command, Completions, Submission};
use crate::ram::Ram;
use crate::slot::Dma;

/// Statuses (section 4.6.1.2), of generic commands and of specific ones.
const INVALID_OPERATION: u16 = 0x01;
const INVALID_FIELD: u16 = 0x02;
const TRANSFER_ERROR: u16 = 0x04;
const INTERNAL_ERROR: u16 = 0x06;
const INVALID_NAMESPACE: u16 = 0x0b;
const PAGE_OFFSET: u16 = 0x13;
const OUT_OF_RANGE: u16 = 0x80;
const INVALID_COMPLETIONS: u16 = 0x100;
const INVALID_QUEUE: u16 = 0x101;
const INVALID_SIZE: u16 = 0x102;

/// What comes of a command: its status if it fails.
type Done = Result<(), u16>;

impl Nvme {
    /// Does a command, and returns its status.
    pub(super) fn execute(&self, ram: &Ram, command: &Command) -> u16 {
        let operation = command.operation();
        if let Some(status) = self.statuses.borrow().get(&(command.queue, operation)) {
            return *status;
        }
        let done = match (command.queue, operation) {
            (0, 0x01) => self.create_submission(command),
            (0, 0x05) => self.create_completion(command),
            (0, 0x06) => self.answer(ram, command),
            (0, 0x09) if command.words[10] == 7 => Ok(()),
            (0, _) => Err(INVALID_OPERATION),
            _ if command.words[1] != self.shape.namespace => Err(INVALID_NAMESPACE),
            (_, 0x00) => (&self.platter).flush().map_err(|_| INTERNAL_ERROR),
            (_, 0x01 | 0x02) => self.transfer(ram, command),
            (_, 0x08) if self.shape.optional & 8 != 0 => self.zero(command),
            (_, 0x09) if self.shape.optional & 4 != 0 => self.discard(ram, command),
            _ => Err(INVALID_OPERATION),
        };
        done.err().unwrap_or(0)
    }

    fn answer(&self, ram: &Ram, command: &Command) -> Done {
        let bytes = self.identify(command.words[10] as u8, command.words[1]).ok_or(INVALID_FIELD)?;
        self.page(command)?;
        Dma(ram).write(command.wide(6), &bytes).map_err(|_| TRANSFER_ERROR)
    }

    /// Some commands have one whole page.
    fn page(&self, command: &Command) -> Done {
        match command.wide(6).is_multiple_of(4096) {
            true => Ok(()),
            false => Err(PAGE_OFFSET),
        }
    }

    /// The number and the entries of a queue that lies together and is to be created.
    fn queue(&self, command: &Command) -> Result<(u16, u16), u16> {
        let (number, last) = (command.words[10] as u16, command.words[10] >> 16);
        self.page(command)?;
        if command.words[11] & 1 == 0 {
            return Err(INVALID_FIELD);
        }
        match last {
            0 => Err(INVALID_SIZE),
            _ if last >= self.shape.entries => Err(INVALID_SIZE),
            _ if number == 0 => Err(INVALID_QUEUE),
            _ => Ok((number, last as u16 + 1)),
        }
    }

    fn create_completion(&self, command: &Command) -> Done {
        let (number, entries) = self.queue(command)?;
        let interrupts = command.words[11] & 2 != 0;
        if command.words[11] >> 16 != 0 {
            return Err(INVALID_FIELD);
        }
        let queue = Completions::new(command.wide(6), entries, interrupts);
        match self.queues.borrow_mut().completions.insert(number, queue) {
            Some(_) => Err(INVALID_QUEUE),
            None => Ok(()),
        }
    }

    fn create_submission(&self, command: &Command) -> Done {
        let (number, entries) = self.queue(command)?;
        let (completions, mut queues) = ((command.words[11] >> 16) as u16, self.queues.borrow_mut());
        if completions == 0 || !queues.completions.contains_key(&completions) {
            return Err(INVALID_COMPLETIONS);
        }
        let queue = Submission { at: command.wide(6), entries, head: 0, completions };
        match queues.submissions.insert(number, queue) {
            Some(_) => Err(INVALID_QUEUE),
            None => Ok(()),
        }
    }

    /// The bytes that a command is about.
    fn bytes(&self, command: &Command) -> Result<(u64, u64), u16> {
        self.span(command.wide(10), u64::from(command.words[12] & 0xffff) + 1)
    }

    fn span(&self, first: u64, count: u64) -> Result<(u64, u64), u16> {
        let end = first.checked_add(count).filter(|&end| end <= self.blocks());
        let bytes = self.shape.block_bytes();
        end.map(|_| (first * bytes, count * bytes)).ok_or(OUT_OF_RANGE)
    }

    fn transfer(&self, ram: &Ram, command: &Command) -> Done {
        let (mut at, length) = self.bytes(command)?;
        if length > self.shape.most_bytes() {
            return Err(INVALID_FIELD);
        }
        for (address, length) in self.pages(ram, command, length)? {
            let (mut platter, span) = (&self.platter, Span { address, length });
            let done = match command.operation() {
                0x01 => platter.write(at, &Dma(ram), span),
                _ => platter.read(at, &Dma(ram), span),
            };
            done.map_err(|_| INTERNAL_ERROR)?;
            at += u64::from(length);
        }
        Ok(())
    }

    /// Where the data of a command are: pieces of pages (section 4.3).
    fn pages(&self, ram: &Ram, command: &Command, length: u64) -> Result<Vec<(u64, u32)>, u16> {
        let (first, second) = (command.wide(6), command.wide(8));
        let mut pieces = Vec::new();
        let mut left = length;
        let mut add = |address: u64, left: &mut u64| {
            let piece = (*left).min(4096 - address % 4096);
            pieces.push((address, piece as u32));
            *left -= piece;
            if Dma(ram).contains(address, piece) { Ok(()) } else { Err(TRANSFER_ERROR) }
        };
        add(first, &mut left)?;
        if left != 0 && left <= 4096 {
            add(second, &mut left)?;
        }
        for entry in (second..).step_by(8) {
            if left == 0 {
                break;
            }
            // A list that goes on in another page has its place in the last entry.
            let mut bytes = [0; 8];
            Dma(ram).read(entry, &mut bytes).map_err(|_| TRANSFER_ERROR)?;
            let address = u64::from_le_bytes(bytes);
            let is_last = entry % 4096 == 4088 && left > 4096;
            if is_last || !address.is_multiple_of(4096) {
                return Err(PAGE_OFFSET);
            }
            add(address, &mut left)?;
        }
        Ok(pieces)
    }

    fn zero(&self, command: &Command) -> Done {
        let (at, length) = self.bytes(command)?;
        let may_discard = command.words[12] & 1 << 25 != 0;
        if may_discard && self.shape.deallocation & 8 == 0 {
            return Err(INVALID_FIELD);
        }
        (&self.platter).zero(at, length, may_discard).map_err(|_| INTERNAL_ERROR)
    }

    fn discard(&self, ram: &Ram, command: &Command) -> Done {
        let count = u64::from(command.words[10] & 0xff) + 1;
        if command.words[11] != 4 {
            return Err(INVALID_FIELD);
        }
        for range in 0..count {
            let mut bytes = [0; 16];
            Dma(ram).read(command.wide(6) + 16 * range, &mut bytes).map_err(|_| TRANSFER_ERROR)?;
            let all = u128::from_le_bytes(bytes);
            let (length, first) = ((all >> 32) as u32, (all >> 64) as u64);
            let (at, length) = self.span(first, length.into())?;
            (&self.platter).discard(at, length).map_err(|_| INTERNAL_ERROR)?;
        }
        Ok(())
    }
}
