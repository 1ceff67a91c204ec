// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The digest of a bundle, and where it is.
//!
//! xxh64 takes eight bytes in a few instructions, so checking a bundle costs little more than copying its images.

use crate::xxh64::{STRIPE, Xxh64, xxh64};

/// The offset of the digest in the blob: header (40 bytes), the empty reservation block (16), the root
/// node's tag and name (8), and the first property's tag, length and name offset (12).
pub(crate) const DIGEST_OFFSET: usize = 76;
const DIGEST_END: usize = DIGEST_OFFSET + 8;

/// Words of the blob that place the digest: (offset, value).
const PLACE: [(usize, u32); 6] = [
    (8, 56),  // off_dt_struct
    (16, 40), // off_mem_rsvmap
    (56, 1),  // FDT_BEGIN_NODE
    (60, 0),  // the root node's empty name
    (64, 3),  // FDT_PROP
    (68, 8),  // its length
];

/// Says whether the blob has its first property at [`DIGEST_OFFSET`], eight bytes long.
pub(crate) fn in_place(blob: &[u8]) -> bool {
    PLACE.iter().all(|&(offset, value)| read_u32(blob, offset) == Some(value))
}

/// What is looked at apart because the digest is in it: whole stripes, so that what follows is aligned as the blob is.
const HEAD: usize = 4 * STRIPE;

/// Returns the digest that the blob carries, and the one that it should carry: that of all bytes, with the digest's own as zeros.
pub(crate) fn digests(blob: &[u8]) -> Option<(u64, u64)> {
    let carried = blob.get(DIGEST_OFFSET..)?.first_chunk().copied().map(u64::from_be_bytes)?;
    let (head, rest) = blob.split_first_chunk::<HEAD>()?;
    let mut head = *head;
    head.get_mut(DIGEST_OFFSET..DIGEST_END)?.fill(0);
    let mut hash = Xxh64::new();
    hash.stripes(&head);
    let tail = hash.stripes(rest);
    Some((carried, hash.finish(tail)))
}

/// Returns the digest of an image.
pub(crate) fn image(data: &[u8]) -> u64 {
    xxh64(data)
}

/// Reads a big-endian word of the blob.
pub(crate) fn read_u32(blob: &[u8], offset: usize) -> Option<u32> {
    blob.get(offset..)?.first_chunk().copied().map(u32::from_be_bytes)
}
