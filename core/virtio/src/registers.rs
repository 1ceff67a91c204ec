// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a driver and a device tell each other outside of queues, whatever the transport: status, features, where queues are,
//! interrupts.
//!
//! A write that the device must act on returns an [`Effect`]. The device acts before the driver goes on: when a driver has reset a
//! device or a queue, its memory is its own again.

mod queue;
mod saved;

use bitflags::bitflags;

pub use queue::{NO_VECTOR, Part, QueueRegisters};

use crate::features::{Features, Requirement, acceptable};

bitflags! {
    /// Device status (section 2.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Status: u8 {
        /// The driver's system has noticed the device.
        const ACKNOWLEDGE = 1;
        /// It knows how to drive it.
        const DRIVER = 2;
        /// The driver is ready.
        const DRIVER_OK = 4;
        /// The features are agreed on.
        const FEATURES_OK = 8;
        /// The device cannot go on.
        const NEEDS_RESET = 64;
        /// The driver has given up.
        const FAILED = 128;
    }
}

bitflags! {
    /// Why there is an interrupt, if it is not a message of its own (section 4.1.4.5).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Isr: u8 {
        /// A queue has used buffers.
        const QUEUE = 1;
        /// The configuration has changed.
        const CONFIG = 2;
    }
}

/// What a device must do because of a driver's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the device must act on it"]
pub enum Effect {
    /// It was reset: forget all queues, and touch none of the driver's memory.
    Reset,
    /// The driver is ready: queues may be looked at.
    Started,
    /// A queue was enabled.
    Enabled(u16),
    /// A queue was reset: forget it.
    QueueReset(u16),
    /// A queue has buffers.
    Notified(u16),
    /// The driver has changed the configuration.
    Configured,
}

/// The state of a device with `Q` queues.
#[derive(Clone, Debug)]
pub struct Registers<const Q: usize> {
    offered: Features,
    requirements: &'static [Requirement],
    accepted: Features,
    status: Status,
    isr: Isr,
    generation: u8,
    config_vector: u16,
    device_select: u32,
    driver_select: u32,
    queue_select: u16,
    /// A reset has not ended.
    held: bool,
    queues: [QueueRegisters; Q],
}

impl<const Q: usize> Registers<Q> {
    /// Makes a device that offers features, VERSION_1 with them, and queues of these sizes at most: powers of two, or 0 for one that
    /// does not exist.
    pub fn new(offered: Features, requirements: &'static [Requirement], sizes: [u16; Q]) -> Self {
        Self {
            offered: offered | Features::VERSION_1,
            requirements,
            accepted: Features::empty(),
            status: Status::empty(),
            isr: Isr::empty(),
            generation: 0,
            config_vector: NO_VECTOR,
            device_select: 0,
            driver_select: 0,
            queue_select: 0,
            held: false,
            queues: sizes.map(QueueRegisters::new),
        }
    }

    /// The features that both sides have agreed on; none before they have.
    pub fn features(&self) -> Features {
        if self.status.contains(Status::FEATURES_OK) { self.accepted } else { Features::empty() }
    }

    /// The status, as the driver has written it.
    pub const fn status(&self) -> Status {
        self.status
    }

    /// The status, as the driver reads it: not zero while a reset has not ended (section 4.1.4.3.2).
    pub fn shown_status(&self) -> Status {
        if self.held && self.status.is_empty() { Status::NEEDS_RESET } else { self.status }
    }

    /// The device is at work for what was before the last reset, or not any more.
    pub const fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Whether the device may use its queues: the driver is ready, and neither has given up.
    pub fn is_running(&self) -> bool {
        let given_up = self.status.intersects(Status::NEEDS_RESET | Status::FAILED);
        self.status.contains(Status::DRIVER_OK) && !given_up
    }

    /// How many queues there are, up to the last one that exists.
    pub fn count(&self) -> u16 {
        self.queues.iter().rposition(QueueRegisters::exists).map_or(0, |last| last as u16 + 1)
    }

    /// What is known of a queue.
    pub fn queue(&self, number: u16) -> Option<&QueueRegisters> {
        self.queues.get(usize::from(number)).filter(|queue| queue.exists())
    }

    /// The driver writes the status. Bits are added, never taken away; zero resets. FEATURES_OK stays only if the features will do,
    /// and DRIVER_OK only behind it (section 3.1.1).
    pub fn write_status(&mut self, value: u8) -> Option<Effect> {
        if value == 0 {
            self.reset();
            return Some(Effect::Reset);
        }
        let mut new = Status::from_bits_truncate(value) - Status::NEEDS_RESET - self.status;
        let agreed = self.status.contains(Status::FEATURES_OK);
        if new.contains(Status::FEATURES_OK) && !acceptable(self.offered, self.accepted, self.requirements) {
            new -= Status::FEATURES_OK;
        }
        if !agreed && !new.contains(Status::FEATURES_OK) {
            new -= Status::DRIVER_OK;
        }
        self.status |= new;
        new.contains(Status::DRIVER_OK).then_some(Effect::Started)
    }

    /// Resets everything that the driver can change. The generation of the configuration goes on.
    pub fn reset(&mut self) {
        let sizes = self.queues.each_ref().map(QueueRegisters::maximum);
        *self = Self { generation: self.generation, ..Self::new(self.offered, self.requirements, sizes) };
    }

    /// The device cannot go on: it says so, and there is a reason for an interrupt of the configuration if the driver is ready
    /// (section 2.1.2). Returns whether there is.
    #[must_use = "the driver must be told"]
    pub fn fail(&mut self) -> bool {
        self.status |= Status::NEEDS_RESET;
        self.status.contains(Status::DRIVER_OK)
    }

    /// The device has got to know what it can do: it offers these features, as long as no driver has begun to look.
    pub fn offer(&mut self, features: Features) {
        if self.status.is_empty() {
            self.offered = features | Features::VERSION_1;
        }
    }

    /// The configuration has changed by itself, so that drivers read it again. Returns whether there is a reason for an interrupt.
    #[must_use = "the driver must be told"]
    pub const fn change(&mut self) -> bool {
        self.generation = self.generation.wrapping_add(1);
        self.status.contains(Status::DRIVER_OK)
    }

    /// The generation of the configuration.
    pub const fn generation(&self) -> u8 {
        self.generation
    }

    /// The vector of interrupts of the configuration.
    pub const fn config_vector(&self) -> u16 {
        self.config_vector
    }

    /// The reasons for an interrupt by line.
    pub const fn isr(&self) -> Isr {
        self.isr
    }

    /// Adds a reason for an interrupt by line.
    pub fn raise(&mut self, reason: Isr) {
        self.isr |= reason;
    }

    /// The driver has seen reasons for an interrupt.
    pub fn acknowledge(&mut self, reasons: Isr) {
        self.isr -= reasons;
    }

    /// A driver's notification. Before it is ready, and for queues that are not, it means nothing.
    #[inline] // On the path of every notification.
    pub fn notify(&self, number: u16) -> Option<Effect> {
        let ready = self.queue(number)?.is_enabled() && self.is_running();
        ready.then_some(Effect::Notified(number))
    }

    pub(crate) const fn offered_word(&self) -> u32 {
        self.offered.word(self.device_select)
    }

    pub(crate) const fn accepted_word(&self) -> u32 {
        self.accepted.word(self.driver_select)
    }

    /// Once the features are agreed on, they do not change.
    pub(crate) fn accept_word(&mut self, value: u32) {
        if !self.status.contains(Status::FEATURES_OK) {
            self.accepted = self.accepted.with_word(self.driver_select, value);
        }
    }

    /// The selected words of features: of the device's, of the driver's.
    pub(crate) const fn selected_words(&self) -> (u32, u32) {
        (self.device_select, self.driver_select)
    }

    /// The same, to be changed.
    pub(crate) const fn selects(&mut self) -> (&mut u32, &mut u32) {
        (&mut self.device_select, &mut self.driver_select)
    }

    pub(crate) const fn queue_select(&mut self) -> &mut u16 {
        &mut self.queue_select
    }

    pub(crate) const fn selected_queue(&self) -> u16 {
        self.queue_select
    }

    pub(crate) const fn set_config_vector(&mut self, vector: u16) {
        self.config_vector = vector;
    }

    /// The selected queue, if it exists.
    pub(crate) fn selected(&self) -> Option<&QueueRegisters> {
        self.queue(self.queue_select)
    }

    pub(crate) fn selected_mut(&mut self) -> Option<&mut QueueRegisters> {
        self.queues.get_mut(usize::from(self.queue_select)).filter(|queue| queue.exists())
    }

    /// The driver enables the selected queue: behind FEATURES_OK.
    pub(crate) fn enable(&mut self) -> Option<Effect> {
        let (agreed, number) = (self.status.contains(Status::FEATURES_OK), self.queue_select);
        let queue = self.selected_mut().filter(|_| agreed)?;
        queue.enable().then_some(Effect::Enabled(number))
    }

    /// The driver resets the selected queue, if it may.
    pub(crate) fn reset_queue(&mut self) -> Option<Effect> {
        let (may, number) = (self.features().contains(Features::RING_RESET), self.queue_select);
        let queue = self.selected_mut().filter(|_| may)?;
        queue.reset();
        Some(Effect::QueueReset(number))
    }

    /// The driver disables the selected queue, which a device behind MMIO must bear.
    pub(crate) fn disable(&mut self) -> Option<Effect> {
        let number = self.queue_select;
        let queue = self.selected_mut().filter(|queue| queue.is_enabled())?;
        queue.reset();
        Some(Effect::QueueReset(number))
    }
}
