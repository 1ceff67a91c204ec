// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Fixed ACPI Description Table (ACPI 5.2.9): how the machine is powered off and reset, and its timer.

use crate::Physical;
use crate::bytes::{u8, u16, u32, u64};
use crate::tables;

/// Where a register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// At a physical address.
    Memory,
    /// At a port.
    Io,
}

/// A register in the form of ACPI's generic addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its space.
    pub space: Space,
    /// Its address or port.
    pub address: u64,
}

/// Power and timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Power {
    /// The PM1 control blocks, and the sleep types that mean "off" to them (ACPI 4.8.3.2).
    pub pm1: [Option<(u16, u8)>; 2],
    /// The sleep control register of machines without PM1 blocks, and its sleep type (ACPI 4.8.3.7).
    pub sleep: Option<(Register, u8)>,
    /// The reset register and what to write there (ACPI 4.8.3.6).
    pub reset: Option<(Register, u8)>,
    /// The port of the power management timer, of 3.579545 MHz (ACPI 4.8.3.3).
    pub timer: Option<u16>,
    /// The register of the real-time clock that holds the century.
    pub century: Option<u8>,
}

const RESET_REGISTER: u32 = 1 << 10;
const HARDWARE_REDUCED: u32 = 1 << 20;

/// Reads the table, and the sleep type "off" in the table that it points to.
pub fn read(memory: &impl Physical, table: &[u8]) -> Power {
    let off = sleep_types(memory, table);
    let flags = u32(table, 112).unwrap_or(0);
    let mut power = Power::default();
    if flags & HARDWARE_REDUCED == 0 {
        let block = |at, extended, kind| {
            let legacy = u32(table, at).filter(|port| *port != 0).map(u64::from);
            let wide = || register(table, extended).filter(|register| register.space == Space::Io);
            let port = legacy.or_else(|| Some(wide()?.address))?;
            Some((u16::try_from(port).ok()?, kind))
        };
        if let Some([first, second]) = off {
            power.pm1 = [block(64, 172, first), block(68, 184, second)];
        }
        power.timer = u32(table, 76).and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
    } else if let (Some(register), Some([kind, _])) = (register(table, 244), off) {
        power.sleep = Some((register, kind));
    }
    if flags & RESET_REGISTER != 0 {
        power.reset = register(table, 116).zip(u8(table, 128));
    }
    power.century = u8(table, 108).filter(|at| *at != 0);
    power
}

/// Reads a generic address (ACPI 5.2.3.2); `None` if it is empty or in a space that is not driven.
fn register(table: &[u8], at: usize) -> Option<Register> {
    let space = match u8(table, at)? {
        0 => Space::Memory,
        1 => Space::Io,
        _ => return None,
    };
    Some(Register { space, address: u64(table, at + 4)? }).filter(|register| register.address != 0)
}

/// Finds the sleep types of the state S5 in the differentiated table, by the bytes that a package of that name has
/// (ACPI 7.4.2, 20.2): no method has to be run for it.
fn sleep_types(memory: &impl Physical, table: &[u8]) -> Option<[u8; 2]> {
    let wide = u64(table, 140).filter(|address| *address != 0);
    let address = wide.or_else(|| u32(table, 40).map(u64::from))?;
    let code = tables::table(memory, address, b"DSDT")?;
    code.windows(5)
        .enumerate()
        .find_map(|(at, bytes)| (bytes == b"_S5_\x12").then(|| package(code.get(at + 5..)?))?)
}

/// Reads the first two numbers of a package, behind its opcode.
fn package(bytes: &[u8]) -> Option<[u8; 2]> {
    // The length takes as many further bytes as its two highest bits say; then comes the number of elements.
    let mut rest = bytes.get(usize::from(u8(bytes, 0)? >> 6) + 2..)?;
    let mut types = [0; 2];
    for kind in &mut types {
        let (value, length) = match u8(rest, 0)? {
            value @ (0 | 1) => (value, 1),
            0x0a => (u8(rest, 1)?, 2),
            0x0b => (u16(rest, 1)? as u8, 3),
            _ => return None,
        };
        *kind = value & 7;
        rest = rest.get(length..)?;
    }
    Some(types)
}
