// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A GICv3 whose guest has a GICv2: legacy operation of the virtual CPU interface (IHI 0069, 4.9 and 12.4).
//!
//! List registers and conditions are the GICv3's. The guest's system registers are off, it uses GICV in memory, and an
//! SGI's list register names its sender. Only machines whose CPUs have that interface get here.

use turnstile_vgic::{GroupEnables, ListRegister, LrState, Maintenance, VirtualInterface};
use turnstile_vm::attention::KickToken;

use super::gic::{Acknowledged, CpuInterface, Gic, vectors};
use super::gicv3::Gicv3;
use super::ich::{self, Ich};
use super::interface::use_system_registers;

/// Where the sender of an SGI is in ICH_LR<n>_EL2: above the INTID.
const LR_SOURCE_SHIFT: u32 = 10;

/// The GICv3 of this machine, for guests with a GICv2.
#[derive(Clone, Copy, Debug)]
pub struct Gicv3Legacy;

/// The virtual CPU interface of this physical CPU in legacy operation.
#[derive(Debug)]
pub struct IchLegacy;

impl Gic for Gicv3Legacy {
    type Interface = IchLegacy;
    const SYSTEM_REGISTERS: bool = false;

    vectors!(vectors_legacy, vectors_legacy_timed, vectors_legacy_guarded, vectors_legacy_timed_guarded);

    #[inline(always)] // Nothing.
    fn interface() -> IchLegacy {
        IchLegacy
    }

    #[inline(always)] // As inlined.
    fn acknowledge() -> Acknowledged {
        Gicv3::acknowledge()
    }

    #[inline(always)] // As inlined.
    fn acknowledge_and_end_kick() -> Acknowledged {
        Gicv3::acknowledge_and_end_kick()
    }

    #[inline(always)] // As inlined.
    fn intid(acknowledged: Acknowledged) -> u32 {
        Gicv3::intid(acknowledged)
    }

    #[inline(always)] // As inlined.
    fn deactivate(acknowledged: Acknowledged) {
        Gicv3::deactivate(acknowledged);
    }

    #[inline(always)] // As inlined.
    fn kick(token: KickToken) {
        Gicv3::kick(token);
    }
}

impl CpuInterface for IchLegacy {
    fn list_registers() -> usize {
        Ich::list_registers()
    }

    fn priority_bits() -> u32 {
        Ich::priority_bits()
    }

    fn start_cpu() {
        Ich::start_cpu();
    }

    fn reset() {
        // First: it decides what ICH_VMCR_EL2 means.
        use_system_registers(false);
        ich::clear();
    }
}

impl VirtualInterface for IchLegacy {
    #[inline] // As inlined.
    fn read_lr(&mut self, n: usize) -> LrState {
        Ich.read_lr(n)
    }

    #[inline] // As inlined.
    fn write_lr(&mut self, n: usize, lr: ListRegister) {
        ich::write_raw(n, Self::encode(lr));
    }

    fn encode(lr: ListRegister) -> u64 {
        ich::encode(lr) | u64::from(lr.source & 7) << LR_SOURCE_SHIFT
    }

    #[inline(always)] // As inlined.
    fn write_if_invalid(&mut self, n: usize, lr: ListRegister, encoded: u64) -> bool {
        Ich.write_if_invalid(n, lr, encoded)
    }

    #[inline(always)] // As inlined.
    fn write_encoded(&mut self, n: usize, lr: ListRegister, encoded: u64) {
        Ich.write_encoded(n, lr, encoded);
    }

    #[inline] // As inlined.
    fn clear_lr(&mut self, n: usize) {
        Ich.clear_lr(n);
    }

    #[inline] // As inlined.
    fn empty_lrs(&mut self) -> u16 {
        Ich.empty_lrs()
    }

    #[inline] // As inlined.
    fn eoi_lrs(&mut self) -> u16 {
        Ich.eoi_lrs()
    }

    fn take_eoi_count(&mut self) -> u8 {
        Ich.take_eoi_count()
    }

    fn set_maintenance(&mut self, maintenance: Maintenance) {
        Ich.set_maintenance(maintenance);
    }

    fn group_enables(&mut self) -> GroupEnables {
        Ich.group_enables()
    }

    fn is_asserted(&mut self, pintid: u32) -> bool {
        Ich.is_asserted(pintid)
    }

    fn deactivate_physical(&mut self, pintid: u32) {
        Ich.deactivate_physical(pintid);
    }
}

#[cfg(test)]
mod tests {
    use turnstile_vgic::Backing;

    use super::*;
    use crate::cpu::regs::fakes::{self, Access};

    #[test]
    fn the_guest_has_no_system_registers_and_cannot_get_them() {
        fakes::reset();
        IchLegacy::reset();
        let log = fakes::take_log();
        let expected = [Access::Write("ICC_SRE_EL1", 0), Access::Write("ICC_SRE_EL2", 7)];
        assert_eq!(log[..2], expected);
        assert_eq!(log.last(), Some(&Access::Write("ICH_VMCR_EL2", 0)));
        // And back, for a guest with a GICv3.
        Ich::reset();
        assert_eq!((fakes::get("ICC_SRE_EL1"), fakes::get("ICC_SRE_EL2")), (7, 0xf));
    }

    #[test]
    fn an_sgi_names_its_sender() {
        fakes::reset();
        let lr = ListRegister {
            intid: 3,
            source: 5,
            priority: 0xa0,
            group1: false,
            state: LrState::Pending,
            backing: Backing::Software { eoi_maintenance: false },
        };
        IchLegacy.write_lr(2, lr);
        assert_eq!(fakes::get("ICH_LR2_EL2"), 0b01 << 62 | 0xa0 << 48 | 5 << 10 | 3);
    }
}
