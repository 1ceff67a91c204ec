// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's serial line: bytes come in, whole lines go out.

use std::io::Write;

/// What a byte meant to a program that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The end of the line that begins what is measured.
    MeasuringBegins,
    /// What is measured has ended.
    MeasuringEnds,
    /// Anything else.
    Other,
}

/// The lines between which is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Behind this line it begins.
    pub begin: String,
    /// Behind this line it ends; without one, at the next byte.
    pub end: Option<String>,
}

/// Collects a line, so that it is written at once and not mixed with the host's.
#[derive(Debug)]
pub struct Console<W> {
    out: W,
    line: Vec<u8>,
    marks: Marks,
    measuring: bool,
}

impl<W: Write> Console<W> {
    /// Makes a console that writes to `out`.
    pub fn new(out: W, marks: Marks) -> Self {
        Console { out, line: Vec::new(), marks, measuring: false }
    }

    /// Takes a byte from the guest.
    ///
    /// # Errors
    /// Those of the output.
    pub fn put(&mut self, byte: u8) -> std::io::Result<Heard> {
        self.line.push(byte);
        if self.measuring && self.marks.end.is_none() {
            self.measuring = false;
            if byte == b'\n' {
                self.flush()?;
            }
            return Ok(Heard::MeasuringEnds);
        }
        if byte != b'\n' {
            return Ok(Heard::Other);
        }
        let heard = self.heard();
        self.measuring = match heard {
            Heard::MeasuringBegins => true,
            Heard::MeasuringEnds => false,
            Heard::Other => self.measuring,
        };
        self.flush()?;
        Ok(heard)
    }

    /// What the line that has just ended means.
    fn heard(&self) -> Heard {
        let line = self.line.trim_ascii();
        let is = |mark: &str| line == mark.as_bytes();
        match &self.marks {
            Marks { begin, .. } if !self.measuring && is(begin) => Heard::MeasuringBegins,
            Marks { end: Some(end), .. } if self.measuring && is(end) => Heard::MeasuringEnds,
            _ => Heard::Other,
        }
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

    fn marks(begin: &str, end: Option<&str>) -> Marks {
        Marks { begin: begin.to_owned(), end: end.map(str::to_owned) }
    }

    /// What a console hears of a text: the place of each byte that means something.
    fn heard(marks: Marks, text: &str) -> Vec<(usize, Heard)> {
        let mut console = Console::new(Vec::new(), marks);
        let all = text.bytes().map(|byte| console.put(byte).unwrap()).enumerate();
        all.filter(|(_, heard)| *heard != Heard::Other).collect()
    }

    #[test]
    fn a_mark_alone_measures_to_the_next_byte() {
        let of = |text| heard(marks("@begin", None), text);
        assert_eq!(of("@begin\r\n@end\n"), [(7, Heard::MeasuringBegins), (8, Heard::MeasuringEnds)]);
        assert_eq!(of("@begin\n\n@begin\n").len(), 3, "an empty line ends it, too");
    }

    #[test]
    fn two_marks_measure_what_is_between_them() {
        let of = |text| heard(marks("load begin", Some("load end")), text);
        let text = "load end\r\nload begin\r\nhalf of it\r\nload begin\r\nload end\r\nx";
        assert_eq!(of(text), [(21, Heard::MeasuringBegins), (55, Heard::MeasuringEnds)]);
    }

    #[test]
    fn only_the_whole_line_is_the_mark() {
        assert_eq!(heard(marks("@begin", None), "@beginning\n not @begin\n"), []);
    }

    #[test]
    fn lines_are_written_whole() {
        let mut out = Vec::new();
        let mut console = Console::new(&mut out, marks("@begin", None));
        for byte in b"@begin\r\n@e" {
            console.put(*byte).unwrap();
        }
        assert_eq!(*console.out, b"@begin\r\n", "an unfinished line waits");
        console.flush().unwrap();
        assert_eq!(out, b"@begin\r\n@e");
    }
}
