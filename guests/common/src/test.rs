// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Named tests: each prints one `@test` line, the whole ends with `@done`.

use core::fmt::{self, Write};

use crate::console::Console;
use crate::options;

const TEXT: usize = 110;

/// A short text without allocation; what does not fit is cut off.
pub struct Text {
    bytes: [u8; TEXT],
    len: u8,
}

impl Text {
    /// Formats a text.
    pub fn new(arguments: fmt::Arguments<'_>) -> Text {
        let mut text = Text { bytes: [0; TEXT], len: 0 };
        let _ = text.write_fmt(arguments);
        text
    }
}

impl Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for byte in part.bytes() {
            if let Some(slot) = self.bytes.get_mut(usize::from(self.len)) {
                *slot = byte;
                self.len += 1;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            self.bytes.get(..usize::from(self.len)).and_then(|b| core::str::from_utf8(b).ok()).unwrap_or("?"),
        )
    }
}

/// Why a test did not pass.
pub enum Stop {
    /// Something is wrong.
    Failed(Text),
    /// This machine does not have what the test needs.
    Skipped(Text),
}

/// What a test returns.
pub type Outcome = Result<(), Stop>;

/// A named test.
pub struct Test {
    /// Its name: group, dash, what.
    pub name: &'static str,
    /// The test.
    pub run: fn() -> Outcome,
}

/// Ends the test as failed unless the condition holds.
#[macro_export]
macro_rules! check {
    ($condition:expr, $($argument:tt)*) => {
        if !$condition {
            return Err($crate::test::Stop::Failed($crate::test::Text::new(format_args!($($argument)*))));
        }
    };
}

/// Ends the test as failed unless both sides are equal; prints both in hexadecimal.
#[macro_export]
macro_rules! check_eq {
    ($left:expr, $right:expr, $($argument:tt)*) => {{
        let (left, right) = ($left, $right);
        $crate::check!(left == right, "{}: {left:#x}, expected {right:#x}", format_args!($($argument)*));
    }};
}

/// Ends the test as skipped.
#[macro_export]
macro_rules! skip {
    ($($argument:tt)*) => {
        return Err($crate::test::Stop::Skipped($crate::test::Text::new(format_args!($($argument)*))))
    };
}

/// Runs the tests of all groups that the option `test=` selects (a name, or the part before a dash; several
/// by commas), with `rest` before each and at the end, then prints `@done`. With the option `list` it prints names only.
pub fn run(groups: &[&[Test]], rest: fn()) {
    let _ = report(&mut Console, options::line(), groups, rest);
}

fn report(console: &mut impl Write, line: &str, groups: &[&[Test]], rest: fn()) -> fmt::Result {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let selected =
        groups.iter().flat_map(|group| group.iter()).filter(|test| options::selects(line, "test", test.name));
    for test in selected {
        let name = test.name;
        if options::find(line, "list").is_some() {
            writeln!(console, "@list {name}")?;
            continue;
        }
        rest();
        match (test.run)() {
            Ok(()) => {
                passed += 1;
                writeln!(console, "@test {name} ok")?;
            }
            Err(Stop::Failed(why)) => {
                failed += 1;
                writeln!(console, "@test {name} failed: {why}")?;
            }
            Err(Stop::Skipped(why)) => {
                skipped += 1;
                writeln!(console, "@test {name} skipped: {why}")?;
            }
        }
    }
    rest();
    writeln!(console, "@done passed={passed} failed={failed} skipped={skipped}")
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::String;

    use super::*;

    fn passes() -> Outcome {
        check!(1 < 2, "arithmetic");
        Ok(())
    }

    fn fails() -> Outcome {
        check_eq!(16, 17, "sixteen");
        Ok(())
    }

    fn skips() -> Outcome {
        skip!("no {}", "machine")
    }

    const GROUP: &[Test] = &[
        Test { name: "a-passes", run: passes },
        Test { name: "a-fails", run: fails },
        Test { name: "b-skips", run: skips },
    ];

    fn said(line: &str) -> String {
        let mut text = String::new();
        report(&mut text, line, &[GROUP], || {}).unwrap();
        text
    }

    #[test]
    fn each_test_has_a_line() {
        assert_eq!(
            said(""),
            "@test a-passes ok\n@test a-fails failed: sixteen: 0x10, expected 0x11\n@test b-skips skipped: no machine\n\
             @done passed=1 failed=1 skipped=1\n"
        );
        assert_eq!(said("test=b"), "@test b-skips skipped: no machine\n@done passed=0 failed=0 skipped=1\n");
    }
}
