// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor's command line says: `mitigations=auto`, `off`, or a list such as `barrier+fill`.

use super::exit::Exit;

/// Which mitigations are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// What each CPU needs, and no more.
    #[default]
    Auto,
    /// None.
    Off,
    /// This on each exit and entry as far as the CPU has it, needed or not, and nothing else: to measure it.
    Exit(Exit),
}

impl Choice {
    /// Reads one word of the command line; `None` if it does not choose mitigations.
    pub fn from_word(word: &str) -> Option<Self> {
        match word.strip_prefix(crate::WORD)? {
            "auto" => Some(Self::Auto),
            "off" => Some(Self::Off),
            list => {
                let mut exit = Exit::NOTHING;
                for part in list.split('+') {
                    match part {
                        "barrier" => exit.barrier = true,
                        "fill" => exit.fill = true,
                        "clear" => exit.clear = true,
                        "switch" => exit.switch = true,
                        _ => return None,
                    }
                }
                Some(Self::Exit(exit))
            }
        }
    }

    /// Reads the command line; the last word counts.
    pub fn from_line(line: &str) -> Self {
        crate::last_word(line, Self::from_word)
    }
}
