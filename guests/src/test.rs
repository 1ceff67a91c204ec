// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Named tests: each prints one `@test` line, the whole ends with `@done`.

use core::fmt::{self, Write};

use crate::platform::platform;
use crate::timer::Timer;
use crate::{cpu, gic, irq, options, println};

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

fn is_selected(name: &str) -> bool {
    let Some(wanted) = options::get("test") else { return true };
    wanted
        .split(',')
        .any(|wanted| name.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
}

/// Puts timers, interrupts and handlers back to rest, so that tests do not depend on each other.
pub fn rest() {
    cpu::mask_irq();
    cpu::mask_fiq();
    irq::set_handler(None);
    for timer in [Timer::Virtual, Timer::Physical] {
        timer.set_control(0);
    }
    if platform().gicd.is_some() {
        gic::init();
    }
    irq::reset_counts();
}

/// Runs the tests of all groups that the option `test=` selects (a name, or the part before a dash; several
/// by commas), then prints `@done`.
pub fn run(groups: &[&[Test]]) {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for test in groups.iter().flat_map(|group| group.iter()) {
        if !is_selected(test.name) {
            continue;
        }
        if options::get("list").is_some() {
            println!("@list {}", test.name);
            continue;
        }
        rest();
        match (test.run)() {
            Ok(()) => {
                passed += 1;
                println!("@test {} ok", test.name);
            }
            Err(Stop::Failed(why)) => {
                failed += 1;
                println!("@test {} failed: {why}", test.name);
            }
            Err(Stop::Skipped(why)) => {
                skipped += 1;
                println!("@test {} skipped: {why}", test.name);
            }
        }
    }
    rest();
    println!("@done passed={passed} failed={failed} skipped={skipped}");
}
