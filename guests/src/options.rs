// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's command line: `key=value` words of `/chosen/bootargs`.

use crate::platform::platform;

/// Returns the value of the first word `key=value`, or `""` for a bare word `key`.
pub fn get(key: &str) -> Option<&'static str> {
    platform().bootargs().split_ascii_whitespace().find_map(|word| match word.split_once('=') {
        Some((name, value)) => (name == key).then_some(value),
        None => (word == key).then_some(""),
    })
}

/// Returns the decimal or `0x` hexadecimal number given for `key`, or `default` if there is none.
///
/// # Panics
/// When the word is there but is no number: a mistyped option must not pass for a measurement.
pub fn number(key: &str, default: u64) -> u64 {
    let Some(text) = get(key) else { return default };
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match parsed {
        Ok(value) => value,
        Err(_) => panic!("option {key}={text} is not a number"),
    }
}
