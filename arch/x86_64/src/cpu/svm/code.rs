// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exit codes (APM vol. 2, appendix C).

pub const WRITE_CR8: u32 = 0x18;
pub const DEBUG: u32 = 0x41;
/// #TS, the first of the faults that leave while an IRET is stepped over.
pub const INVALID_TSS: u32 = 0x4a;
/// The last of them.
pub const PAGE_FAULT: u32 = 0x4e;
pub const ALIGNMENT: u32 = 0x51;
pub const MACHINE_CHECK: u32 = 0x52;
pub const INTR: u32 = 0x60;
pub const NMI: u32 = 0x61;
pub const INIT: u32 = 0x63;
pub const RDPMC: u32 = 0x6f;
pub const CPUID: u32 = 0x72;
pub const IRET: u32 = 0x74;
pub const INVD: u32 = 0x76;
pub const PAUSE: u32 = 0x77;
pub const HLT: u32 = 0x78;
pub const IOIO: u32 = 0x7b;
pub const MSR: u32 = 0x7c;
pub const SHUTDOWN: u32 = 0x7f;
pub const VMMCALL: u32 = 0x81;
pub const WBINVD: u32 = 0x89;
pub const XSETBV: u32 = 0x8d;
pub const NESTED_PAGE_FAULT: u32 = 0x400;
/// The low half of −1: VMRUN refused the control block.
pub const INVALID: u32 = u32::MAX;
