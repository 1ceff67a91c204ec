// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the memory of one driver to that of another.

use crate::device::Span;
use crate::memory::{Memory, Outside};

/// Which end of a copy is not memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The sender's.
    From(Outside),
    /// The receiver's.
    To(Outside),
}

/// Memory from which bytes go to other memory of its kind.
pub trait Transfer: Memory + Sized {
    /// Copies bytes to `address` of the other memory. Who can, copies once; this copies twice, through the stack.
    fn transfer(&self, from: Span, to: &Self, address: u64) -> Result<(), End> {
        let (mut done, mut buffer) = (0, [0; 256]);
        while done < from.length {
            let length = (from.length - done).min(256);
            let bytes = buffer.get_mut(..length as usize).unwrap_or_default();
            self.read(from.address.wrapping_add(done.into()), bytes).map_err(End::From)?;
            to.write(address.wrapping_add(done.into()), bytes).map_err(End::To)?;
            done += length;
        }
        Ok(())
    }

    /// Writes a few bytes to `address` of the other memory, and copies bytes behind them.
    #[inline] // On the path of every packet.
    fn transfer_behind(&self, front: &[u8], from: Span, to: &Self, address: u64) -> Result<(), End> {
        to.write(address, front).map_err(End::To)?;
        self.transfer(from, to, address.wrapping_add(front.len() as u64))
    }
}
