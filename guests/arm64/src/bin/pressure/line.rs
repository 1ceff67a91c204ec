// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A level: the console's interrupt line, which is high while the console can transmit and may say so.

use turnstile_guests::mmio::{write8, write32};
use turnstile_guests::platform::{UartKind, platform};

/// PL011 UARTIMSC, and its bit for the transmit interrupt.
const UARTIMSC: u64 = 0x38;
const TXIM: u32 = 1 << 5;
/// 16550 IER, and its bit for an empty transmitter.
const IER: u64 = 1;
const ETBEI: u8 = 1 << 1;

/// Says whether this is the console's interrupt.
pub fn is(intid: u32) -> bool {
    platform().uart.is_some_and(|uart| uart.intid == intid)
}

/// Raises or drops the line.
pub fn set(high: bool) {
    let Some(uart) = platform().uart else { return };
    match uart.kind {
        UartKind::Pl011 => write32(uart.region.base + UARTIMSC, if high { TXIM } else { 0 }),
        UartKind::Uart16550 { shift } => {
            write8(uart.region.base + (IER << shift), if high { ETBEI } else { 0 });
        }
    }
}
