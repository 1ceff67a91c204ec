// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What several tests have in common.

use std::cell::RefCell;

use turnstile_papr::Memory;

/// A guest's memory, from address 0 on.
pub struct Ram(pub RefCell<Vec<u8>>);

impl Memory for Ram {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let ram = self.0.borrow();
        let found = usize::try_from(address).ok().and_then(|at| ram.get(at..at.checked_add(bytes.len())?));
        found.map(|found| bytes.copy_from_slice(found)).is_some()
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let mut ram = self.0.borrow_mut();
        let found =
            usize::try_from(address).ok().and_then(|at| ram.get_mut(at..at.checked_add(bytes.len())?));
        found.map(|found| found.copy_from_slice(bytes)).is_some()
    }
}
