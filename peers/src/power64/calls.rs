// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of PAPR's hypercalls that come to this program, and what they return (LoPAPR 1.1, 14.5).

/// What a hypercall returns in R3.
pub type Answer = i64;

/// `H_SUCCESS`.
pub const SUCCESS: Answer = 0;
/// `H_FUNCTION`: there is no such call.
pub const FUNCTION: Answer = -2;
/// `H_PARAMETER`.
pub const PARAMETER: Answer = -4;

/// `H_GET_TERM_CHAR`.
pub const GET_TERM_CHAR: u64 = 0x54;
/// `H_PUT_TERM_CHAR`.
pub const PUT_TERM_CHAR: u64 = 0x58;
/// `H_SET_MODE`.
pub const SET_MODE: u64 = 0x31c;
/// `H_REGISTER_PROC_TBL`.
pub const REGISTER_PROC_TBL: u64 = 0x37c;
/// `H_INT_GET_SOURCE_INFO`.
pub const INT_GET_SOURCE_INFO: u64 = 0x3a8;
/// `H_INT_SET_SOURCE_CONFIG`.
pub const INT_SET_SOURCE_CONFIG: u64 = 0x3ac;
/// `H_INT_GET_SOURCE_CONFIG`.
pub const INT_GET_SOURCE_CONFIG: u64 = 0x3b0;
/// `H_INT_GET_QUEUE_INFO`.
pub const INT_GET_QUEUE_INFO: u64 = 0x3b4;
/// `H_INT_SET_QUEUE_CONFIG`.
pub const INT_SET_QUEUE_CONFIG: u64 = 0x3b8;
/// `H_INT_SET_OS_REPORTING_LINE`.
pub const INT_SET_OS_REPORTING_LINE: u64 = 0x3c0;
/// `H_INT_SYNC`.
pub const INT_SYNC: u64 = 0x3cc;
/// `H_INT_RESET`.
pub const INT_RESET: u64 = 0x3d0;
/// `H_RANDOM`.
pub const RANDOM: u64 = 0x300;
/// The call of this machine's firmware (`pseries::RTAS_CALL`).
pub const RTAS: u64 = turnstile_machine::pseries::RTAS_CALL as u64;
