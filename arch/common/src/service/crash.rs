// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Crashes of a service: why there was one, and what is said of it.

use core::fmt;
use core::sync::atomic::Ordering;

use turnstile_service::abi::Event;

use super::members::senders;
use super::{ANEW, CHANGED, Left, RUNS, Service, Space};

/// Why a service is started anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crash {
    Fault,
    Late,
    Panic,
    Killed,
    /// It needs memory of a pool that has none: nobody is to blame. What it was to handle waits.
    Starved,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fault => "did what it must not do",
            Self::Late => "took longer than it may",
            Self::Panic => "gave up",
            Self::Killed => "was killed",
            Self::Starved => "waits for memory",
        })
    }
}

/// How many crashes are reported one by one; later ones only if their number is a power of two.
const REPORTED: u32 = 8;

impl<S: Space> Service<S> {
    /// The service has crashed on an event.
    #[cold]
    #[inline(never)] // Who does not crash is not to pay for it.
    pub(super) fn crash_on(&self, event: &Event, crash: Crash, left: Left) {
        self.crash(crash, left);
        self.strike_for(crash, event);
    }

    /// A crash on an event counts against those whose event it is, unless nobody is to blame.
    #[cold]
    pub(super) fn strike_for(&self, crash: Crash, event: &Event) {
        if !matches!(crash, Crash::Killed | Crash::Starved) {
            self.strike(senders(event));
        }
    }

    /// Counts and reports a crash; the service begins anew when it is entered next.
    #[cold]
    pub(super) fn crash(&self, crash: Crash, left: Left) {
        if matches!(self.begins.load(Ordering::Relaxed), RUNS | CHANGED) {
            self.begins.store(ANEW, Ordering::Relaxed);
        }
        self.silence();
        if crash == Crash::Killed {
            // Seen now: it is not to die of the same kill again.
            self.gate.forget_kill();
            if self.device.is_some() {
                // Its device is silent until somebody enters, and nobody may ever come.
                self.outside.alarm(0);
            }
        }
        if crash == Crash::Starved {
            return;
        }
        let number = self.crashes.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if number <= REPORTED || number.is_power_of_two() {
            let explained = Explained { space: &self.space, left };
            self.outside.crashed(number, format_args!("service {} {crash}\n{explained}", self.name));
        }
    }
}

/// Where a service was left.
struct Explained<'a, S> {
    space: &'a S,
    left: Left,
}

impl<S: Space> fmt::Display for Explained<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.space.explain(self.left, f)
    }
}
