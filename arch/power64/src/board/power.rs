// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Powering the machine off, and resetting it.

use crate::board::opal::{self, Token};
use crate::cpu;

/// Times that the firmware is let work on what was asked of it.
const PATIENCE: u32 = 10_000_000;

fn ask(token: Token) {
    // SAFETY: it ends the machine, which is what is wanted.
    let _ = unsafe { opal::call(token, &[0]) };
    // The service processor does it: the firmware has to talk with that.
    for _ in 0..PATIENCE {
        opal::poll();
        cpu::relax();
    }
}

/// Powers the machine off. Returns if nothing can do that.
pub fn off() {
    ask(Token::CecPowerDown);
}

/// Resets the machine. Returns if nothing can do that.
pub fn reset() {
    ask(Token::CecReboot);
}
