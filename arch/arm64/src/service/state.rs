// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What there is of a service while it is out.

use turnstile_arch_common::service::Left;

use super::exchange::{Closed, Own};
use crate::cpu::{class, regs};

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

/// ISS of a data abort: FnV, CM, S1PTW, which say that the address is none, or that no load or store was it.
const NO_ACCESS: u64 = 1 << 10 | 1 << 8 | 1 << 7;
/// ISS.DFSC of a translation fault, without its level.
const TRANSLATION_FAULT: u64 = 0x04;

impl Syndrome {
    /// The address that was loaded or stored where nothing is mapped, if it says that.
    pub fn missed(&self) -> Option<u64> {
        let is_miss = class::of(self.esr) == class::DATA_ABORT
            && self.esr & NO_ACCESS == 0
            && self.esr & 0x3c == TRANSLATION_FAULT;
        is_miss.then_some(self.far)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_load_or_a_store_where_nothing_is_mapped_is_a_miss() {
        let missed = |esr| Syndrome { esr, far: 0x1234 }.missed();
        const STORE: u64 = 1 << 6;
        for level in 0..4 {
            assert_eq!(missed(class::DATA_ABORT << 26 | STORE | 0x04 | level), Some(0x1234));
        }
        assert_eq!(missed(class::DATA_ABORT << 26 | 1 << 32 | 0x06), Some(0x1234), "ISS2 is above the class");
        // Permission, access flag, alignment, an external abort; a walk, maintenance, no address; a fetch, an abort of the hypervisor's own.
        for other in [0x0f, 0x0b, 0x21, 0x10, 0x07 | 1 << 7, 0x07 | 1 << 8, 0x07 | 1 << 10] {
            assert_eq!(missed(class::DATA_ABORT << 26 | other), None, "{other:#x}");
        }
        assert_eq!([class::INSTRUCTION_ABORT, 0x25].map(|class| missed(class << 26 | 0x07)), [None; 2]);
    }
}
