// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU: its instructions (barriers, cache and TLB maintenance), registers and modes, and what each one has for itself.

pub mod area;
pub(crate) mod class;
pub mod guard;
pub mod mode;
pub mod regs;

pub use turnstile_arch_common::relax;

pub use area::{PerCpu, this};

macro_rules! instruction {
    ($(#[$doc:meta])* $name:ident, $asm:literal) => {
        $(#[$doc])*
        #[inline(always)] // One instruction.
        pub fn $name() {
            #[cfg(target_os = "none")]
            // SAFETY: a barrier or a wait; memory is not changed, and the compiler may not move accesses
            // across it because the asm is not `nomem`.
            unsafe {
                core::arch::asm!($asm, options(nostack, preserves_flags));
            }
            #[cfg(not(target_os = "none"))]
            regs::fakes::execute($asm);
        }
    };
}

instruction!(
    /// Instruction synchronization barrier.
    isb,
    "isb"
);
instruction!(
    /// Data synchronization barrier, stores, inner shareable.
    dsb_ishst,
    "dsb ishst"
);
instruction!(
    /// Data memory barrier, stores, inner shareable.
    dmb_ishst,
    "dmb ishst"
);
instruction!(
    /// Data memory barrier, loads before loads and stores, inner shareable.
    dmb_ishld,
    "dmb ishld"
);
instruction!(
    /// Data synchronization barrier, inner shareable.
    dsb_ish,
    "dsb ish"
);
instruction!(
    /// Data synchronization barrier, full system.
    dsb_sy,
    "dsb sy"
);
instruction!(
    /// Waits until an interrupt is pending, masked or not.
    wfi,
    "wfi"
);
instruction!(
    /// Signals an event to all CPUs.
    sev,
    "sev"
);
instruction!(
    /// Invalidates all EL2 translations of all CPUs.
    tlbi_alle2is,
    "tlbi alle2is"
);
instruction!(
    /// Invalidates all stage 1 and 2 translations of EL1&0, of all VMIDs, on all CPUs.
    tlbi_alle1is,
    "tlbi alle1is"
);
instruction!(
    /// Invalidates stage 1 and 2 translations of the current VMID on all CPUs.
    tlbi_vmalls12e1is,
    "tlbi vmalls12e1is"
);
instruction!(
    /// Invalidates stage 1 translations of the current VMID on this CPU.
    tlbi_vmalle1,
    "tlbi vmalle1"
);
instruction!(
    /// Data synchronization barrier, this CPU.
    dsb_nsh,
    "dsb nsh"
);
instruction!(
    /// Invalidates all instruction caches, inner shareable.
    ic_ialluis,
    "ic ialluis"
);

/// Invalidates the EL2 translation of the page at an address on all CPUs (TLBI VAE2IS; with VHE of the EL2&0 regime, ASID 0).
pub fn tlbi_vae2is(address: u64) {
    #[cfg(target_os = "none")]
    // SAFETY: forgets a translation, which is walked again; memory is not changed.
    unsafe {
        core::arch::asm!("tlbi vae2is, {}", in(reg) address >> 12 & ((1 << 44) - 1), options(nostack, preserves_flags));
    }
    #[cfg(not(target_os = "none"))]
    let _ = address;
}

macro_rules! translation {
    ($(#[$doc:meta])* $name:ident, $asm:literal) => {
        $(#[$doc])*
        #[inline(always)] // One instruction.
        pub fn $name(address: u64) {
            #[cfg(target_os = "none")]
            // SAFETY: translates; changes PAR_EL1 alone.
            unsafe {
                core::arch::asm!($asm, in(reg) address, options(nostack, preserves_flags));
            }
            #[cfg(not(target_os = "none"))]
            let _ = address;
        }
    };
}

translation!(
    /// Translates an address as a read of the guest at EL1 does in stage 1, into PAR_EL1.
    at_s1e1r,
    "at s1e1r, {}"
);
translation!(
    /// The same as a read at EL0.
    at_s1e0r,
    "at s1e0r, {}"
);

/// Returns an offset that a guest chose and that was found to be below `size`; zero where that comparison is only
/// predicted to have come out so (Arm ARM C6.2.75, CSDB). For offsets that lead to an address which is loaded from
/// memory in turn.
#[inline(always)] // Three instructions.
pub fn within(offset: u64, size: u64) -> u64 {
    #[cfg(target_os = "none")]
    {
        let limited;
        // SAFETY: changes a register and the flags.
        unsafe {
            core::arch::asm!(
                "cmp {offset}, {size}",
                "csel {limited}, {offset}, xzr, lo",
                "hint #20", // CSDB
                offset = in(reg) offset, size = in(reg) size, limited = lateout(reg) limited,
                options(nomem, nostack)
            );
        }
        limited
    }
    #[cfg(not(target_os = "none"))]
    if offset < size { offset } else { 0 }
}

/// Returns the same reference, as an address that the compiler knows nothing of. It keeps that in a register then, and fields are
/// near enough to be loaded in pairs (LDP reaches 504 bytes), instead of each by its offset in what is around the value.
#[inline(always)] // No instruction but for the address.
pub fn near<T>(value: &T) -> &T {
    #[cfg(target_os = "none")]
    {
        let mut address: *const T = value;
        #[allow(clippy::pointers_in_nomem_asm_block, reason = "nothing is read or written there")]
        // SAFETY: does nothing.
        unsafe {
            core::arch::asm!("/* {} */", inout(reg) address, options(pure, nomem, nostack, preserves_flags));
        }
        // SAFETY: still the same address.
        unsafe { &*address }
    }
    #[cfg(not(target_os = "none"))]
    value
}

/// Returns 64 random bits of the CPU's own generator, FEAT_RNG's (Arm ARM, RNDR); `None` if it has none now, or is not there.
pub fn random() -> Option<u64> {
    /// How often the generator is asked: it may need time for new ones.
    const PATIENCE: u32 = 10;
    if regs::ID_AA64ISAR0_EL1.read() >> 60 == 0 {
        return None;
    }
    let draw = || {
        let (bits, good): (u64, u64);
        #[cfg(target_os = "none")]
        // SAFETY: changes two registers and the flags. The register is there. Z says that it has none.
        unsafe {
            core::arch::asm!(
                "mrs {bits}, s3_3_c2_c4_0", // RNDR
                "cset {good}, ne",
                bits = out(reg) bits, good = out(reg) good,
                options(nomem, nostack)
            );
        }
        #[cfg(not(target_os = "none"))]
        {
            bits = regs::fakes::read("RNDR");
            good = bits;
        }
        (good != 0).then_some(bits)
    };
    (0..PATIENCE).find_map(|_| draw())
}

/// Stops this CPU for good.
pub fn halt() -> ! {
    loop {
        #[cfg(target_os = "none")]
        // SAFETY: waits for an event; changes nothing.
        unsafe {
            core::arch::asm!("wfe", options(nomem, nostack, preserves_flags));
        }
        #[cfg(not(target_os = "none"))]
        std::thread::park();
    }
}

/// Cleans and invalidates the data cache for `[start, start + size)` to the point of coherency, so that an
/// observer with its caches off (a guest before it enables them, a secondary CPU) sees the bytes.
pub fn clean_to_poc(start: u64, size: u64) {
    #[cfg(target_os = "none")]
    {
        let line = 4u64 << (regs::CTR_EL0.read() >> 16 & 0xf);
        let mut address = start & !(line - 1);
        // SAFETY: cache maintenance by address does not change what memory holds; the range is mapped. Eight
        // lines a turn, because whole VMs are cleaned this way.
        unsafe {
            while address + 8 * line <= start + size {
                core::arch::asm!(
                    ".rept 8", "dc civac, {0}", "add {0}, {0}, {1}", ".endr",
                    inout(reg) address, in(reg) line, options(nostack)
                );
            }
            while address < start + size {
                core::arch::asm!("dc civac, {}", in(reg) address, options(nostack, preserves_flags));
                address += line;
            }
        }
    }
    #[cfg(not(target_os = "none"))]
    let _ = (start, size, regs::CTR_EL0);
    dsb_sy();
}

#[cfg(test)]
mod tests {
    use super::regs::fakes;
    use super::*;

    #[test]
    fn random_numbers_are_those_of_a_cpu_that_has_a_generator() {
        fakes::set("RNDR", 5);
        for (features, wanted) in [(0, None), (0x1234_0000, None), (1 << 60, Some(5))] {
            fakes::set("ID_AA64ISAR0_EL1", features);
            assert_eq!(random(), wanted, "{features:x}");
        }
        fakes::set("RNDR", 0);
        assert_eq!(random(), None, "it has none now");
    }
}
