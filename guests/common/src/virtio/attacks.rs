// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a driver must not do to any function.

use super::{Machine, THIRD};
use crate::random::Random;

/// The bytes of a configuration space in ECAM; other ways to it end before.
const SPACE: u16 = 4096;

/// An attack on the function in a slot: its name, and what it does.
pub type Attack = (&'static str, fn(&Machine, u8, &mut Random));

/// Writes to each offset of the configuration space.
pub fn configuration(machine: &Machine, slot: u8, random: &mut Random) {
    for (size, step) in [(4, 4), (2, 2), (1, 1), (4, 3)] {
        for offset in (0..SPACE).step_by(step).take(512) {
            for value in [!0, random.number() as u32, 0] {
                (machine.config.write)(slot, offset, size, value);
                (machine.config.read)(slot, offset, size);
            }
        }
    }
}

/// Puts BARs where other things are, and looks there.
pub fn places(machine: &Machine, slot: u8, _: &mut Random) {
    let config = machine.config;
    let window = [machine.window.base + THIRD, machine.window.end() - 0x1000];
    for place in machine.elsewhere.into_iter().chain(window).chain([machine.memory]) {
        for bar in [0, 1, 2, 3, 4, 5] {
            config.place(slot, bar, place);
            config.set_enabled(slot, true);
            (machine.probe)(place);
            (machine.probe)(place.wrapping_add(0x3000));
        }
        config.set_enabled(slot, false);
    }
}
