// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words of a command line: `key=value`, or `key`. A runtime says which line is the guest's own.

use crate::global::Global;

static LINE: Global<&str> = Global::new("");

/// Sets the guest's command line. It is empty before.
///
/// # Safety
/// Only one CPU runs, and nobody reads the line at that moment.
pub unsafe fn set_line(line: &'static str) {
    // SAFETY: the caller's promise.
    unsafe { *LINE.write() = line };
}

/// Returns the guest's command line.
pub fn line() -> &'static str {
    LINE.get()
}

/// Returns what [`find`] finds in the guest's command line.
pub fn get(key: &str) -> Option<&'static str> {
    find(line(), key)
}

/// Returns the number that [`number_in`] finds in the guest's command line.
pub fn number(key: &str, default: u64) -> u64 {
    number_in(line(), key, default)
}

/// Returns the value of the first word `key=value`, or `""` for a bare word `key`.
pub fn find<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_ascii_whitespace().find_map(|word| match word.split_once('=') {
        Some((name, value)) => (name == key).then_some(value),
        None => (word == key).then_some(""),
    })
}

/// Returns the decimal or `0x` hexadecimal number given for `key`, or `default` if there is none.
///
/// # Panics
/// When the word is there but is no number: a mistyped option must not pass for a measurement.
pub fn number_in(line: &str, key: &str, default: u64) -> u64 {
    let Some(text) = find(line, key) else { return default };
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match parsed {
        Ok(value) => value,
        Err(_) => panic!("option {key}={text} is not a number"),
    }
}

/// Says whether a name is among the comma-separated words given for `key`: itself, or its part before a dash. Without
/// the option every name is.
pub fn selects(line: &str, key: &str, name: &str) -> bool {
    let Some(wanted) = find(line, key) else { return true };
    wanted
        .split(',')
        .any(|wanted| name.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_and_read() {
        let line = "image row=cpuid  iterations=0x40 marks seed=7";
        assert_eq!(find(line, "row"), Some("cpuid"));
        assert_eq!(find(line, "marks"), Some(""));
        assert_eq!(find(line, "iteration"), None);
        assert_eq!(
            (number_in(line, "iterations", 1), number_in(line, "seed", 1), number_in(line, "x", 3)),
            (64, 7, 3)
        );
    }

    #[test]
    #[should_panic(expected = "option seed=many is not a number")]
    fn a_mistyped_number_is_no_default() {
        number_in("seed=many", "seed", 1);
    }

    #[test]
    fn a_group_selects_its_names() {
        assert!(selects("", "test", "apic-tpr"));
        assert!(selects("test=pic,apic", "test", "apic-tpr"));
        assert!(selects("test=apic-tpr", "test", "apic-tpr"));
        assert!(!selects("test=apic-t", "test", "apic-tpr"));
    }
}
