// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exceptions that the hypervisor raises in the guest (Arm ARM D1.3.3: taking an exception to EL1).

use crate::cpu::mode::{Mode, in_mode};
use crate::cpu::regs::{self, guest};

const SPSR_MODE: u64 = 0xf;
const MODE_EL0T: u64 = 0b0000;
const MODE_EL1T: u64 = 0b0100;
const MODE_EL1H: u64 = 0b0101;
const PSTATE_DAIF: u64 = 0xf << 6;
const PSTATE_IL: u64 = 1 << 20;
const PSTATE_SS: u64 = 1 << 21;
const PSTATE_PAN: u64 = 1 << 22;
const PSTATE_UAO: u64 = 1 << 23;
const PSTATE_TCO: u64 = 1 << 25;
const PSTATE_BTYPE: u64 = 3 << 10;
const PSTATE_SSBS: u64 = 1 << 12;
const PSTATE_AARCH32: u64 = 1 << 4;
const SCTLR_SPAN: u64 = 1 << 23;
const SCTLR_DSSBS: u64 = 1 << 44;
const ESR_IL: u64 = 1 << 25;

/// Syndromes of exceptions taken to EL1 from the same or a lower level.
const EC_UNKNOWN: u64 = 0;
const EC_INSTRUCTION_ABORT_LOWER: u64 = 0x20;
const EC_DATA_ABORT_LOWER: u64 = 0x24;

/// A synchronous external abort that ends an access of the guest.
#[derive(Clone, Copy, Debug)]
pub struct Abort {
    /// The access was an instruction fetch.
    pub fetch: bool,
    /// The access was a write.
    pub write: bool,
    /// The access was a walk of the guest's tables, at this level.
    pub walk: Option<u64>,
}

/// Returns PSTATE after taking an exception to EL1 from `spsr`.
fn exception_pstate(spsr: u64, sctlr: u64) -> u64 {
    let kept = spsr
        & !(SPSR_MODE | PSTATE_AARCH32 | PSTATE_IL | PSTATE_SS | PSTATE_UAO | PSTATE_BTYPE | PSTATE_SSBS);
    let kept = if spsr & PSTATE_AARCH32 != 0 { 0 } else { kept };
    let pan = if sctlr & SCTLR_SPAN == 0 { PSTATE_PAN } else { 0 };
    let ssbs = if sctlr & SCTLR_DSSBS != 0 { PSTATE_SSBS } else { 0 };
    // TCO is set on exception entry where MTE exists, and RES0 where it does not; MTE is not offered.
    (kept & !PSTATE_TCO) | MODE_EL1H | PSTATE_DAIF | pan | ssbs
}

/// Says whether the guest was at EL0 when it exited.
pub fn is_from_el0() -> bool {
    let spsr = regs::SPSR_EL2.read();
    spsr & PSTATE_AARCH32 != 0 || spsr & SPSR_MODE == MODE_EL0T
}

/// Returns the offset into the vector table for a synchronous exception from `spsr`.
const fn vector(spsr: u64) -> u64 {
    if spsr & PSTATE_AARCH32 != 0 {
        return 0x600;
    }
    match spsr & SPSR_MODE {
        MODE_EL0T => 0x400,
        MODE_EL1T => 0x000,
        _ => 0x200,
    }
}

/// Makes the guest take a synchronous exception to its EL1, at the instruction that exited.
fn take(esr: u64, far: Option<u64>) {
    in_mode!(take_in(esr, far));
}

fn take_in<M: Mode>(esr: u64, far: Option<u64>) {
    let spsr = regs::SPSR_EL2.read();
    let sctlr = guest::SCTLR.read::<M>();
    // SAFETY: exception state of the guest, as the architecture lays it down.
    unsafe {
        guest::SPSR.write::<M>(spsr);
        guest::ELR.write::<M>(regs::ELR_EL2.read());
        guest::ESR.write::<M>(esr);
        if let Some(far) = far {
            guest::FAR.write::<M>(far);
        }
        regs::SPSR_EL2.write(exception_pstate(spsr, sctlr));
        regs::ELR_EL2.write(guest::VBAR.read::<M>().wrapping_add(vector(spsr)));
    }
}

/// Makes the instruction that exited UNDEFINED.
pub fn undefined() {
    take(EC_UNKNOWN << 26 | ESR_IL, None);
}

/// Ends the access that exited with a synchronous external abort. `far` is the faulting virtual address.
#[cold] // The way of accesses that a device answers is laid out without it.
pub fn external_abort(abort: Abort, far: u64) {
    let same = regs::SPSR_EL2.read() & (SPSR_MODE | PSTATE_AARCH32) >= MODE_EL1T
        && regs::SPSR_EL2.read() & PSTATE_AARCH32 == 0;
    let class = if abort.fetch { EC_INSTRUCTION_ABORT_LOWER } else { EC_DATA_ABORT_LOWER } + u64::from(same);
    let status = abort.walk.map_or(0x10, |level| 0x14 + (level & 3));
    let write = u64::from(abort.write && !abort.fetch) << 6;
    take(class << 26 | ESR_IL | write | status, Some(far));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::mode::Nvhe;
    use crate::cpu::regs::fakes;

    fn start(spsr: u64) {
        fakes::reset();
        fakes::set("SPSR_EL2", spsr);
        fakes::set("ELR_EL2", 0x4000_1000);
        fakes::set("VBAR_EL12", 0x4008_0000);
    }

    #[test]
    fn undefined_at_el1_goes_to_the_current_level_vector() {
        start(0x6000_0005);
        undefined();
        assert_eq!(fakes::get("ELR_EL2"), 0x4008_0200);
        assert_eq!(fakes::get("ELR_EL12"), 0x4000_1000);
        assert_eq!(fakes::get("SPSR_EL12"), 0x6000_0005);
        assert_eq!(fakes::get("ESR_EL12"), 1 << 25);
        // Flags kept, EL1h, DAIF masked, PAN because SCTLR_EL1.SPAN is 0.
        assert_eq!(fakes::get("SPSR_EL2"), 0x6000_0000 | 1 << 22 | 0x3c5);
    }

    #[test]
    fn without_vhe_the_guests_registers_have_their_own_names() {
        start(0x6000_0005);
        fakes::set("VBAR_EL1", 0x4010_0000);
        take_in::<Nvhe>(1 << 25, Some(0x1234));
        assert_eq!(fakes::get("ELR_EL2"), 0x4010_0200);
        assert_eq!(fakes::get("ELR_EL1"), 0x4000_1000);
        assert_eq!(fakes::get("SPSR_EL1"), 0x6000_0005);
        assert_eq!((fakes::get("ESR_EL1"), fakes::get("FAR_EL1")), (1 << 25, 0x1234));
        assert_eq!(fakes::get("SPSR_EL2"), 0x6000_0000 | 1 << 22 | 0x3c5);
    }

    #[test]
    fn abort_at_el0_is_from_a_lower_level() {
        start(0);
        external_abort(Abort { fetch: false, write: true, walk: None }, 0x1234);
        assert_eq!(fakes::get("ELR_EL2"), 0x4008_0400);
        assert_eq!(fakes::get("ESR_EL12"), 0x24 << 26 | 1 << 25 | 1 << 6 | 0x10);
        assert_eq!(fakes::get("FAR_EL12"), 0x1234);
    }

    #[test]
    fn abort_of_a_walk_names_the_level() {
        start(5);
        external_abort(Abort { fetch: true, write: true, walk: Some(2) }, 8);
        assert_eq!(fakes::get("ESR_EL12"), 0x21 << 26 | 1 << 25 | 0x16);
    }
}
