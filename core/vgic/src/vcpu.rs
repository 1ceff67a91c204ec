// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One vCPU's interrupts: the state. The ways in are in `inject`.
//!
//! An interrupt's *sources* of being pending (the latch, a level line, a physical interrupt) are kept
//! here until the guest is seen to have acknowledged it; a list register is a copy that the guest
//! works on. Nothing asks the hardware what the guest did until the answer matters: when the same
//! INTID comes again, when no list register is known to be free, when the guest reads a register that
//! shows it, or when a maintenance interrupt says so.

use crate::bits::IntidSet;
use crate::hardware::{Backing, ListRegister, LrState, Maintenance, VirtualInterface};
use crate::registers::gicr;
use crate::spi::SpiWord;
use crate::{MAX_LIST_REGISTERS, Model, Vgic};

/// Marks an INTID that is in no list register.
pub(crate) const NO_SLOT: u8 = 0xff;

/// In [`VcpuGic::slot`], beside the number: the list register was not given what [`VcpuGic::encoded`] has, so that what comes
/// again is not presented as the last one was.
const OTHER: u8 = 0x10;

/// Composes a list register as the hardware has it: [`VirtualInterface::encode`].
pub type Encode = fn(ListRegister) -> u64;

/// The bit of PPI 16, which no device of an Arm CPU has, is not among the quick ones: where SGIs are posted as bits, it is another
/// reason to look ([`VcpuGic::present_posted_sgi`]).
const NEVER_QUICK: u32 = 1 << 16;

/// Says what an injection has left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Nothing: the guest may be entered.
    Done,
    /// No list register is known to be free: call [`VcpuGic::settle`] before the guest is entered.
    Slow,
}

/// The interrupt state of one vCPU: its redistributor, the interrupts in its custody and the plan of
/// its list registers.
///
/// Owned by the physical CPU where the vCPU is resident; see [`Host`](crate::Host) for how others
/// reach it.
// In this order, so that what injections use is within reach of one instruction's offset; the large table
// that they do not use comes last.
#[repr(C)]
pub struct VcpuGic {
    pub(crate) index: usize,
    /// A bit per list register.
    pub(crate) all_lrs: u16,
    /// The hardware is this vCPU's: between load and put.
    pub(crate) resident: bool,
    /// The vCPU is on: it claims SPIs.
    pub(crate) on: bool,
    /// More interrupts than list registers: the planner decides about every change.
    pub(crate) overflowing: bool,

    /// Private interrupts that may be injected without the planner: deliverable, and not overflowing,
    /// because then they may be active outside the list registers. Without the SGIs of a GICv2, which
    /// are in [`Self::quick_sourced`].
    pub(crate) quick: u32,
    /// A physical interrupt may be behind a list register; see [`Self::without_hardware_backing`].
    pub(crate) backed: bool,
    /// Of a GICv2's SGIs, those that may be injected without the planner.
    pub(crate) quick_sourced: u32,
    /// What these two are when the vCPU is resident and there is no overflow.
    pub(crate) quick_when_loaded: (u32, u32),
    /// List registers that hold nothing. Those in use may be empty too: the guest does not tell.
    pub(crate) free: u16,
    /// Each SGI as a pending list register, without its sender, as the hardware has it, and each PPI with the physical
    /// interrupt of the same number behind it: what comes again is written so.
    pub(crate) encoded: [u64; 32],
    /// The list register of each INTID, perhaps with [`OTHER`], or [`NO_SLOT`].
    pub(crate) slot: [u8; 1024],
    /// What is known of the content of each list register in use.
    pub(crate) lr: [ListRegister; MAX_LIST_REGISTERS],
    /// Free list registers that still have to be cleared or overwritten. None outside slow paths.
    pub(crate) stale: u16,
    /// List registers written with `eoi_maintenance`.
    pub(crate) eoi: u16,
    /// The conditions in the hardware.
    pub(crate) armed: Maintenance,
    /// Whether that is more than the baseline.
    pub(crate) is_conditional: bool,
    /// What is always armed.
    pub(crate) baseline: Maintenance,

    // The redistributor: one bit per private interrupt.
    pub(crate) enabled: u32,
    pub(crate) group1: u32,
    pub(crate) edge: u32,
    pub(crate) line: u32,
    /// Enabled, in an enabled group.
    pub(crate) deliverable: u32,
    pub(crate) priority: [u8; 32],
    pub(crate) waker: u32,
    /// A copy of `GICD_CTLR.EnableGrp*`.
    pub(crate) groups: u32,

    /// Private interrupts with an active physical interrupt that has to be deactivated with them: PPIs only.
    pub(crate) held: u32,
    /// What [`VcpuGic::settle`] has to look at: [`UNSETTLED`], and of [`Self::held`] the ones that the guest has not
    /// acknowledged as far as is known. They are pending because their line was high when they fired. In one word, because
    /// every full exit tests it.
    pub(crate) open: u32,
    pub(crate) pintid: [u32; 32],

    /// Pending latches: private ones, and those taken from SPIs in custody.
    pub(crate) latch: IntidSet,
    /// GICv2: the senders of each SGI that is pending; it is in the latch if there is one. Zero with GICv3.
    pub(crate) sources: [u8; 16],
    /// GICv2: the sender of each SGI that was acknowledged last.
    pub(crate) last_source: [u8; 16],
    /// GICv2: the bit of this vCPU among senders. Zero with GICv3.
    pub(crate) own_source: u8,
    pub(crate) active: IntidSet,
    /// SPIs in custody: exactly those whose word names this vCPU as the owner.
    pub(crate) owned: IntidSet,
    /// Interrupts that are, or may be, to be presented, and have no list register.
    pub(crate) outside: IntidSet,
    acknowledges: u32,
    encode: Encode,
    /// What the words of SPIs say that go to this vCPU alone ([`SpiWord::destination`]). No word says that of a GICv2.
    pub(crate) home: u64,
    /// Orders active interrupts: lower is deactivated earlier. See [`Self::acknowledged`].
    pub(crate) active_key: [u32; 1024],
}

/// In [`VcpuGic::open`]: [`VcpuGic::outside`] has changed since the planner last looked.
pub(crate) const UNSETTLED: u32 = 1;
/// A destination that no SPI has.
const NOWHERE: u64 = u64::MAX;
/// In [`VcpuGic::open`]: the PPIs.
const PPIS: u32 = 0xffff_0000;

/// The [`VcpuGic::active_key`] of an interrupt that was made active by a register write: no end of
/// interrupt is for it.
pub(crate) const NEVER_ACKNOWLEDGED: u32 = u32::MAX;

const NO_INTERRUPT: ListRegister = ListRegister {
    intid: 1023,
    source: 0,
    priority: 0,
    group1: false,
    state: LrState::Invalid,
    backing: Backing::Software { eoi_maintenance: false },
};

impl VcpuGic {
    /// Builds the interrupt state of vCPU `index` of `vgic` in its reset state, for hardware with
    /// `list_registers` (1 to 16; other numbers are clamped), which `encode` composes. It is not loaded.
    pub fn new(vgic: &Vgic, index: usize, list_registers: usize, encode: Encode) -> Self {
        let count = list_registers.clamp(1, MAX_LIST_REGISTERS);
        let gicv2 = vgic.model() == Model::Gicv2;
        let mut gic = Self {
            index,
            all_lrs: ((1u32 << count) - 1) as u16,
            resident: false,
            on: true,
            overflowing: false,
            quick: 0,
            backed: true,
            quick_sourced: 0,
            quick_when_loaded: (0, 0),
            free: 0,
            encoded: [0; 32],
            slot: [NO_SLOT; 1024],
            lr: [NO_INTERRUPT; MAX_LIST_REGISTERS],
            stale: 0,
            eoi: 0,
            armed: Maintenance::NONE,
            is_conditional: false,
            // An SPI may be deactivated by another vCPU than the one that acknowledged it, and
            // nothing but the trap tells. Guests with EOImode 0 never write DIR and pay nothing.
            baseline: Maintenance { trap_dir: !gicv2 && vgic.vcpus() > 1, ..Maintenance::NONE },
            enabled: 0,
            group1: 0,
            edge: 0,
            line: 0,
            deliverable: 0,
            priority: [0; 32],
            waker: 0,
            groups: 0,
            held: 0,
            open: 0,
            pintid: [0; 32],
            latch: IntidSet::EMPTY,
            sources: [0; 16],
            last_source: [0; 16],
            own_source: if gicv2 { 1 << (index & 7) } else { 0 },
            active: IntidSet::EMPTY,
            owned: IntidSet::EMPTY,
            outside: IntidSet::EMPTY,
            active_key: [NEVER_ACKNOWLEDGED; 1024],
            acknowledges: 0,
            encode,
            home: if gicv2 { NOWHERE } else { vgic.mpidr(index).map_or(NOWHERE, SpiWord::destination_of) },
        };
        gic.reset_registers(vgic);
        gic
    }

    /// Puts the redistributor's registers into their reset state.
    pub(crate) fn reset_registers(&mut self, vgic: &Vgic) {
        // A GICv2's SGIs need not be enabled, so guests may count on their being so.
        self.enabled = if self.is_gicv2() { 0xffff } else { 0 };
        self.group1 = if vgic.group1_at_reset { !0 } else { 0 };
        vgic.set_sgi_groups(self.index, self.group1);
        // SGIs are always edge-triggered.
        self.edge = 0xffff;
        self.line = 0;
        self.priority = [0; 32];
        self.waker = gicr::PROCESSOR_SLEEP | gicr::CHILDREN_ASLEEP;
        self.groups = vgic.take_groups(self.index);
        self.refresh_encoded();
        self.refresh_deliverable();
    }

    /// Derives what SGIs look like, after a change of a priority or a group.
    pub(crate) fn refresh_encoded(&mut self) {
        for intid in 0..32 {
            let backing = match intid {
                0..16 => Backing::Software { eoi_maintenance: false },
                _ => Backing::Hardware { pintid: intid },
            };
            self.encoded[intid as usize] = (self.encode)(self.pending_lr(intid, backing));
        }
    }

    /// Says whether the VM has a GICv2.
    pub(crate) fn is_gicv2(&self) -> bool {
        self.own_source != 0
    }

    /// Makes it do without [`Backing::Hardware`]: for a machine on which a guest's deactivation of a physical interrupt
    /// has not the effect of one by the hypervisor. Injected physical interrupts ask for maintenance at their end
    /// instead. To be called before the first [`Self::load`].
    pub fn without_hardware_backing(&mut self) {
        self.backed = false;
        self.refresh_deliverable();
    }

    /// Returns the index of the vCPU.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Derives what may be delivered, after a change of an enable, a group or the state of the plan.
    pub(crate) fn refresh_deliverable(&mut self) {
        let groups = if self.groups & 1 != 0 { !self.group1 } else { 0 }
            | if self.groups & 2 != 0 { self.group1 } else { 0 };
        self.deliverable = self.enabled & groups;
        let sourced = if self.is_gicv2() { 0xffff } else { 0 };
        let unbacked = if self.backed { NEVER_QUICK } else { 0xffff_0000 };
        self.quick_when_loaded = (self.deliverable & !sourced & !unbacked, self.deliverable & sourced);
        let quick = if self.resident && !self.overflowing { self.quick_when_loaded } else { (0, 0) };
        (self.quick, self.quick_sourced) = quick;
    }

    /// Says whether the planner has to look at something.
    #[inline] // One bit.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.open & UNSETTLED != 0
    }

    /// Returns the private interrupts that are pending because of a physical one, as far as is known.
    #[inline] // One mask.
    pub(crate) fn held_pending(&self) -> u32 {
        self.open & PPIS
    }

    /// Says whether an SGI may be injected without the planner and without a sender.
    #[inline] // Hot: every delivery.
    pub(crate) fn is_quick(&self, intid: u32) -> bool {
        self.quick >> (intid & 15) & 1 != 0
    }

    #[inline] // Hot: every injection; the mask keeps the index inside the array.
    pub(crate) fn slot(&self, intid: u32) -> Option<usize> {
        let slot = self.slot[intid as usize & 1023];
        (slot != NO_SLOT).then_some(usize::from(slot) & 15)
    }

    /// Writes a free list register for an INTID that has none.
    #[inline] // Hot: every injection.
    pub(crate) fn attach<V: VirtualInterface>(&mut self, vif: &mut V, n: usize, lr: ListRegister) {
        self.free &= !(1 << n);
        self.write(vif, n, lr);
    }

    /// Writes a list register in use.
    #[inline] // Hot: every injection.
    pub(crate) fn write<V: VirtualInterface>(&mut self, vif: &mut V, n: usize, lr: ListRegister) {
        let eoi = matches!(lr.backing, Backing::Software { eoi_maintenance: true });
        self.eoi = self.eoi & !(1 << n) | u16::from(eoi) << n;
        self.lr[n & 15] = lr;
        self.note(n, lr);
        vif.write_lr(n, lr);
    }

    /// Notes where an interrupt is, and whether what it was given there is what is given to it when it comes again: see
    /// [`Self::encoded`].
    #[inline] // Hot: every injection, where most of it is constant.
    pub(crate) fn note(&mut self, n: usize, lr: ListRegister) {
        let as_encoded = match lr.backing {
            Backing::Software { eoi_maintenance } => lr.intid < 16 && !eoi_maintenance,
            Backing::Hardware { pintid } => pintid == lr.intid,
        };
        let other = if as_encoded && lr.state == LrState::Pending { 0 } else { OTHER };
        self.slot[lr.intid as usize & 1023] = n as u8 & 15 | other;
    }

    /// Returns the list register where a private interrupt was given what [`Self::encoded`] has for it, if nothing else is known
    /// of it since.
    #[inline(always)] // Hot: the light exits of SGIs and timers.
    pub(crate) fn encoded_slot(&self, intid: u32) -> Option<usize> {
        let slot = self.slot[intid as usize & 31];
        (slot < OTHER).then_some(usize::from(slot))
    }

    /// Remembers that the guest acknowledged an interrupt of this priority. Ends of interrupts come
    /// for the highest priority first (it preempted the others), and among equals for the latest.
    pub(crate) fn acknowledged(&mut self, intid: u32, priority: u8) {
        self.acknowledges = self.acknowledges.wrapping_add(1) & 0xff_ffff;
        self.active.insert(intid);
        self.active_key[intid as usize & 1023] =
            u32::from(priority) << 24 | (0xff_fffe - self.acknowledges.min(0xff_fffe));
    }

    /// Returns whether an interrupt is pending for the guest as far as its state is concerned, so that
    /// a trapped WFI returns. The guest's priority mask is not looked at: a masked interrupt makes WFI
    /// return too early, which is allowed. Reads only list registers that were pending when last seen and are not empty.
    pub fn has_pending<V: VirtualInterface>(&self, vif: &mut V) -> bool {
        if self.is_unsettled() || self.armed.no_pending {
            return true;
        }
        let mut used = self.all_lrs & !self.free;
        if used != 0 && self.resident {
            used &= !vif.empty_lrs();
        }
        while used != 0 && self.resident {
            let n = used.trailing_zeros() as usize;
            used &= used - 1;
            if self.lr[n & 15].state.pending() && vif.read_lr(n) == LrState::Pending {
                return true;
            }
        }
        false
    }
}
