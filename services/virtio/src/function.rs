// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtio device: events and their answers.

use turnstile_service_rt::{AGAIN, Answer, BY_PLACE, Doorbells, Event};
use turnstile_virtio::pci::NOTIFICATIONS;
use turnstile_virtio::registers::{Effect, Status};

use crate::front::{Front, Offer};
use crate::model::{Model, Rest, Served, Serves};
use crate::world::World;
use crate::{front, record};

/// What is done before the time is looked at, as [`Serves::serve`] counts it. On the slowest machines it is a part of the time limit.
const SLICE: u32 = 64 << 10;
/// How many of those one event has at most, whatever the time is.
const SLICES: u32 = 16;
/// How long one event goes on behind its first slice, in nanoseconds. Then the guest has its turn.
const SPAN: u64 = 150_000;

/// How many words a function with `Q` queues and `V` vectors keeps.
pub const fn words<const Q: usize, const V: usize>() -> usize {
    record::room(length::<Q, V>())
}

/// How many words a record has: what the driver wrote to the configuration, and the registers.
const fn length<const Q: usize, const V: usize>() -> usize {
    1 + front::length::<Q, V>()
}

/// Where a device with so many [places](turnstile_virtio::pci::Kind::places) is rung: in [`BAR_VIRTIO`](turnstile_virtio::pci::BAR_VIRTIO).
pub const fn doorbells(places: u32) -> Doorbells {
    Doorbells { first: NOTIFICATIONS, size: 4 * places, by: BY_PLACE }
}

/// A virtio device, which has `Q` queues, at most 31, and `V` vectors of MSI-X if it is a PCI function.
// In this order: what is behind a large model is out of an instruction's reach.
#[repr(C)]
pub struct Virtio<const Q: usize, const V: usize, D: Model<Q>> {
    /// A bit for each queue that the model has.
    begun: u32,
    /// A bit for each of them that has something to do, perhaps.
    due: u32,
    /// The first queue that is next, if it is due or one behind it.
    next: u32,
    /// Its registers, from its first event on.
    front: Option<Front<Q, V, D::Configuration>>,
    /// What the device does.
    pub model: D,
}

impl<const Q: usize, const V: usize, D: Model<Q>> Virtio<Q, V, D> {
    /// Makes a device that has had no event.
    pub const fn new(model: D) -> Self {
        const { assert!(Q <= 31, "a doorbell has a bit for each queue") };
        Self { model, front: None, begun: 0, due: 0, next: 0 }
    }

    /// Handles the first event. With what is `kept` from before a crash the device goes on; otherwise firmware has placed its BARs from
    /// `bars` on, or nowhere, or it has none and is behind MMIO ([`MMIO`](turnstile_service_rt::MMIO)).
    pub fn attach<W: World>(&mut self, world: &W, kept: bool, bars: u64) -> Answer
    where
        D: Serves<Q, W::Memory>,
    {
        (self.front, self.begun, self.due) = (None, 0, 0);
        let mut config = self.model.configuration();
        if !kept {
            // Whoever is killed from here on finds no state of an earlier life of the VM.
            record::forget(world);
        }
        let mut record = record::read(world, self::length::<Q, V>()).filter(|_| kept);
        if let Some(written) = record.as_mut().and_then(Iterator::next) {
            D::write_again(&mut config, written);
        }
        let (features, requirements, sizes) = (self.model.features(), D::REQUIREMENTS, self.model.sizes());
        let offer = Offer { kind: D::KIND, features, requirements, sizes, config };
        let Some(front) = Front::new(offer, bars, record) else { return Answer::default() };
        let front = self.front.insert(front);
        front.announce_again(world);
        let needs_reset = front.registers().status().contains(Status::NEEDS_RESET);
        if front.registers().is_running() {
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

    /// The VM has stopped: nothing is left of the device.
    pub fn detach<W: World>(&mut self, world: &W) {
        record::forget(world);
        self.forget();
        self.front = None;
    }

    /// Changes what is kept of the configuration ([`Model::written`]), at once.
    #[cold]
    pub fn keep_in<W: World>(&mut self, world: &W, change: impl FnOnce(&mut D::Configuration)) {
        if let Some(front) = &mut self.front {
            change(front.config_mut());
            self.keep(world);
        }
    }

    /// The driver wants an interrupt of a queue. False if there is no device.
    pub fn raise<W: World>(&mut self, world: &W, number: u16) -> bool {
        match &mut self.front {
            Some(front) => {
                front.raise(world, number);
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
        let Some(front) = &mut self.front else { return };
        front.registers_mut().offer(self.model.features());
        let mut config = self.model.configuration();
        // A driver may write to it before it is ready.
        if !front.registers().status().is_empty() {
            D::write_again(&mut config, D::written(front.config()));
        }
        if core::mem::replace(front.config_mut(), config) == *front.config() {
            return;
        }
        front.raise_config(world);
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
        let Some(front) = &mut self.front else { return u64::MAX };
        let reasons = front.registers().isr();
        front.registers_mut().hold(!self.model.is_settled());
        let value = front.read(device, offset, size);
        // Who reads the reasons for an interrupt of a PCI function clears them.
        if front.registers().isr() != reasons {
            self.keep(world);
        }
        value
    }

    fn write<W: World>(&mut self, world: &W, device: u64, offset: u64, size: u8, value: u64)
    where
        D: Serves<Q, W::Memory>,
    {
        let Some(front) = &mut self.front else { return };
        if let Some(effect) = front.write(world, device, offset, size, value) {
            self.follow(world, effect);
        }
        self.keep(world);
    }

    /// Does what a write means to the device.
    fn follow<W: World>(&mut self, world: &W, effect: Effect)
    where
        D: Serves<Q, W::Memory>,
    {
        let Some(front) = &mut self.front else { return };
        match effect {
            Effect::Reset => {
                *front.config_mut() = self.model.configuration();
                self.forget();
            }
            Effect::Started => self.start(world, false),
            Effect::Enabled(number) if front.registers().is_running() => {
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
                self.model.agree(front.registers().features(), front.config());
            }
        }
    }

    /// The driver is ready; perhaps an earlier life has `left` the queues.
    fn start<W: World>(&mut self, world: &W, left: bool)
    where
        D: Serves<Q, W::Memory>,
    {
        let Some(front) = &self.front else { return };
        self.model.agree(front.registers().features(), front.config());
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
        let Some(front) = &self.front else { return true };
        let Some(queue) = front.registers().queue(number).filter(|queue| queue.is_enabled()) else {
            return true;
        };
        let memory = world.memory();
        let Ok(layout) = queue.layout(memory) else { return false };
        let options = front.registers().features().into();
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
        let Some(front) = &mut self.front else { return };
        front.fail(world);
        self.keep(world);
    }

    /// Does what is due, for a while.
    #[inline(always)] // The way of each notification.
    fn work<W: World>(&mut self, world: &W)
    where
        D: Serves<Q, W::Memory>,
    {
        let Self { model, front: Some(front), .. } = self else { return };
        let mut pace = Pace::new();
        // Those that would be served in vain, as long as this event lasts. All of them are due.
        let mut waiting = 0;
        while self.due != waiting {
            let due = self.due ^ waiting;
            let behind = due >> self.next << self.next;
            let number = if behind == 0 { due } else { behind }.trailing_zeros();
            let Ok(Served { interrupt, rest }) = model.serve(number as u16, world.memory(), &mut pace.budget)
            else {
                return self.fail(world);
            };
            if interrupt {
                front.raise(world, number as u16);
            }
            match rest {
                Rest::Idle => self.due &= !(1 << number),
                Rest::More => {
                    // The others have their turn, if only in the next event.
                    self.next = number + 1;
                    if model.waits(number as u16) {
                        waiting |= 1 << number;
                        if self.due == waiting {
                            return;
                        }
                    }
                    if !pace.goes_on(world) {
                        return;
                    }
                }
            }
        }
    }

    /// Writes down all registers.
    fn keep<W: World>(&self, world: &W) {
        let Some(front) = &self.front else { return };
        let words = core::iter::once(D::written(front.config())).chain(front.save());
        record::write(world, length::<Q, V>(), words);
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
