// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How groups of registers move. Those of a group are read one after the other, and written one after the other: an `mfspr`
//! behind an `mtspr` waits for it. What the one before has left with the same value is not written: `mtspr` is slow.

/// Makes groups of registers, each with its value at the beginning of a life.
macro_rules! groups {
    ($($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $register:ident = $reset:expr,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $name { $($(#[$field_doc])* $vis $field: u64,)* }

        impl $name {
            /// At the beginning of a life.
            pub const RESET: Self = Self { $($field: $reset,)* };

            /// The registers' numbers and names.
            #[cfg(test)]
            pub(crate) const REGISTERS: &[(u32, &str)] =
                &[$(($register::NUMBER, stringify!($register)),)*];

            /// Loads the registers, but for those that have the value already, as `before` has left them.
            ///
            /// # Safety
            /// Nobody needs what is there, and the guest may have what is loaded.
            #[inline(never)] // Once for all: it is long.
            pub(crate) unsafe fn load(&self, before: Option<&Self>) {
                // SAFETY: the caller's promise, for each of them.
                unsafe {
                    match before {
                        Some(before) => {
                            $(if before.$field != self.$field {
                                $register.write(self.$field);
                            })*
                        }
                        None => {
                            $($register.write(self.$field);)*
                        }
                    }
                }
            }
        }
    )*};
}
pub(super) use groups;

/// Makes groups as [`groups`] does, whose registers guests change: they can be stored.
macro_rules! stored {
    ($($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $register:ident = $reset:expr,)* })*) => {
        $crate::state::groups::groups! {
            $($(#[$doc])* $vis struct $name { $($(#[$field_doc])* $field: $register = $reset,)* })*
        }

        $(impl $name {
            /// Stores what is in the registers.
            #[inline(never)] // Once for all: it is long.
            pub(crate) fn save(&mut self) {
                // One by one: all at once need more registers than a function may change.
                $(self.$field = $register.read();)*
            }

            /// Stores what is in each register and loads its next value, one register after the other.
            ///
            /// # Safety
            /// As for [`Self::load`].
            #[cfg(feature = "ablation")]
            #[inline(never)] // Once for all: it is long.
            #[allow(dead_code, reason = "the technique is one of the group that all guests use")]
            pub(crate) unsafe fn exchange(&mut self, next: &Self) {
                $(
                    self.$field = $register.read();
                    if self.$field != next.$field {
                        // SAFETY: the caller's promise.
                        unsafe { $register.write(next.$field) };
                    }
                )*
            }
        })*
    };
}
pub(super) use stored;

/// Makes groups as [`stored`] does, which most guests leave as they are at the beginning of a life: `idle`.
macro_rules! seldom {
    ($($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $register:ident = $reset:expr,)* })*) => {
        $crate::state::groups::stored! {
            $($(#[$doc])* $vis struct $name { $($(#[$field_doc])* $field: $register = $reset,)* })*
        }

        $(impl $crate::state::groups::Seldom for $name {
            const RESET: Self = Self::RESET;

            #[inline(always)] // One read and one OR for each.
            fn are_idle() -> bool {
                0 $(| $register.read() ^ $reset)* == 0
            }

            fn save(&mut self) {
                Self::save(self);
            }

            unsafe fn load(&self, before: Option<&Self>) {
                // SAFETY: the caller's promise.
                unsafe { Self::load(self, before) };
            }
        })*
    };
}
pub(super) use seldom;

/// A group of registers that most guests leave as they are at the beginning of a life.
pub(crate) trait Seldom: Sized {
    /// At the beginning of a life.
    const RESET: Self;
    /// Says whether the registers have these values.
    fn are_idle() -> bool;
    /// Stores what is in the registers.
    fn save(&mut self);
    /// Loads the registers, as [`stored`] groups are.
    ///
    /// # Safety
    /// Nobody needs what is there, and the guest may have what is loaded.
    unsafe fn load(&self, before: Option<&Self>);
}

/// The registers of such a group, and whether they are idle: then they are not stored one by one, nor compared when they are
/// loaded behind others that are, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Idle<G> {
    registers: G,
    idle: bool,
}

impl<G: Seldom + Copy> Idle<G> {
    /// At the beginning of a life.
    pub(crate) const RESET: Self = Self { registers: G::RESET, idle: true };

    /// Stores what is in the registers.
    #[inline(always)] // Mostly a comparison of all with their reset values.
    pub(crate) fn save(&mut self) {
        if !G::are_idle() {
            self.registers.save();
            self.idle = false;
        } else if !self.idle {
            *self = Self::RESET;
        }
    }

    /// Loads the registers, but for those that have the value already, as `before` has left them.
    ///
    /// # Safety
    /// Nobody needs what is there, and the guest may have what is loaded.
    #[inline(always)] // Mostly two comparisons.
    pub(crate) unsafe fn load(&self, before: Option<&Self>) {
        // SAFETY: the caller's promise.
        unsafe { self.load_after(before, |_| {}) };
    }

    /// As [`Idle::load`]; `change` is what has been done since to registers that were not idle.
    ///
    /// # Safety
    /// As for [`Idle::load`].
    #[inline(always)] // Mostly two comparisons.
    pub(crate) unsafe fn load_after(&self, before: Option<&Self>, change: impl FnOnce(&mut G)) {
        if self.idle && before.is_some_and(|before| before.idle) {
            return;
        }
        let before = before.map(|before| {
            let mut left = before.registers;
            change(&mut left);
            left
        });
        // SAFETY: the caller's promise.
        unsafe { self.registers.load(before.as_ref()) };
    }
}

/// Groups of registers that not every CPU has: which it has is found out at boot, and the others are never accessed again. At
/// the beginning of a life they are zero.
macro_rules! sparse {
    ($($(#[$doc:meta])* $vis:vis struct $name:ident of $present:ident {
        $($(#[$field_doc:meta])* $field:ident: $register:ident,)*
    })*) => {$(
        /// A bit for each register that the CPU has, in the order of the fields.
        static $present: AtomicU32 = AtomicU32::new(0);

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $name { $($(#[$field_doc])* $vis $field: u64,)* }

        impl $name {
            /// Finds out which of the registers this CPU has; all CPUs are alike. At boot, in hypervisor state.
            pub(crate) fn discover() {
                // Relaxed: other CPUs read it only after they have found the system built.
                $present.store(Self::find(), Ordering::Relaxed);
            }

            /// Returns a bit for each register that this CPU has.
            pub(crate) fn find() -> u32 {
                let present = [$($register.exists(),)*];
                present.into_iter().rev().fold(0, |bits, exists| bits << 1 | u32::from(exists))
            }

            /// Stores what is in the registers.
            #[inline(always)] // A comparison on CPUs that have none of them.
            pub(crate) fn save(&mut self) {
                let present = $present.load(Ordering::Relaxed);
                if present != 0 {
                    self.save_some(present);
                }
            }

            #[inline(never)] // Once for all: it is long.
            pub(crate) fn save_some(&mut self, present: u32) {
                let mut bit = 1;
                $(
                    if present & bit != 0 {
                        self.$field = $register.read();
                    }
                    bit <<= 1;
                )*
                let _ = bit;
            }

            /// Loads the registers, but for those that have the value already, as `before` has left them.
            ///
            /// # Safety
            /// Nobody needs what is there, and the guest may have what is loaded.
            #[inline(always)] // As for `save`.
            pub(crate) unsafe fn load(&self, before: Option<&Self>) {
                let present = $present.load(Ordering::Relaxed);
                if present != 0 {
                    // SAFETY: the caller's promise.
                    unsafe { self.load_some(before, present) };
                }
            }

            /// # Safety
            /// As for [`Self::load`].
            #[inline(never)] // Once for all: it is long.
            pub(crate) unsafe fn load_some(&self, before: Option<&Self>, present: u32) {
                let mut bit = 1;
                $(
                    if present & bit != 0 && before.is_none_or(|before| before.$field != self.$field) {
                        // SAFETY: the caller's promise.
                        unsafe { $register.write(self.$field) };
                    }
                    bit <<= 1;
                )*
                let _ = bit;
            }

            /// The registers' numbers and names.
            #[cfg(test)]
            pub(crate) const REGISTERS: &[(u32, &str)] =
                &[$(($register::NUMBER, stringify!($register)),)*];

            /// Says whether those that the CPU has are zero, of a CPU that has some.
            fn are_zero(present: u32) -> bool {
                /// All of them, as most CPUs have them that have one.
                const ALL: u32 = (1 << [$($register::NUMBER),*].len()) - 1;
                if present == ALL {
                    return 0 $(| $register.read())* == 0;
                }
                let (mut bit, mut any) = (1, 0);
                $(
                    if present & bit != 0 {
                        any |= $register.read();
                    }
                    bit <<= 1;
                )*
                let _ = bit;
                any == 0
            }
        }

        impl $crate::state::groups::Seldom for $name {
            const RESET: Self = Self { $($field: 0,)* };

            #[inline(always)] // A comparison on CPUs that have none of them.
            fn are_idle() -> bool {
                let present = $present.load(Ordering::Relaxed);
                present == 0 || Self::are_zero(present)
            }

            fn save(&mut self) {
                Self::save(self);
            }

            unsafe fn load(&self, before: Option<&Self>) {
                // SAFETY: the caller's promise.
                unsafe { Self::load(self, before) };
            }
        }
    )*};
}
pub(super) use sparse;
