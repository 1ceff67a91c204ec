// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupt controller, GICv3 (IHI 0069) or GICv2 (IHI 0048), whichever the device tree describes. Both
//! have the same registers for the states of interrupts (`registers`); what differs is in [`v2`] and [`v3`].

mod registers;
pub mod v2;
pub mod v3;

use crate::cpu;
use crate::mmio::{read8, read32, write8, write32};
use crate::platform::platform;
pub use registers::{PRIORITY, distributor, interrupts, offset};
pub use v3::{SGI_BROADCAST, redistributor, redistributor_of};

/// Which architecture the interrupt controller follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// A CPU interface in memory, at most eight CPUs.
    Gicv2,
    /// Redistributors, and a CPU interface in system registers.
    Gicv3,
}

/// Returns the version that the device tree describes.
pub fn version() -> Version {
    if platform().gicc.is_some() { Version::Gicv2 } else { Version::Gicv3 }
}

/// Calls the function of that name for the version.
macro_rules! by_version {
    ($function:ident($($argument:expr),*)) => {
        match version() {
            Version::Gicv2 => v2::$function($($argument),*),
            Version::Gicv3 => v3::$function($($argument),*),
        }
    };
}

/// INTIDs from here on mean that there is no interrupt to handle.
pub const SPECIAL: u32 = 1020;
/// Returns the address of the registers that hold `intid`: with GICv3, SGI_base for the private ones.
fn bank(intid: u32) -> u64 {
    if intid < 32 && version() == Version::Gicv3 { redistributor() + offset::SGI_BASE } else { distributor() }
}

/// Sets up the distributor, with all shared interrupts disabled and routed to this CPU, in the group that
/// [`acknowledge`] takes: Group 1 with GICv3, Group 0 with GICv2.
pub fn init() {
    by_version!(init());
}

/// Sets up this CPU's registers and its CPU interface; its private interrupts are disabled.
pub fn init_cpu() {
    by_version!(init_cpu());
}

/// Lets all interrupts be forwarded, or none, at the distributor.
pub fn set_distributor_enabled(on: bool) {
    by_version!(set_distributor_enabled(on));
}

/// Lets this CPU's interface signal the interrupts that [`acknowledge`] takes, or not.
pub fn set_interface_enabled(on: bool) {
    by_version!(set_interface_enabled(on));
}

fn set_bit(register: u64, intid: u32) {
    write32(bank(intid) + register + u64::from(intid / 32) * 4, 1 << (intid % 32));
}

fn bit(register: u64, intid: u32) -> bool {
    read32(bank(intid) + register + u64::from(intid / 32) * 4) >> (intid % 32) & 1 != 0
}

/// Enables an interrupt.
pub fn enable(intid: u32) {
    set_bit(offset::ISENABLER, intid);
}

/// Disables an interrupt.
pub fn disable(intid: u32) {
    set_bit(offset::ICENABLER, intid);
    if intid >= 32 && version() == Version::Gicv3 {
        v3::wait_for_writes();
    }
}

/// Returns whether an interrupt is enabled.
pub fn is_enabled(intid: u32) -> bool {
    bit(offset::ISENABLER, intid)
}

/// Makes an interrupt pending.
pub fn set_pending(intid: u32) {
    if intid < 16 && version() == Version::Gicv2 {
        return v2::set_senders(intid, v2::mask_of(cpu::affinity()));
    }
    set_bit(offset::ISPENDR, intid);
}

/// Takes an interrupt's pending state away.
pub fn clear_pending(intid: u32) {
    if intid < 16 && version() == Version::Gicv2 {
        return v2::clear_senders(intid, 0xff);
    }
    set_bit(offset::ICPENDR, intid);
}

/// Returns whether an interrupt is pending.
pub fn is_pending(intid: u32) -> bool {
    bit(offset::ISPENDR, intid)
}

/// Makes an interrupt active.
pub fn set_active(intid: u32) {
    set_bit(offset::ISACTIVER, intid);
}

/// Takes an interrupt's active state away.
pub fn clear_active(intid: u32) {
    set_bit(offset::ICACTIVER, intid);
}

/// Returns whether an interrupt is active.
pub fn is_active(intid: u32) -> bool {
    bit(offset::ISACTIVER, intid)
}

/// Sets an interrupt's priority.
pub fn set_priority(intid: u32, priority: u8) {
    write8(bank(intid) + offset::IPRIORITYR + u64::from(intid), priority);
}

/// Returns an interrupt's priority.
pub fn priority(intid: u32) -> u8 {
    read8(bank(intid) + offset::IPRIORITYR + u64::from(intid))
}

/// Puts an interrupt into group 1 or group 0.
pub fn set_group1(intid: u32, group1: bool) {
    let address = bank(intid) + offset::IGROUPR + u64::from(intid / 32) * 4;
    let mask = 1 << (intid % 32);
    let old = read32(address);
    write32(address, if group1 { old | mask } else { old & !mask });
}

/// Makes an interrupt edge-triggered or level-sensitive.
pub fn set_edge(intid: u32, edge: bool) {
    registers::set_edge(bank(intid), intid, edge);
}

/// Routes a shared interrupt to the CPU with this affinity.
pub fn set_route(intid: u32, affinity: u64) {
    by_version!(set_route(intid, affinity));
}

/// Returns the route of a shared interrupt.
pub fn route(intid: u32) -> u64 {
    by_version!(route(intid))
}

/// Acknowledges the highest interrupt: of Group 1 with GICv3, of Group 0 with GICv2.
pub fn acknowledge() -> u32 {
    by_version!(acknowledge())
}

/// Returns the highest pending interrupt without acknowledging it.
pub fn highest_pending() -> u32 {
    by_version!(highest_pending())
}

/// Ends an interrupt.
pub fn end(intid: u32) {
    by_version!(end(intid));
}

/// Acknowledges the highest interrupt that comes as FIQ. GICv2 guests have none here.
pub fn acknowledge_group0() -> u32 {
    v3::acknowledge_group0()
}

/// Ends an interrupt that came as FIQ. A GICv2 has one register for both groups.
pub fn end_group0(intid: u32) {
    match version() {
        Version::Gicv2 => v2::end(intid),
        Version::Gicv3 => v3::end_group0(intid),
    }
}

/// Deactivates an interrupt, which EOImode 1 leaves to the program.
pub fn deactivate(intid: u32) {
    by_version!(deactivate(intid));
}

/// Chooses whether the end of an interrupt only drops its priority (EOImode).
pub fn set_eoi_mode(drop_only: bool) {
    by_version!(set_eoi_mode(drop_only));
}

/// Lets only interrupts of a higher priority (a lower number) than this through.
pub fn set_priority_mask(priority: u8) {
    by_version!(set_priority_mask(priority));
}

/// Chooses which bits of a priority decide about preemption.
pub fn set_binary_point(point: u8) {
    by_version!(set_binary_point(point));
}

/// Returns the priority mask.
pub fn priority_mask() -> u8 {
    by_version!(priority_mask())
}

/// Returns the priority of what is being handled.
pub fn running_priority() -> u8 {
    by_version!(running_priority())
}

/// Returns the value that [`send_sgi`] needs to send `sgi` to the CPU with this affinity.
pub fn sgi_value(sgi: u32, affinity: u64) -> u64 {
    by_version!(sgi_value(sgi, affinity))
}

/// Returns the value that [`send_sgi`] needs to send `sgi` to all CPUs but this one.
pub fn sgi_to_others(sgi: u32) -> u64 {
    by_version!(sgi_to_others(sgi))
}

/// Returns the value that [`send_sgi`] needs to send `sgi` to several CPUs: those whose affinity is that of
/// `cluster` with the number of a bit of `list` for its lowest four bits.
pub fn sgi_to_list(sgi: u32, cluster: u64, list: u16) -> u64 {
    by_version!(sgi_to_list(sgi, cluster, list))
}

/// Sends an SGI: a write of ICC_SGI1R_EL1, or of GICD_SGIR.
pub fn send_sgi(value: u64) {
    by_version!(send_sgi(value));
}
