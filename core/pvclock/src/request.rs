// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest may write to the registers that say where its records are.

/// What the register asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// No record.
    Off,
    /// A record at this guest physical address.
    At(u64),
}

const ENABLED: u64 = 1;
/// Bits of a guest physical address at most.
const ADDRESS: u64 = (1 << 52) - 1;

/// Reads a value for MSR 0x12 or 0x4b564d01: bit 0 turns the clock on, the rest is an address. `None` if it is not one that
/// a guest may write.
pub fn clock_request(value: u64) -> Option<Request> {
    match (value & ENABLED, value & !ENABLED) {
        (0, _) => Some(Request::Off),
        (_, address) if address.is_multiple_of(4) && address <= ADDRESS => Some(Request::At(address)),
        _ => None,
    }
}

/// Reads a value for MSR 0x4b564d03: bit 0 turns the record on, bits 1 to 5 are reserved.
pub fn steal_request(value: u64) -> Option<Request> {
    const RESERVED: u64 = 0b11_1110;
    match (value & ENABLED, value & RESERVED) {
        (_, 1..) => None,
        (0, _) => Some(Request::Off),
        _ if value <= ADDRESS => Some(Request::At(value & !ENABLED)),
        _ => None,
    }
}
