// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a device's registers as words, for who keeps it over a crash.

use super::queue::WORDS;
use super::{Isr, QueueRegisters, Registers, Status};
use crate::features::{Features, Requirement, acceptable};

impl<const Q: usize> Registers<Q> {
    /// How many words the state has.
    pub const WORDS: usize = 3 + WORDS * Q;

    /// Returns the state, [`Registers::WORDS`] words.
    pub fn save(&self) -> impl Iterator<Item = u64> + '_ {
        let bytes = [self.status.bits(), self.isr.bits(), self.generation, 0];
        let halves = u64::from(self.config_vector) << 32 | u64::from(self.queue_select) << 48;
        let selects = u64::from(self.device_select) | u64::from(self.driver_select) << 32;
        let head = [self.accepted.bits(), u64::from(u32::from_le_bytes(bytes)) | halves, selects];
        head.into_iter().chain(self.queues.iter().flat_map(QueueRegisters::save))
    }

    /// Makes a device as [`Registers::new`] does, with a state that was saved. Words that are missing are zero; all of them are a state
    /// that a driver and the device can bring about.
    pub fn restore(
        offered: Features,
        requirements: &'static [Requirement],
        sizes: [u16; Q],
        words: impl IntoIterator<Item = u64>,
    ) -> Self {
        let mut words = words.into_iter();
        let mut word = || words.next().unwrap_or(0);
        let mut new = Self::new(offered, requirements, sizes);
        new.accepted = Features::from_bits_retain(word());
        let second = word();
        let [status, isr, generation, _, v0, v1, q0, q1] = second.to_le_bytes();
        let mut status = Status::from_bits_truncate(status);
        if !acceptable(new.offered, new.accepted, requirements) {
            // A driver that works does so with what is not offered any more: only a reset helps.
            if status.contains(Status::FEATURES_OK | Status::DRIVER_OK) {
                new.accepted = new.accepted.intersection(new.offered);
                status |= Status::NEEDS_RESET;
            } else {
                status -= Status::FEATURES_OK;
            }
        }
        if !status.contains(Status::FEATURES_OK) {
            status -= Status::DRIVER_OK;
        }
        new.status = status;
        (new.isr, new.generation) = (Isr::from_bits_truncate(isr), generation);
        (new.config_vector, new.queue_select) = (u16::from_le_bytes([v0, v1]), u16::from_le_bytes([q0, q1]));
        let selects = word();
        (new.device_select, new.driver_select) = (selects as u32, (selects >> 32) as u32);
        let agreed = status.contains(Status::FEATURES_OK);
        for queue in &mut new.queues {
            queue.restore([word(), word(), word(), word()], agreed);
        }
        new
    }
}
