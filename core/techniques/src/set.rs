// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of techniques, and how they are written.

use core::fmt;

use crate::{Architecture, Technique};

/// Means every technique.
const ALL: &str = "all";
/// Means no technique.
const NONE: &str = "none";

/// A set of techniques.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Set(u32);

impl Set {
    /// No technique.
    pub const NONE: Self = Self(0);
    /// Every technique.
    pub const ALL: Self = Self((1 << Technique::ALL.len()) - 1);

    /// The set of one technique.
    pub const fn of(technique: Technique) -> Self {
        Self(1 << technique as u8)
    }

    /// Says whether a technique is in the set.
    pub const fn contains(self, technique: Technique) -> bool {
        self.0 & Self::of(technique).0 != 0
    }

    /// The set with a technique added.
    #[must_use = "the set itself does not change"]
    pub const fn with(self, technique: Technique) -> Self {
        Self(self.0 | Self::of(technique).0)
    }

    /// The set without the techniques of other architectures.
    #[must_use = "the set itself does not change"]
    pub fn on(self, architecture: Architecture) -> Self {
        let own = self.iter().filter(|technique| technique.is_on(architecture));
        own.fold(Self::NONE, Self::with)
    }

    /// The techniques in the set, in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = Technique> {
        Technique::ALL.into_iter().filter(move |technique| self.contains(*technique))
    }
}

/// A name in a list that no technique has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown<'a>(pub &'a str);

impl fmt::Display for Unknown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no technique \"{}\"; there are: ", self.0)?;
        for technique in Technique::ALL {
            write!(f, "{technique}, ")?;
        }
        write!(f, "or {ALL}, or {NONE}")
    }
}

impl core::error::Error for Unknown<'_> {}

impl Set {
    /// Reads names separated by commas, `all` or `none`.
    ///
    /// # Errors
    /// Names the first word that means nothing.
    pub fn parse(list: &str) -> Result<Self, Unknown<'_>> {
        match list {
            ALL => return Ok(Self::ALL),
            NONE => return Ok(Self::NONE),
            _ => {}
        }
        let mut set = Self::NONE;
        for name in list.split(',') {
            let found = Technique::ALL.into_iter().find(|technique| technique.name() == name);
            set = set.with(found.ok_or(Unknown(name))?);
        }
        Ok(set)
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ALL => return f.write_str(ALL),
            Self::NONE => return f.write_str(NONE),
            _ => {}
        }
        for (place, technique) in self.iter().enumerate() {
            if place > 0 {
                f.write_str(",")?;
            }
            f.write_str(technique.name())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString;

    use super::*;

    #[test]
    fn every_set_is_read_as_it_is_written() {
        // All sets of the first ones, every one alone, and ten thousand of others.
        let alone = Technique::ALL.map(|technique| 1 << technique as usize);
        let others = (0..10_000).map(|n| 0x9e37_79b9_u32.wrapping_mul(n) & Set::ALL.0);
        for bits in (0..1 << 10).chain(alone).chain(others).chain([Set::ALL.0]) {
            let set = Set(bits);
            let text = set.to_string();
            assert_eq!(Set::parse(&text), Ok(set), "{text}");
        }
    }

    #[test]
    fn names_are_words_of_a_command_line() {
        for (place, technique) in Technique::ALL.into_iter().enumerate() {
            let name = technique.name();
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{name}"
            );
            assert!(![ALL, NONE].contains(&name));
            assert!(
                Technique::ALL[..place].iter().all(|other| other.name() != name),
                "{name} is there twice"
            );
            assert_eq!(technique as usize, place);
        }
    }

    #[test]
    fn unknown_names_are_answered_with_the_known_ones() {
        let error = Set::parse("fp-resident,fp").unwrap_err();
        assert_eq!(error, Unknown("fp"));
        let text = error.to_string();
        assert!(text.contains("\"fp\""), "{text}");
        assert!(Technique::ALL.iter().all(|technique| text.contains(technique.name())), "{text}");
        for nothing in ["", "fp-resident,", "all,none", "ALL"] {
            assert!(Set::parse(nothing).is_err(), "{nothing:?}");
        }
    }
}
