// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks in memory of the machine, made once, at boot. They outlive the VMs whose services have them.

use alloc::vec::Vec;

use turnstile_bundle::DiskSpec;

use crate::arch::service::{Storage, Window};
use crate::machine::{self, Error};

/// Where a disk is among the guest physical addresses of the VM that its service serves: beyond all memory.
const PLACE: u64 = 1 << 38;
/// Disks have whole blocks of this many bytes, which large pages map.
const BLOCK: u64 = 2 << 20;

/// Makes the disks of a bundle, in its order; nothing for those that the machine has.
///
/// # Errors
/// Says for which there is not enough memory.
#[inline(never)] // As for VMs: what it needs of the stack is given back.
pub fn build(specs: &[DiskSpec<'static>]) -> Result<Vec<Option<Storage>>, (&'static str, Error)> {
    let storage = |spec: &DiskSpec<'static>| match spec.drive {
        None => make(spec).map(Some).map_err(|error| (spec.name, error)),
        Some(_) => Ok(None),
    };
    specs.iter().map(storage).collect()
}

fn make(spec: &DiskSpec<'static>) -> Result<Storage, Error> {
    let size = spec.size.next_multiple_of(BLOCK);
    let host = machine::storage(size, spec.image.unwrap_or_default())?;
    let window = Window { guest: PLACE, host, size, read_only: spec.read_only, ..Window::default() };
    Ok(Storage { window, size: spec.size, name: words(spec.name) })
}

/// Returns a name as the two words of an event: what does not fit is left out.
pub fn words(name: &str) -> [u64; 2] {
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    let [mut first, mut second] = [[0; 8]; 2];
    first.copy_from_slice(&bytes[..8]);
    second.copy_from_slice(&bytes[8..]);
    [u64::from_le_bytes(first), u64::from_le_bytes(second)]
}
