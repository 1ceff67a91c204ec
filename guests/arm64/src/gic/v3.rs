// SPDX-License-Identifier: Apache-2.0 OR MIT
//! GICv3 (IHI 0069): distributor, this CPU's redistributor, and the CPU interface's system registers.

use turnstile_guests_common::clock;

use super::registers::{PRIORITY, distributor, interrupts, offset, set_edge};
use crate::mmio::{read32, read64, write32, write64};
use crate::platform::platform;
use crate::{cpu, read_sysreg, write_sysreg};

const CTLR_ENABLE_GROUP0: u32 = 1 << 0;
const CTLR_ENABLE_GROUP1: u32 = 1 << 1;
const CTLR_ARE: u32 = 1 << 4;
const CTLR_RWP: u32 = 1 << 31;

/// Returns RD_base of the redistributor of the CPU with this affinity.
pub fn redistributor_of(affinity: u64) -> Option<u64> {
    let wanted = affinity >> 8 & 0xff00_0000 | affinity & 0xff_ffff;
    for region in platform().gicr.as_slice() {
        let mut base = region.base;
        while base < region.end() {
            let typer = read64(base + offset::GICR_TYPER);
            if typer >> 32 == wanted {
                return Some(base);
            }
            // VLPIS: two more frames.
            base += if typer & 2 != 0 { 0x4_0000 } else { 0x2_0000 };
            if typer & 1 << 4 != 0 {
                break;
            }
        }
    }
    None
}

/// Returns RD_base of this CPU's redistributor if they are in the order of the CPUs, one behind the other: with
/// hundreds of them each search would read hundreds of registers.
fn usual_redistributor(affinity: u64) -> Option<u64> {
    let wanted = affinity >> 8 & 0xff00_0000 | affinity & 0xff_ffff;
    let region = platform().gicr.as_slice().first()?;
    let base = region.base + 0x2_0000 * cpu::this().index() as u64;
    (base < region.end() && read64(base + offset::GICR_TYPER) >> 32 == wanted).then_some(base)
}

/// Returns RD_base of this CPU's redistributor.
///
/// # Panics
/// When no redistributor has this CPU's affinity.
pub fn redistributor() -> u64 {
    let affinity = cpu::affinity();
    let usual = usual_redistributor(affinity);
    usual.or_else(|| redistributor_of(affinity)).expect("this CPU has no GICv3 redistributor")
}

/// Waits until the distributor has done what was written (GICD_CTLR.RWP).
pub(super) fn wait_for_writes() {
    clock::wait(1_000_000, || read32(distributor()) & CTLR_RWP == 0);
}

/// Sets up the distributor, with all shared interrupts disabled, in group 1, and routed to this CPU.
pub fn init() {
    let base = distributor();
    write32(base, 0);
    wait_for_writes();
    write32(base, CTLR_ARE);
    for word in 1..u64::from(interrupts().div_ceil(32)) {
        write32(base + offset::ICENABLER + 4 * word, !0);
        write32(base + offset::ICPENDR + 4 * word, !0);
        write32(base + offset::ICACTIVER + 4 * word, !0);
        write32(base + offset::IGROUPR + 4 * word, !0);
        for quarter in 0..8 {
            write32(base + offset::IPRIORITYR + 32 * word + 4 * quarter, u32::from_ne_bytes([PRIORITY; 4]));
        }
    }
    for intid in 32..interrupts() {
        set_route(intid, cpu::affinity());
        set_edge(base, intid, false);
    }
    wait_for_writes();
    write32(base, CTLR_ARE | CTLR_ENABLE_GROUP0 | CTLR_ENABLE_GROUP1);
    wait_for_writes();
    init_cpu();
}

/// Sets up this CPU's redistributor and CPU interface; its private interrupts are disabled, in group 1.
pub fn init_cpu() {
    let base = redistributor();
    let waker = read32(base + offset::WAKER);
    write32(base + offset::WAKER, waker & !2);
    clock::wait(1_000_000, || read32(base + offset::WAKER) & 4 == 0);
    let sgi = base + offset::SGI_BASE;
    write32(sgi + offset::ICENABLER, !0);
    write32(sgi + offset::ICPENDR, !0);
    write32(sgi + offset::ICACTIVER, !0);
    write32(sgi + offset::IGROUPR, !0);
    for word in 0..8 {
        write32(sgi + offset::IPRIORITYR + 4 * word, u32::from_ne_bytes([PRIORITY; 4]));
    }
    write_sysreg!("S3_0_C12_C12_5", read_sysreg!("S3_0_C12_C12_5") | 1); // ICC_SRE_EL1.SRE
    clear_active_priorities();
    set_eoi_mode(false);
    set_priority_mask(0xf0);
    write_sysreg!("S3_0_C12_C12_3", 0); // ICC_BPR1_EL1
    write_sysreg!("S3_0_C12_C12_6", 1); // ICC_IGRPEN0_EL1
    write_sysreg!("S3_0_C12_C12_7", 1); // ICC_IGRPEN1_EL1
}

/// Writes GICD_CTLR's group enables.
pub fn set_distributor_enabled(on: bool) {
    write32(distributor(), CTLR_ARE | if on { CTLR_ENABLE_GROUP0 | CTLR_ENABLE_GROUP1 } else { 0 });
    wait_for_writes();
}

/// Writes ICC_IGRPEN1_EL1.
pub fn set_interface_enabled(on: bool) {
    write_sysreg!("S3_0_C12_C12_7", u64::from(on));
    cpu::synchronize();
}

/// Routes a shared interrupt to the CPU with this affinity.
pub fn set_route(intid: u32, affinity: u64) {
    write64(distributor() + offset::IROUTER + u64::from(intid) * 8, affinity);
}

/// Returns the route of a shared interrupt.
pub fn route(intid: u32) -> u64 {
    read64(distributor() + offset::IROUTER + u64::from(intid) * 8)
}

/// Forgets whatever was running on this CPU interface (ICC_AP0R<n>_EL1, ICC_AP1R<n>_EL1).
fn clear_active_priorities() {
    write_sysreg!("S3_0_C12_C8_4", 0);
    write_sysreg!("S3_0_C12_C9_0", 0);
    let priority_bits = (read_sysreg!("S3_0_C12_C12_4") >> 8 & 7) + 1;
    if priority_bits > 5 {
        write_sysreg!("S3_0_C12_C8_5", 0);
        write_sysreg!("S3_0_C12_C9_1", 0);
    }
    if priority_bits > 6 {
        write_sysreg!("S3_0_C12_C8_6", 0);
        write_sysreg!("S3_0_C12_C9_2", 0);
        write_sysreg!("S3_0_C12_C8_7", 0);
        write_sysreg!("S3_0_C12_C9_3", 0);
    }
}

/// Acknowledges the highest group 1 interrupt (ICC_IAR1_EL1).
pub fn acknowledge() -> u32 {
    let intid = read_sysreg!("S3_0_C12_C12_0") as u32;
    cpu::synchronize();
    intid
}

/// Returns the highest pending group 1 interrupt without acknowledging it (ICC_HPPIR1_EL1).
pub fn highest_pending() -> u32 {
    cpu::synchronize();
    read_sysreg!("S3_0_C12_C12_2") as u32
}

/// Ends a group 1 interrupt (ICC_EOIR1_EL1).
pub fn end(intid: u32) {
    write_sysreg!("S3_0_C12_C12_1", u64::from(intid));
}

/// Acknowledges the highest group 0 interrupt (ICC_IAR0_EL1).
pub fn acknowledge_group0() -> u32 {
    let intid = read_sysreg!("S3_0_C12_C8_0") as u32;
    cpu::synchronize();
    intid
}

/// Ends a group 0 interrupt (ICC_EOIR0_EL1).
pub fn end_group0(intid: u32) {
    write_sysreg!("S3_0_C12_C8_1", u64::from(intid));
}

/// Deactivates an interrupt (ICC_DIR_EL1), which EOImode 1 leaves to the program.
pub fn deactivate(intid: u32) {
    write_sysreg!("S3_0_C12_C11_1", u64::from(intid));
}

/// Chooses whether the end of an interrupt only drops its priority (ICC_CTLR_EL1.EOImode).
pub fn set_eoi_mode(drop_only: bool) {
    let old = read_sysreg!("S3_0_C12_C12_4");
    write_sysreg!("S3_0_C12_C12_4", old & !2 | u64::from(drop_only) << 1);
}

/// Lets only interrupts of a higher priority (a lower number) than this through (ICC_PMR_EL1).
pub fn set_priority_mask(priority: u8) {
    write_sysreg!("S3_0_C4_C6_0", u64::from(priority));
}

/// Chooses which bits of a priority decide about preemption (ICC_BPR1_EL1).
pub fn set_binary_point(point: u8) {
    write_sysreg!("S3_0_C12_C12_3", u64::from(point));
}

/// Returns ICC_PMR_EL1.
pub fn priority_mask() -> u8 {
    read_sysreg!("S3_0_C4_C6_0") as u8
}

/// Returns the priority of what is being handled (ICC_RPR_EL1).
pub fn running_priority() -> u8 {
    cpu::synchronize();
    read_sysreg!("S3_0_C12_C11_3") as u8
}

/// Returns the ICC_SGI1R_EL1 value that sends `sgi` to the CPU with this affinity.
pub fn sgi_value(sgi: u32, affinity: u64) -> u64 {
    let [aff0, aff1, aff2, _, aff3, ..] = affinity.to_le_bytes();
    let range = u64::from(aff0 >> 4);
    let list = 1u64 << (aff0 & 0xf);
    u64::from(aff3) << 48
        | range << 44
        | u64::from(aff2) << 32
        | u64::from(sgi) << 24
        | u64::from(aff1) << 16
        | list
}

/// Returns the ICC_SGI1R_EL1 value that sends `sgi` to all CPUs but this one.
pub fn sgi_to_others(sgi: u32) -> u64 {
    SGI_BROADCAST | u64::from(sgi) << 24
}

/// Returns the ICC_SGI1R_EL1 value that sends `sgi` to the CPUs that `list` names in the cluster.
pub fn sgi_to_list(sgi: u32, cluster: u64, list: u16) -> u64 {
    sgi_value(sgi, cluster) & !0xffff | u64::from(list)
}

/// Sends a group 1 SGI.
pub fn send_sgi(value: u64) {
    cpu::synchronize();
    write_sysreg!("S3_0_C12_C11_5", value);
}

/// ICC_SGI1R_EL1.IRM: to all CPUs but this one.
pub const SGI_BROADCAST: u64 = 1 << 40;
