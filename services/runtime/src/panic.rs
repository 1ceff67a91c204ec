// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A panic: its message goes to the hypervisor's log, and the service is started anew.

use core::fmt::Write;
use core::panic::PanicInfo;

use turnstile_service::abi::Call;

use crate::calls::{Log, leave};

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    // The log takes everything.
    let _ = writeln!(Log, "{info}");
    leave([Call::Panic as u64, 0, 0, 0, 0, 0])
}
