// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers of a CPU by their names.

/// Makes a zero-sized value of each register, with `read` and `write`.
///
/// On the bare machine an access is what the macros `$read` and `$write` make of the register's key. Everywhere else it goes to
/// a recorder, so that host tests run the exit handlers unchanged and assert exactly which registers they touched.
///
/// Writing such a register can break memory safety, so `write` is `unsafe` everywhere.
#[macro_export]
macro_rules! registers {
    ($read:ident, $write:ident: $($(#[$doc:meta])* $name:ident = $key:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[allow(non_camel_case_types, non_upper_case_globals, reason = "the architecture's name")]
        pub struct $name;

        impl $name {
            /// Reads the register.
            #[inline(always)] // One instruction, or a few.
            pub fn read(self) -> u64 {
                #[cfg(target_os = "none")]
                {
                    $read!($key)
                }
                #[cfg(not(target_os = "none"))]
                $crate::fakes::read(stringify!($name))
            }

            /// Writes the register.
            ///
            /// # Safety
            /// The value must keep the hypervisor's own execution and the isolation of guests intact. Where the architecture
            /// asks for a context synchronization event, it takes effect only after one.
            #[inline(always)] // One instruction, or a few.
            pub unsafe fn write(self, value: u64) {
                #[cfg(target_os = "none")]
                // SAFETY: the caller answers for the value.
                unsafe {
                    $write!(value, $key)
                };
                #[cfg(not(target_os = "none"))]
                $crate::fakes::write(stringify!($name), value);
            }
        }
    )*};
}
