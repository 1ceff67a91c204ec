// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Uses the device of `services/doorbell`: has it copy memory of this guest, and looks at each byte; or measures what its doorbell
//! costs.

use core::fmt::Write;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst};

use crate::clock;
use crate::options;
use crate::random::Random;

/// How its registers are reached.
pub struct Device {
    /// Reads eight bytes at an offset.
    pub read: fn(u64) -> u64,
    /// Writes eight bytes at an offset.
    pub write: fn(u64, u64),
    /// Rings: writes four bytes.
    pub ring: fn(u32),
}

/// The offset of the register that rings.
pub const RING: u64 = 0x100;
/// The offsets of the others: how often it was rung; where the block is.
const COUNT: u64 = 0;
const PLACE: u64 = 8;
/// What rings for: to stay, to work.
const STAY: u32 = 1;
const WORK: u32 = 2;

/// What the service reads and writes.
#[repr(C, align(64))]
struct Block {
    told: AtomicU64,
    from: AtomicU64,
    to: AtomicU64,
    length: AtomicU64,
    wanted: AtomicU64,
    done: AtomicU64,
    sum: AtomicU64,
    inside: AtomicU64,
}

static BLOCK: Block = Block {
    told: AtomicU64::new(0),
    from: AtomicU64::new(0),
    to: AtomicU64::new(0),
    length: AtomicU64::new(0),
    wanted: AtomicU64::new(0),
    done: AtomicU64::new(0),
    sum: AtomicU64::new(0),
    inside: AtomicU64::new(0),
};

/// The most bytes of one work, and by how much its begin may be shifted.
const MOST: usize = 1024;
const SHIFTS: usize = 64;
const BYTES: usize = MOST + 2 * SHIFTS;
static FROM: [AtomicU8; BYTES] = [const { AtomicU8::new(0) }; BYTES];
static TO: [AtomicU8; BYTES] = [const { AtomicU8::new(0) }; BYTES];
/// What is in memory that the service must leave alone.
const OTHER: u8 = 0xee;

/// How long a work may take, in microseconds: its service may be killed, and others keep its CPU busy.
const PATIENCE: u64 = 20_000_000;
/// So many works make a line.
const LINE: u64 = 16;

fn address<T>(of: &T) -> u64 {
    core::ptr::from_ref(of) as u64
}

/// Does what the command line asks for. With `iterations=` that is to `measure` a row: `doorbell`, of which the service has nothing to
/// do, or by `row=` `doorbell-busy`, while the service stays inside on another CPU: `starts` has that CPU call [`stay`], and says
/// whether it runs. Else it is to check what the service does.
pub fn main(
    out: &mut impl Write,
    device: &Device,
    measure: impl FnOnce(&str),
    starts: impl FnOnce() -> bool,
) {
    let done = match options::get("row") {
        None if options::get("iterations").is_none() => {
            run(out, device);
            Ok(())
        }
        Some("doorbell-busy") => busy(device, measure, starts),
        row => {
            measure(row.unwrap_or("doorbell"));
            if count(device) == 0 { Err("nobody has heard the doorbell") } else { Ok(()) }
        }
    };
    if let Err(what) = done {
        let _ = writeln!(out, "@error {what}");
    }
}

/// Measures while the service stays inside: whoever made any other access would wait for it.
fn busy(
    device: &Device,
    measure: impl FnOnce(&str),
    starts: impl FnOnce() -> bool,
) -> Result<(), &'static str> {
    begin(device);
    if !starts() || !wait(true) {
        return Err("the service does not stay inside");
    }
    measure("doorbell-busy");
    let stayed = wait(true);
    BLOCK.told.store(1, SeqCst);
    if !wait(false) || count(device) < 2 {
        return Err("what was rung meanwhile was not heard");
    }
    if stayed { Ok(()) } else { Err("the service has not stayed inside") }
}

/// Shows the service where the block is.
fn begin(device: &Device) {
    (device.write)(PLACE, address(&BLOCK));
}

/// Returns how many times it has been entered for doorbells.
fn count(device: &Device) -> u64 {
    (device.read)(COUNT)
}

/// Has the service stay inside, on this CPU, until it is told to leave.
pub fn stay(device: &Device) {
    (device.ring)(STAY);
}

/// Waits until the service stays inside, or does not any more; says whether that came.
fn wait(inside: bool) -> bool {
    clock::wait(PATIENCE, || (BLOCK.inside.load(SeqCst) != 0) == inside)
}

/// Has it work again and again, and writes a line for some works each: without end, or as often as `rounds=` says. The last line
/// begins with `@done doorbell`.
fn run(out: &mut impl Write, device: &Device) {
    let rounds = options::number("rounds", u64::MAX);
    let mut random = Random::new(1, 2);
    let mut failed = 0;
    begin(device);
    for round in 1..=rounds {
        if let Err(what) = work(device, round, &mut random) {
            failed += 1;
            let _ = writeln!(out, "@error work {round}: {what}");
        }
        if round % LINE == 0 {
            let _ = writeln!(out, "@work {round}");
        }
    }
    let _ = writeln!(out, "@done doorbell rounds={rounds} failed={failed}");
}

/// One work, of bytes anywhere; now and then of what is no memory.
fn work(device: &Device, round: u64, random: &mut Random) -> Result<(), &'static str> {
    let length = random.below(MOST as u64) as usize;
    let (from, to) = (random.below(SHIFTS as u64) as usize, SHIFTS + random.below(SHIFTS as u64) as usize);
    let mut sum = 0;
    for byte in FROM.iter().skip(from).take(length) {
        let value = random.number() as u8;
        byte.store(value, SeqCst);
        sum += u64::from(value);
    }
    TO.iter().for_each(|byte| byte.store(OTHER, SeqCst));
    let is_memory = round % LINE != 1;
    let begin = if is_memory { address(&FROM) + from as u64 } else { u64::MAX - random.below(MOST as u64) };
    BLOCK.from.store(begin, SeqCst);
    BLOCK.to.store(address(&TO) + to as u64, SeqCst);
    BLOCK.length.store(length as u64 + u64::from(!is_memory), SeqCst);
    BLOCK.wanted.store(round, SeqCst);
    (device.ring)(WORK);
    if !clock::wait(PATIENCE, || BLOCK.done.load(SeqCst) == round) {
        return Err("it is not done");
    }
    let (sum, length) = if is_memory { (sum, length) } else { (u64::MAX, 0) };
    if BLOCK.sum.load(SeqCst) != sum {
        return Err("the sum is wrong");
    }
    let is = |index: usize| TO[index].load(SeqCst);
    let copied = (0..length).all(|index| is(to + index) == FROM[from + index].load(SeqCst));
    let left_alone = (0..to).chain(to + length..BYTES).all(|index| is(index) == OTHER);
    match (copied, left_alone) {
        (true, true) => Ok(()),
        (false, _) => Err("a byte is not copied"),
        _ => Err("a byte beside them was written"),
    }
}
