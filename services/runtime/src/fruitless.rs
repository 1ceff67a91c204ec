// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts of a device that bring nothing. A pin that stays high would take the CPU: its program answers
//! [`LATER`](turnstile_service::abi::LATER) then, and looks at the device instead.

/// So many are too many.
const MOST: u32 = 16;

/// How many more interrupts have brought nothing than something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fruitless {
    count: u32,
    is_reported: bool,
}

impl Fruitless {
    /// None.
    pub const NONE: Self = Self { count: 0, is_reported: false };

    /// Counts an interrupt. True the first time that there are too many, which is worth a line of the log.
    pub fn count(&mut self, has_brought: bool) -> bool {
        self.count = match has_brought {
            true => self.count.saturating_sub(1),
            false => MOST.min(self.count + 1),
        };
        self.is_too_many() && !core::mem::replace(&mut self.is_reported, true)
    }

    /// Says whether there are too many: the device is looked at from time to time.
    pub const fn is_too_many(&self) -> bool {
        self.count == MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_in_a_row_are_told_once_and_forgiven_when_something_comes() {
        let mut fruitless = Fruitless::NONE;
        assert!((1..MOST).all(|_| !fruitless.count(false) && !fruitless.is_too_many()));
        assert!(fruitless.count(false) && fruitless.is_too_many());
        assert!(!fruitless.count(false) && fruitless.is_too_many());
        assert!(!fruitless.count(true) && !fruitless.is_too_many(), "one more than before is enough");
        assert!(!fruitless.count(false) && fruitless.is_too_many(), "it was told");
        (0..2 * MOST).for_each(|_| _ = fruitless.count(true));
        assert!((1..MOST).all(|_| !fruitless.count(false) && !fruitless.is_too_many()));
    }
}
