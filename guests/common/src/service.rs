// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes a service that misbehaves do all that it can (`services/misbehave`), and sees that its device answers again each time.

use core::fmt::Write;

/// How its registers are reached: eight bytes at an offset.
pub struct Device {
    /// Reads.
    pub read: fn(u64) -> u64,
    /// Writes.
    pub write: fn(u64, u64),
}

/// How many deeds it has begun since it was last begun anew; a write does a deed.
const BEGUN: u64 = 0;
/// The arguments.
const FIRST: u64 = 8;
const SECOND: u64 = 16;
/// What the last deed has returned.
const RESULT: u64 = 24;
/// Whether it was begun anew with what it keeps.
const KEPT: u64 = 32;

/// The deeds with an address: read, write, jump, stack.
const WITH_ADDRESS: [u64; 4] = [1, 2, 3, 4];
/// An instruction of a number, which a service must not have.
pub const INSTRUCTION: u64 = 5;
/// A call of a number.
const CALL: u64 = 6;
/// The call that returns the time.
const TIME: u64 = 5;
/// The others: no end, a panic, its own code, no stack left, jumps to data, printing and alarms without end. The first crashes are
/// reported one by one, so these come first.
const OTHERS: [u64; 8] = [7, 9, 10, 8, 11, 12, 13, 14];
/// Does harm only the first time.
const ONCE: u64 = 15;
/// An instruction of a number, which shows what a service has of registers that are its guest's otherwise.
pub const SHOWN: u64 = 16;
/// More than there are instructions.
const INSTRUCTIONS: u64 = 128;

/// What was counted.
#[derive(Default)]
struct Counts {
    deeds: u32,
    crashed: u32,
    wrong: u32,
}

/// Does everything, and says how it went: the last line begins with `@done service`.
pub fn run(out: &mut impl Write, device: &Device) {
    let mut counts = Counts::default();
    once(out, device, &mut counts);
    OTHERS.into_iter().for_each(|deed| attempt(out, device, deed, [0, 0], &mut counts));
    for bit in 0..64 {
        for address in [1 << bit, (1_u64 << bit).wrapping_neg(), (1 << bit) - 1] {
            WITH_ADDRESS.into_iter().for_each(|deed| attempt(out, device, deed, [address, !0], &mut counts));
        }
    }
    (0..INSTRUCTIONS).for_each(|number| attempt(out, device, INSTRUCTION, [number, 0], &mut counts));
    for number in [1, 2, 3, 4, TIME, 6, 16, u64::MAX] {
        for argument in [0, 16, 17, u64::MAX] {
            attempt(out, device, CALL, [number, argument], &mut counts);
        }
    }
    clock(out, device, &mut counts);
    let Counts { deeds, crashed, wrong } = counts;
    let _ = writeln!(out, "@done service deeds={deeds} crashed={crashed} failed={wrong}");
}

/// A deed that is no crash the second time: the guest's write is done, and what is kept is there.
fn once(out: &mut impl Write, device: &Device, counts: &mut Counts) {
    (device.write)(FIRST, 0x1234);
    let begun = (device.read)(BEGUN);
    (device.write)(BEGUN, ONCE);
    let found = [(device.read)(BEGUN).wrapping_sub(begun), (device.read)(FIRST), (device.read)(KEPT)];
    if found != [2, 0x1234, 1] {
        counts.wrong += 1;
        let _ = writeln!(out, "@error behind one crash: {found:x?}");
    }
    counts.deeds += 1;
}

/// The time goes on, and the call behind that of the time is none.
fn clock(out: &mut impl Write, device: &Device, counts: &mut Counts) {
    let called = |number| does(device, CALL, [number, 0]);
    let found = [called(TIME), called(TIME), called(TIME + 1)];
    counts.deeds += 3;
    if !matches!(found, [Some(before), Some(after), Some(u64::MAX)] if before < after && after != u64::MAX) {
        counts.wrong += 1;
        let _ = writeln!(out, "@error calls for the time have returned {found:x?}");
    }
}

/// Does a deed; returns what that has returned, `None` if the service has crashed.
pub fn does(device: &Device, deed: u64, arguments: [u64; 2]) -> Option<u64> {
    (device.write)(FIRST, arguments[0]);
    (device.write)(SECOND, arguments[1]);
    let begun = (device.read)(BEGUN);
    (device.write)(BEGUN, deed);
    // Two crashes on one event are the end of what is kept.
    ((device.read)(BEGUN) > begun).then(|| (device.read)(RESULT))
}

/// Says whether the device keeps what is written to it.
pub fn answers(device: &Device, mark: u64) -> bool {
    (device.write)(FIRST, mark);
    (device.read)(FIRST) == mark
}

/// Does a deed, and checks that the device is there behind it.
fn attempt(out: &mut impl Write, device: &Device, deed: u64, arguments: [u64; 2], counts: &mut Counts) {
    counts.deeds += 1;
    counts.crashed += u32::from(does(device, deed, arguments).is_none());
    if !answers(device, u64::from(counts.deeds) << 32 | deed) {
        counts.wrong += 1;
        let _ = writeln!(out, "@error behind deed {deed} with {arguments:x?} the device does not answer");
    }
}
