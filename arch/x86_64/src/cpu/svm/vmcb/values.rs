// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the fields of a control block hold. Numbers without a name are sections of the APM, vol. 2.

/// The parts of a control block with a clean bit each (15.15.3).
pub mod part {
    /// Intercepts, TSC offset, pause filter.
    pub const INTERCEPTS: u32 = 1 << 0;
    /// Addresses of the permission maps.
    pub const PERMISSION_MAPS: u32 = 1 << 1;
    /// ASID.
    pub const ASID: u32 = 1 << 2;
    /// Virtual interrupts: the offsets 60h to 67h.
    pub const INTERRUPTS: u32 = 1 << 3;
    /// Nested paging: its root, and the guest's PAT.
    pub const NESTED_PAGING: u32 = 1 << 4;
    /// CR0, CR3, CR4, EFER.
    pub const CONTROL_REGISTERS: u32 = 1 << 5;
    /// DR6 and DR7.
    pub const DEBUG_REGISTERS: u32 = 1 << 6;
    /// GDT and IDT.
    pub const TABLES: u32 = 1 << 7;
    /// CS, DS, SS, ES and the CPL.
    pub const SEGMENTS: u32 = 1 << 8;
    /// CR2.
    pub const CR2: u32 = 1 << 9;
    /// What the run loop sets: these, and the last branch records (bit 10), which nobody changes.
    pub const ALL: u32 = 0x7ff;
}

/// A segment register (table B-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Segment {
    /// Selector.
    pub selector: u16,
    /// Bits 55:52 and 47:40 of the descriptor, in this order.
    pub attributes: u16,
    /// Limit in bytes, expanded by the granularity.
    pub limit: u32,
    /// Base.
    pub base: u64,
}

/// Attributes of a segment (15.5.1).
pub mod attribute {
    /// Executable: a code segment.
    pub const CODE: u16 = 1 << 3;
    /// Expands down, of a data segment.
    pub const EXPAND_DOWN: u16 = 1 << 2;
    /// Writable, of a data segment; readable, of a code segment.
    pub const WRITABLE: u16 = 1 << 1;
    /// Present.
    pub const PRESENT: u16 = 1 << 7;
    /// 64-bit code.
    pub const LONG: u16 = 1 << 9;
    /// 32-bit operands and addresses, or a 32-bit stack.
    pub const BIG: u16 = 1 << 10;
    /// Read, write, accessed data of 4 GiB: what boot protocols ask for.
    pub const FLAT_DATA: u16 = 0xc93;
    /// Execute, read, accessed 32-bit code of 4 GiB.
    pub const FLAT_CODE: u16 = 0xc9b;
    /// Execute, read, accessed 64-bit code.
    pub const LONG_CODE: u16 = 0xa9b;
    /// What a segment has in real mode: read, write, accessed data.
    pub const REAL_DATA: u16 = 0x93;
    /// What CS has in real mode.
    pub const REAL_CODE: u16 = 0x9b;
    /// An LDT.
    pub const LDT: u16 = 0x82;
    /// A busy 32-bit or 64-bit TSS.
    pub const BUSY_TSS: u16 = 0x8b;
}

/// EVENTINJ and EXITINTINFO (15.20).
pub mod event {
    /// There is an event.
    pub const VALID: u64 = 1 << 31;
    /// It has an error code, in the high half.
    pub const ERROR_CODE: u64 = 1 << 11;
    /// An external interrupt.
    pub const INTERRUPT: u64 = 0;
    /// An NMI; the vector is 2.
    pub const NMI: u64 = 2 << 8;
    /// An exception.
    pub const EXCEPTION: u64 = 3 << 8;
    /// INT n.
    pub const SOFTWARE: u64 = 4 << 8;
    /// The bits that say which of them it is.
    pub const TYPE: u64 = 7 << 8;
}

/// VMRUN keeps the translations in the TLB (15.16.1).
pub const FLUSH_NOTHING: u8 = 0;
/// VMRUN forgets all translations, of all ASIDs.
pub const FLUSH_EVERYTHING: u8 = 1;
/// VMRUN forgets the translations of this ASID ([`crate::cpu::svm::Features::FLUSH_BY_ASID`]).
pub const FLUSH_ASID: u8 = 3;

/// Bits of the virtual interrupt word, offset 60h.
pub mod interrupt {
    /// The guest's task priority, as CR8 has it.
    pub const TPR: u32 = 0xff;
    /// An interrupt is pending for the guest.
    pub const PENDING: u32 = 1 << 8;
    /// Where its priority is.
    pub const PRIORITY_SHIFT: u32 = 16;
    /// Its priority.
    pub const PRIORITY: u32 = 0xf << PRIORITY_SHIFT;
    /// It is taken whatever the task priority is.
    pub const IGNORE_TPR: u32 = 1 << 20;
    /// The guest's RFLAGS.IF masks its own interrupts only, and CR8 is its own task priority.
    pub const MASKING: u32 = 1 << 24;
}
