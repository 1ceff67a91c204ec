// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What there is of a service while it is out.

use turnstile_arch_common::service::Left;

use super::exchange::{Closed, Own};
use crate::cpu::regs;

/// What who is inside has of the service while it is out.
#[derive(Default)]
#[repr(C)]
pub(super) struct State {
    /// x0 to x30; after [`Call::Done`](turnstile_service::abi::Call::Done) x0 to x5 alone. `entry.S` knows this field.
    pub general: [u64; 31],
    pub own: Own,
    pub syndrome: Syndrome,
    /// What the guest had open.
    pub closed: Closed,
}

/// What an exception says of itself.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Syndrome {
    /// ESR_EL2.
    pub esr: u64,
    /// FAR_EL2.
    pub far: u64,
}

// What `entry.S` returns.
const _: () = assert!(Left::Call as u32 == 0 && Left::Interrupt as u32 == 1 && Left::Fault as u32 == 2);
const _: () = assert!(core::mem::offset_of!(State, general) == 0);

/// Notes where the service is, to go on there or to say so: when it was left in another way than by saying that it is done.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub(super) extern "C" fn turnstile_service_note(state: &mut State) {
    state.own = Own::take();
    state.syndrome = Syndrome { esr: regs::ESR_EL2.read(), far: regs::FAR_EL2.read() };
}
