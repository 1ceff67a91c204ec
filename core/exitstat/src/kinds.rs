// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Enumerations of what a page counts, with names for reports.

/// Declares an enumeration. A kind's number is its index on the page: they begin with 0, without gaps.
macro_rules! kinds {
    (
        $(#[$about:meta])*
        $kinds:ident {
            $($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal, $what:literal;)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $kinds { $($(#[$doc])* $kind = $number),+ }

        impl $kinds {
            /// All of them, in the order of the page.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// Its name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }

            /// What it is, in a few words.
            #[must_use]
            pub const fn describe(self) -> &'static str {
                match self { $(Self::$kind => $what),+ }
            }

            /// Returns the one of an index; `None` for indexes that are reserved.
            #[must_use]
            pub fn from_index(index: usize) -> Option<Self> {
                Self::ALL.get(index).copied()
            }

            /// Returns its index.
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }

            /// Returns the one of this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.name() == name)
            }
        }
    };
}

pub(crate) use kinds;
