// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The console: what is printed goes, in blocks, to the function that a runtime names when it begins.
//!
//! Only one CPU prints at a time by the guests' own order; there is no lock, so that an exception handler
//! can always print.

use core::fmt;

use crate::handler::Handler;
use crate::list::List;

/// Most bytes of a block.
pub const BLOCK: usize = 16;

/// Bytes that are printed at once.
pub type Block = List<u8, BLOCK>;

static OUTPUT: Handler<Block> = Handler::new();

/// Sets where text goes from now on. Nowhere, before.
pub fn set_output(write: fn(Block)) {
    OUTPUT.set(Some(write));
}

/// Where `print!` goes.
pub struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        in_blocks(text, |block| OUTPUT.call(block));
        Ok(())
    }
}

/// Hands over the bytes of a text as a terminal wants them: with a carriage return before each newline.
fn in_blocks(text: &str, mut write: impl FnMut(Block)) {
    let bytes = text.bytes().flat_map(|byte| (byte == b'\n').then_some(b'\r').into_iter().chain([byte]));
    let mut block = Block::new(0);
    for byte in bytes {
        block.push(byte);
        if block.as_slice().len() == BLOCK {
            write(core::mem::replace(&mut block, Block::new(0)));
        }
    }
    if !block.as_slice().is_empty() {
        write(block);
    }
}

/// Prints to the console.
#[macro_export]
macro_rules! print {
    ($($argument:tt)*) => {{
        let _ = core::fmt::Write::write_fmt(&mut $crate::console::Console, format_args!($($argument)*));
    }};
}

/// Prints a line to the console.
#[macro_export]
macro_rules! println {
    () => { $crate::print!("\n") };
    ($($argument:tt)*) => {{
        $crate::print!($($argument)*);
        $crate::print!("\n");
    }};
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    fn blocks(text: &str) -> Vec<Vec<u8>> {
        let mut blocks = Vec::new();
        in_blocks(text, |block| blocks.push(block.as_slice().to_vec()));
        blocks
    }

    #[test]
    fn lines_return() {
        assert_eq!(blocks("a\nb\n"), [b"a\r\nb\r\n"]);
    }

    #[test]
    fn blocks_are_full_but_the_last() {
        assert!(blocks("").is_empty());
        assert_eq!(blocks("0123456789abcdef"), [b"0123456789abcdef"]);
        assert_eq!(blocks("0123456789abcde\n"), [&b"0123456789abcde\r"[..], b"\n"]);
    }
}
