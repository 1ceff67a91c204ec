// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a shared service goes on without a member that has it begin anew again and again.
//!
//! Members are trusted no more than guests are: one that has found a way to crash the program uses it as often as it may. So what
//! counts is time alone. Whatever else a member has done in between, it could have done on purpose.

/// The first wait, in nanoseconds. Whoever needs an answer of the service waits for so long, and no longer.
pub const FIRST: u64 = 20_000_000;
/// The longest wait, in nanoseconds.
pub const LONGEST: u64 = 1_000_000_000;
/// All is forgotten when nothing has happened for so long behind the last wait, in nanoseconds.
pub const QUIET: u64 = 10_000_000_000;

/// The waits of a member, of which each is twice the one before.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// How often there is none.
    at_once: u32,
    /// How often it has happened in a row.
    count: u32,
    /// When the last wait ends.
    until: u64,
}

impl Backoff {
    /// Makes one that lets the first `at_once` of a row pass without a wait.
    pub const fn new(at_once: u32) -> Self {
        Self { at_once, count: 0, until: 0 }
    }

    /// It has happened again. Returns how long the wait is, in nanoseconds.
    pub fn next(&mut self, now: u64) -> u64 {
        if now >= self.until.saturating_add(QUIET) {
            self.forget();
        }
        let wait = match self.count.checked_sub(self.at_once) {
            None => 0,
            Some(doubled) => {
                FIRST.checked_shl(doubled.min(u64::BITS / 2)).map_or(LONGEST, |wait| wait.min(LONGEST))
            }
        };
        self.count = self.count.saturating_add(1);
        self.until = now.saturating_add(wait);
        wait
    }

    /// The reason is gone.
    pub const fn forget(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The waits of who does it again as soon as it may.
    fn in_a_row(backoff: &mut Backoff, now: &mut u64, times: usize) -> [u64; 12] {
        let mut waits = [0; 12];
        for wait in waits.iter_mut().take(times) {
            *wait = backoff.next(*now);
            *now += *wait;
            *wait /= MS;
        }
        waits
    }

    #[test]
    fn waits_double_up_to_a_second() {
        let (mut backoff, mut now) = (Backoff::new(4), 5);
        let waits = in_a_row(&mut backoff, &mut now, 12);
        assert_eq!(waits, [0, 0, 0, 0, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(Backoff::new(0).next(0), FIRST);
        // However often.
        let mut often = Backoff { at_once: 0, count: u32::MAX, until: now };
        assert_eq!([often.next(now), often.next(now)], [LONGEST; 2]);
        assert_eq!(Backoff::new(u32::MAX).next(u64::MAX), 0);
    }

    #[test]
    fn a_quiet_time_behind_the_wait_has_all_forgotten() {
        let (mut backoff, mut now) = (Backoff::new(1), 0);
        in_a_row(&mut backoff, &mut now, 12);
        now += QUIET - 1;
        assert_eq!(backoff.next(now), LONGEST, "not quiet for long enough");
        now += LONGEST + QUIET;
        assert_eq!([backoff.next(now), backoff.next(now)], [0, FIRST]);
        backoff.forget();
        assert_eq!([backoff.next(now), backoff.next(now)], [0, FIRST]);
    }

    #[test]
    fn whoever_does_it_as_often_as_it_may_does_it_about_once_a_second() {
        let minute = 60_000 * MS;
        // All at once, and then quiet; or until some wait, and then quiet; or without end.
        for row in 1..=40_usize {
            let (mut backoff, mut now, mut times) = (Backoff::new(4), 1, 0);
            while now < minute {
                for _ in 0..row {
                    now += backoff.next(now);
                    times += 1;
                }
                now += if row == 40 { 0 } else { QUIET };
            }
            assert!(times <= 100, "{row} in a row: {times} times in a minute");
        }
    }
}
