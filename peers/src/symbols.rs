// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The running kernel's own table of symbols, reduced to its functions.

use std::io::{BufRead, Write};

/// Copies the functions from a table in the form of `/proc/kallsyms`, and ends with the line `@end`, by which a
/// reader knows that it has everything.
///
/// # Errors
/// Those of reading and writing, and a table whose addresses are all zero: the kernel hides them.
pub fn copy(table: impl BufRead, mut to: impl Write) -> std::io::Result<()> {
    let mut shown = false;
    for line in table.lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let (Some(address), Some(kind)) = (words.next(), words.next()) else { continue };
        if matches!(kind, "t" | "T" | "w" | "W") {
            shown |= address.bytes().any(|digit| digit != b'0');
            writeln!(to, "{line}")?;
        }
    }
    if !shown {
        return Err(std::io::Error::other(
            "the kernel shows no addresses: kernel.kptr_restrict must not hide them",
        ));
    }
    writeln!(to, "@end")?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_copied_and_data_is_not() {
        let table = "ffff800080000000 T _text\nffff800080010000 t el2_sync\nffff800081000000 D jiffies\n";
        let mut copied = Vec::new();
        copy(table.as_bytes(), &mut copied).unwrap();
        assert_eq!(copied, b"ffff800080000000 T _text\nffff800080010000 t el2_sync\n@end\n");
    }

    #[test]
    fn hidden_addresses_are_refused() {
        assert!(copy(&b"0000000000000000 T _text\n"[..], Vec::new()).is_err());
    }
}
