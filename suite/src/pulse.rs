// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether anything is still to be awaited of a machine. Limits are of processor time, which one that only sleeps never reaches.

use std::time::{Duration, Instant};

/// A machine that says nothing for so long, and works less than a tenth of that, says nothing any more.
const STILL: Duration = Duration::from_secs(180);

/// A machine's last sign of life.
pub(super) struct Pulse {
    at: Instant,
    /// The processor time that it had used.
    used: Duration,
}

impl Pulse {
    /// Makes that of a machine that starts `now`.
    pub(super) fn new(now: Instant) -> Self {
        Pulse { at: now, used: Duration::ZERO }
    }

    /// The machine has said something, having used so much processor time.
    pub(super) fn beat(&mut self, now: Instant, used: Duration) {
        *self = Pulse { at: now, used };
    }

    /// Says whether the machine, which has used so much processor time, is still for good.
    pub(super) fn is_gone(&mut self, now: Instant, used: Duration) -> bool {
        if used.saturating_sub(self.used) >= STILL / 10 {
            self.beat(now, used);
        }
        now.saturating_duration_since(self.at) > STILL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_neither_speaks_nor_works_is_gone() {
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        let mut pulse = Pulse::new(begin);
        assert!(!pulse.is_gone(after(180), Duration::from_secs(17)));
        assert!(pulse.is_gone(after(181), Duration::from_secs(17)));
        pulse.beat(after(181), Duration::from_secs(17));
        assert!(!pulse.is_gone(after(361), Duration::from_secs(34)), "it has spoken");
        assert!(!pulse.is_gone(after(362), Duration::from_secs(35)), "it works");
        assert!(!pulse.is_gone(after(542), Duration::from_secs(36)));
        assert!(pulse.is_gone(after(543), Duration::from_secs(36)));
    }
}
