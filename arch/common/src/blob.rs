// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device tree that the firmware has left in memory (Devicetree Specification 0.4, 5.2).

/// What of a device tree is looked at to find its size, in bytes.
pub const HEADER: u64 = 8;
/// The smallest and the largest device tree that is looked at, in bytes: a header, and more than any machine has.
const SIZES: core::ops::RangeInclusive<usize> = 40..=2 << 20;
/// What one begins with.
const MAGIC: u32 = 0xd00d_feed;

/// Returns the device tree at `address`; `None` if there is none.
///
/// # Safety
/// The boot protocol passes the address of a device tree as `address`, or zero. It is readable, and nobody writes it while the
/// hypervisor runs.
pub unsafe fn device_tree(address: u64) -> Option<&'static [u8]> {
    if address == 0 || !address.is_multiple_of(8) {
        return None;
    }
    // SAFETY: the caller's promise; the header says how long it is.
    let header = unsafe { *(address as *const [[u8; 4]; 2]) };
    let [magic, size] = header.map(u32::from_be_bytes);
    if magic != MAGIC || !SIZES.contains(&(size as usize)) {
        return None;
    }
    // SAFETY: the caller's promise, for the whole blob.
    Some(unsafe { core::slice::from_raw_parts(address as *const u8, size as usize) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_begins_as_a_device_tree_is_one() {
        fn found(magic: u32, size: u32, offset: u64) -> Option<usize> {
            let mut blob = std::vec![0u64; 8];
            blob[0] = u64::from_be(u64::from(magic) << 32 | u64::from(size));
            let address = blob.leak().as_ptr() as u64;
            // SAFETY: memory of 64 bytes that nobody writes any more.
            unsafe { device_tree(address + offset) }.map(<[u8]>::len)
        }
        assert_eq!(found(MAGIC, 64, 0), Some(64));
        assert_eq!(found(MAGIC, 39, 0), None);
        assert_eq!(found(MAGIC, (2 << 20) + 1, 0), None);
        assert_eq!(found(MAGIC ^ 1, 64, 0), None);
        assert_eq!(found(MAGIC, 64, 4), None);
        // SAFETY: nothing is at zero.
        assert_eq!(unsafe { device_tree(0) }, None);
    }
}
