// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bits of registers that say how the machine runs.

/// Bits of [`LPCR`](super::LPCR) (Power ISA 3.0B Book III, 2.2).
pub mod lpcr {
    /// Storage interrupts of a partition are the hypervisor's.
    pub const VPM1: u64 = 1 << 62;
    /// Interrupts are taken in little-endian mode.
    pub const ILE: u64 = 1 << 25;
    /// Where interrupts with relocation on are taken.
    pub const AIL: u64 = 3 << 23;
    /// At 18000h.
    pub const AIL_2: u64 = 2 << 23;
    /// At c000000000004000h.
    pub const AIL_3: u64 = 3 << 23;
    /// The guest's processes are in a process table.
    pub const UPRT: u64 = 1 << 22;
    /// The partition is translated by a radix tree.
    pub const HR: u64 = 1 << 20;
    /// The decrementers are large.
    pub const LD: u64 = 1 << 17;
    /// What ends STOP: doorbells of the guest and of the hypervisor, external interrupts, the decrementer, the machine's.
    pub const PECE: u64 = 0x1_f000 | 1 << 46;
    /// The guest may invalidate its own translations.
    pub const GTSE: u64 = 1 << 10;
    /// External interrupts are the guest's.
    pub const LPES0: u64 = 1 << 3;
    /// Hypervisor virtualization interrupts are taken.
    pub const HVICE: u64 = 1 << 1;
    /// Hypervisor decrementer interrupts are taken.
    pub const HDICE: u64 = 1;
}

/// Bits of [`HFSCR`](super::HFSCR) (Power ISA 3.0B Book III, 6.2.11).
pub mod hfscr {
    /// FP.
    pub const FP: u64 = 1;
    /// Vector and VSX.
    pub const VECTOR: u64 = 1 << 1;
    /// DSCR in problem state.
    pub const DSCR: u64 = 1 << 2;
    /// The performance monitor.
    pub const PM: u64 = 1 << 3;
    /// Transactions.
    pub const TM: u64 = 1 << 5;
    /// Event-based branches.
    pub const EBB: u64 = 1 << 7;
    /// TAR.
    pub const TAR: u64 = 1 << 8;
    /// Doorbells to threads of the same core.
    pub const MSGP: u64 = 1 << 10;
    /// SCV.
    pub const SCV: u64 = 1 << 12;
    /// Prefixed instructions.
    pub const PREFIX: u64 = 1 << 13;
    /// The number of the bit that was off.
    pub const CAUSE_SHIFT: u32 = 56;
}

/// The machine state (Power ISA 3.0B Book III, 3.2.1).
pub mod msr {
    /// 64-bit mode.
    pub const SF: u64 = 1 << 63;
    /// Hypervisor state.
    pub const HV: u64 = 1 << 60;
    /// Transactions.
    pub const TM: u64 = 1 << 32;
    /// Vector facility.
    pub const VEC: u64 = 1 << 25;
    /// VSX facility.
    pub const VSX: u64 = 1 << 23;
    /// External interrupts.
    pub const EE: u64 = 1 << 15;
    /// Problem state.
    pub const PR: u64 = 1 << 14;
    /// Floating point.
    pub const FP: u64 = 1 << 13;
    /// Machine checks are interrupts.
    pub const ME: u64 = 1 << 12;
    /// Single-step trace.
    pub const SE: u64 = 1 << 10;
    /// Branch trace.
    pub const BE: u64 = 1 << 9;
    /// Instruction relocation.
    pub const IR: u64 = 1 << 5;
    /// Data relocation.
    pub const DR: u64 = 1 << 4;
    /// Performance monitor mark.
    pub const PMM: u64 = 1 << 2;
    /// Interrupts can be returned from.
    pub const RI: u64 = 1 << 1;
    /// Little-endian byte order.
    pub const LE: u64 = 1;
}
