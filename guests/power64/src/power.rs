// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Power-off and reboot, by RTAS (LoPAR, sections 7.3.6 and 7.3.7).

use crate::platform::platform;
use crate::{cpu, rtas};

/// Switches the machine off.
pub fn off() -> ! {
    cpu::mask();
    rtas::call::<0>(platform().tokens.power_off, &[u32::MAX, u32::MAX]);
    halt()
}

/// Reboots the machine.
pub fn reset() -> ! {
    cpu::mask();
    rtas::call::<0>(platform().tokens.reboot, &[]);
    halt()
}

/// Waits for nothing.
pub fn halt() -> ! {
    crate::timer::disarm();
    loop {
        cpu::wait();
    }
}
