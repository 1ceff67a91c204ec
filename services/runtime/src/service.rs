// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program is.

use turnstile_service::abi::{Answer, UNDRIVEN};
use turnstile_service::image::Doorbells;

use crate::event::Event;

/// What the first event of a member says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attach {
    /// The service has crashed, and what it [keeps](crate::kept!) of this member is from before that, as far as it came. Otherwise that is of
    /// no use; it is zero when the service is started for the first time.
    pub kept: bool,
    /// Where firmware places the BARs of a PCI function; 0: nowhere. With [`MMIO`](crate::MMIO), where the registers of a device behind MMIO
    /// are.
    pub bars: u64,
    /// Which member it is.
    pub member: u64,
    /// What the configuration says of it.
    pub settings: [u64; 2],
}

/// A service.
pub trait Service: 'static {
    /// What it is before its first event. It begins so again after a crash.
    const NEW: Self;
    /// Where its device is rung: a write there is an [`Event::Doorbell`], and no [`Event::Write`].
    const DOORBELLS: Doorbells = Doorbells::NONE;

    /// Handles the first event of a member.
    fn attach(&mut self, attach: Attach) -> Answer {
        let _ = attach;
        Answer::default()
    }

    /// A member's VM has stopped: its memory is gone.
    fn detach(&mut self, member: u64) -> Answer {
        let _ = member;
        Answer::default()
    }

    /// There is a device of the machine for the service to drive ([`Device`](crate::Device)): before all other events of this life. It is as the life
    /// before, or firmware, has left it, and reaches no memory: reset it. With the value [`UNDRIVEN`] it stays like that. With
    /// [`LATER`](turnstile_service::abi::LATER) this event comes again.
    fn reset(&mut self) -> Answer {
        Answer { value: UNDRIVEN, ..Answer::default() }
    }

    /// That device reaches memory from now on, and interrupts: begin with it. The settings are what the configuration says of it, in two words.
    /// With the value [`UNDRIVEN`] it does not; with [`LATER`](turnstile_service::abi::LATER) this event comes again, before any of a member.
    fn device(&mut self, settings: [u64; 2]) -> Answer {
        let _ = settings;
        Answer::default()
    }

    /// That device has interrupted; the time now, in nanoseconds. With the value [`UNDRIVEN`] it does not again; with
    /// [`LATER`](turnstile_service::abi::LATER) not before the next alarm was handled.
    fn interrupt(&mut self, now: u64) -> Answer {
        let _ = now;
        Answer { value: UNDRIVEN, ..Answer::default() }
    }

    /// Handles an event. Each answer has the levels of all interrupt lines.
    fn event(&mut self, event: Event) -> Answer;
}
