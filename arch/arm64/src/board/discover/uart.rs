// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The serial port for messages in the device tree.

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::standard::NodeStandard;
use turnstile_firmware::Range;
use turnstile_firmware::tree::{number, string, usable};

use super::interrupt::intid;
use super::place::Place;
use crate::board::uart::UartKind;

/// The rate of the clock that the firmware of a Raspberry Pi 4 gives to its PL011s (`init_uart_clock`), in Hz.
const BCM2711_UART_CLOCK: u32 = 48_000_000;

/// The serial port for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UartNode {
    /// Register interface.
    pub kind: UartKind,
    /// Where its registers are.
    pub registers: Range,
    /// INTID of its interrupt, if it has one.
    pub intid: Option<u32>,
    /// The rate of its reference clock in Hz, where the hypervisor may have to divide it.
    pub clock: Option<u32>,
}

/// Finds the serial port for messages: the one that `stdout-path` names, or else the first PL011. A Raspberry Pi 4
/// may name its mini UART, which is not driven.
pub fn uart(fdt: Fdt<'_>) -> Option<UartNode> {
    let is_pl011 = |node: &FdtNode<'_>| usable(node) && node.is_compatible("arm,pl011");
    let named = stdout(fdt).and_then(|place| describe(fdt, &place));
    named.or_else(|| describe(fdt, &Place::find(fdt, &is_pl011)?))
}

/// Finds the node that `stdout-path` names, by path or by alias.
fn stdout(fdt: Fdt<'_>) -> Option<Place<'_>> {
    let path = string(fdt.find_node("/chosen")?, "stdout-path")?.split(':').next()?;
    if path.starts_with('/') {
        return Place::at(fdt, path);
    }
    Place::at(fdt, string(fdt.find_node("/aliases")?, path)?)
}

fn describe(fdt: Fdt<'_>, place: &Place<'_>) -> Option<UartNode> {
    let node = &place.node;
    let kind = if node.is_compatible("arm,pl011") {
        UartKind::Pl011
    } else if node.is_compatible("ns16550a") || node.is_compatible("ns16550") {
        let shift = number(node, "reg-shift").unwrap_or(0).min(4) as u8;
        let width = number(node, "reg-io-width").unwrap_or(1) as u8;
        UartKind::Ns16550 { shift, width }
    } else {
        return None;
    };
    let clock = fdt.root().is_compatible("brcm,bcm2711").then_some(BCM2711_UART_CLOCK);
    Some(UartNode { kind, registers: place.registers().next()?, intid: intid(node), clock })
}
