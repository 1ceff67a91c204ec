// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that survives a crash of the service.

use core::sync::atomic::{AtomicU64, Ordering};

/// Words that stay when the service is started anew because it has crashed, as [`kept!`](crate::kept!) declares them. It may have
/// crashed between any two writes, so what is read here after that has to be checked.
pub struct Kept<const N: usize>([AtomicU64; N]);

impl<const N: usize> Kept<N> {
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }

    /// Returns a word; zero if there is none of this number.
    #[inline]
    pub fn get(&self, at: usize) -> u64 {
        self.0.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Writes a word, if there is one of this number. Words are written in the order of the program.
    #[inline]
    pub fn set(&self, at: usize, value: u64) {
        if let Some(word) = self.0.get(at) {
            // Release: a service is interrupted on its own CPU, so only the compiler could change the order.
            word.store(value, Ordering::Release);
        }
    }
}

/// Declares a static of words that survive a crash: `kept! { /// What. static NAME: Kept<4>; }`.
#[macro_export]
macro_rules! kept {
    ($(#[$meta:meta])* static $name:ident: Kept<$words:literal>;) => {
        $(#[$meta])*
        // Its linker script puts this behind all else. Programs of an operating system have it in their zeros.
        #[cfg_attr(target_os = "none", unsafe(link_section = ".kept"))]
        static $name: $crate::Kept<$words> = $crate::Kept::new();
    };
}

#[cfg(test)]
mod tests {
    crate::kept! { static WORDS: Kept<2>; }

    #[test]
    fn words_are_kept_and_no_others() {
        WORDS.set(1, 7);
        WORDS.set(2, 9);
        assert_eq!((WORDS.get(0), WORDS.get(1), WORDS.get(2)), (0, 7, 0));
    }
}
