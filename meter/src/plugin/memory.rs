// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What instructions access outside the guest: devices always, memory if its lines and pages are to be counted.

use std::ffi::{CStr, c_uint, c_void};

use super::with;
use crate::ffi;
use crate::footprint::{Touch, lines};

/// An instruction that may access a device has accessed something; `data` is its address.
pub extern "C" fn accessed(cpu: c_uint, info: u32, address: u64, data: *mut c_void) {
    // SAFETY: called by QEMU in a callback on a memory access, where these are allowed; the device's name is a C
    // string or null.
    let (device, write) = unsafe {
        let physical = ffi::qemu_plugin_get_hwaddr(info, address);
        if physical.is_null() || !ffi::qemu_plugin_hwaddr_is_io(physical) {
            return;
        }
        let name = ffi::qemu_plugin_hwaddr_device_name(physical);
        let name = if name.is_null() { c"device" } else { CStr::from_ptr(name) };
        (name.to_string_lossy(), ffi::qemu_plugin_mem_is_store(info))
    };
    with(cpu, |meter, registers| meter.device(data as u64, &device, write, registers));
}

/// An instruction has accessed something, and a footprint is wanted.
pub extern "C" fn touched(cpu: c_uint, info: u32, address: u64, _data: *mut c_void) {
    // SAFETY: called by QEMU in a callback on a memory access, where this is allowed.
    let bytes = 1 << unsafe { ffi::qemu_plugin_mem_size_shift(info) };
    for line in lines(address, bytes) {
        // The part of the access that is in this line.
        let address = line.max(address);
        let touch = Touch { address, memory: memory(info, address) };
        with(cpu, |meter, registers| meter.touch(touch, registers));
    }
}

/// Where in the machine's memory an access is; `None` if it is to a device.
fn memory(info: u32, address: u64) -> Option<u64> {
    // SAFETY: called in a callback on a memory access, where these are allowed.
    unsafe {
        let physical = ffi::qemu_plugin_get_hwaddr(info, address);
        if physical.is_null() {
            // QEMU has lost the translation meanwhile: then the address is the best name of the line.
            return Some(address);
        }
        (!ffi::qemu_plugin_hwaddr_is_io(physical)).then(|| ffi::qemu_plugin_hwaddr_phys_addr(physical))
    }
}
