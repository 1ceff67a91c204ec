// SPDX-License-Identifier: Apache-2.0 OR MIT
//! H_PAGE_INIT (LoPAPR 14.5.4.2.4): clears a page of the partition's memory, or copies one to it.

use crate::Memory;
use crate::code::Code;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Flags of the call (R4): bits 40, 41, 48 and 49, counted from the most significant.
mod flag {
    /// Instruction caches forget the page.
    pub const FORGET_CODE: u64 = 1 << 23;
    /// What was written is what is executed.
    pub const SYNCHRONIZE_CODE: u64 = 1 << 22;
    /// The page is cleared.
    pub const ZERO: u64 = 1 << 15;
    /// Another page is copied to it.
    pub const COPY: u64 = 1 << 14;
    pub const ALL: u64 = FORGET_CODE | SYNCHRONIZE_CODE | ZERO | COPY;
}

/// The pages that a call names: R4 to R6 are as for [`initialize`]. One that is named twice if there is one.
pub const fn pages([flags, to, from]: [u64; 3]) -> [u64; 2] {
    if flags & flag::COPY != 0 { [to, from] } else { [to, to] }
}

/// Carries out the call: R4 to R6 are flags, the page's real address, and that of the page to copy. Says whether instruction
/// caches are to be told of the page.
///
/// # Errors
/// If a flag is not known, or a page is none of the partition's RAM.
pub fn initialize([flags, to, from]: [u64; 3], memory: &impl Memory) -> Result<bool, Code> {
    let copies = flags & flag::COPY != 0;
    if flags & !flag::ALL != 0 || !is_page(to, memory) || copies && !is_page(from, memory) {
        return Err(Code::PARAMETER);
    }
    if copies || flags & flag::ZERO != 0 {
        let mut bytes = [0; 128];
        for offset in (0..PAGE).step_by(bytes.len()) {
            let done =
                (!copies || memory.read(from + offset, &mut bytes)) && memory.write(to + offset, &bytes);
            if !done {
                return Err(Code::PARAMETER);
            }
        }
    }
    Ok(flags & (flag::FORGET_CODE | flag::SYNCHRONIZE_CODE) != 0)
}

fn is_page(address: u64, memory: &impl Memory) -> bool {
    let mut last = [0];
    address.is_multiple_of(PAGE)
        && address.checked_add(PAGE - 1).is_some_and(|end| memory.read(end, &mut last))
        && memory.read(address, &mut last)
}
