// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks in memory of the machine, made once, at boot. They outlive the VMs whose services have them.

use alloc::vec::Vec;
use core::ptr;

use turnstile_bundle::{DiskMemory, DiskSpec};

use crate::arch::service::{Over, Storage, Window};
use crate::machine::{self, Error};

/// Where a disk is among the guest physical addresses of the VM that its service serves: beyond all memory.
const PLACE: u64 = 1 << 38;

/// Makes the disks of a bundle, in its order; nothing for those that the machine has.
///
/// # Errors
/// Says for which there is not enough memory.
#[inline(never)] // As for VMs: what it needs of the stack is given back.
pub fn build(specs: &[DiskSpec<'static>]) -> Result<Vec<Option<Storage>>, (&'static str, Error)> {
    let mut images = Images(Vec::new());
    let storage = |spec: &DiskSpec<'static>| match spec.drive {
        None => make(spec, &mut images).map(Some).map_err(|error| (spec.name, error)),
        Some(_) => Ok(None),
    };
    specs.iter().map(storage).collect()
}

fn make(spec: &DiskSpec<'static>, images: &mut Images) -> Result<Storage, Error> {
    let DiskMemory { own, shared } = spec.memory();
    let image = spec.image.unwrap_or_default();
    let shared = if shared == 0 { None } else { Some(images.window(image, shared)?) };
    let name = words(spec.name);
    match (spec.writes, shared) {
        (None, Some(window)) => Ok(Storage { window, size: spec.size, name, over: None }),
        (None, None) => Ok(Storage { window: window(own, image)?, size: spec.size, name, over: None }),
        (Some(room), shared) => {
            let over = Over { window: shared, length: image.len() as u64, disk: spec.size, room };
            Ok(Storage { window: window(own, &[])?, size: own, name, over: Some(over) })
        }
    }
}

/// Makes memory that begins with an image.
fn window(size: u64, image: &[u8]) -> Result<Window, Error> {
    Ok(Window { guest: PLACE, host: machine::storage(size, image)?, size, ..Window::default() })
}

/// Images in memory that nobody writes, with their bytes in the bundle, where equal ones are the same.
struct Images(Vec<(&'static [u8], Window)>);

impl Images {
    /// Returns the memory of so many bytes that begins with this image.
    fn window(&mut self, image: &'static [u8], size: u64) -> Result<Window, Error> {
        let is_same = |(other, window): &&(&[u8], Window)| ptr::eq(*other, image) && window.size == size;
        if let Some((_, window)) = self.0.iter().find(is_same) {
            return Ok(*window);
        }
        let window = Window { read_only: true, ..window(size, image)? };
        self.0.push((image, window));
        Ok(window)
    }
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
