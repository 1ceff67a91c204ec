// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The meter: a QEMU TCG plugin that counts what a machine executes, whatever runs on it.
//!
//! It counts all instructions of all CPUs and writes the sum to a file when QEMU ends:
//! `-plugin libturnstile_meter.so,out=FILE`, one line `instructions=N`. A block counts whole when it is entered,
//! so one that is left early by an exception counts a few instructions too many. The functions are those of
//! QEMU's plugin interface, version 4 (QEMU's manual, "TCG Plugins"), declared by hand.
//!
//! A callback and an atomic, not QEMU's own per-CPU counters: with several CPUs on one TCG thread QEMU 10.0
//! gives those the wrong CPU, and the machine breaks.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The version of the plugin interface that this is written for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU looks for this name")]
pub static qemu_plugin_version: c_int = 4;

/// A translated block: QEMU's own, only pointed to.
type Block = c_void;

/// `QEMU_PLUGIN_CB_NO_REGS`: the callback reads no registers.
const NO_REGISTERS: c_int = 0;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, callback: extern "C" fn(u64, *mut Block));
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        callback: extern "C" fn(u32, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_atexit_cb(id: u64, callback: extern "C" fn(u64, *mut c_void), data: *mut c_void);
}

static INSTRUCTIONS: AtomicU64 = AtomicU64::new(0);
/// The file that the sum is written to.
static OUT: OnceLock<String> = OnceLock::new();

extern "C" fn translated(_id: u64, block: *mut Block) {
    // SAFETY: `block` is the block being translated. The pointer passed on is a number, never followed.
    unsafe {
        let count = qemu_plugin_tb_n_insns(block);
        qemu_plugin_register_vcpu_tb_exec_cb(block, executed, NO_REGISTERS, count as *mut c_void);
    }
}

extern "C" fn executed(_cpu: u32, count: *mut c_void) {
    INSTRUCTIONS.fetch_add(count as u64, Ordering::Relaxed);
}

extern "C" fn finished(_id: u64, _data: *mut c_void) {
    let Some(out) = OUT.get() else { return };
    if let Err(error) =
        std::fs::write(out, format!("instructions={}\n", INSTRUCTIONS.load(Ordering::Relaxed)))
    {
        eprintln!("turnstile-meter: {out}: {error}");
    }
}

/// Called by QEMU when it loads the plugin. Returns 0, or -1 if the arguments are wrong.
///
/// # Safety
/// `argv` must hold `argc` C strings, as QEMU's plugin interface says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    _info: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    let mut out = None;
    for index in 0..usize::try_from(argc).unwrap_or(0) {
        // SAFETY: by the contract.
        let argument = unsafe { CStr::from_ptr(*argv.add(index)) }.to_string_lossy();
        match argument.split_once('=') {
            Some(("out", path)) => out = Some(path.to_owned()),
            _ => {
                eprintln!("turnstile-meter: \"{argument}\" means nothing; expected out=FILE");
                return -1;
            }
        }
    }
    let Some(out) = out else {
        eprintln!("turnstile-meter: out=FILE is missing");
        return -1;
    };
    if OUT.set(out).is_err() {
        return -1;
    }
    // SAFETY: called while QEMU installs the plugin, when these are allowed.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        qemu_plugin_register_atexit_cb(id, finished, core::ptr::null_mut());
    }
    0
}
