// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages on their way to the vCPUs that they are meant for.

use crate::hardware::Bus;
use crate::message::{Delivery, Message, Signal};
use crate::routes::Routes;

impl Routes {
    /// Delivers a message over `bus`.
    pub fn deliver<B: Bus>(&self, message: &Message, bus: &B) {
        let vector = message.vector;
        match message.delivery {
            Delivery::Fixed => {
                self.each(message.logical, message.destination, |vcpu| bus.post(vcpu, vector, message.level))
            }
            Delivery::LowestPriority => {
                if let Some(vcpu) = self.arbitrate(message) {
                    bus.post(vcpu, vector, message.level);
                }
            }
            Delivery::Nmi => self.signal(message, bus, Signal::Nmi),
            Delivery::Init => self.signal(message, bus, Signal::Init),
            Delivery::Startup => self.signal(message, bus, Signal::Startup(vector)),
            // There is no SMM; an 8259 is wired to the first vCPU only.
            Delivery::Smi | Delivery::External | Delivery::Reserved => {}
        }
    }

    fn signal<B: Bus>(&self, message: &Message, bus: &B, signal: Signal) {
        self.each(message.logical, message.destination, |vcpu| bus.signal(vcpu, signal));
    }
}
