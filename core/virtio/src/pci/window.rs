// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The window from configuration space to the BARs (section 4.1.4.9), for drivers that cannot map them: firmware.

use turnstile_pci::function::Function;
use turnstile_pci::register::{CAPABILITIES, CAPABILITY_VENDOR};

use super::build::WINDOW;

/// Returns which BAR an access means, and the offset there, if it is one through the window: to the data, of the length that the
/// driver has set there, 1, 2 or 4, and aligned.
pub(super) fn access(function: &Function, offset: u16, size: u8) -> Option<(u8, u64)> {
    let at = offset.checked_sub(16).filter(|&at| at >= 0x40)?;
    let is_window = function.read(at, 1) == u32::from(CAPABILITY_VENDOR)
        && function.read(at + 3, 1) == u32::from(WINDOW)
        && listed(function, at);
    let length = function.read(at + 12, 4);
    if !is_window || !matches!(size, 1 | 2 | 4) || length != u32::from(size) {
        return None;
    }
    let inside = function.read(at + 8, 4);
    inside.is_multiple_of(length).then_some((function.read(at + 4, 1) as u8, inside.into()))
}

/// Whether a capability begins here: bytes of another one may look like it.
fn listed(function: &Function, at: u16) -> bool {
    let mut position = function.read(CAPABILITIES.into(), 1) as u16;
    // No list is longer than 48, since a capability has 4 bytes.
    for _ in 0..48 {
        if position == at || position == 0 {
            break;
        }
        position = function.read(position + 1, 1) as u16;
    }
    position == at
}
