// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which descriptors are free, and which chains the device has: in memory that it does not reach.

/// What the driver knows of a descriptor.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The next one: of the free ones, or of the chain.
    next: u16,
    /// If it is the first of a chain that the device has: how many descriptors that has.
    count: u16,
    /// And how many bytes the device may write.
    writable: u32,
}

/// The descriptors of a queue.
#[derive(Debug)]
pub(super) struct Pool<const N: usize> {
    slots: [Slot; N],
    first: u16,
    free: u16,
    in_flight: u16,
}

impl<const N: usize> Pool<N> {
    /// A pool without descriptors.
    pub(super) const NEW: Self =
        Self { slots: [Slot { next: 0, count: 0, writable: 0 }; N], first: 0, free: 0, in_flight: 0 };

    /// From now on `size` descriptors are free, and no others. False if there is no room for as many.
    pub(super) fn begin(&mut self, size: u16) -> bool {
        self.slots.fill(Slot::default());
        let slots = self.slots.get_mut(..size.into());
        let fits = slots.is_some();
        for (next, slot) in (1..).zip(slots.unwrap_or_default()) {
            slot.next = next;
        }
        (self.first, self.free, self.in_flight) = (0, if fits { size } else { 0 }, 0);
        fits
    }

    /// How many are free.
    pub(super) const fn free(&self) -> u16 {
        self.free
    }

    /// How many chains the device has.
    pub(super) const fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// The first free one, if any is.
    pub(super) const fn first(&self) -> u16 {
        self.first
    }

    /// The one behind another, among the free ones.
    pub(super) fn behind(&self, at: u16) -> u16 {
        self.slots.get(usize::from(at)).map_or(0, |slot| slot.next)
    }

    /// The first `count` free ones, which begin with `head`, are a chain of the device from now on.
    pub(super) fn take(&mut self, head: u16, count: u16, writable: u32) {
        self.first = (0..count).fold(head, |at, _| self.behind(at));
        self.free = self.free.saturating_sub(count);
        self.in_flight += 1;
        if let Some(slot) = self.slots.get_mut(usize::from(head)) {
            (slot.count, slot.writable) = (count, writable);
        }
    }

    /// How many bytes the device may write to a chain; `None` if it has none that begins so.
    pub(super) fn writable(&self, head: u16) -> Option<u32> {
        self.slots.get(usize::from(head)).filter(|slot| slot.count != 0).map(|slot| slot.writable)
    }

    /// A chain is free again.
    pub(super) fn give_back(&mut self, head: u16) {
        let Some(slot) = self.slots.get_mut(usize::from(head)) else { return };
        let count = core::mem::take(&mut slot.count);
        let last = (1..count).fold(head, |at, _| self.behind(at));
        if let Some(slot) = self.slots.get_mut(usize::from(last)) {
            slot.next = self.first;
        }
        self.first = head;
        self.free += count;
        self.in_flight -= 1;
    }
}
