// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads qcow2 images of disks. The crate `imago` knows the format; here is judged what of it may be used. An image comes from anywhere, and
//! may be made to harm: it names no other file that would be opened, and its size says nothing about how much is read.

use std::fs::File;
use std::io;
use std::path::Path;

use imago::{DenyImplicitOpenGate, FormatAccess, FormatDriverBuilder, Mapping};

/// What each of these images begins with.
pub const MAGIC: &[u8] = b"QFI\xfb";
/// How many bytes of its header are judged.
pub const HEADER: usize = 80;
/// How many bytes are read at once.
const PIECE: u64 = 1 << 20;

/// Parts of the header, all of them big-endian: offset of the name of its backing file, method of encryption; from version 3 on, what nobody
/// may read who does not know it.
const BACKING: usize = 8;
const ENCRYPTION: usize = 32;
const INCOMPATIBLE: usize = 72;

/// What an image may need, each with its bit, and what helps.
const NEEDS: [(&str, &str); 5] = [
    ("was not closed in order", "mend it: `qemu-img check -r all IMAGE`"),
    ("is marked as corrupt", "mend it: `qemu-img check -r all IMAGE`"),
    ("has its data in another file", CONVERT),
    ("is not compressed by zlib", CONVERT),
    ("has extended L2 entries", CONVERT),
];
const CONVERT: &str = "convert it: `qemu-img convert -O qcow2 IMAGE disk.qcow2`";

/// Why an image cannot be read.
#[derive(Debug)]
pub enum Refused {
    /// It is of a kind that is not read: continues a sentence that starts with its name. And what helps.
    Kind(String, &'static str),
    /// It is broken, or reading failed.
    Broken(io::Error),
    /// It is of a disk of so many bytes.
    TooLarge(u64),
    /// It contains more than may be read: this many bytes at least, behind which are zeros only.
    TooLong(u64),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// The contents of an image.
#[derive(Debug, PartialEq, Eq)]
pub struct Contents {
    /// What it begins with; behind that are zeros.
    pub bytes: Vec<u8>,
    /// The size of the disk in bytes.
    pub size: u64,
}

/// Reads an image whose first bytes are `head`, of a disk of at most `largest` bytes, of which no more than `most` may be needed.
///
/// # Errors
/// When it is broken, needs what is not there, or contains more.
pub fn read(path: &Path, head: &[u8], largest: u64, most: u64) -> Result<Contents, Refused> {
    judge(head)?;
    let file = imago::file::File::try_from(File::open(path)?)?;
    let image = imago::qcow2::Qcow2::<_>::builder(file).open(DenyImplicitOpenGate::default())?;
    let image = FormatAccess::new(image);
    let size = image.size();
    // Before anything is done for each part of it.
    if size == 0 {
        return Err(Refused::Kind(
            "is of a disk without a byte".to_owned(),
            "leave `image` out, and give a `size`",
        ));
    }
    if size > largest {
        return Err(Refused::TooLarge(size));
    }
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < size {
        let (mapping, length) = image.get_mapping(at, (size - at).min(PIECE))?;
        // Whatever the tables say, it comes to an end.
        let end = at + length.clamp(1, PIECE);
        if !matches!(mapping, Mapping::Zero { .. } | Mapping::Eof { .. }) {
            if end > most {
                return Err(Refused::TooLong(end));
            }
            bytes.resize(end as usize, 0);
            image.read(&mut bytes[at as usize..], at)?;
        }
        at = end;
    }
    Ok(Contents { bytes, size })
}

/// Finds what an image needs that is not read.
fn judge(head: &[u8]) -> Result<(), Refused> {
    let field = |at: usize, size: usize| {
        let bytes = head.get(at..at + size).unwrap_or_default();
        bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    let refused = |what: &str, help| Err(Refused::Kind(what.to_owned(), help));
    if field(BACKING, 8) != 0 {
        return refused("is only what differs from another image", CONVERT);
    }
    if field(ENCRYPTION, 4) != 0 {
        return refused("is encrypted", CONVERT);
    }
    let needed = if field(MAGIC.len(), 4) >= 3 { field(INCOMPATIBLE, 8) } else { 0 };
    let known = NEEDS.iter().enumerate().find(|(bit, _)| needed >> bit & 1 != 0);
    match known {
        Some((_, (what, help))) => refused(what, help),
        None if needed != 0 => Err(Refused::Kind(format!("needs what is not known ({needed:#x})"), CONVERT)),
        None => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests;
