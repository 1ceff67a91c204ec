// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's serial line: bytes come in, whole lines go out.

use std::io::Write;

/// What a byte meant to a program that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The first byte of a line.
    Begun,
    /// The end of the line `@begin`: the measured loop is next.
    MeasuringBegins,
    /// Anything else.
    Other,
}

/// Collects a line, so that it is written at once and not mixed with the host's.
#[derive(Debug)]
pub struct Console<W> {
    out: W,
    line: Vec<u8>,
}

impl<W: Write> Console<W> {
    /// Makes a console that writes to `out`.
    pub fn new(out: W) -> Self {
        Console { out, line: Vec::new() }
    }

    /// Takes a byte from the guest.
    ///
    /// # Errors
    /// Those of the output.
    pub fn put(&mut self, byte: u8) -> std::io::Result<Heard> {
        let begun = self.line.is_empty();
        self.line.push(byte);
        if byte != b'\n' {
            return Ok(if begun { Heard::Begun } else { Heard::Other });
        }
        let begins = self.line.trim_ascii() == b"@begin";
        self.flush()?;
        Ok(if begins { Heard::MeasuringBegins } else { Heard::Other })
    }

    /// Writes what there is of a line.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self) -> std::io::Result<()> {
        let line = std::mem::take(&mut self.line);
        self.out.write_all(&line)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_heard_and_lines_are_whole() {
        let mut out = Vec::new();
        let mut console = Console::new(&mut out);
        let heard: Vec<Heard> = b"@begin\r\n@e".iter().map(|byte| console.put(*byte).unwrap()).collect();
        assert_eq!(heard[0], Heard::Begun);
        assert_eq!(heard[7], Heard::MeasuringBegins);
        assert_eq!(heard[8], Heard::Begun);
        assert_eq!(heard[9], Heard::Other);
        assert_eq!(*console.out, b"@begin\r\n", "an unfinished line waits");
        console.flush().unwrap();
        assert_eq!(out, b"@begin\r\n@e");
    }

    #[test]
    fn only_the_whole_line_is_the_mark() {
        let mut console = Console::new(Vec::new());
        for byte in b"@beginning\n not @begin\n" {
            assert_ne!(console.put(*byte).unwrap(), Heard::MeasuringBegins);
        }
    }
}
