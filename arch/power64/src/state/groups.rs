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
                *self = Self { $($field: $register.read(),)* };
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
        }
    )*};
}
pub(super) use sparse;
