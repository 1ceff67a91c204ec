// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The physical GICv2 (IHI 0048): distributor and CPU interface, as a non-secure EL2 or a machine without Security
//! states sees them.
//!
//! EOImode is 1, as on a GICv3: EOIR drops the priority, DIR deactivates. All interrupts are in the one group that
//! bit 0 of the control registers enables: Group 1 in the non-secure view, Group 0 where there are no Security states.

use turnstile_vm::attention::KickToken;

use super::device;
use super::gic::{Acknowledged, Gic, OWN_PRIORITY, PRIVATE_IN_USE, SGI_KICK, SPURIOUS, vectors};
use super::gich::Gich;
use crate::board::discover::Spi;
use crate::cpu::regs::gicv2::{
    GICC_BPR, GICC_CTLR, GICC_DIR, GICC_EOIR, GICC_IAR, GICC_PMR, GICD_CTLR, GICD_ISACTIVER0, GICD_SGIR,
    GICD_TYPER, window,
};
use crate::cpu::{self, regs};
use turnstile_arch_common::mmio::Registers;

/// The most CPUs of a GICv2.
pub const MAX_CPUS: usize = 8;

const GICD_IGROUPR: usize = 0x80;
const GICD_ISENABLER: usize = 0x100;
const GICD_ICENABLER: usize = 0x180;
const GICD_ICPENDR: usize = 0x280;
const GICD_ICACTIVER: usize = 0x380;
const GICD_IPRIORITYR: usize = 0x400;
const GICD_ITARGETSR: usize = 0x800;
const GICD_CPENDSGIR: usize = 0xf10;
/// Enables the group of all interrupts, in GICD_CTLR and GICC_CTLR.
const ENABLE: u32 = 1 << 0;
/// GICC_CTLR: the bits that disable the bypass of the interface, which are the firmware's.
const GICC_CTLR_BYPASS: u32 = 0xf << 5;
/// GICC_CTLR.EOImodeNS in the non-secure view, GICC_CTLR.EOImode without Security states.
const GICC_CTLR_EOIMODE: u32 = 1 << 9;
/// The target list of GICD_SGIR.
const SGIR_TARGETS_SHIFT: u32 = 16;
/// The INTID in GICC_IAR. Above it, for an SGI, is the CPU that sent it, which EOIR and DIR need back.
const IAR_INTID: u32 = 0x3ff;
/// INTID and CPU in GICC_IAR.
const IAR_KNOWN: u32 = 0x1fff;
/// Priority of all other physical interrupts, which guests cause: they need no order among themselves.
const PRIORITY: u32 = 0xa0a0_a0a0;

/// The distributor, behind its mapping in the [`window`].
#[derive(Clone, Copy, Debug)]
pub struct Distributor(Registers);

impl Distributor {
    /// Takes the distributor.
    ///
    /// # Safety
    /// The blocks of the GICv2 must be mapped in the [`window`].
    pub unsafe fn new() -> Self {
        // SAFETY: the caller's promise; it stays mapped for ever.
        Self(unsafe { Registers::new(window::GICD) })
    }

    /// Brings the distributor up: every SPI disabled, inactive, in the group that is enabled.
    pub fn start(&self) {
        GICD_CTLR.write(0);
        let words = (GICD_TYPER.read() & 0x1f) as usize + 1;
        for word in 1..words {
            self.clear(word);
            self.0.write32(GICD_ICPENDR + 4 * word, !0);
        }
        GICD_CTLR.write(ENABLE);
    }

    /// Disables and deactivates 32 interrupts, and gives them their group and priority.
    fn clear(&self, word: usize) {
        self.0.write32(GICD_ICENABLER + 4 * word, !0);
        self.0.write32(GICD_ICACTIVER + 4 * word, !0);
        // Ignored in the non-secure view, where all that can be seen is in Group 1.
        self.0.write32(GICD_IGROUPR + 4 * word, 0);
        for byte in 0..8 {
            self.0.write32(GICD_IPRIORITYR + 32 * word + 4 * byte, PRIORITY);
        }
    }

    /// Routes an SPI to the CPU with `token` and enables it, with a higher priority than the kicks and timers that
    /// guests cause: they cannot keep it from being acknowledged.
    pub fn enable_spi(&self, intid: u32, token: KickToken) {
        let n = intid as usize;
        self.0.write8(GICD_IPRIORITYR + n, OWN_PRIORITY);
        self.0.write8(GICD_ITARGETSR + n, (token >> SGIR_TARGETS_SHIFT) as u8);
        self.0.write32(GICD_ISENABLER + 4 * (n / 32), 1 << (n % 32));
    }

    /// Routes a device's SPI, which nobody has, to the CPU with `token`; it is masked. False if that cannot be.
    pub fn connect_spi(&self, spi: Spi, token: KickToken) -> bool {
        let targets = (token >> SGIR_TARGETS_SHIFT) as u8;
        let taken = targets != 0 && device::take(&self.0, spi);
        if taken {
            self.0.write8(GICD_ITARGETSR + spi.intid as usize, targets);
        }
        taken
    }

    /// Masks a device's SPI, which does not come again from then on, or unmasks it.
    pub fn mask_spi(&self, intid: u32, masked: bool) {
        device::mask(&self.0, intid, masked);
        if masked {
            // The read behind the write makes the distributor take it before the deactivation.
            self.0.read32(GICD_ICENABLER + 4 * (intid as usize / 32));
            cpu::dsb_sy();
        }
    }

    /// Takes the active state of a private interrupt of this CPU, if it has it.
    pub fn deactivate_private(&self, intid: u32) {
        self.0.write32(GICD_ICACTIVER, 1 << (intid & 31));
    }

    /// Brings up what of the distributor is this CPU's own, and its CPU interface. Returns what kicks it.
    pub fn start_cpu(&self) -> KickToken {
        self.clear(0);
        // Pending SGIs have registers of their own: a byte of senders each.
        for word in 0..4 {
            self.0.write32(GICD_CPENDSGIR + 4 * word, !0);
        }
        self.0.write32(GICD_ICPENDR, !0);
        self.0.write32(GICD_ISENABLER, PRIVATE_IN_USE);
        if regs::ID_AA64PFR0_EL1.read() >> 24 & 0xf != 0 {
            // A CPU that has the interface of a GICv3, too: off, and trapped where a guest looks for it.
            // SAFETY: governs accesses to an interface that is not used.
            unsafe { regs::ICC_SRE_EL2.write(0) };
            cpu::isb();
        }
        GICC_PMR.write(0xff);
        GICC_BPR.write(0);
        GICC_CTLR.write(GICC_CTLR.read() & GICC_CTLR_BYPASS | GICC_CTLR_EOIMODE | ENABLE);
        kick_token((0..8).fold(0, |targets, word| targets | self.0.read32(GICD_ITARGETSR + 4 * word)))
    }
}

/// Makes what kicks the CPU that reads `targets` in the banked GICD_ITARGETSR: the value of GICD_SGIR. Its own bit is
/// in every byte that exists; with one CPU none does, and it needs no token but one that is not zero.
fn kick_token(targets: u32) -> KickToken {
    let own = targets | targets >> 16;
    let own = (own | own >> 8) & 0xff;
    u64::from(own.max(1) << SGIR_TARGETS_SHIFT | SGI_KICK)
}

/// Makes a private interrupt of this CPU active. The read behind the write makes the distributor take it before what
/// follows.
pub fn activate_private(intid: u32) {
    GICD_ISACTIVER0.write(1 << (intid & 31));
    GICD_ISACTIVER0.read();
    cpu::dsb_sy();
}

/// The GICv2 of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Gicv2;

impl Gic for Gicv2 {
    type Interface = Gich;
    const SYSTEM_REGISTERS: bool = false;

    vectors!(vectors_gicv2, vectors_gicv2_timed, vectors_gicv2_guarded, vectors_gicv2_timed_guarded);

    #[inline(always)] // Nothing.
    fn interface() -> Gich {
        Gich
    }

    #[inline(always)] // Some instructions of every physical interrupt's exit.
    fn acknowledge() -> Acknowledged {
        let iar = GICC_IAR.read() & IAR_KNOWN;
        if iar & IAR_INTID < SPURIOUS {
            GICC_EOIR.write(iar);
        }
        // What the sender of a kick wrote before is read behind the acknowledge: a later kick may have been merged.
        cpu::dmb_ishld();
        Acknowledged(iar)
    }

    #[inline(always)] // One instruction.
    fn intid(acknowledged: Acknowledged) -> u32 {
        acknowledged.0 & IAR_INTID
    }

    #[inline(always)] // Two instructions.
    fn deactivate(acknowledged: Acknowledged) {
        GICC_DIR.write(acknowledged.0);
    }

    #[inline(always)] // Three instructions on the path of every cross-CPU interrupt.
    fn kick(token: KickToken) {
        // The attention word must be visible before the interrupt that announces it.
        cpu::dmb_ishst();
        GICD_SGIR.write(token as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::regs::fakes::{self, Access};

    #[test]
    fn a_cpu_finds_its_target_bit_wherever_it_is() {
        assert_eq!(kick_token(0x0404_0404), 1 << 18);
        assert_eq!(kick_token(0x8000_0000), 1 << 23);
        assert_eq!(kick_token(0x0000_0200), 1 << 17);
        // A single CPU has no target registers; zero is no token.
        assert_eq!(kick_token(0), 1 << 16);
    }

    #[test]
    fn the_sender_of_a_kick_is_given_back() {
        fakes::reset();
        fakes::set("GICC_IAR", 3 << 10);
        let acknowledged = Gicv2::acknowledge();
        assert_eq!(Gicv2::intid(acknowledged), SGI_KICK);
        Gicv2::deactivate(acknowledged);
        let sgi = 3 << 10;
        let expected =
            [Access::Read("GICC_IAR"), Access::Write("GICC_EOIR", sgi), Access::Write("GICC_DIR", sgi)];
        assert_eq!(fakes::take_log(), expected);
    }

    #[test]
    fn a_spurious_interrupt_is_not_ended() {
        fakes::reset();
        fakes::set("GICC_IAR", 1023);
        assert_eq!(Gicv2::intid(Gicv2::acknowledge()), 1023);
        assert_eq!(fakes::take_log(), [Access::Read("GICC_IAR")]);
    }

    #[test]
    fn a_devices_interrupt_is_targeted_once_masked_and_unmasked() {
        fakes::reset();
        let base = vec![0u64; 0x200].leak().as_mut_ptr().expose_provenance() as u64;
        // SAFETY: memory of the size of a distributor, for ever.
        let registers = unsafe { Registers::new(base) };
        let distributor = Distributor(registers);
        registers.write32(0x4, 3);
        let (level, edge) = (Spi { intid: 35, edge: false }, Spi { intid: 127, edge: true });
        assert!(!distributor.connect_spi(level, 0), "a CPU that is not online");
        assert!(!distributor.connect_spi(Spi { intid: 31, ..level }, 1 << 17), "a private one");
        assert!(!distributor.connect_spi(Spi { intid: 128, ..level }, 1 << 17), "more than there are");
        assert!(distributor.connect_spi(level, 1 << 17));
        assert!(!distributor.connect_spi(level, 1 << 16), "it is somebody's");
        assert!(distributor.connect_spi(edge, 1 << 23));
        assert_eq!((registers.read8(GICD_ITARGETSR + 35), registers.read8(GICD_ITARGETSR + 127)), (2, 0x80));
        assert_eq!((registers.read32(0xc00 + 8), registers.read32(0xc00 + 28)), (0, 2 << 30));
        assert_eq!(registers.read32(GICD_ISENABLER + 4), 0);
        fakes::take_instructions();
        distributor.mask_spi(35, false);
        assert_eq!(registers.read32(GICD_ISENABLER + 4), 1 << 3);
        distributor.mask_spi(35, true);
        assert_eq!(registers.read32(GICD_ICENABLER + 4), 1 << 3);
        assert_eq!(fakes::take_instructions(), ["dsb sy", "dsb sy"]);
    }
}
