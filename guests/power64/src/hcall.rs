// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hypervisor calls: `sc 1` with the number in r3 (LoPAR, chapter 14).

use core::arch::asm;

/// H_SUCCESS.
pub const SUCCESS: i64 = 0;
/// H_FUNCTION: no such call.
pub const FUNCTION: i64 = -2;
/// H_PARAMETER.
pub const PARAMETER: i64 = -4;
/// H_P2: the second argument is wrong.
pub const P2: i64 = -55;
/// H_P3.
pub const P3: i64 = -56;

/// H_GET_TERM_CHAR.
pub const GET_TERM_CHAR: u64 = 0x54;
/// H_PUT_TERM_CHAR.
pub const PUT_TERM_CHAR: u64 = 0x58;
/// H_EOI.
pub const EOI: u64 = 0x64;
/// H_CPPR.
pub const CPPR: u64 = 0x68;
/// H_IPI.
pub const IPI: u64 = 0x6c;
/// H_IPOLL.
pub const IPOLL: u64 = 0x70;
/// H_XIRR.
pub const XIRR: u64 = 0x74;
/// H_REGISTER_VPA.
pub const REGISTER_VPA: u64 = 0xdc;
/// H_SET_SPRG0.
pub const SET_SPRG0: u64 = 0x24;
/// H_PAGE_INIT.
pub const PAGE_INIT: u64 = 0x2c;
/// H_CEDE.
pub const CEDE: u64 = 0xe0;
/// H_CONFER.
pub const CONFER: u64 = 0xe4;
/// H_PROD.
pub const PROD: u64 = 0xe8;
/// H_RANDOM.
pub const RANDOM: u64 = 0x300;
/// H_GET_CPU_CHARACTERISTICS.
pub const CPU_CHARACTERISTICS: u64 = 0x1c8;
/// H_SET_MODE.
pub const SET_MODE: u64 = 0x31c;
/// H_REGISTER_PROC_TBL.
pub const REGISTER_PROC_TBL: u64 = 0x37c;
/// H_SIGNAL_SYS_RESET.
pub const SIGNAL_SYS_RESET: u64 = 0x380;
/// H_INT_GET_SOURCE_INFO.
pub const INT_GET_SOURCE_INFO: u64 = 0x3a8;
/// H_INT_SET_SOURCE_CONFIG.
pub const INT_SET_SOURCE_CONFIG: u64 = 0x3ac;
/// H_INT_GET_SOURCE_CONFIG.
pub const INT_GET_SOURCE_CONFIG: u64 = 0x3b0;
/// H_INT_GET_QUEUE_INFO.
pub const INT_GET_QUEUE_INFO: u64 = 0x3b4;
/// H_INT_SET_QUEUE_CONFIG.
pub const INT_SET_QUEUE_CONFIG: u64 = 0x3b8;
/// H_INT_GET_QUEUE_CONFIG.
pub const INT_GET_QUEUE_CONFIG: u64 = 0x3bc;
/// H_INT_ESB.
pub const INT_ESB: u64 = 0x3c8;
/// H_INT_SYNC.
pub const INT_SYNC: u64 = 0x3cc;
/// H_INT_RESET.
pub const INT_RESET: u64 = 0x3d0;
/// H_RPT_INVALIDATE.
pub const RPT_INVALIDATE: u64 = 0x448;
/// RTAS, where its code is not in memory: QEMU's number, which KVM's monitors have, too.
pub const RTAS: u64 = 0xf000;
/// Negotiation of the architecture, of QEMU's firmware.
pub const CAS: u64 = 0xf002;
/// A number that no call has.
pub const NOTHING: u64 = 0x1000;

/// Arguments of H_SET_MODE.
pub mod set_mode {
    /// The resource: byte order of interrupts.
    pub const BYTE_ORDER: u64 = 4;
    /// Its value for little-endian.
    pub const LITTLE_ENDIAN: u64 = 1;
    /// The resource: completed instruction address breakpoint.
    pub const CIABR: u64 = 1;
    /// The resource: first data address watchpoint.
    pub const DAWR: u64 = 2;
    /// The resource: where interrupts are taken with translation.
    pub const TRANSLATION: u64 = 3;
}

/// Calls with four arguments; returns r3 and r4 to r7.
pub fn call4(number: u64, arguments: [u64; 4]) -> (i64, [u64; 4]) {
    let [a, b, c, d] = arguments;
    let (status, mut r): (i64, [u64; 4]);
    r = [0; 4];
    // SAFETY: a call changes the volatile registers, and memory that its arguments name.
    unsafe {
        asm!("sc 1", inlateout("r3") number => status, inlateout("r4") a => r[0], inlateout("r5") b => r[1],
            inlateout("r6") c => r[2], inlateout("r7") d => r[3], lateout("r0") _, lateout("r8") _, lateout("r9") _,
            lateout("r10") _, lateout("r11") _, lateout("r12") _, lateout("ctr") _, lateout("xer") _, lateout("cr0") _,
            lateout("cr1") _, lateout("cr5") _, lateout("cr6") _, lateout("cr7") _, options(nostack));
    }
    (status, r)
}

/// Calls with four arguments; returns the status.
pub fn call(number: u64, arguments: [u64; 4]) -> i64 {
    call4(number, arguments).0
}

/// Calls with up to nine arguments; returns the status and r4 to r12.
pub fn call9(number: u64, arguments: [u64; 9]) -> (i64, [u64; 9]) {
    let mut r = arguments;
    let status;
    // SAFETY: as above.
    unsafe {
        asm!("sc 1", inlateout("r3") number => status, inlateout("r4") r[0], inlateout("r5") r[1], inlateout("r6") r[2],
            inlateout("r7") r[3], inlateout("r8") r[4], inlateout("r9") r[5], inlateout("r10") r[6],
            inlateout("r11") r[7], inlateout("r12") r[8], lateout("r0") _, lateout("ctr") _, lateout("xer") _,
            lateout("cr0") _, lateout("cr1") _, lateout("cr5") _, lateout("cr6") _, lateout("cr7") _, options(nostack));
    }
    (status, r)
}
