// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupt presentation of older machines, by hypervisor calls (LoPAR, section 14.5.4.2 on).

use crate::hcall::{self, call, call4};
use crate::platform::platform;
use crate::{cpu, events, rtas};

/// The source number of an interrupt between CPUs.
const IPI_SOURCE: u64 = 2;
/// Priority of an interrupt between CPUs, and of none.
const IPI_PRIORITY: u64 = 4;
/// The least favored priority: nothing is requested, everything is let in.
pub const IDLE: u64 = 0xff;

/// Lets interrupts of all priorities in, and takes what was left.
pub fn init_cpu() {
    call(hcall::IPI, [server(), IDLE, 0, 0]);
    call(hcall::CPPR, [IDLE, 0, 0, 0]);
}

fn server() -> u64 {
    cpu::this().server.load(core::sync::atomic::Ordering::Relaxed)
}

/// Sends to the CPU with this number.
pub fn send(index: usize) {
    call(hcall::IPI, [u64::from(platform().server(index)), IPI_PRIORITY, 0, 0]);
}

/// Lets a source of a device interrupt this CPU; returns whether firmware agreed.
pub fn connect(source: u32) -> bool {
    let tokens = &platform().tokens;
    rtas::ask::<0>(tokens.set_xive, &[source, server() as u32, IPI_PRIORITY as u32]).is_some()
        && rtas::ask::<0>(tokens.int_on, &[source]).is_some()
}

/// Takes what is presented: accepts, takes the request back, enters, ends.
pub fn take() {
    let (_, [xirr, ..]) = call4(hcall::XIRR, [IDLE, 0, 0, 0]);
    match xirr & 0xff_ffff {
        0 => events::on_event(events::SPURIOUS),
        IPI_SOURCE => {
            call(hcall::IPI, [server(), IDLE, 0, 0]);
            events::on_event(events::IPI);
            call(hcall::EOI, [xirr & 0xffff_ffff, 0, 0, 0]);
        }
        _ => {
            events::on_event(events::DEVICE);
            call(hcall::EOI, [xirr & 0xffff_ffff, 0, 0, 0]);
        }
    }
}
