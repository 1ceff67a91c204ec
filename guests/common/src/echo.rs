// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest that echoes what its console receives.

use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};

const RING: usize = 1024;
const LINE: usize = 256;

/// Bytes on their way from the interrupt handler of a CPU to its program.
pub struct Ring {
    bytes: [AtomicU8; RING],
    written: AtomicUsize,
    read: AtomicUsize,
    /// Whether the port is silent: before anything is wanted of it, and when there was no room.
    is_silent: AtomicBool,
}

/// The port that fills a ring.
pub struct Port {
    /// Takes a received byte.
    pub get: fn() -> Option<u8>,
    /// Switches its receive interrupt.
    pub set_receive_interrupt: fn(bool),
}

impl Ring {
    /// Returns an empty one.
    pub const fn new() -> Self {
        Ring {
            bytes: [const { AtomicU8::new(0) }; RING],
            written: AtomicUsize::new(0),
            read: AtomicUsize::new(0),
            is_silent: AtomicBool::new(true),
        }
    }

    /// Takes what the port holds: for the handler. What finds no room is left there, and the port is silent until
    /// [`Ring::pop_or_refill`].
    pub fn fill(&self, port: &Port) {
        while self.written.load(Relaxed) - self.read.load(Relaxed) < RING {
            match (port.get)() {
                Some(byte) => self.push(byte),
                None => return,
            }
        }
        (port.set_receive_interrupt)(false);
        self.is_silent.store(true, Relaxed);
    }

    /// Takes a byte out, if there is one, also of the port while that is silent, which it is no longer then: for the program, while
    /// no interrupt is taken.
    pub fn pop_or_refill(&self, port: &Port) -> Option<u8> {
        self.pop().or_else(|| {
            if self.is_silent.swap(false, Relaxed) {
                (port.set_receive_interrupt)(true);
                self.fill(port);
            }
            self.pop()
        })
    }

    fn push(&self, byte: u8) {
        let written = self.written.load(Relaxed);
        if let Some(slot) = self.bytes.get(written % RING) {
            slot.store(byte, Relaxed);
        }
        self.written.store(written + 1, Relaxed);
    }

    fn pop(&self) -> Option<u8> {
        let read = self.read.load(Relaxed);
        if self.written.load(Relaxed) == read {
            return None;
        }
        self.read.store(read + 1, Relaxed);
        self.bytes.get(read % RING).map(|slot| slot.load(Relaxed))
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::new()
    }
}

/// How to end.
pub struct Ends {
    /// Switches the machine off.
    pub off: fn() -> !,
    /// Resets it.
    pub reset: fn() -> !,
    /// Dies in the way of this name.
    pub die: fn(&str) -> !,
}

/// Echoes bytes by `put`, and does what lines say, until one says to end.
///
/// A line is a command: `quit`, `reset`, `crash` or `crash HOW`, `spin`; any other is printed again as `@echo LINE`.
pub fn run(console: &mut impl Write, put: fn(u8), mut next_byte: impl FnMut() -> u8, ends: &Ends) -> ! {
    let _ = write!(console, "@boot echo\necho> ");
    let mut line = Line { bytes: [0; LINE], len: 0 };
    loop {
        match next_byte() {
            b'\r' | b'\n' => {
                let _ = writeln!(console);
                command(console, line.text(), ends);
                line.len = 0;
                let _ = write!(console, "echo> ");
            }
            8 | 127 if line.len > 0 => {
                line.len -= 1;
                let _ = write!(console, "\x08 \x08");
            }
            8 | 127 => {}
            byte => {
                put(byte);
                line.push(byte);
            }
        }
    }
}

/// A line that is being typed; what does not fit is left out.
struct Line {
    bytes: [u8; LINE],
    len: usize,
}

impl Line {
    fn push(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.len) {
            *slot = byte;
            self.len += 1;
        }
    }

    fn text(&self) -> &str {
        self.bytes.get(..self.len).and_then(|bytes| core::str::from_utf8(bytes).ok()).unwrap_or("")
    }
}

fn command(console: &mut impl Write, line: &str, ends: &Ends) {
    match line.trim() {
        "" => {}
        "quit" => (ends.off)(),
        "reset" => (ends.reset)(),
        "crash" => (ends.die)("exception"),
        "spin" => (ends.die)("spin"),
        line => match line.strip_prefix("crash ") {
            Some(how) => (ends.die)(how.trim()),
            None => _ = writeln!(console, "@echo {line}"),
        },
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::string::String;

    use super::*;

    /// What is said to this input, whose last line ends the run with a panic of its name.
    fn said(input: &str) -> (String, String) {
        let ring = Ring::new();
        input.bytes().for_each(|byte| ring.push(byte));
        let ends =
            Ends { off: || panic!("off"), reset: || panic!("reset"), die: |how| panic!("dies by {how}") };
        let mut text = String::new();
        let next = || ring.pop().expect("a line ends the run");
        let end = catch_unwind(AssertUnwindSafe(|| run(&mut text, |_| {}, next, &ends)));
        let end = end.map(|_| ()).expect_err("it does not return");
        let end =
            end.downcast_ref::<String>().cloned().or_else(|| Some((*end.downcast_ref::<&str>()?).into()));
        (text, end.expect("a panic has a text"))
    }

    #[test]
    fn lines_are_edited_and_obeyed() {
        let (text, end) = said("helo\x7flo\x08\r\nquit\r");
        assert_eq!(text, "@boot echo\necho> \x08 \x08\x08 \x08\n@echo hell\necho> \necho> \n");
        assert_eq!(end, "off");
        assert_eq!(said("\x08 reset \n").1, "reset");
        assert_eq!(said("crash\n").1, "dies by exception");
        assert_eq!(said("crash  fault\n").1, "dies by fault");
        assert_eq!(said("spin\n").1, "dies by spin");
    }
}
