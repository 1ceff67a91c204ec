// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a CPU stands to a weakness.

use core::fmt;

/// How a CPU stands to one weakness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does not have it.
    Unaffected,
    /// It has it, and something is done about it.
    Mitigated,
    /// It has it, or may have it.
    Vulnerable,
}

impl State {
    pub(crate) const fn of(affected: bool, remedied: bool) -> Self {
        match (affected, remedied) {
            (false, _) => Self::Unaffected,
            (true, true) => Self::Mitigated,
            (true, false) => Self::Vulnerable,
        }
    }
}

/// Names the weaknesses that guests can use, if there are any.
pub(crate) fn name_open(f: &mut fmt::Formatter<'_>, weaknesses: &[(State, &str)]) -> fmt::Result {
    let mut open = weaknesses.iter().filter(|(state, _)| *state == State::Vulnerable).map(|(_, name)| name);
    if let Some(first) = open.next() {
        write!(f, "; open to guests: {first}")?;
        open.try_for_each(|name| write!(f, ", {name}"))?;
    }
    Ok(())
}
