// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program is.

use turnstile_service::abi::Answer;
use turnstile_service::image::Doorbells;

use crate::event::Event;

/// A service.
pub trait Service: 'static {
    /// What it is before its first event. It begins so again after a crash.
    const NEW: Self;
    /// Where its device is rung: a write there is an [`Event::Doorbell`], and no [`Event::Write`].
    const DOORBELLS: Doorbells = Doorbells::NONE;

    /// Handles the first event. `kept`: it has crashed, and what it [keeps](crate::kept!) is from before that, as far as it came.
    /// Otherwise that is zero. `bars`: where firmware places the BARs of a PCI function; 0: nowhere.
    fn attach(&mut self, kept: bool, bars: u64) -> Answer {
        let _ = (kept, bars);
        Answer::default()
    }

    /// Handles an event. Each answer has the levels of all interrupt lines.
    fn event(&mut self, event: Event) -> Answer;
}
