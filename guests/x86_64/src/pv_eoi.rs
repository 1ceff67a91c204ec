// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paravirtual EOI, the guest's side (seed 003).
//!
//! Each CPU gives the hypervisor a word of its memory. The hypervisor sets its lowest bit when the interrupt that it
//! delivers needs no EOI: nothing else waits that an EOI would let in. A CPU that ends an interrupt tests and clears
//! the bit, and writes the APIC's EOI register only if it was not set. Test and clear are one instruction, so that no
//! interrupt of higher priority comes between: that is how the hypervisor sees which of nested interrupts the bit was
//! for. The instruction is not locked: the hypervisor writes the word only while this CPU is not in the guest.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::platform::MAX_CPUS;
use crate::{apic, cpu, kvm, options};

const ENABLED: u64 = 1;

static ON: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];
/// EOIs that were spared, on all CPUs.
static SPARED: AtomicU64 = AtomicU64::new(0);

/// Says whether the hypervisor offers it.
pub fn is_offered() -> bool {
    kvm::has(kvm::feature::EOI)
}

/// Says whether it is offered and the option `pv-eoi=off` is not given.
pub fn is_wanted() -> bool {
    is_offered() && options::get("pv-eoi") != Some("off")
}

/// Switches it on for this CPU.
pub fn enable() {
    let cpu = cpu::this();
    cpu.eoi.0.store(0, Relaxed);
    cpu::write_msr(kvm::msr::PV_EOI, cpu.eoi.0.as_ptr() as u64 | ENABLED);
    ON[cpu.index()].store(true, Relaxed);
}

/// Switches it off for this CPU: before it goes offline, and before the machine is reset, because the hypervisor would
/// go on writing into memory that is somebody else's by then.
pub fn disable() {
    if !ON[cpu::this().index()].swap(false, Relaxed) {
        return;
    }
    cpu::write_msr(kvm::msr::PV_EOI, 0);
    cpu::this().eoi.0.store(0, Relaxed);
}

/// Says whether it is on for this CPU.
pub fn is_on() -> bool {
    ON[cpu::this().index()].load(Relaxed)
}

/// Returns how many EOIs were spared.
pub fn spared() -> u64 {
    SPARED.load(Relaxed)
}

/// Says whether the bit is set.
pub fn is_set() -> bool {
    cpu::this().eoi.0.load(Relaxed) & ENABLED != 0
}

/// Tests and clears the bit.
pub fn test_and_clear() -> bool {
    let set: u8;
    // SAFETY: the word is an atomic of this CPU's data.
    unsafe {
        asm!("btr dword ptr [{word}], 0", "setc {set}", word = in(reg) cpu::this().eoi.0.as_ptr(),
            set = out(reg_byte) set, options(nostack));
    }
    set != 0
}

/// Ends the interrupt that is in service.
pub fn end() {
    // The word is zero where nobody has been told its address, so there is nothing else to ask.
    if test_and_clear() {
        SPARED.fetch_add(1, Relaxed);
    } else {
        apic::end();
    }
}
