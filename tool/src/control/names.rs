// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The names of machines that run: `NAME-PROCESS`, which is unique on a computer.

/// The full name of the machine `name` that this process runs.
pub fn full_name(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// Whether `wanted` names a machine: by its full name, its file's name, or its process.
pub fn is_wanted(machine: &str, wanted: &str) -> bool {
    let parts = machine.rsplit_once('-');
    machine == wanted || parts.is_some_and(|(name, process)| name == wanted || process == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_named_in_three_ways() {
        for wanted in ["two-linux-77", "two-linux", "77"] {
            assert!(is_wanted("two-linux-77", wanted));
        }
        assert!(!is_wanted("two-linux-77", "two"));
    }
}
