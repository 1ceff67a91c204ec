// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The 8254 timer (Intel 231164): channel 0 drives an interrupt, channel 2 can be asked whether it has ended.

use crate::port;

/// Its clock.
pub const FREQUENCY: u64 = 1_193_182;
const CHANNEL0: u16 = 0x40;
const CHANNEL2: u16 = 0x42;
const CONTROL: u16 = 0x43;
/// Gate and output of channel 2.
const PORT_B: u16 = 0x61;

/// Lets channel 0 fire periodically, every `count` ticks of its clock (mode 2).
pub fn start_periodic(count: u16) {
    port::write8(CONTROL, 0x34);
    port::write8(CHANNEL0, count as u8);
    port::write8(CHANNEL0, (count >> 8) as u8);
}

/// Lets channel 0 fire once (mode 0).
pub fn start_once(count: u16) {
    port::write8(CONTROL, 0x30);
    port::write8(CHANNEL0, count as u8);
    port::write8(CHANNEL0, (count >> 8) as u8);
}

/// Stops channel 0: a mode without a count does not run.
pub fn stop() {
    port::write8(CONTROL, 0x30);
}

/// Reads channel 0's count.
pub fn count() -> u16 {
    port::write8(CONTROL, 0);
    let low = port::read8(CHANNEL0);
    u16::from(port::read8(CHANNEL0)) << 8 | u16::from(low)
}

/// Counts `count` ticks with channel 2; returns whether they ended before `patience` looks.
pub fn measure(count: u16, patience: u32) -> bool {
    let gate = port::read8(PORT_B) & !3;
    port::write8(PORT_B, gate);
    port::write8(CONTROL, 0xb0);
    port::write8(CHANNEL2, count as u8);
    port::write8(CHANNEL2, (count >> 8) as u8);
    port::write8(PORT_B, gate | 1);
    (0..patience).any(|_| port::read8(PORT_B) & 0x20 != 0)
}
