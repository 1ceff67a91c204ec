// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Enums of named choices.

use core::fmt;

/// Declares an enum of named choices with its conversions from and to the names.
macro_rules! choices {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub enum $type { $($(#[$variant_doc])* $variant),+ }

        impl $type {
            /// Every choice, in the order in which messages list them.
            pub const ALL: &'static [$type] = &[$($type::$variant),+];

            /// Returns the choice's name in configurations and bundles.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name),+ }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }

        impl core::str::FromStr for $type {
            type Err = $crate::UnknownChoice;

            fn from_str(name: &str) -> Result<Self, $crate::UnknownChoice> {
                Self::ALL.iter().copied().find(|choice| choice.name() == name).ok_or($crate::UnknownChoice)
            }
        }
    };
}
pub(crate) use choices;

/// The text names none of the choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownChoice;

impl fmt::Display for UnknownChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such choice")
    }
}

impl core::error::Error for UnknownChoice {}
