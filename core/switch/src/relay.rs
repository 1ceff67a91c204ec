// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets from the queues of devices to those of others: one copy, from the sender's pages to the receiver's.
//!
//! A receiver that has no buffers holds up who sends to it alone for a while ([`patience`](crate::patience)), which is what lets streams of
//! TCP run without loss; then packets for it are lost until it has taken something.
//!
//! A packet that waits is put back into its ring, and read anew when its turn comes: a queue has no state here but its indexes.

use turnstile_net::control::{Control, Limits};
use turnstile_net::frame::Frame;
use turnstile_net::plain::{ENDS, Plain};
use turnstile_net::receive::{Broken, Delivery, Room};
use turnstile_net::settings::Accepts;
use turnstile_net::software;
use turnstile_net::transfer::Transfer;
use turnstile_virtio::device::{Chain, One, Queue};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::{Layout, Options};
use turnstile_virtio::rings::Rings;
use turnstile_virtio::violation::Violation;

use crate::flow::flow;
use crate::patience::Patience;
use crate::port::Counters;
use crate::switch::{Switch, Verdict};

/// How many buffers a packet that is sent has at most: Linux has up to 17 pieces of data, with header and head.
pub const SENT_BUFFERS: usize = 24;
/// How many buffers a packet that is received has at most: 64 KiB in buffers of 1 KiB, and something more.
pub const RECEIVED_BUFFERS: usize = 80;

/// A call ends behind so many bytes, that of each receiver counted, whatever else it may do.
const SLICE: u64 = 64 << 10;
/// A buffer of a receiver counts as so many: its descriptor.
const DESCRIPTOR: u64 = 16;

/// The device behind a port, as far as it receives, while its driver is ready.
#[derive(Debug)]
pub struct Device<const Q: usize, R = Layout> {
    /// Which packets its driver wants, and by how many queues.
    pub control: Control,
    /// What its driver has agreed to.
    pub accepts: Accepts,
    /// How many bytes a packet of its driver has at most, that is no segment.
    pub longest: u32,
    receive: [Option<Queue<R>>; Q],
    patience: Patience,
    /// Queues that have received something and were not asked whether they want an interrupt: a bit for each pair.
    unasked: u64,
    /// Queues that want an interrupt: a bit each, by their numbers.
    owed: u64,
}

impl<const Q: usize, R> Device<Q, R> {
    /// A device whose queues are yet to come.
    pub const fn new(control: Control, accepts: Accepts, longest: u32) -> Self {
        let receive = [const { None }; Q];
        let patience = Patience::NEW;
        Self { control, accepts, longest, receive, patience, unasked: 0, owed: 0 }
    }

    /// One of its pairs has received something.
    #[inline(always)] // A few instructions.
    fn delivered(&mut self, pair: usize, now: u64) {
        self.patience.taken(now);
        self.unasked |= 1 << pair;
    }
}

/// Where the last packet of a call went. If the next one of the same port has the same ends, it goes there, too: between the two nothing changes that
/// decides about it but what a limited port may send.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// Addresses, and the tag behind them.
    ends: [u8; ENDS],
    to: usize,
}

/// Why [`Relay::pump`] has returned.
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

/// Devices behind the ports of a switch, with up to `Q` pairs of queues each, at most 32. The queues of a pair have the numbers `2 * pair`
/// (the device's packets for the driver) and `2 * pair + 1`.
#[derive(Debug)]
pub struct Relay<const P: usize, const Q: usize, const SETS: usize, R = Layout> {
    transmit: [[Option<Queue<R>>; Q]; P],
    ways: Ways<P, Q, SETS, R>,
}

/// All but the queues of senders.
#[derive(Debug)]
struct Ways<const P: usize, const Q: usize, const SETS: usize, R> {
    switch: Switch<P, SETS>,
    devices: [Option<Device<Q, R>>; P],
    frame: Frame<SENT_BUFFERS>,
    room: Room<RECEIVED_BUFFERS>,
    /// Ports that have something to ask or to tell.
    touched: u64,
    /// Receivers that have broken a rule.
    broken: u64,
    /// How many bytes this call has copied, or read in vain.
    cost: u64,
}

impl<const P: usize, const Q: usize, const SETS: usize, R> Relay<P, Q, SETS, R> {
    const FITS: () = assert!(Q <= 32, "a set of queues has a bit each");

    /// Makes a switch without devices.
    pub const fn new() -> Self {
        let () = Self::FITS;
        let ways = Ways {
            switch: Switch::new(),
            devices: [const { None }; P],
            frame: Frame::new(),
            room: Room::new(),
            touched: 0,
            broken: 0,
            cost: 0,
        };
        Self { transmit: [const { [const { None }; Q] }; P], ways }
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
    ) -> Result<(bool, bool), Violation> {
        let Some(device) = self.device(port) else { return Ok((false, false)) };
        device.control.serve(queue, memory, limits)
    }

    /// Sends what is in a queue of a port, up to `most` packets. `memories` are those of the ports' drivers, `now` is in nanoseconds. An error
    /// is the sender's: its device needs a reset. [`Relay::interrupt`] and [`Relay::broken`] follow.
    pub fn pump<M: Transfer>(
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
        let (rest, interrupt) = ways.drain(memories, memory, (port, queue), now, most)?;
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
                while device.unasked != 0 {
                    let pair = device.unasked.trailing_zeros() as usize;
                    device.unasked &= device.unasked - 1;
                    let queue = device.receive.get_mut(pair).and_then(Option::as_mut);
                    // Who cannot be asked is found to have broken a rule with the next packet.
                    if queue.is_some_and(|queue| queue.publish(memory).unwrap_or(true)) {
                        device.owed |= 1 << (2 * pair);
                    }
                }
                while device.owed != 0 {
                    let number = device.owed.trailing_zeros() as usize;
                    device.owed &= device.owed - 1;
                    each(port, number);
                }
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
        let Some(device) = self.ways.devices.get_mut(port).and_then(Option::as_mut) else { return Ok(false) };
        let mut there = false;
        for queue in device.receive.iter_mut().flatten() {
            // Behind all that is there: too few are not what is waited for.
            let mut tokens = [const { None }; RECEIVED_BUFFERS];
            for place in &mut tokens {
                let Some(chain) = queue.pop(memory)? else { break };
                *place = Some(chain.finish());
                there = true;
            }
            there |= queue.arm(memory)?;
            tokens.into_iter().rev().flatten().for_each(|token| queue.put_back(token));
        }
        Ok(there)
    }
}

impl<const P: usize, const Q: usize, const SETS: usize, R> Ways<P, Q, SETS, R> {
    /// Sends packets. Returns whether the sender wants an interrupt, too.
    fn drain<M: Transfer>(
        &mut self,
        memories: &[M; P],
        memory: &M,
        (port, queue): (usize, &mut Queue<R>),
        now: u64,
        most: u32,
    ) -> Result<(Rest, bool), Violation>
    where
        R: Rings<M>,
    {
        let Some(device) = self.devices.get(port).and_then(Option::as_ref) else {
            return Ok((Rest::Idle, false));
        };
        let longest = device.longest;
        let (mut left, mut interrupt, mut last) = (most, false, None);
        self.cost = 0;
        queue.suppress(memory)?;
        loop {
            let rest = loop {
                let Some(fewer) = left.checked_sub(1).filter(|_| self.cost < SLICE) else {
                    break Rest::Spent;
                };
                left = fewer;
                let (plain, token) = match queue.pop_one(memory)? {
                    Some(One::Buffer(token, buffer)) => (Plain::read(memory, buffer, longest)?, token),
                    Some(One::Not(token)) => (None, token),
                    None => break Rest::Idle,
                };
                let (rest, token) = match plain {
                    Some(plain) => {
                        (self.forward_plain(memories, memory, (port, &mut last), &plain, now)?, token)
                    }
                    None => {
                        last = None;
                        let mut chain = queue.chain(token);
                        (self.forward_any(memories, memory, port, &mut chain, now)?, chain.finish())
                    }
                };
                if let Some(rest) = rest {
                    queue.put_back(token);
                    break rest;
                }
                queue.complete(memory, token, 0)?;
                queue.show(memory)?;
            };
            interrupt |= queue.publish(memory)?;
            if rest != Rest::Idle || !queue.arm(memory)? {
                return Ok((rest, interrupt));
            }
        }
    }

    /// Brings a packet to where it goes. Returns why it must wait, if it must: then nobody has it. An error is the sender's.
    #[inline(always)] // On the path of every packet.
    fn forward_plain<M: Transfer>(
        &mut self,
        memories: &[M; P],
        memory: &M,
        (port, last): (usize, &mut Option<Last>),
        plain: &Plain,
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
                    self.frame.set(plain);
                    return self.follow(verdict, memories, memory, port, now);
                }
            },
        };
        if self.hand_over(memories, memory, to, plain, now)? {
            self.switch.sent(port, plain.length(), now);
            return Ok(None);
        }
        self.frame.set(plain);
        self.follow(Verdict::To(1 << to), memories, memory, port, now)
    }

    /// Brings a packet to a port whose driver takes it as it is, into one buffer. False if that is not so: then nothing has happened.
    #[inline(always)] // On the path of every packet.
    fn hand_over<M: Transfer>(
        &mut self,
        memories: &[M; P],
        from: &M,
        port: usize,
        plain: &Plain,
        now: u64,
    ) -> Result<bool, Violation>
    where
        R: Rings<M>,
    {
        let device = self.devices.get_mut(port).and_then(Option::as_mut);
        let (Some(device), Some(memory)) = (device, memories.get(port)) else { return Ok(false) };
        if device.control.pairs > 1 || !device.control.wants(plain.head()) {
            return Ok(false);
        }
        let Some(queue) = device.receive.first_mut().and_then(Option::as_mut) else { return Ok(false) };
        match plain.deliver((queue, memory), from) {
            Ok(false) => return Ok(false),
            Ok(true) => {
                self.cost += u64::from(plain.length()) + DESCRIPTOR;
                self.touched |= 1 << port;
                device.delivered(0, now);
                self.switch.received(port, plain.length());
            }
            Err(Broken::Sender(violation)) => return Err(violation),
            Err(Broken::Receiver(_)) => self.put_out(port),
        }
        Ok(true)
    }

    /// Brings any packet to where it goes.
    #[inline(never)] // What most packets need stays in registers.
    fn forward_any<M: Transfer>(
        &mut self,
        memories: &[M; P],
        memory: &M,
        port: usize,
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
        let verdict = self.switch.judge(port, self.frame.head(), now);
        self.follow(verdict, memories, memory, port, now)
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
        let frame = &mut self.frame;
        let Some(device) = self.devices.get_mut(port).and_then(Option::as_mut) else { return Ok(0) };
        if !device.control.wants(frame.head()) {
            return Ok(0);
        }
        let mut pair = 0;
        if device.control.pairs > 1 {
            frame.extend(from)?;
            pair = flow(frame.head()) as usize % usize::from(device.control.pairs);
        }
        // A queue that is not enabled takes nothing; the first one does.
        let pair = if device.receive.get(pair).is_some_and(Option::is_some) { pair } else { 0 };
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
                let left = device.patience.left(now);
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

impl<const P: usize, const Q: usize, const SETS: usize, R> Default for Relay<P, Q, SETS, R> {
    fn default() -> Self {
        Self::new()
    }
}
