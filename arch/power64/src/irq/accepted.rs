// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeping the external interrupts of the resident vCPU away for a while, whatever its guest uses.

use super::tima::{self, OsAcknowledge, OsPending, OsPriority, OsState};
use crate::cpu;

/// Priorities of the operating system's ring.
const PRIORITIES: u8 = 8;
/// In [`OsState`]: the lowest bit of the priority from which on the guest is not interrupted.
const PRIORITY: u32 = 16;
/// In [`OsAcknowledge`]: an interrupt was accepted, whose priority is the lower byte.
const ACCEPTED: u16 = 1 << 15;

/// The interrupts that were accepted in the guest's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// A bit for each of their priorities.
    priorities: u8,
    /// The priority from which on the guest was not interrupted.
    before: u8,
}

impl Accepted {
    /// Accepts what is pending, which masks it, and what is behind it. `earlier` is what has been accepted already.
    pub(crate) fn accept(earlier: Option<Self>) -> Self {
        let page = tima::page();
        // Loads of less than a word say nothing.
        let before = || (OsState.load(page) >> PRIORITY) as u8;
        let mut accepted = earlier.unwrap_or_else(|| Self { priorities: 0, before: before() });
        let told = OsAcknowledge.load(page);
        if told & ACCEPTED != 0 {
            accepted.priorities |= 1 << (told as u8 % PRIORITIES);
        }
        cpu::eieio();
        accepted
    }

    /// Makes it pending again.
    pub(crate) fn give_back(self) {
        let page = tima::page();
        // SAFETY: the ring stays that of the resident vCPU.
        unsafe {
            for priority in (0..PRIORITIES).filter(|priority| self.priorities & 1 << priority != 0) {
                OsPending.store(page, priority);
            }
            cpu::eieio();
            OsPriority.store(page, self.before);
        }
        cpu::eieio();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::regs::fakes::{self, Access};

    #[test]
    fn what_was_accepted_is_pending_again() {
        fakes::reset();
        fakes::set("OsState", 0x80fb_0240);
        fakes::set("OsAcknowledge", 0x8006);
        let first = Accepted::accept(None);
        // Then one of a higher priority.
        fakes::set("OsState", 0x0006_2000);
        fakes::set("OsAcknowledge", 0x8004);
        let both = Accepted::accept(Some(first));
        fakes::take_log();
        both.give_back();
        assert_eq!(
            fakes::take_log(),
            [Access::Write("OsPending", 4), Access::Write("OsPending", 6), Access::Write("OsPriority", 0xfb)]
        );
        fakes::set("OsAcknowledge", 0x0004);
        assert_eq!(Accepted::accept(Some(first)), first, "there was none");
    }
}
