// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts of both controllers, which become [`crate::events`].

pub use crate::events::*;

use crate::platform::{Controller, platform};
use crate::{timer, xics, xive};

/// Sets the interrupt controller up, for the boot CPU too; returns whether there is one.
pub fn init() -> bool {
    let good = match platform().controller {
        Controller::Xive(_) => xive::init(),
        Controller::Xics => true,
        Controller::None => false,
    };
    init_cpu();
    good
}

/// Sets up what belongs to the CPU that runs this.
pub fn init_cpu() {
    match platform().controller {
        Controller::Xive(_) => xive::init_cpu(),
        Controller::Xics => xics::init_cpu(),
        Controller::None => {}
    }
}

/// Sends an interrupt to the CPU with this number. Two that it has not taken yet may become one.
pub fn send(index: usize) {
    match platform().controller {
        Controller::Xive(_) => xive::send(index),
        Controller::Xics => xics::send(index),
        Controller::None => {}
    }
}

/// Lets a source of a device interrupt this CPU, under a number of its own; returns whether the machine agreed.
pub fn connect(number: usize, source: u32) -> bool {
    match platform().controller {
        Controller::Xive(_) => xive::connect(number, source.into()),
        Controller::Xics => xics::connect(source),
        Controller::None => false,
    }
}

/// Takes what the interrupt controller presents.
pub fn on_external() {
    match platform().controller {
        Controller::Xive(_) => xive::take(),
        Controller::Xics => xics::take(),
        Controller::None => on_event(SPURIOUS),
    }
}

/// Takes the decrementer's interrupt.
pub fn on_decrementer() {
    if timer::is_due() {
        on_event(TIMER);
    }
}
