// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ways that packets go: what is in a sender's queue is judged, and handed to the devices of those it is for.

use turnstile_net::frame::Frame;
use turnstile_net::plain::{ENDS, Plain};
use turnstile_net::receive::{Broken, Delivery, Room};
use turnstile_net::settings::{SENDS, TAKES};
use turnstile_net::software;
use turnstile_net::transfer::Transfer;
use turnstile_virtio::device::{Chain, One, Queue, Token};
use turnstile_virtio::ring::Buffer;
use turnstile_virtio::rings::Rings;
use turnstile_virtio::violation::Violation;

use super::device::{Device, RECEIVED_BUFFERS};
use crate::flow::{HEAD, flow};
use crate::port::Counters;
use crate::switch::{Switch, Verdict};

/// How many buffers a packet that is sent has at most: Linux has up to 17 pieces of data, with header and head.
pub const SENT_BUFFERS: usize = 24;

/// A call ends behind so many bytes, that of each receiver counted, whatever else it may do.
const SLICE: u64 = 64 << 10;
/// A buffer of a receiver counts as so many: its descriptor.
const DESCRIPTOR: u64 = 16;

/// Why [`Relay::pump`](super::Relay::pump) has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// All is sent, and the driver notifies when there is more.
    Idle,
    /// As much was sent as may be in a call: call again.
    Spent,
    /// Call again in so many nanoseconds: the port has sent as much as it may.
    Wait(u64),
    /// Call again when this port's driver has offered buffers, or in so many nanoseconds.
    Full(usize, u64),
}

/// Where the last packet of a call went. If the next one of the same port has the same ends, it goes there, too: between the two nothing changes that
/// decides about it but what a limited port may send.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// Addresses, and the tag behind them.
    ends: [u8; ENDS],
    to: usize,
}

/// All but the queues of senders.
#[derive(Debug)]
pub(super) struct Ways<const P: usize, const Q: usize, const SETS: usize, R> {
    pub(super) switch: Switch<P, SETS>,
    pub(super) devices: [Option<Device<Q, R>>; P],
    frame: Frame<SENT_BUFFERS>,
    /// The frame's flow, as soon as somebody has asked for it.
    flow: Option<u64>,
    room: Room<RECEIVED_BUFFERS>,
    /// Ports that have something to ask or to tell.
    pub(super) touched: u64,
    /// Receivers that have broken a rule.
    pub(super) broken: u64,
    /// How many bytes this call has copied, or read in vain.
    cost: u64,
}

impl<const P: usize, const Q: usize, const SETS: usize, R> Ways<P, Q, SETS, R> {
    /// Without devices.
    pub(super) const fn new() -> Self {
        Self {
            switch: Switch::new(),
            devices: [const { None }; P],
            frame: Frame::new(),
            flow: None,
            room: Room::new(),
            touched: 0,
            broken: 0,
            cost: 0,
        }
    }

    /// Sends packets. Returns whether the sender wants an interrupt, too. Of who has `SEVERAL` pairs each packet's flow is noted.
    #[inline(always)] // One caller of each kind.
    pub(super) fn drain<M: Transfer, const SEVERAL: bool>(
        &mut self,
        memories: &[M; P],
        memory: &M,
        ((port, pair), queue): ((usize, usize), &mut Queue<R>),
        now: u64,
        most: u32,
    ) -> Result<(Rest, bool), Violation>
    where
        R: Rings<M>,
    {
        let Some(device) = self.devices.get(port).and_then(Option::as_ref) else {
            return Ok((Rest::Idle, false));
        };
        let (longest, checksum) = (device.longest, device.accepts.checksum[SENDS]);
        let (mut left, mut interrupt, mut last) = (most, false, None);
        self.cost = 0;
        queue.suppress(memory)?;
        loop {
            let rest = loop {
                let Some(fewer) = left.checked_sub(1).filter(|_| self.cost < SLICE) else {
                    break Rest::Spent;
                };
                left = fewer;
                let (plain, token, buffer) = match queue.pop_one(memory)? {
                    Some(One::Buffer(token, buffer)) => {
                        (Plain::read::<M, SEVERAL>(memory, buffer, longest)?, token, Some(buffer))
                    }
                    Some(One::Not(token)) => (None, token, None),
                    None => break Rest::Idle,
                };
                let from = ((port, pair), &*queue, &mut last);
                let packet = (
                    plain.filter(|plain| !SEVERAL || checksum || !plain.is_open()),
                    token,
                    buffer.filter(|_| !SEVERAL && checksum),
                    longest,
                );
                let (rest, token) = self.forward::<M, SEVERAL>(memories, memory, from, packet, now)?;
                if let Some(rest) = rest {
                    queue.put_back(token);
                    break rest;
                }
                queue.complete(memory, token, 0)?;
            };
            interrupt |= queue.publish(memory)?;
            if rest != Rest::Idle || !queue.arm(memory)? {
                return Ok((rest, interrupt));
            }
        }
    }

    /// Brings what was taken to where it goes: a plain packet, or another one, which may still be in one buffer that says that its checksum is open. As
    /// [`Self::forward_plain`].
    #[inline(always)] // One caller of each kind.
    fn forward<M: Transfer, const SEVERAL: bool>(
        &mut self,
        memories: &[M; P],
        memory: &M,
        ((port, pair), queue, last): ((usize, usize), &Queue<R>, &mut Option<Last>),
        (plain, token, open, longest): (Option<Plain>, Token, Option<Buffer>, u32),
        now: u64,
    ) -> Result<(Option<Rest>, Token), Violation>
    where
        R: Rings<M>,
    {
        if let Some(plain) = plain {
            let flow = if SEVERAL { Some(self.note_plain(memory, (port, pair), &plain)?) } else { None };
            let rest =
                self.forward_plain::<M, SEVERAL>(memories, memory, (port, last), (&plain, flow), now)?;
            return Ok((rest, token));
        }
        *last = None;
        if let Some(buffer) = open
            && let Some(rest) = self.forward_open(memories, memory, port, (buffer, longest), now)?
        {
            return Ok((rest, token));
        }
        let mut chain = queue.chain(token);
        let from = (port, SEVERAL.then_some(pair));
        let rest = self.forward_any(memories, memory, from, &mut chain, now)?;
        Ok((rest, chain.finish()))
    }

    /// Brings a packet to where it goes, whose flow is known if its sender has several pairs. Returns why it must wait, if it must: then nobody has it. An
    /// error is the sender's.
    #[inline(always)] // On the path of every packet.
    fn forward_plain<M: Transfer, const OPEN: bool>(
        &mut self,
        memories: &[M; P],
        memory: &M,
        (port, last): (usize, &mut Option<Last>),
        (plain, flow): (&Plain, Option<u64>),
        now: u64,
    ) -> Result<Option<Rest>, Violation>
    where
        R: Rings<M>,
    {
        let to = match last {
            Some(Last { ends, to }) if ends == plain.ends() => *to,
            _ => match self.switch.judge(port, plain.head(), now) {
                Verdict::To(ports) if ports.is_power_of_two() => {
                    let to = ports.trailing_zeros() as usize;
                    *last = (!self.switch.is_limited(port)).then(|| Last { ends: *plain.ends(), to });
                    to
                }
                verdict => {
                    *last = None;
                    self.set_frame(*plain, flow);
                    return self.follow(verdict, memories, memory, port, now);
                }
            },
        };
        if self.hand_over::<M, OPEN>(memories, memory, to, (plain, flow), now)? {
            self.switch.sent(port, plain.length(), now);
            return Ok(None);
        }
        self.set_frame(*plain, flow);
        self.follow(Verdict::To(1 << to), memories, memory, port, now)
    }

    /// The packet becomes the frame. By value, as below: what most packets need of it stays in registers.
    #[cold]
    #[inline(never)] // As above.
    fn set_frame(&mut self, plain: Plain, flow: Option<u64>) {
        self.frame.set(&plain);
        self.flow = flow;
    }

    /// Brings a packet to a port whose driver takes it as it is, into one buffer. False if that is not so: then nothing has happened.
    #[inline(always)] // On the path of every packet.
    fn hand_over<M: Transfer, const OPEN: bool>(
        &mut self,
        memories: &[M; P],
        from: &M,
        port: usize,
        (plain, flow): (&Plain, Option<u64>),
        now: u64,
    ) -> Result<bool, Violation>
    where
        R: Rings<M>,
    {
        let device = self.devices.get_mut(port).and_then(Option::as_mut);
        let (Some(device), Some(memory)) = (device, memories.get(port)) else { return Ok(false) };
        if !device.control.wants(plain.head()) {
            return Ok(false);
        }
        if OPEN && plain.is_open() && !device.accepts.checksum[TAKES] {
            return Ok(false);
        }
        let pair = match (device.control.pairs, flow) {
            (0 | 1, _) => 0,
            (_, Some(flow)) => device.pair(flow),
            (_, None) => return self.hand_over_to_one(memories, from, port, *plain, now),
        };
        let Some(queue) = device.receive.get_mut(pair).and_then(Option::as_mut) else { return Ok(false) };
        match plain.deliver((queue, memory), from) {
            Ok(false) => return Ok(false),
            Ok(true) => {
                self.cost += u64::from(plain.length()) + DESCRIPTOR;
                self.touched |= 1 << port;
                device.delivered(pair, now);
                self.switch.received(port, plain.length());
            }
            Err(Broken::Sender(violation)) => return Err(violation),
            Err(Broken::Receiver(_)) => self.put_out(port),
        }
        Ok(true)
    }

    /// Brings a packet whose checksum is open to where it goes, of a driver with one pair that may leave it so. Returns nothing if it is no plain one; else as
    /// [`Self::forward_plain`].
    #[inline(never)] // What those need that have none stays in registers.
    fn forward_open<M: Transfer>(
        &mut self,
        memories: &[M; P],
        memory: &M,
        port: usize,
        (buffer, longest): (Buffer, u32),
        now: u64,
    ) -> Result<Option<Option<Rest>>, Violation>
    where
        R: Rings<M>,
    {
        let Some(plain) = Plain::read::<M, true>(memory, buffer, longest)? else { return Ok(None) };
        let mut last = None;
        self.forward_plain::<M, true>(memories, memory, (port, &mut last), (&plain, None), now).map(Some)
    }

    /// As [`Self::hand_over`], from a driver with one pair to one with several, where the packet's flow is to be known.
    #[cold]
    #[inline(never)] // The way from one pair to another one needs no more registers.
    fn hand_over_to_one<M: Transfer>(
        &mut self,
        memories: &[M; P],
        from: &M,
        port: usize,
        plain: Plain,
        now: u64,
    ) -> Result<bool, Violation>
    where
        R: Rings<M>,
    {
        let flow = flow_of(from, &plain)?;
        self.hand_over::<M, true>(memories, from, port, (&plain, Some(flow)), now)
    }

    /// The packet's flow is one that its sender has sent by a pair.
    #[inline(always)] // On the path of every packet of a driver with several pairs.
    fn note_plain<M: Transfer>(
        &mut self,
        memory: &M,
        (port, pair): (usize, usize),
        plain: &Plain,
    ) -> Result<u64, Violation> {
        let flow = flow_of(memory, plain)?;
        if let Some(device) = self.devices.get_mut(port).and_then(Option::as_mut) {
            device.steering.sent(flow, pair);
        }
        Ok(flow)
    }

    /// Brings any packet to where it goes.
    #[inline(never)] // What most packets need stays in registers.
    fn forward_any<M: Transfer>(
        &mut self,
        memories: &[M; P],
        memory: &M,
        (port, pair): (usize, Option<usize>),
        chain: &mut Chain,
        now: u64,
    ) -> Result<Option<Rest>, Violation>
    where
        R: Rings<M>,
    {
        let Some(device) = self.devices.get(port).and_then(Option::as_ref) else { return Ok(None) };
        let (accepts, longest) = (device.accepts, device.longest);
        if self.frame.read(memory, chain, &accepts, longest)?.is_err() {
            self.switch.count(port, |counters| counters.malformed += 1);
            return Ok(None);
        }
        self.flow = None;
        if let Some(pair) = pair {
            self.note(memory, (port, pair))?;
        }
        let verdict = self.switch.judge(port, self.frame.head(), now);
        self.follow(verdict, memories, memory, port, now)
    }

    /// The frame's flow.
    fn frame_flow<M: Transfer>(&mut self, from: &M) -> Result<u64, Violation> {
        if let Some(flow) = self.flow {
            return Ok(flow);
        }
        self.frame.extend(from)?;
        let flow = flow(self.frame.head());
        self.flow = Some(flow);
        Ok(flow)
    }

    /// The frame's flow is one that its sender has sent by a pair.
    #[cold]
    #[inline(never)] // One pair goes without.
    fn note<M: Transfer>(&mut self, memory: &M, (port, pair): (usize, usize)) -> Result<(), Violation> {
        let flow = self.frame_flow(memory)?;
        self.devices.get_mut(port).into_iter().flatten().for_each(|device| device.steering.sent(flow, pair));
        Ok(())
    }

    /// Does with the frame what was decided.
    #[inline(never)] // As above.
    fn follow<M: Transfer>(
        &mut self,
        verdict: Verdict,
        memories: &[M; P],
        memory: &M,
        port: usize,
        now: u64,
    ) -> Result<Option<Rest>, Violation>
    where
        R: Rings<M>,
    {
        let add: fn(&mut Counters) = match verdict {
            Verdict::Wait(nanoseconds) => return Ok(Some(Rest::Wait(nanoseconds))),
            Verdict::To(0) => |counters| counters.unwanted += 1,
            Verdict::To(ports) => {
                let mut left = ports;
                while left != 0 {
                    let to = left.trailing_zeros() as usize;
                    left &= left - 1;
                    let Some(target) = memories.get(to) else { continue };
                    let full = self.deliver((to, target), memory, now)?;
                    if full != 0 && ports.is_power_of_two() {
                        if !self.switch.is_impatient(port) {
                            return Ok(Some(Rest::Full(to, full)));
                        }
                        self.switch.count(to, |counters| counters.overrun += 1);
                    }
                }
                self.switch.sent(port, self.frame.length(), now);
                return Ok(None);
            }
            Verdict::Spoofed => |counters| counters.spoofed += 1,
            Verdict::Malformed => |counters| counters.malformed += 1,
        };
        self.switch.count(port, add);
        Ok(None)
    }

    /// Brings the frame to a port. Returns for how many nanoseconds it may wait there for buffers; 0 if it has gone, or is lost.
    fn deliver<M: Transfer>(
        &mut self,
        (port, memory): (usize, &M),
        from: &M,
        now: u64,
    ) -> Result<u64, Violation>
    where
        R: Rings<M>,
    {
        let Some(device) = self.devices.get(port).and_then(Option::as_ref) else { return Ok(0) };
        if !device.control.wants(self.frame.head()) {
            return Ok(0);
        }
        if device.control.pairs > 1 {
            return self.deliver_to_one((port, memory), from, now);
        }
        self.bring((port, 0), memory, from, now)
    }

    /// The same to one of several pairs, which the frame's flow tells.
    #[cold]
    #[inline(never)] // The way to the only pair there is needs no more registers.
    fn deliver_to_one<M: Transfer>(
        &mut self,
        (port, memory): (usize, &M),
        from: &M,
        now: u64,
    ) -> Result<u64, Violation>
    where
        R: Rings<M>,
    {
        let flow = self.frame_flow(from)?;
        let Some(device) = self.devices.get(port).and_then(Option::as_ref) else { return Ok(0) };
        let pair = device.pair(flow);
        self.bring((port, pair), memory, from, now)
    }

    /// Brings the frame to a pair of a port, as above.
    #[inline(always)] // To a pair that is known, mostly.
    fn bring<M: Transfer>(
        &mut self,
        (port, pair): (usize, usize),
        memory: &M,
        from: &M,
        now: u64,
    ) -> Result<u64, Violation>
    where
        R: Rings<M>,
    {
        let frame = &mut self.frame;
        let Some(device) = self.devices.get_mut(port).and_then(Option::as_mut) else { return Ok(0) };
        let Some(queue) = device.receive.get_mut(pair).and_then(Option::as_mut) else { return Ok(0) };
        let merge = device.accepts.merge;
        let delivery = if frame.suits(&device.accepts) {
            self.room.deliver((queue, memory), merge, from, frame.packet())
        } else {
            software::deliver(&mut self.room, (queue, memory), merge, from, frame)
        };
        // Whatever has become of it: a receiver's buffers may be many, and of no use.
        self.cost += u64::from(frame.length()) + DESCRIPTOR * u64::from(self.room.take_read());
        match delivery {
            Ok(Delivery::Done) => {
                device.delivered(pair, now);
                self.touched |= 1 << port;
                self.switch.received(port, frame.length());
            }
            Ok(Delivery::Full) => {
                let left = device.patience.get_mut(pair).map_or(0, |patience| patience.left(now));
                if left == 0 {
                    self.switch.count(port, |counters| counters.overrun += 1);
                }
                return Ok(left);
            }
            Ok(Delivery::TooLong) => self.switch.count(port, |counters| counters.overrun += 1),
            Err(Broken::Sender(violation)) => return Err(violation),
            Err(Broken::Receiver(_)) => self.put_out(port),
        }
        Ok(0)
    }

    /// A receiver has broken a rule.
    #[cold]
    #[inline(never)]
    fn put_out(&mut self, port: usize) {
        self.broken |= 1 << port;
        self.devices.iter_mut().skip(port).take(1).for_each(|device| *device = None);
    }
}

/// The flow of a packet.
#[inline(always)] // On the path of every packet of a driver with several pairs.
fn flow_of<M: Transfer>(memory: &M, plain: &Plain) -> Result<u64, Violation> {
    let mut head = [0; HEAD];
    let length = plain.longer_head(memory, &mut head)?;
    Ok(match length {
        HEAD => flow(&head),
        _ => flow(head.get(..length).unwrap_or_default()),
    })
}
