// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest that looks for what a hypervisor leaves behind in a restarted machine's memory.

use core::fmt::Write;

use crate::options;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
const PATTERN: u64 = 0xdead_5eed_0bad_c0de;

/// Checks that all these pages are zero, unless the option `check=off` says not to, and reports it; returns whether nothing was
/// found in them.
pub fn check(
    console: &mut impl Write,
    line: &str,
    pages: impl Iterator<Item = u64>,
    read: impl Fn(u64) -> u64,
) -> bool {
    let checked = options::find(line, "check") != Some("off");
    let mut bytes = 0;
    for page in pages.take_while(|_| checked) {
        bytes += PAGE;
        if let Some(address) = words(page).find(|address| read(*address) != 0) {
            let _ = writeln!(console, "@boot restart zero=no");
            let _ = writeln!(console, "@error memory at {address:#x} holds {:#x}", read(address));
            return false;
        }
    }
    let zero = if checked { "yes" } else { "unchecked" };
    let _ = writeln!(console, "@boot restart zero={zero} bytes={bytes}");
    true
}

/// Fills a page with a pattern.
pub fn fill(page: u64, write: impl Fn(u64, u64)) {
    words(page).for_each(|address| write(address, PATTERN ^ address));
}

fn words(page: u64) -> impl Iterator<Item = u64> {
    (page..page + PAGE).step_by(8)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::string::String;

    use super::*;

    #[test]
    fn what_was_left_behind_is_found() {
        let memory = RefCell::new(BTreeMap::new());
        let said = |line: &str| {
            let mut text = String::new();
            let pages = [0x1000, 0x3000].into_iter();
            let clean =
                check(&mut text, line, pages, |place| memory.borrow().get(&place).copied().unwrap_or(0));
            (clean, text)
        };
        assert_eq!(said(""), (true, "@boot restart zero=yes bytes=8192\n".into()));
        fill(0x3000, |place, value| _ = memory.borrow_mut().insert(place, value));
        assert_eq!(memory.borrow().len(), 512);
        let found = "@boot restart zero=no\n@error memory at 0x3000 holds 0xdead5eed0badf0de\n";
        assert_eq!(said(""), (false, found.into()));
        assert_eq!(said("check=off"), (true, "@boot restart zero=unchecked bytes=0\n".into()));
    }
}
