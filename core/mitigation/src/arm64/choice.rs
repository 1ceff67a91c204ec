// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor's command line says: `mitigations=auto`, `off`, `loop:K` or `firmware`.

/// Which mitigations are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// What each CPU needs, and no more.
    #[default]
    Auto,
    /// None.
    Off,
    /// A loop of this many turns on each exit, needed or not, and nothing else: to measure it.
    Loop(u16),
    /// The firmware's call on each exit where there is one, needed or not, and nothing else: to measure it.
    Firmware,
}

impl Choice {
    /// The most turns of the loop: more than any CPU is known to need.
    const MOST: u16 = 1024;

    /// Reads one word of the command line; `None` if it does not choose mitigations.
    pub fn from_word(word: &str) -> Option<Self> {
        match word.strip_prefix(crate::WORD)? {
            "auto" => Some(Self::Auto),
            "off" => Some(Self::Off),
            "firmware" => Some(Self::Firmware),
            other => {
                let turns = other.strip_prefix("loop:")?.parse().ok()?;
                (1..=Self::MOST).contains(&turns).then_some(Self::Loop(turns))
            }
        }
    }

    /// Reads the command line; the last word counts.
    pub fn from_line(line: &str) -> Self {
        crate::last_word(line, Self::from_word)
    }
}
