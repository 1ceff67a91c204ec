// SPDX-License-Identifier: Apache-2.0 OR MIT
//! QEMU's plugin interface, version 4 (QEMU's manual, "TCG Plugins"), declared by hand, and the machine's registers
//! as it offers them.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::machine::{Machine, Register};

/// A translated block, an instruction of it, an address: QEMU's own, only pointed to.
pub type Block = c_void;
/// An instruction of a block.
pub type Insn = c_void;

/// `QEMU_PLUGIN_CB_NO_REGS`: the callback reads no registers.
pub const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_CB_R_REGS`: the callback reads registers.
pub const READ_REGISTERS: c_int = 1;
/// `QEMU_PLUGIN_MEM_RW`: reads and writes.
pub const READS_AND_WRITES: c_int = 3;

/// `qemu_info_t`: what is emulated.
#[repr(C)]
pub struct Info {
    /// QEMU's name of the architecture.
    pub target_name: *const c_char,
    /// The oldest version of the interface that this QEMU accepts, and its own.
    pub version: [c_int; 2],
    /// Whether a whole machine is emulated.
    pub system_emulation: bool,
    /// CPUs at the start.
    pub smp_vcpus: c_int,
    /// CPUs at most.
    pub max_vcpus: c_int,
}

/// `qemu_plugin_reg_descriptor`
#[repr(C)]
struct Descriptor {
    handle: *mut c_void,
    name: *const c_char,
    feature: *const c_char,
}

/// GLib's `GArray`, its public part.
#[repr(C)]
struct Array {
    data: *mut Descriptor,
    len: c_uint,
}

/// GLib's `GByteArray`.
#[repr(C)]
struct Bytes {
    data: *mut u8,
    len: c_uint,
}

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_init_cb(id: u64, callback: extern "C" fn(u64, c_uint));
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, callback: extern "C" fn(u64, *mut Block));
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        callback: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        callback: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        callback: extern "C" fn(c_uint, u32, u64, *mut c_void),
        flags: c_int,
        access: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_atexit_cb(
        id: u64,
        callback: extern "C" fn(u64, *mut c_void),
        data: *mut c_void,
    );
    pub fn qemu_plugin_reset(id: u64, callback: extern "C" fn(u64));
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Insn;
    pub fn qemu_plugin_insn_data(insn: *const Insn, to: *mut c_void, length: usize) -> usize;
    pub fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    pub fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    pub fn qemu_plugin_insn_haddr(insn: *const Insn) -> *const c_void;
    fn qemu_plugin_insn_disas(insn: *const Insn) -> *mut c_char;
    pub fn qemu_plugin_mem_is_store(info: u32) -> bool;
    pub fn qemu_plugin_mem_size_shift(info: u32) -> c_uint;
    pub fn qemu_plugin_get_hwaddr(info: u32, address: u64) -> *mut c_void;
    pub fn qemu_plugin_hwaddr_phys_addr(address: *const c_void) -> u64;
    pub fn qemu_plugin_hwaddr_is_io(address: *const c_void) -> bool;
    pub fn qemu_plugin_hwaddr_device_name(address: *const c_void) -> *const c_char;
    fn qemu_plugin_get_registers() -> *mut Array;
    fn qemu_plugin_read_register(handle: *mut c_void, to: *mut Bytes) -> c_int;
    fn qemu_plugin_read_memory_vaddr(address: u64, to: *mut Bytes, length: usize) -> bool;
    // GLib, which QEMU is linked with.
    fn g_byte_array_new() -> *mut Bytes;
    fn g_byte_array_set_size(array: *mut Bytes, length: c_uint) -> *mut Bytes;
    fn g_byte_array_unref(array: *mut Bytes);
    fn g_array_unref(array: *mut Array);
    fn g_free(memory: *mut c_void);
    // The C library.
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The text of an instruction; `None` if this QEMU cannot disassemble.
///
/// # Safety
/// `insn` must belong to the block that is being translated.
pub unsafe fn text(insn: *const Insn) -> Option<Box<str>> {
    // SAFETY: by the contract; the text is ours to free.
    unsafe {
        let text = qemu_plugin_insn_disas(insn);
        if text.is_null() {
            return None;
        }
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned().into_boxed_str();
        g_free(text.cast());
        Some(copy)
    }
}

/// QEMU's handles of the registers by their numbers; zero where the machine has no such register.
static HANDLES: OnceLock<[usize; Register::COUNT]> = OnceLock::new();

/// Finds the registers. To be called from a CPU's first callback, where QEMU allows it.
pub fn find_registers() {
    HANDLES.get_or_init(|| {
        let mut handles = [0; Register::COUNT];
        // SAFETY: called in the callback that QEMU prescribes; the array has `len` descriptors whose names are C
        // strings that live as long as QEMU.
        unsafe {
            let array = qemu_plugin_get_registers();
            for index in 0..(*array).len as usize {
                let descriptor = &*(*array).data.add(index);
                let name = CStr::from_ptr(descriptor.name).to_str().unwrap_or_default();
                let wanted = Register::NAMES.iter().find(|&&(_, wanted)| wanted == name);
                if let Some(handle) = wanted.and_then(|&(register, _)| handles.get_mut(register as usize)) {
                    *handle = descriptor.handle as usize;
                }
            }
            g_array_unref(array);
        }
        handles
    });
}

/// The CPU whose callback it is, with a buffer for the values of its registers.
pub struct Registers {
    buffer: *mut Bytes,
    /// Where QEMU keeps the CPU that this thread runs, once it was looked for.
    current: Option<*const usize>,
}

impl Registers {
    /// Makes the buffer.
    pub fn new() -> Self {
        // SAFETY: no preconditions.
        Registers { buffer: unsafe { g_byte_array_new() }, current: None }
    }

    /// The pointer to the CPU that runs on this thread, which QEMU keeps in a variable of the thread. Where QEMU is
    /// linked so that plugins see the variable, reading it is far cheaper than reading a register, and exact from
    /// the first instruction. Null where they do not.
    fn current(&mut self) -> *const usize {
        *self.current.get_or_insert_with(|| {
            // SAFETY: the name is a C string; the symbol is only looked up (null: in all of the program).
            unsafe { dlsym(std::ptr::null_mut(), c"current_cpu".as_ptr()).cast_const().cast() }
        })
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        // SAFETY: the buffer is ours, and nobody has it any more.
        unsafe { g_byte_array_unref(self.buffer) };
    }
}

impl Registers {
    /// Reads a register's bytes, in the order in which QEMU gives them.
    fn bytes(&mut self, register: Register) -> Option<&[u8]> {
        let handle = HANDLES.get().and_then(|handles| handles.get(register as usize)).copied()?;
        if handle == 0 {
            return None;
        }
        // SAFETY: the handle is QEMU's, and this is called from a callback that may read registers. The buffer is
        // ours; QEMU appends to it, and it has at least the `len` bytes it says.
        let bytes = unsafe {
            g_byte_array_set_size(self.buffer, 0);
            if qemu_plugin_read_register(handle as *mut c_void, self.buffer) <= 0 {
                return None;
            }
            std::slice::from_raw_parts((*self.buffer).data, (*self.buffer).len as usize)
        };
        Some(bytes)
    }
}

impl Machine for Registers {
    fn read(&mut self, register: Register) -> Option<u64> {
        // QEMU gives POWER's registers in the byte order of the CPU's mode.
        let big = match register {
            Register::Msr => in_big_endian_mode(self.bytes(register)?),
            Register::Srr0 | Register::Hsrr0 => in_big_endian_mode(self.bytes(Register::Msr)?),
            _ => false,
        };
        Some(value(self.bytes(register)?, big))
    }

    fn memory(&mut self, address: u64) -> Option<u64> {
        // SAFETY: called from a callback on execution; the buffer is ours, and QEMU makes it as long as it reads.
        let bytes = unsafe {
            if !qemu_plugin_read_memory_vaddr(address, self.buffer, size_of::<u64>()) {
                return None;
            }
            std::slice::from_raw_parts((*self.buffer).data, (*self.buffer).len as usize)
        };
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn cpu(&mut self) -> u64 {
        let current = self.current();
        if current.is_null() {
            return self.read(Register::TpidrEl2).unwrap_or(0);
        }
        // SAFETY: `current` points to QEMU's variable, which is a pointer and lives as long as this thread.
        unsafe { *current as u64 }
    }
}

/// Whether these are the bytes of POWER's MSR in big-endian mode. Its lowest bit tells: in little-endian mode it is set,
/// and the byte that is first in big-endian order has a reserved bit there.
fn in_big_endian_mode(msr: &[u8]) -> bool {
    msr.first().is_none_or(|first| first & 1 == 0)
}

/// A register's value as a number.
fn value(bytes: &[u8], big: bool) -> u64 {
    let append = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    if big { bytes.iter().fold(0, append) } else { bytes.iter().rev().fold(0, append) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_mode_tells_the_order_of_bytes() {
        // SF, HV, ME, RI; and LE in the second.
        let (big, little) = ([0x90, 0, 0, 0, 0, 0, 0x10, 0x02], [0x03, 0x10, 0, 0, 0, 0, 0, 0x90]);
        assert!(in_big_endian_mode(&big) && !in_big_endian_mode(&little));
        assert_eq!(value(&big, true), 0x9000_0000_0000_1002);
        assert_eq!(value(&little, false), 0x9000_0000_0000_1003);
    }
}
