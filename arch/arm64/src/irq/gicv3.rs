// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The physical GICv3 (IHI 0069): distributor, redistributors and the CPU interface at EL2.
//!
//! EOImode is 1: EOIR drops the priority, DIR deactivates. A forwarded interrupt is only dropped here; the
//! guest's own EOI deactivates it through the HW bit of its list register, without an exit.

use turnstile_arch_common::mmio::Registers;
use turnstile_vm::attention::KickToken;

use super::device;
use super::gic::{Acknowledged, Gic, OWN_PRIORITY, PRIVATE_IN_USE, SGI_KICK, SPURIOUS, vectors};
use super::ich::{self, Ich};
use super::interface::SRE_EL2;
use crate::board::discover::{Spi, V3Node};
use crate::cpu::{isb, regs};

const GICD_CTLR: usize = 0x0;
const GICD_TYPER: usize = 0x4;
const GICD_IGROUPR: usize = 0x80;
const GICD_ISENABLER: usize = 0x100;
const GICD_ICENABLER: usize = 0x180;
const GICD_ICPENDR: usize = 0x280;
const GICD_ISACTIVER: usize = 0x300;
const GICD_ICACTIVER: usize = 0x380;
const GICD_IPRIORITYR: usize = 0x400;
const GICD_IROUTER: usize = 0x6000;
const GICD_CTLR_RWP: u32 = 1 << 31;
const GICD_CTLR_ARE: u32 = 1 << 4;
const GICD_CTLR_ENABLE_GRP1: u32 = 1 << 1;
const GICR_TYPER: usize = 0x8;
const GICR_WAKER: usize = 0x14;
const GICR_SGI: usize = 0x1_0000;
const GICR_TYPER_VLPIS: u64 = 1 << 1;
const GICR_TYPER_LAST: u64 = 1 << 4;
/// Priority of all other physical interrupts, which guests cause: they need no order among themselves.
const PRIORITY: u32 = 0xa0a0_a0a0;
/// Polls of a register that hardware settles within microseconds.
const PATIENCE: u32 = 1_000_000;

/// The distributor.
#[derive(Clone, Copy, Debug)]
pub struct Distributor(Registers);

impl Distributor {
    /// Takes the distributor that the device tree names.
    ///
    /// # Safety
    /// The node's register blocks must be mapped as device memory for ever.
    pub unsafe fn new(node: &V3Node) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Registers::new(node.distributor.base) })
    }

    fn wait(&self) {
        for _ in 0..PATIENCE {
            if self.0.read32(GICD_CTLR) & GICD_CTLR_RWP == 0 {
                return;
            }
        }
    }

    /// Brings the distributor up: every SPI in group 1, disabled, inactive.
    pub fn start(&self) {
        self.0.write32(GICD_CTLR, 0);
        self.wait();
        let words = (self.0.read32(GICD_TYPER) & 0x1f) as usize + 1;
        for word in 1..words {
            self.0.write32(GICD_ICENABLER + 4 * word, !0);
            self.0.write32(GICD_ICPENDR + 4 * word, !0);
            self.0.write32(GICD_ICACTIVER + 4 * word, !0);
            self.0.write32(GICD_IGROUPR + 4 * word, !0);
            for byte in 0..8 {
                self.0.write32(GICD_IPRIORITYR + 32 * word + 4 * byte, PRIORITY);
            }
        }
        self.wait();
        self.0.write32(GICD_CTLR, GICD_CTLR_ARE | GICD_CTLR_ENABLE_GRP1);
        self.wait();
    }

    /// Routes an SPI to the CPU with `affinity` and enables it, with a higher priority than the kicks and timers
    /// that guests cause: they cannot keep it from being acknowledged.
    pub fn enable_spi(&self, intid: u32, affinity: u64) {
        let n = intid as usize;
        self.0.write8(GICD_IPRIORITYR + n, OWN_PRIORITY);
        self.0.write64(GICD_IROUTER + 8 * n, affinity);
        self.0.write32(GICD_ISENABLER + 4 * (n / 32), 1 << (n % 32));
    }

    /// Routes a device's SPI, which nobody has, to the CPU with `affinity`; it is masked. False if that cannot be.
    pub fn connect_spi(&self, spi: Spi, affinity: u64) -> bool {
        let taken = device::take(&self.0, spi);
        if taken {
            self.0.write64(GICD_IROUTER + 8 * spi.intid as usize, affinity);
        }
        taken
    }

    /// Masks a device's SPI, which does not come again from then on, or unmasks it.
    pub fn mask_spi(&self, intid: u32, masked: bool) {
        device::mask(&self.0, intid, masked);
        if masked {
            // Disabled when no write of that is on its way any more (IHI 0069, 12.9.4, RWP); before the deactivation.
            self.wait();
        }
    }
}

/// Finds the redistributor of the CPU with `affinity`.
///
/// # Safety
/// The node's register blocks must be mapped as device memory for ever.
pub unsafe fn redistributor(node: &V3Node, affinity: u64) -> Option<Registers> {
    let packed = (affinity & 0xff_ffff) | ((affinity >> 32) & 0xff) << 24;
    for region in &node.redistributors {
        let mut base = region.base;
        while base + 0x2_0000 <= region.base + region.size {
            // SAFETY: the caller's promise; `base` lies inside the region.
            let frame = unsafe { Registers::new(base) };
            let typer = frame.read64(GICR_TYPER);
            if typer >> 32 == packed {
                return Some(frame);
            }
            if typer & GICR_TYPER_LAST != 0 {
                break;
            }
            base += if typer & GICR_TYPER_VLPIS != 0 { 0x4_0000 } else { 0x2_0000 };
        }
    }
    None
}

/// Brings up this CPU's redistributor and CPU interface.
pub fn start_cpu(redistributor: Registers) {
    redistributor.write32(GICR_WAKER, redistributor.read32(GICR_WAKER) & !2);
    for _ in 0..PATIENCE {
        if redistributor.read32(GICR_WAKER) & 4 == 0 {
            break;
        }
    }
    let sgi = |offset: usize| GICR_SGI + offset;
    redistributor.write32(sgi(GICD_ICENABLER), !0);
    redistributor.write32(sgi(GICD_ICPENDR), !0);
    redistributor.write32(sgi(GICD_ICACTIVER), !0);
    redistributor.write32(sgi(GICD_IGROUPR), !0);
    for byte in 0..8 {
        redistributor.write32(sgi(GICD_IPRIORITYR + 4 * byte), PRIORITY);
    }
    redistributor.write32(sgi(GICD_ISENABLER), PRIVATE_IN_USE);
    // SAFETY: these registers govern physical interrupts of this CPU only, which are masked at EL2; the
    // synchronization after SRE is required before the other ICC registers exist (IHI 0069, 12.1.3).
    unsafe {
        regs::ICC_SRE_EL2.write(SRE_EL2);
        isb();
        regs::ICC_PMR_EL1.write(0xff);
        regs::ICC_BPR1_EL1.write(0);
        regs::ICC_CTLR_EL1.write(1 << 1);
        regs::ICC_IGRPEN1_EL1.write(1);
        isb();
    }
}

/// Makes a private interrupt active. The read behind the write makes the distributor take it before what follows.
pub fn activate_private(redistributor: Registers, intid: u32) {
    redistributor.write32(GICR_SGI + GICD_ISACTIVER, 1 << (intid & 31));
    redistributor.read32(GICR_SGI + GICD_ISACTIVER);
    crate::cpu::dsb_sy();
}

/// The GICv3 of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Gicv3;

impl Gic for Gicv3 {
    type Interface = Ich;
    const SYSTEM_REGISTERS: bool = true;

    vectors!(vectors, vectors_timed, vectors_guarded, vectors_timed_guarded);

    #[inline(always)] // Nothing.
    fn interface() -> Ich {
        Ich
    }

    #[inline(always)] // Two or three instructions of every physical interrupt's exit.
    fn acknowledge() -> Acknowledged {
        let iar = regs::ICC_IAR1_EL1.read();
        let intid = iar as u32 & 0xff_ffff;
        if intid < SPURIOUS {
            // SAFETY: ends the interrupt that was just acknowledged.
            unsafe { regs::ICC_EOIR1_EL1.write(iar) };
        }
        Acknowledged(intid)
    }

    #[inline(always)] // As above; the kick first, which needs fewest.
    fn acknowledge_and_end_kick() -> Acknowledged {
        let iar = regs::ICC_IAR1_EL1.read();
        let intid = iar as u32 & 0xff_ffff;
        if intid == SGI_KICK {
            // SAFETY: as above.
            unsafe {
                regs::ICC_EOIR1_EL1.write(iar);
                regs::ICC_DIR_EL1.write(iar);
            }
        } else if intid < SPURIOUS {
            // SAFETY: as above.
            unsafe { regs::ICC_EOIR1_EL1.write(iar) };
        }
        Acknowledged(intid)
    }

    #[inline(always)] // Nothing.
    fn intid(acknowledged: Acknowledged) -> u32 {
        acknowledged.0
    }

    #[inline(always)] // One instruction.
    fn deactivate(acknowledged: Acknowledged) {
        ich::deactivate(acknowledged.0);
    }

    #[inline(always)] // Two instructions on the path of every cross-CPU interrupt.
    fn kick(token: KickToken) {
        // The attention word must be visible before the interrupt that announces it: a
        // system register write is not ordered after stores without a barrier.
        crate::cpu::dsb_ishst();
        // SAFETY: an SGI among the hypervisor's own physical CPUs.
        unsafe { regs::ICC_SGI1R_EL1.write(token) };
    }
}

/// Returns the token of the physical CPU with `affinity`: the value of ICC_SGI1R_EL1 that sends it [`SGI_KICK`]. One
/// bit of its target list is set, so it is not zero.
pub fn kick_token(affinity: u64) -> KickToken {
    let aff0 = affinity & 0xff;
    (affinity >> 32 & 0xff) << 48
        | (affinity >> 16 & 0xff) << 32
        | (affinity >> 8 & 0xff) << 16
        | (aff0 & 0xf0) << 40
        | 1 << (aff0 & 0xf)
        | u64::from(SGI_KICK) << 24
}

/// Says whether guests of this CPU can have a GICv2: whether their system register interface can be turned off, which
/// CPUs without the interface of a GICv2 do not allow (IHI 0069, 12.2.22: ICC_SRE_EL1.SRE is RAO/WI then).
pub fn allows_legacy() -> bool {
    // SAFETY: the guest's view, while no guest runs; restored by the reset of a vCPU.
    unsafe {
        regs::ICC_SRE_EL1.write(0);
        isb();
        regs::ICC_SRE_EL1.read() & 1 == 0
    }
}
