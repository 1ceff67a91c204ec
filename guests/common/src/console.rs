// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What consoles have in common.

/// Returns the bytes of a text as a terminal wants them: with a carriage return before each newline.
pub fn bytes(text: &str) -> impl Iterator<Item = u8> {
    text.bytes().flat_map(|byte| (byte == b'\n').then_some(b'\r').into_iter().chain([byte]))
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_return() {
        assert!(super::bytes("a\nb\n").eq(*b"a\r\nb\r\n"));
    }
}
