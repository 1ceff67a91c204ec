// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the memory of one driver to that of another.

use crate::device::{Place, Span};
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
    /// Copies `length` bytes to the other memory: those that lie in spans from a place on, to spans from a place on.
    #[inline(always)] // On the path of every packet.
    fn transfer_spans(
        &self,
        from: (&[Span], Place),
        to: &Self,
        targets: (&[Span], Place),
        length: u32,
    ) -> Result<(), End> {
        pieces(from, targets, length, Ok, |from: Span, offset, length, target| {
            let address = from.address.wrapping_add(offset.into());
            self.transfer(Span { address, length }, to, target)
        })
    }
}

/// Goes through `length` bytes that lie in spans, from a place on, and go to spans, from a place on. Calls `find` with what lies together on the side
/// that they come from, and `each` for each piece of it that lies together on the other one: with what `find` has returned, how far behind that the
/// piece begins, how long it is, and to which address it goes.
#[inline(always)] // On the path of every packet.
pub fn pieces<F: Copy, E>(
    (sources, source): (&[Span], Place),
    (targets, target): (&[Span], Place),
    mut length: u32,
    mut find: impl FnMut(Span) -> Result<F, E>,
    mut each: impl FnMut(F, u32, u32, u64) -> Result<(), E>,
) -> Result<(), E> {
    let ((from, mut sources), (to, mut targets)) = (source.rest(sources), target.rest(targets));
    let (Some(mut from), Some(mut to)) = (from, to) else { return Ok(()) };
    loop {
        from.length = from.length.min(length);
        length -= from.length;
        let (found, mut done) = (find(from)?, 0);
        while done != from.length {
            let piece = to.length.min(from.length - done);
            each(found, done, piece, to.address)?;
            done += piece;
            if !to.skip(piece) {
                let Some((next, others)) = targets.split_first() else { return Ok(()) };
                (to, targets) = (*next, others);
            }
        }
        let Some((next, others)) = sources.split_first().filter(|_| length != 0) else { return Ok(()) };
        (from, sources) = (*next, others);
    }
}
