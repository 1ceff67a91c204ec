// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A PCI function with a virtio device: events and their answers.

use turnstile_pci::absent;
use turnstile_pci::bar::Bar;
use turnstile_pci::function::{Changed, Function};
use turnstile_pci::msix::Msix;
use turnstile_service_rt::{AGAIN, Answer, BARS, BY_PLACE, CONFIGURATION, Doorbells, Event};
use turnstile_virtio::config::Configuration;
use turnstile_virtio::pci::{Device, NOTIFICATIONS, Outcome};
use turnstile_virtio::registers::{Effect, Registers, Status};

use crate::model::{Model, Rest, Served, Serves};
use crate::record;
use crate::world::World;

/// How many BARs a function has.
const BAR_COUNT: u8 = 6;
/// The words of a function's configuration space that are kept: up to 64 bytes can be written.
const SPACE: usize = 8;
/// What is done before the time is looked at, as [`Serves::serve`] counts it. On the slowest machines it is a part of the time limit.
const SLICE: u32 = 64 << 10;
/// How many of those one event has at most, whatever the time is.
const SLICES: u32 = 16;
/// How long one event goes on behind its first slice, in nanoseconds. Then the guest has its turn.
const SPAN: u64 = 150_000;
/// The address of a BAR that is not decoded.
const NOWHERE: u64 = u64::MAX;

/// How many words a function with `Q` queues and `V` vectors keeps.
pub const fn words<const Q: usize, const V: usize>() -> usize {
    record::room(length::<Q, V>())
}

/// How many words a record has: the function, what the driver wrote to the configuration, the device.
const fn length<const Q: usize, const V: usize>() -> usize {
    SPACE + 1 + Registers::<Q>::WORDS + Msix::<V>::WORDS
}

/// Where a device with so many queues is rung: in [`BAR_VIRTIO`](turnstile_virtio::pci::BAR_VIRTIO).
pub const fn doorbells(queues: u32) -> Doorbells {
    Doorbells { first: NOTIFICATIONS, size: 4 * queues, by: BY_PLACE }
}

/// What there is of a function from its first event on.
struct Parts<const Q: usize, const V: usize, C> {
    function: Function,
    device: Device<Q, V, C>,
    /// Where each BAR is decoded, as the hypervisor knows it.
    decoded: [u64; BAR_COUNT as usize],
}

/// A PCI function with a virtio device, which has `Q` queues, at most 31, and `V` vectors of MSI-X.
// In this order: what is behind a large model is out of an instruction's reach.
#[repr(C)]
pub struct Virtio<const Q: usize, const V: usize, D: Model<Q>> {
    /// A bit for each queue that the model has.
    begun: u32,
    /// A bit for each of them that has something to do, perhaps.
    due: u32,
    /// The queue that is next, if it is due.
    next: u32,
    parts: Option<Parts<Q, V, D::Configuration>>,
    /// What the device does.
    pub model: D,
}

impl<const Q: usize, const V: usize, D: Model<Q>> Virtio<Q, V, D> {
    /// Makes a function that has had no event.
    pub const fn new(model: D) -> Self {
        const { assert!(Q <= 31, "a doorbell has a bit for each queue") };
        Self { model, parts: None, begun: 0, due: 0, next: 0 }
    }

    /// Handles the first event. With what is `kept` from before a crash the function goes on; otherwise firmware has placed its BARs from
    /// `bars` on, or nowhere.
    pub fn attach<W: World>(&mut self, world: &W, kept: bool, bars: u64) -> Answer
    where
        D: Serves<Q, W::Memory>,
    {
        (self.parts, self.begun, self.due) = (None, 0, 0);
        let length = D::Configuration::LENGTH as u32;
        let Ok(mut function) = D::KIND.function(Q as u16, length, V as u16) else { return Answer::default() };
        let mut config = self.model.configuration();
        let (features, requirements, sizes) = (self.model.features(), D::REQUIREMENTS, D::SIZES);
        if !kept {
            // Whoever is killed from here on finds no state of an earlier life of the VM.
            record::forget(world);
        }
        let record = record::read(world, self::length::<Q, V>()).filter(|_| kept);
        let device = if let Some(mut words) = record {
            let space: [u64; SPACE] = core::array::from_fn(|_| words.next().unwrap_or(0));
            function.restore(space);
            D::write_again(&mut config, words.next().unwrap_or(0));
            Device::restore(features, requirements, sizes, config, words)
        } else {
            place(&mut function, bars);
            Device::new(Registers::new(features, requirements, sizes), config)
        };
        let parts = self.parts.insert(Parts { function, device, decoded: [NOWHERE; BAR_COUNT as usize] });
        // Whatever was decoded before. What is again, is all the time: other vCPUs run meanwhile.
        let is_gone = |bar: &u8| parts.function.bar(*bar).is_some() && parts.function.decodes(*bar).is_none();
        for bar in (0..BAR_COUNT).filter(is_gone) {
            world.decode(bar, 0, 0);
        }
        // Twice: who finds its place taken by another one of before is nowhere, and finds it free then.
        parts.announce(world);
        parts.announce(world);
        let needs_reset = parts.device.registers.status().contains(Status::NEEDS_RESET);
        if parts.device.registers.is_running() {
            self.start(world, true);
        }
        if needs_reset {
            // The driver may not have heard of it.
            self.fail(world);
        }
        self.keep(world);
        // Work has its own time: the next event is not far.
        self.answer()
    }

    /// The VM has stopped: nothing is left of the function.
    pub fn detach<W: World>(&mut self, world: &W) {
        record::forget(world);
        self.forget();
        self.parts = None;
    }

    /// The driver wants an interrupt of a queue. False if there is no function.
    pub fn raise<W: World>(&mut self, world: &W, number: u16) -> bool {
        match &mut self.parts {
            Some(parts) => {
                parts.raise(world, number);
                true
            }
            None => false,
        }
    }

    /// The model may be another one than before: if its configuration is, the driver is told.
    #[cold]
    pub fn changed<W: World>(&mut self, world: &W)
    where
        D::Configuration: PartialEq,
    {
        let Some(parts) = &mut self.parts else { return };
        parts.device.registers.offer(self.model.features());
        let mut config = self.model.configuration();
        if parts.device.registers.is_running() {
            D::write_again(&mut config, D::written(&parts.device.config));
        }
        if core::mem::replace(&mut parts.device.config, config) == parts.device.config {
            return;
        }
        if let Some(message) = parts.device.raise_config(parts.function.msix()) {
            world.message(message);
        }
        self.keep(world);
    }

    /// Says whether there is more to do than there was time for.
    #[inline(always)] // A load.
    pub const fn is_due(&self) -> bool {
        self.due != 0
    }

    /// Queues may have something to do for which nobody notifies: does it, for a while. A bit for each of them.
    pub fn look<W: World>(&mut self, world: &W, queues: u32) -> Answer
    where
        D: Serves<Q, W::Memory>,
    {
        self.due |= queues & self.begun;
        self.work(world);
        self.answer()
    }

    /// Handles an event.
    #[inline(always)] // The way of each notification.
    pub fn event<W: World>(&mut self, world: &W, event: Event) -> Answer
    where
        D: Serves<Q, W::Memory>,
    {
        match event {
            Event::Doorbell { queues, .. } => self.due |= queues as u32 & self.begun,
            Event::Alarm(_) => {}
            event => return self.access(world, event),
        }
        self.work(world);
        self.answer()
    }

    /// Reads or writes a register.
    #[cold]
    #[inline(never)] // Notifications are more frequent.
    fn access<W: World>(&mut self, world: &W, event: Event) -> Answer
    where
        D: Serves<Q, W::Memory>,
    {
        match event {
            Event::Read { device, offset, size } => {
                let value = self.read(world, device, offset, size as u8);
                // What is due has its alarm, which who reads again and again is not to put off.
                Answer { value, ..Answer::default() }
            }
            Event::Write { device, offset, size, value } => {
                self.write(world, device, offset, size as u8, value);
                self.work(world);
                self.answer()
            }
            _ => self.answer(),
        }
    }

    /// Answers, and asks for another event if there is more to do.
    #[inline(always)] // A few moves.
    fn answer(&self) -> Answer {
        Answer { lines: if self.due == 0 { 0 } else { AGAIN }, ..Answer::default() }
    }

    fn read<W: World>(&mut self, world: &W, device: u64, offset: u64, size: u8) -> u64 {
        let Some(parts) = &mut self.parts else { return u64::MAX };
        let reasons = parts.device.registers.isr();
        let value = match bar(device) {
            Some(bar) => parts.device.read(bar, offset, size),
            None => match u16::try_from(offset) {
                Ok(offset) if size <= 4 => parts.device.read_config(&parts.function, offset, size).into(),
                _ => absent(4).into(),
            },
        };
        // Who reads the reasons for an interrupt clears them.
        if parts.device.registers.isr() != reasons {
            self.keep(world);
        }
        value
    }

    fn write<W: World>(&mut self, world: &W, device: u64, offset: u64, size: u8, value: u64)
    where
        D: Serves<Q, W::Memory>,
    {
        let Some(parts) = &mut self.parts else { return };
        let outcome = match bar(device) {
            Some(bar) => parts.device.write(parts.function.msix(), bar, offset, size, value),
            None => match u16::try_from(offset) {
                Ok(offset) if size <= 4 => {
                    parts.device.write_config(&mut parts.function, offset, size, value as u32)
                }
                _ => return,
            },
        };
        let Outcome { effect, message, changed } = outcome;
        if let Some(message) = message {
            world.message(message);
        }
        if changed.intersects(Changed::COMMAND | Changed::BARS) {
            parts.announce(world);
        }
        if changed.intersects(Changed::COMMAND | Changed::CAPABILITIES) {
            parts.device.settle(parts.function.msix(), |message| world.message(message));
        }
        if let Some(effect) = effect {
            self.follow(world, effect);
        }
        self.keep(world);
    }

    /// Does what a write means to the device.
    fn follow<W: World>(&mut self, world: &W, effect: Effect)
    where
        D: Serves<Q, W::Memory>,
    {
        let Some(parts) = &mut self.parts else { return };
        match effect {
            Effect::Reset => {
                parts.device.config = self.model.configuration();
                self.forget();
            }
            Effect::Started => self.start(world, false),
            Effect::Enabled(number) if parts.device.registers.is_running() => {
                if !self.begin(world, number, false) {
                    self.fail(world);
                }
            }
            // Once the driver is ready.
            Effect::Enabled(_) => {}
            Effect::QueueReset(number) => {
                self.model.forget(number);
                self.begun &= !(1 << number);
                self.due &= self.begun;
            }
            Effect::Notified(number) => self.due |= 1 << number & self.begun,
            Effect::Configured => {
                self.model.agree(parts.device.registers.features(), &parts.device.config);
            }
        }
    }

    /// The driver is ready; perhaps an earlier life has `left` the queues.
    fn start<W: World>(&mut self, world: &W, left: bool)
    where
        D: Serves<Q, W::Memory>,
    {
        let Some(parts) = &self.parts else { return };
        self.model.agree(parts.device.registers.features(), &parts.device.config);
        for number in 0..Q as u16 {
            if !self.begin(world, number, left) {
                return self.fail(world);
            }
        }
    }

    /// Takes over a queue, if it is enabled. False if the driver has broken a rule.
    fn begin<W: World>(&mut self, world: &W, number: u16, left: bool) -> bool
    where
        D: Serves<Q, W::Memory>,
    {
        let Some(parts) = &self.parts else { return true };
        let Some(queue) = parts.device.registers.queue(number).filter(|queue| queue.is_enabled()) else {
            return true;
        };
        let memory = world.memory();
        let Ok(layout) = queue.layout(memory) else { return false };
        let options = parts.device.registers.features().into();
        if self.model.begin(number, memory, layout, options, left).is_err() {
            return false;
        }
        self.begun |= 1 << number;
        // So that it asks for notifications, and finds what was there before.
        self.due |= 1 << number;
        true
    }

    /// Forgets all queues.
    fn forget(&mut self) {
        (0..Q as u16).for_each(|number| self.model.forget(number));
        (self.begun, self.due) = (0, 0);
    }

    /// The device cannot go on until the driver resets it.
    #[cold]
    pub fn fail<W: World>(&mut self, world: &W) {
        self.forget();
        let Some(parts) = &mut self.parts else { return };
        if let Some(message) = parts.device.fail(parts.function.msix()) {
            world.message(message);
        }
        self.keep(world);
    }

    /// Does what is due, for a while.
    #[inline(always)] // The way of each notification.
    fn work<W: World>(&mut self, world: &W)
    where
        D: Serves<Q, W::Memory>,
    {
        let Self { model, parts: Some(parts), .. } = self else { return };
        let mut pace = Pace::new();
        while self.due != 0 {
            let behind = self.due >> self.next << self.next;
            let number = if behind == 0 { self.due } else { behind }.trailing_zeros();
            let Ok(Served { interrupt, rest }) = model.serve(number as u16, world.memory(), &mut pace.budget)
            else {
                return self.fail(world);
            };
            if interrupt {
                parts.raise(world, number as u16);
            }
            match rest {
                Rest::Idle => self.due &= !(1 << number),
                Rest::More => {
                    // The others have their turn.
                    self.next = (number + 1) % Q as u32;
                    if !pace.goes_on(world) {
                        return;
                    }
                }
            }
        }
    }

    /// Writes down all registers.
    fn keep<W: World>(&self, world: &W) {
        let Some(parts) = &self.parts else { return };
        let space = parts.function.save().chain(core::iter::repeat(0)).take(SPACE);
        let written = D::written(&parts.device.config);
        let words = space.chain(core::iter::once(written)).chain(parts.device.save());
        record::write(world, length::<Q, V>(), words);
    }
}

impl<const Q: usize, const V: usize, C: Configuration> Parts<Q, V, C> {
    /// Sends the message of a queue's interrupt.
    #[inline(always)] // A few moves.
    fn raise<W: World>(&mut self, world: &W, number: u16) {
        if let Some(message) = self.device.raise_queue(self.function.msix(), number) {
            world.message(message);
        }
    }

    /// Tells the hypervisor what each BAR decodes, if that has changed. One that could not be where it should is tried again.
    fn announce<W: World>(&mut self, world: &W) {
        let mut wanted = [NOWHERE; BAR_COUNT as usize];
        for ((bar, wanted), now) in (0..).zip(&mut wanted).zip(&mut self.decoded) {
            *wanted = self.function.decodes(bar).map_or(NOWHERE, |addresses| addresses.start);
            // Away first, so that they may change places.
            if *wanted != *now && *now != NOWHERE {
                world.decode(bar, 0, 0);
                *now = NOWHERE;
            }
        }
        for ((bar, wanted), now) in (0..).zip(wanted).zip(&mut self.decoded) {
            let size = self.function.bar(bar).map_or(0, Bar::size);
            if wanted != *now && world.decode(bar, wanted, size) {
                *now = wanted;
            }
        }
    }
}

/// How much one event does.
struct Pace {
    /// What is left of the slice.
    budget: u32,
    slices: u32,
    /// When the first slice was at its end.
    since: Option<u64>,
}

impl Pace {
    const fn new() -> Self {
        Self { budget: SLICE, slices: 1, since: None }
    }

    /// Begins with another slice, if there is time for it.
    fn goes_on<W: World>(&mut self, world: &W) -> bool {
        // Whose requests are done is not to wait for the others'.
        world.flush();
        let now = world.time();
        let since = *self.since.get_or_insert(now);
        self.slices += 1;
        self.budget = SLICE;
        self.slices <= SLICES && now.saturating_sub(since) < SPAN
    }
}

/// Puts the BARs at addresses, as firmware does: the large ones first, so that all are aligned.
fn place(function: &mut Function, bars: u64) {
    let mut address = bars;
    for size in (4..48).rev().map(|power| 1 << power).filter(|_| bars != 0) {
        for bar in 0..BAR_COUNT {
            if function.bar(bar).is_some_and(|bar| bar.size() == size) {
                function.place(bar, address);
                address = address.saturating_add(size);
            }
        }
    }
}

/// The BAR that a device's number means; none if that is configuration space.
fn bar(device: u64) -> Option<u8> {
    (device != CONFIGURATION).then(|| device.wrapping_sub(BARS) as u8)
}
