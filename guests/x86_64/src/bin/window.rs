// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Uses a service that reaches this VM's memory. `service=doorbell`: work is put into memory, and a doorbell rung. `service=misbehave`: it
//! reads and writes this memory, and what is around it; the VM has 16 MiB.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst};

use turnstile_guests_x86_64::{entry, mmio, options, println};

entry!(main);

/// Where the device is.
const BASE: u64 = 0xfed8_0000;
/// Where the service has the memory of VMs.
const WINDOWS: u64 = 0x6080_0000_0000;
/// The end of this VM's memory below 1 MiB, where it goes on, and the end of all.
const LOW_END: u64 = 0xa_0000;
const HIGH: u64 = 1 << 20;
const END: u64 = 16 << 20;
/// More than a window can be.
const REACH: u64 = 512 << 30;

static ERRORS: AtomicU64 = AtomicU64::new(0);

fn main() {
    match options::get("service") {
        Some("doorbell") => doorbell(),
        _ => misbehave(),
    }
    println!("@done window failed={}", ERRORS.load(SeqCst));
}

fn check(what: &str, good: bool) {
    if !good {
        ERRORS.fetch_add(1, SeqCst);
        println!("@error {what}");
    }
}

/// Registers and words of `services/doorbell`: the block's place, the bell; told, from, to, length, wanted, done, sum.
const BLOCK_AT: u64 = BASE + 8;
const BELL: u64 = BASE + 0x100;
const WORK: u32 = 2;
static BLOCK: [AtomicU64; 7] = [const { AtomicU64::new(0) }; 7];
static FROM: [AtomicU8; 1000] = [const { AtomicU8::new(0) }; 1000];
static TO: [AtomicU8; 1000] = [const { AtomicU8::new(0) }; 1000];

fn doorbell() {
    FROM.iter().zip(1..).for_each(|(byte, at)| byte.store((at % 251) as u8, SeqCst));
    let expected: u64 = FROM.iter().map(|byte| u64::from(byte.load(SeqCst))).sum();
    mmio::write64(BLOCK_AT, BLOCK.as_ptr() as u64);
    let (from, to) = (FROM.as_ptr() as u64, TO.as_ptr() as u64);
    check("bytes are not copied", work(1, from, to, 1000) == expected);
    check(
        "other bytes are copied",
        FROM.iter().zip(&TO).all(|(from, to)| from.load(SeqCst) == to.load(SeqCst)),
    );
    check("work that was done is done again", work(1, from, to, 1) == expected);
    for (number, outside) in (2..).zip([LOW_END - 8, LOW_END, END - 8, END, REACH, u64::MAX - 8]) {
        check("memory is read that there is not", work(number, outside, to, 16) == u64::MAX);
        check("memory is written that there is not", work(number + 100, from, outside, 16) == u64::MAX);
    }
    let before = mmio::read64(BASE);
    mmio::write32(BELL, 0);
    check("the bell has not rung once", mmio::read64(BASE) == before + 1);
}

/// Has the service copy bytes, and returns the sum that it says.
fn work(number: u64, from: u64, to: u64, length: u64) -> u64 {
    let [_, at_from, at_to, at_length, wanted, done, sum] = &BLOCK;
    [(at_from, from), (at_to, to), (at_length, length), (wanted, number)]
        .into_iter()
        .for_each(|(word, value)| word.store(value, SeqCst));
    mmio::write32(BELL, WORK);
    check("the work is not done", done.load(SeqCst) == number);
    sum.load(SeqCst)
}

/// What `services/misbehave` does.
const READ: u64 = 1;
const WRITE: u64 = 2;
const JUMP: u64 = 3;
const WHERE: u64 = 17;
static WORD: AtomicU64 = AtomicU64::new(0x1234_5678);

fn misbehave() {
    let place = |address| deed(WHERE, address, 0).unwrap_or(0);
    let (low, high) = (place(0), place(HIGH));
    check("this memory is nowhere", low >= WINDOWS && high >= WINDOWS);
    let word = place(WORD.as_ptr() as u64);
    check("this memory is not read", deed(READ, word, 0) == Some(0x1234_5678));
    check("this memory is not written", deed(WRITE, word, 9) == Some(0) && WORD.load(SeqCst) == 9);
    check("this memory is executed", deed(JUMP, word, 0).is_none());
    // All is there again behind a crash.
    check("this memory is gone", deed(READ, word, 0) == Some(9));
    check("the last word is not there", deed(READ, high + (END - HIGH) - 8, 0).is_some());
    let end = high + (END - HIGH);
    let around = [low + LOW_END, end, end + (1 << 20), WINDOWS + REACH - 8, WINDOWS + REACH, WINDOWS - 8];
    for outside in around {
        check("memory is read that is another's", deed(READ, outside, 0).is_none());
        check("memory is written that is another's", deed(WRITE, outside, 7).is_none());
    }
}

/// Has the service do a deed; returns its result, or nothing if it has crashed.
fn deed(number: u64, first: u64, second: u64) -> Option<u64> {
    mmio::write64(BASE + 8, first);
    mmio::write64(BASE + 16, second);
    let begun = mmio::read64(BASE);
    mmio::write64(BASE, number);
    let result = mmio::read64(BASE + 24);
    (mmio::read64(BASE) > begun).then_some(result)
}
