// SPDX-License-Identifier: Apache-2.0 OR MIT
//! GICv2 (IHI 0048): distributor and CPU interface in memory. Interrupts stay in Group 0, as for a program
//! that knows no groups.
//!
//! The number of a CPU's interface is the lowest part of its affinity on the machines here, which have no
//! more than eight CPUs.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::registers::{PRIORITY, distributor, interrupts, offset, set_edge};
use crate::cpu;
use crate::mmio::{read8, read32, write8, write32};
use crate::platform::platform;

/// Most CPUs of a GICv2.
pub const MAX_CPUS: usize = 8;

/// Register offsets in the CPU interface.
pub mod interface {
    /// GICC_CTLR.
    pub const CTLR: u64 = 0x0000;
    /// GICC_PMR.
    pub const PMR: u64 = 0x0004;
    /// GICC_BPR.
    pub const BPR: u64 = 0x0008;
    /// GICC_IAR.
    pub const IAR: u64 = 0x000c;
    /// GICC_EOIR.
    pub const EOIR: u64 = 0x0010;
    /// GICC_RPR.
    pub const RPR: u64 = 0x0014;
    /// GICC_HPPIR.
    pub const HPPIR: u64 = 0x0018;
    /// GICC_APR0.
    pub const APR: u64 = 0x00d0;
    /// GICC_DIR.
    pub const DIR: u64 = 0x1000;
}

const CTLR_ENABLE_GROUP0: u32 = 1 << 0;
const CTLR_ENABLE_GROUP1: u32 = 1 << 1;
/// GICC_CTLR.AckCtl: acknowledges of Group 0 take Group 1 too.
pub const ACK_CTL: u32 = 1 << 2;
const EOI_MODE: u32 = 1 << 9;

/// The sender of each SGI that a CPU has acknowledged: its end has to name it.
static SENDERS: [[AtomicU8; 16]; MAX_CPUS] = [const { [const { AtomicU8::new(0) }; 16] }; MAX_CPUS];

/// Returns the address of the CPU interface.
///
/// # Panics
/// When the device tree has no GICv2.
pub fn interface() -> u64 {
    platform().gicc.expect("the device tree has no GICv2").base
}

/// Returns the bit of the CPU with this affinity, or zero if there is no such CPU.
pub fn mask_of(affinity: u64) -> u8 {
    if platform().cpus.as_slice().contains(&affinity) { 1 << (affinity & 7) } else { 0 }
}

/// Sets up the distributor, with all shared interrupts disabled and routed to this CPU.
pub fn init() {
    let base = distributor();
    write32(base, 0);
    for word in 1..u64::from(interrupts().div_ceil(32)) {
        write32(base + offset::ICENABLER + 4 * word, !0);
        write32(base + offset::ICPENDR + 4 * word, !0);
        write32(base + offset::ICACTIVER + 4 * word, !0);
        write32(base + offset::IGROUPR + 4 * word, 0);
        for quarter in 0..8 {
            write32(base + offset::IPRIORITYR + 32 * word + 4 * quarter, u32::from_ne_bytes([PRIORITY; 4]));
        }
    }
    for intid in 32..interrupts() {
        set_route(intid, cpu::affinity());
        set_edge(base, intid, false);
    }
    set_distributor_enabled(true);
    init_cpu();
}

/// Sets up this CPU's banked registers and its CPU interface; its private interrupts are disabled.
pub fn init_cpu() {
    let base = distributor();
    write32(base + offset::ICENABLER, !0);
    write32(base + offset::ICPENDR, !0);
    write32(base + offset::ICACTIVER, !0);
    write32(base + offset::IGROUPR, 0);
    for word in 0..8 {
        write32(base + offset::IPRIORITYR + 4 * word, u32::from_ne_bytes([PRIORITY; 4]));
    }
    for word in 0..4 {
        write32(base + offset::CPENDSGIR + 4 * word, !0);
    }
    let interface = interface();
    write32(interface + interface::APR, 0);
    set_priority_mask(0xf0);
    write32(interface + interface::BPR, 0);
    write32(interface + interface::CTLR, CTLR_ENABLE_GROUP0 | CTLR_ENABLE_GROUP1);
}

/// Writes GICD_CTLR's group enables.
pub fn set_distributor_enabled(on: bool) {
    write32(distributor(), if on { CTLR_ENABLE_GROUP0 | CTLR_ENABLE_GROUP1 } else { 0 });
}

/// Sets or clears bits of GICC_CTLR.
pub fn set_control(bits: u32, on: bool) {
    let address = interface() + interface::CTLR;
    let old = read32(address);
    write32(address, if on { old | bits } else { old & !bits });
}

/// Writes GICC_CTLR's group enables.
pub fn set_interface_enabled(on: bool) {
    set_control(CTLR_ENABLE_GROUP0 | CTLR_ENABLE_GROUP1, on);
}

/// Routes a shared interrupt to the CPU with this affinity, or to none if there is no such CPU.
pub fn set_route(intid: u32, affinity: u64) {
    set_targets(intid, mask_of(affinity));
}

/// Returns the affinity of the first target of a shared interrupt, or `u64::MAX` if it has none.
pub fn route(intid: u32) -> u64 {
    match targets(intid) {
        0 => u64::MAX,
        targets => u64::from(targets.trailing_zeros()),
    }
}

/// Writes GICD_ITARGETSR.
pub fn set_targets(intid: u32, targets: u8) {
    write8(distributor() + offset::ITARGETSR + u64::from(intid), targets);
}

/// Returns GICD_ITARGETSR.
pub fn targets(intid: u32) -> u8 {
    read8(distributor() + offset::ITARGETSR + u64::from(intid))
}

/// Makes an SGI of this CPU pending from the senders of a mask (GICD_SPENDSGIR).
pub fn set_senders(sgi: u32, senders: u8) {
    write8(distributor() + offset::SPENDSGIR + u64::from(sgi), senders);
}

/// Takes the senders of a mask from an SGI of this CPU (GICD_CPENDSGIR).
pub fn clear_senders(sgi: u32, senders: u8) {
    write8(distributor() + offset::CPENDSGIR + u64::from(sgi), senders);
}

/// Returns the senders of an SGI of this CPU that is pending (GICD_SPENDSGIR).
pub fn senders(sgi: u32) -> u8 {
    read8(distributor() + offset::SPENDSGIR + u64::from(sgi))
}

/// Returns where this CPU keeps the sender of an SGI.
fn sender_of(intid: u32) -> Option<&'static AtomicU8> {
    SENDERS.get(cpu::this().index())?.get(intid as usize)
}

/// Reads GICC_IAR: the INTID, and for an SGI the CPU that sent it.
pub fn acknowledge_with_sender() -> (u32, u8) {
    let value = read32(interface() + interface::IAR);
    (value & 0x3ff, (value >> 10 & 7) as u8)
}

/// Acknowledges the highest interrupt (GICC_IAR).
pub fn acknowledge() -> u32 {
    let (intid, sender) = acknowledge_with_sender();
    if let Some(slot) = sender_of(intid) {
        slot.store(sender, Relaxed);
    }
    intid
}

/// Returns the highest pending interrupt without acknowledging it (GICC_HPPIR).
pub fn highest_pending() -> u32 {
    read32(interface() + interface::HPPIR) & 0x3ff
}

/// Returns the sender that this CPU's last acknowledge of an SGI named.
pub fn last_sender(sgi: u32) -> u8 {
    sender_of(sgi).map_or(0, |slot| slot.load(Relaxed))
}

/// Adds to an INTID the sender that the last acknowledge of it named.
fn with_sender(intid: u32) -> u32 {
    intid | u32::from(last_sender(intid)) << 10
}

/// Ends an interrupt (GICC_EOIR).
pub fn end(intid: u32) {
    write32(interface() + interface::EOIR, with_sender(intid));
}

/// Ends an SGI from this sender (GICC_EOIR).
pub fn end_with_sender(intid: u32, sender: u8) {
    write32(interface() + interface::EOIR, intid | u32::from(sender) << 10);
}

/// Deactivates an interrupt (GICC_DIR), which EOImode 1 leaves to the program.
pub fn deactivate(intid: u32) {
    write32(interface() + interface::DIR, with_sender(intid));
}

/// Chooses whether the end of an interrupt only drops its priority (GICC_CTLR.EOImode).
pub fn set_eoi_mode(drop_only: bool) {
    set_control(EOI_MODE, drop_only);
}

/// Lets only interrupts of a higher priority (a lower number) than this through (GICC_PMR).
pub fn set_priority_mask(priority: u8) {
    write32(interface() + interface::PMR, u32::from(priority));
}

/// Chooses which bits of a priority decide about preemption (GICC_BPR).
pub fn set_binary_point(point: u8) {
    write32(interface() + interface::BPR, u32::from(point));
}

/// Returns GICC_PMR.
pub fn priority_mask() -> u8 {
    read32(interface() + interface::PMR) as u8
}

/// Returns the priority of what is being handled (GICC_RPR).
pub fn running_priority() -> u8 {
    read32(interface() + interface::RPR) as u8
}

/// Returns the GICD_SGIR value that sends `sgi` to the CPU with this affinity.
pub fn sgi_value(sgi: u32, affinity: u64) -> u64 {
    u64::from(mask_of(affinity)) << 16 | u64::from(sgi)
}

/// Returns the GICD_SGIR value that sends `sgi` to all CPUs but this one.
pub fn sgi_to_others(sgi: u32) -> u64 {
    1 << 24 | u64::from(sgi)
}

/// Returns the GICD_SGIR value that sends `sgi` to this CPU, whichever that is.
pub fn sgi_to_itself(sgi: u32) -> u64 {
    2 << 24 | u64::from(sgi)
}

/// Returns the GICD_SGIR value that sends `sgi` to the CPUs that `list` names.
pub fn sgi_to_list(sgi: u32, _cluster: u64, list: u16) -> u64 {
    u64::from(list & 0xff) << 16 | u64::from(sgi)
}

/// Sends an SGI (GICD_SGIR), after all that was written before.
pub fn send_sgi(value: u64) {
    cpu::synchronize();
    write32(distributor() + offset::SGIR, value as u32);
}
