// SPDX-License-Identifier: Apache-2.0 OR MIT
//! H_PAGE_INIT against memory: one page changes, or nothing.

mod common;

use std::cell::RefCell;

use turnstile_papr::code::Code;
use turnstile_papr::page_init::initialize;

use common::Ram;

const PAGE: usize = 4096;
const ZERO: u64 = 1 << 15;
const COPY: u64 = 1 << 14;
const SYNCHRONIZE: u64 = 1 << 22;
const FORGET: u64 = 1 << 23;

/// Three pages of bytes that differ, and a quarter of a fourth.
fn ram() -> Ram {
    Ram(RefCell::new((0..3 * PAGE + PAGE / 4).map(|byte| (byte % 251) as u8).collect()))
}

/// What the call answers, and which bytes are others than before.
fn call(arguments: [u64; 3]) -> (Result<bool, Code>, Vec<u8>, Vec<u8>) {
    let memory = ram();
    let before = memory.0.borrow().clone();
    let answer = initialize(arguments, &memory);
    (answer, before, memory.0.into_inner())
}

#[test]
fn a_page_is_cleared_or_copied_and_nothing_else() {
    let (answer, mut before, after) = call([ZERO, 0x1000, 77]);
    before[PAGE..2 * PAGE].fill(0);
    assert_eq!((answer, &before), (Ok(false), &after));
    for flags in [COPY, COPY | ZERO] {
        let (answer, mut before, after) = call([flags | SYNCHRONIZE, 0x2000, 0x1000]);
        before.copy_within(PAGE..2 * PAGE, 2 * PAGE);
        assert_eq!((answer, &before), (Ok(true), &after));
    }
    for flags in [0, FORGET] {
        let (answer, before, after) = call([flags, 0, 0]);
        assert_eq!((answer, before), (Ok(flags != 0), after));
    }
}

#[test]
fn what_is_no_page_of_memory_is_refused_and_nothing_changes() {
    let high = !0xfff;
    for arguments in [
        [ZERO, 0x1008, 0],
        [ZERO, 0x3000, 0],
        [ZERO, 0x4000, 0],
        [ZERO, high, 0],
        [COPY, 0x1000, 0x2001],
        [COPY, 0x1000, 0x3000],
        [COPY, 0x1000, high],
        [COPY, 0x3000, 0x1000],
        [ZERO | 1, 0x1000, 0],
        [ZERO | 1 << 63, 0x1000, 0],
    ] {
        let (answer, before, after) = call(arguments);
        assert_eq!((answer, before), (Err(Code::PARAMETER), after), "{arguments:x?}");
    }
}
