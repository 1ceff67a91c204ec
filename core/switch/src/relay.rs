// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets from the queues of devices to those of others: one copy, from the sender's pages to the receiver's.
//!
//! A receiver that has no buffers holds up who sends to it alone for a while ([`patience`](crate::patience)), which is what lets streams of
//! TCP run without loss; then packets for it are lost until it has taken something.
//!
//! A packet that waits is put back into its ring, and read anew when its turn comes: a queue has no state here but its indexes.

use turnstile_net::control::Limits;
use turnstile_net::transfer::Transfer;
use turnstile_virtio::device::Queue;
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::{Layout, Options};
use turnstile_virtio::rings::Rings;
use turnstile_virtio::violation::Violation;

use crate::switch::Switch;

mod device;
mod ways;

pub use device::{Device, RECEIVED_BUFFERS};
use ways::Ways;
pub use ways::{Rest, SENT_BUFFERS};

/// Devices behind the ports of a switch, with up to `Q` pairs of queues each, at most 32. The queues of a pair have the numbers `2 * pair`
/// (the device's packets for the driver) and `2 * pair + 1`.
#[derive(Debug)]
pub struct Relay<const P: usize, const Q: usize, const SETS: usize, R = Layout> {
    transmit: [[Option<Queue<R>>; Q]; P],
    ways: Ways<P, Q, SETS, R>,
}

impl<const P: usize, const Q: usize, const SETS: usize, R> Relay<P, Q, SETS, R> {
    const FITS: () = assert!(Q <= 32, "a set of queues has a bit each");

    /// Makes a switch without devices.
    pub const fn new() -> Self {
        let () = Self::FITS;
        Self { transmit: [const { [const { None }; Q] }; P], ways: Ways::new() }
    }

    /// The switch.
    pub const fn switch(&mut self) -> &mut Switch<P, SETS> {
        &mut self.ways.switch
    }

    /// A driver is ready, or, without a device, has reset it: its queues are forgotten.
    pub fn set_device(&mut self, port: usize, device: Option<Device<Q, R>>) {
        if let (Some(place), Some(queues)) = (self.ways.devices.get_mut(port), self.transmit.get_mut(port)) {
            *place = device;
            queues.iter_mut().for_each(|queue| *queue = None);
        }
    }

    /// The device of a port.
    pub fn device(&mut self, port: usize) -> Option<&mut Device<Q, R>> {
        self.ways.devices.get_mut(port)?.as_mut()
    }

    /// A driver has enabled a queue, or, without rings, has reset it. If an earlier life of the device has `left` the queue, it is taken up
    /// where that was. False if there is no such queue.
    pub fn set_queue<M: Memory>(
        &mut self,
        (port, number): (usize, usize),
        memory: &M,
        rings: Option<(R, Options)>,
        left: bool,
    ) -> Result<bool, Violation>
    where
        R: Rings<M>,
    {
        let (is_transmit, longest) = (number % 2 == 1, [RECEIVED_BUFFERS, SENT_BUFFERS][number % 2] as u32);
        let queue = match rings {
            None => None,
            Some((rings, options)) if left => Some(Queue::resume(memory, rings, options, longest)?),
            Some((rings, options)) => Some(Queue::new(rings, options, longest)),
        };
        let Some(device) = self.ways.devices.get_mut(port).and_then(Option::as_mut) else { return Ok(false) };
        // It is not interesting when a driver offers buffers, unless somebody waits for them.
        let queue = match queue {
            Some(mut queue) if !is_transmit => {
                queue.suppress(memory)?;
                Some(queue)
            }
            queue => queue,
        };
        let receive = device.receive.get_mut(number / 2);
        let transmit = self.transmit.get_mut(port).and_then(|queues| queues.get_mut(number / 2));
        let Some(place) = (if is_transmit { transmit } else { receive }) else { return Ok(false) };
        *place = queue;
        if left {
            device.owed |= 1 << number;
            self.ways.touched |= 1 << port;
        }
        Ok(true)
    }

    /// Does the commands of a port's driver. The queue is the caller's, and so is the device that may be changed. As [`Control::serve`].
    pub fn control<M: Memory, C: Rings<M>>(
        &mut self,
        port: usize,
        queue: &mut Queue<C>,
        memory: &M,
        limits: &Limits,
        keep: impl FnMut(u16),
    ) -> Result<(bool, bool), Violation> {
        let Some(device) = self.device(port) else { return Ok((false, false)) };
        device.control.serve(queue, memory, limits, keep)
    }

    /// Sends what is in the queue of a port's first pair, up to `most` packets, as all of a driver that has one pair. `memories` are those of the ports'
    /// drivers, `now` is in nanoseconds. An error is the sender's: its device needs a reset. [`Relay::interrupt`] and [`Relay::broken`] follow.
    #[inline(never)] // Its state stays in registers.
    pub fn pump<M: Transfer>(
        &mut self,
        memories: &[M; P],
        port: usize,
        now: u64,
        most: u32,
    ) -> Result<Rest, Violation>
    where
        R: Rings<M>,
    {
        self.drain::<M, false>(memories, (port, 0), now, most)
    }

    /// The same by a pair of a driver that has several: what it sends of a flow tells by which of them it receives that.
    #[inline(never)] // The way of one pair is another one.
    pub fn pump_pair<M: Transfer>(
        &mut self,
        memories: &[M; P],
        from: (usize, usize),
        now: u64,
        most: u32,
    ) -> Result<Rest, Violation>
    where
        R: Rings<M>,
    {
        self.drain::<M, true>(memories, from, now, most)
    }

    #[inline(always)] // One caller of each kind, and one pair is known.
    fn drain<M: Transfer, const SEVERAL: bool>(
        &mut self,
        memories: &[M; P],
        (port, pair): (usize, usize),
        now: u64,
        most: u32,
    ) -> Result<Rest, Violation>
    where
        R: Rings<M>,
    {
        let Self { transmit, ways } = self;
        let queue = transmit.get_mut(port).and_then(|queues| queues.get_mut(pair)?.as_mut());
        let (Some(memory), Some(queue)) = (memories.get(port), queue) else { return Ok(Rest::Idle) };
        let from = ((port, pair), queue);
        let (rest, interrupt) = ways.drain::<M, SEVERAL>(memories, memory, from, now, most)?;
        if let Some(device) = ways.devices.get_mut(port).and_then(Option::as_mut)
            && interrupt
        {
            device.owed |= 1 << (2 * pair + 1);
            ways.touched |= 1 << port;
        }
        Ok(rest)
    }

    /// Calls a function with each queue whose driver wants an interrupt: port and number.
    #[inline(always)] // On the path of every packet.
    pub fn interrupt<M: Memory>(&mut self, memories: &[M; P], mut each: impl FnMut(usize, usize))
    where
        R: Rings<M>,
    {
        while self.ways.touched != 0 {
            let port = self.ways.touched.trailing_zeros() as usize;
            let device = self.ways.devices.get_mut(port).and_then(Option::as_mut);
            if let (Some(device), Some(memory)) = (device, memories.get(port)) {
                device.interrupt(memory, |number| each(port, number));
            }
            self.ways.touched &= self.ways.touched - 1;
        }
    }

    /// A port whose driver has broken a rule as a receiver: its device is out, and needs a reset. To be called until there is none.
    pub fn broken(&mut self) -> Option<usize> {
        let port = (self.ways.broken != 0).then(|| self.ways.broken.trailing_zeros() as usize)?;
        self.ways.broken &= self.ways.broken - 1;
        self.set_device(port, None);
        Some(port)
    }

    /// A receiver asks for a notification when it offers more buffers than there are now, which is needed only while somebody waits for them
    /// ([`Rest::Full`]). What came before is not notified of: the sender's queue is to be tried once more. Returns whether there are some.
    pub fn arm<M: Memory>(&mut self, port: usize, memory: &M) -> Result<bool, Violation>
    where
        R: Rings<M>,
    {
        self.device(port).map_or(Ok(false), |device| device.arm(memory))
    }
}

impl<const P: usize, const Q: usize, const SETS: usize, R> Default for Relay<P, Q, SETS, R> {
    fn default() -> Self {
        Self::new()
    }
}
