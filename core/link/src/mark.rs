// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The version of the messages in an image: whoever starts it can know beforehand whether they will understand each other.

use crate::VERSION;

/// What the mark begins with; the version follows in two bytes, least significant first.
const MARK: [u8; 16] = *b"\0turnstile-link\0";

/// The mark of this image.
static MARKED: [u8; MARK.len() + 2] = marked();

const fn marked() -> [u8; MARK.len() + 2] {
    let mut marked = [0; MARK.len() + 2];
    let (mark, version) = marked.split_at_mut(MARK.len());
    mark.copy_from_slice(&MARK);
    version.copy_from_slice(&VERSION.to_le_bytes());
    marked
}

/// [`VERSION`], read from the mark: an image whose code calls this carries it.
pub fn marked_version() -> u16 {
    // Otherwise the compiler would know the answer, and leave the mark out.
    let [.., low, high] = *core::hint::black_box(&MARKED);
    u16::from_le_bytes([low, high])
}

/// The version of an image's messages; `None` if it has no mark.
pub fn version_of(image: &[u8]) -> Option<u16> {
    let at = image.windows(MARK.len()).position(|bytes| bytes == MARK)?;
    let version = image.get(at + MARK.len()..)?.first_chunk()?;
    Some(u16::from_le_bytes(*version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_found() {
        assert_eq!(marked_version(), VERSION);
        let mut image = [7; 64];
        assert_eq!(version_of(&image), None);
        image[23..23 + MARKED.len()].copy_from_slice(&MARKED);
        assert_eq!(version_of(&image), Some(VERSION));
        assert_eq!(version_of(&image[..23 + MARK.len() + 1]), None, "it is cut off");
    }
}
