// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor's command line says: `mitigations=auto`, `off`, `assisted` or `software`.

/// Which mitigations are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// What the machine needs, and no more.
    #[default]
    Auto,
    /// None.
    Off,
    /// All of them, needed or not, by the instructions that processors and firmware have for them: to measure them.
    Assisted,
    /// All of them, needed or not, by ordinary instructions: to measure them.
    Software,
}

impl Choice {
    /// Reads one word of the command line; `None` if it does not choose mitigations.
    pub fn from_word(word: &str) -> Option<Self> {
        match word.strip_prefix(crate::WORD)? {
            "auto" => Some(Self::Auto),
            "off" => Some(Self::Off),
            "assisted" => Some(Self::Assisted),
            "software" => Some(Self::Software),
            _ => None,
        }
    }

    /// Reads the command line; the last word counts.
    pub fn from_line(line: &str) -> Self {
        crate::last_word(line, Self::from_word)
    }
}
