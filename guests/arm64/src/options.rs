// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's command line: `key=value` words of `/chosen/bootargs`.

use turnstile_guests_common::options;

use crate::platform::platform;

/// Returns the value of the first word `key=value`, or `""` for a bare word `key`.
pub fn get(key: &str) -> Option<&'static str> {
    options::find(platform().command_line(), key)
}

/// Returns the decimal or `0x` hexadecimal number given for `key`, or `default` if there is none.
///
/// # Panics
/// When the word is there but is no number: a mistyped option must not pass for a measurement.
pub fn number(key: &str, default: u64) -> u64 {
    options::number(platform().command_line(), key, default)
}
