// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Power-off, reboot and giving up, by RTAS (LoPAR, sections 7.3.6, 7.3.7 and 7.3.9.1).

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

/// Tells the machine that its operating system has given up; where nobody takes that, switches it off.
pub fn give_up() -> ! {
    const WHY: &core::ffi::CStr = c"the guest gave up";
    cpu::mask();
    rtas::call::<0>(platform().tokens.terminate, &[WHY.as_ptr() as u32]);
    off()
}

/// Waits for nothing.
pub fn halt() -> ! {
    crate::timer::disarm();
    loop {
        cpu::wait();
    }
}
