// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command `turnstile`.

use std::process::ExitCode;

fn main() -> ExitCode {
    turnstile::start::start(turnstile::execute)
}
