// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hypervisor calls and RTAS services with arguments of all kinds.

use turnstile_guests_power64::platform::platform;
use turnstile_guests_power64::random::{self, Random};
use turnstile_guests_power64::{cpu, hcall, mmio, probe, rtas, smp, trap};

use crate::{Tally, end_waits, is_bare, scratch, stride};

/// Behind the last number that PAPR has given.
const LAST: u64 = 0x500;
/// H_JOIN: waits until another CPU calls H_PROD, and there may be none.
const JOIN: u64 = 0x298;

/// An argument: special, or the address of something.
fn argument(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => scratch(),
        1 => u64::from(smp::server(0)),
        2 => platform().end_of_memory() - 0x1000,
        3 => platform().end_of_memory(),
        4 => crate::pages::any_page(random),
        _ => {
            let value = random.special();
            // What is written, is not to be this program.
            if (0x1000..scratch()).contains(&value) { value | scratch() } else { value }
        }
    }
}

/// Takes out of a call what would stop this program itself.
fn spare(number: u64, arguments: &mut [u64; 9]) {
    match number {
        // Another byte order or place of the vectors.
        hcall::SET_MODE if matches!(arguments[1], 3 | 4) => arguments[0] |= 0x100,
        // Pages that are cleared, copied to or written.
        0x2c | 0x40 | 0x48 | 0xf001 => {
            for argument in &mut arguments[..4] {
                if *argument < scratch() {
                    *argument |= scratch();
                }
            }
        }
        // What the terminal shows.
        hcall::PUT_TERM_CHAR => arguments[1] |= 0x100,
        // A queue at zero would be this program's vectors.
        hcall::INT_SET_QUEUE_CONFIG if arguments[3] < scratch() && arguments[4] != 0 => {
            arguments[3] |= scratch()
        }
        hcall::REGISTER_VPA if arguments[2] < scratch() => arguments[2] |= scratch(),
        _ => {}
    }
}

fn attack(tally: &mut Tally, number: u64, random: &mut Random) {
    let mut arguments = core::array::from_fn(|_| argument(random));
    spare(number, &mut arguments);
    end_waits();
    let mut status = 0;
    let trap = trap::caught(|| status = hcall::call9(number, arguments).0);
    cpu::mask();
    tally.add(trap.is_some() || status < 0);
}

fn is_spared(number: u64) -> bool {
    number == JOIN
        || number == hcall::RTAS
        || is_bare() && matches!(number, 0xf000..|0x04..0x20| 0x130..0x140)
}

/// Each number, with sixteen sets of arguments.
pub fn all(tally: &mut Tally) {
    let mut random = random::stream(1);
    for number in (0..LAST).step_by(4 * stride() as usize).filter(|number| !is_spared(*number)) {
        for _ in 0..16 {
            attack(tally, number, &mut random);
        }
    }
    areas_away();
}

/// Any numbers, most of them nobody's.
pub fn random(tally: &mut Tally) {
    let mut random = random::stream(2);
    for _ in 0..20_000 / stride() {
        let number = match random.below(3) {
            0 => random.below(LAST / 4) * 4,
            1 => random.below(0x1_0000),
            _ => random.special(),
        };
        if !is_spared(number) {
            attack(tally, number, &mut random);
        }
    }
    areas_away();
}

/// Log, shadow and area of this CPU.
pub fn areas_away() {
    for function in [6, 7, 5] {
        hcall::call(hcall::REGISTER_VPA, [function << 45, u64::from(smp::server(0)), 0, 0]);
    }
}

/// `sc` of levels that no partition has, as far as instructions can name them.
pub fn levels(tally: &mut Tally) {
    for level in (0..128_u32).filter(|level| *level != 1) {
        let mut input = probe::pattern(u64::from(level));
        input[3] = hcall::CONFER;
        // SAFETY: an exception, or a call that only answers.
        let result = unsafe { probe::execute(&[0x4400_0002 | level << 5], &input) };
        tally.add(result.is_err());
    }
}

/// RTAS services with wrong arguments, but those that end this machine.
pub fn services(tally: &mut Tally) {
    let mut random = random::stream(3);
    let tokens = &platform().tokens;
    let fatal = [tokens.power_off, tokens.reboot, tokens.stop_self, tokens.display];
    for token in (0..0x2100_u32).step_by(stride() as usize).chain([u32::MAX, 0x8000_0000]) {
        if fatal.contains(&Some(token)) || is_bare() && !(0x2000..0x2009).contains(&token) {
            continue;
        }
        for count in 0..4 {
            let arguments: [u32; 4] = core::array::from_fn(|_| argument(&mut random) as u32);
            // A CPU that is not there, and no address that this program is at.
            let arguments =
                arguments.map(|argument| if u64::from(argument) < scratch() { 0xdead } else { argument });
            let (status, [_]) = rtas::call::<1>(Some(token), &arguments[..count]);
            tally.add(status < 0);
        }
    }
}

/// Argument blocks with numbers of arguments that no block has, at addresses where no block can be.
pub fn blocks(tally: &mut Tally) {
    if is_bare() {
        return;
    }
    let mut random = random::stream(4);
    let token = platform().tokens.get_time.unwrap_or(0);
    for round in 0..2000 / stride() {
        let block = scratch() + random.below(0x1000) * 4;
        let count = |random: &mut Random| random.special() as u32;
        for (index, word) in [token, count(&mut random), count(&mut random)].into_iter().enumerate() {
            mmio::write32(block + 4 * index as u64, word.to_be());
        }
        let place = match round % 4 {
            0 => block,
            1 => platform().end_of_memory() - random.below(16),
            2 => u64::from(argument(&mut random) as u32) | 0x8000_0000,
            _ => block | 1,
        };
        tally.add(trap::caught(|| rtas::raw(place)).is_some());
        cpu::mask();
    }
}
