// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A property whose name is longer than the 31 characters of the device tree specification, so that the writer refuses it. PAPR
//! has one that every partition needs.

use alloc::vec::Vec;

/// Offsets in the header of a flattened device tree (Devicetree Specification 0.4, 5.2).
const TOTAL_SIZE: usize = 4;
const STRUCTURE: usize = 8;
const STRINGS: usize = 12;
const STRINGS_SIZE: usize = 32;
/// Tokens of the structure block (5.4.1).
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOP: u32 = 4;

fn word(blob: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*blob.get(at..)?.first_chunk()?))
}

fn add(blob: &mut [u8], at: usize, by: u32) -> Option<()> {
    let value = word(blob, at)? + by;
    *blob.get_mut(at..)?.first_chunk_mut()? = value.to_be_bytes();
    Some(())
}

/// Appends `end` to the property name `name` of a tree whose strings come last, as the writer has them. `None` if the tree is
/// no such tree.
pub(super) fn lengthen(blob: &mut Vec<u8>, name: &str, end: &str) -> Option<()> {
    let strings = word(blob, STRINGS)? as usize;
    let whole: Vec<u8> = [b"\0", name.as_bytes(), b"\0"].concat();
    let found = blob.get(strings - 1..)?.windows(whole.len()).position(|bytes| bytes == whole)?;
    let place = found + name.len();
    blob.splice(strings + place..strings + place, end.bytes());
    let by = end.len() as u32;
    add(blob, TOTAL_SIZE, by)?;
    add(blob, STRINGS_SIZE, by)?;
    let mut at = word(blob, STRUCTURE)? as usize;
    loop {
        match word(blob, at)? {
            BEGIN_NODE => {
                let name = blob.get(at + 4..)?.iter().position(|byte| *byte == 0)?;
                at = (at + 4 + name + 1).next_multiple_of(4);
            }
            PROPERTY => {
                let size = word(blob, at + 4)? as usize;
                if word(blob, at + 8)? as usize > place {
                    add(blob, at + 8, by)?;
                }
                at = (at + 12 + size).next_multiple_of(4);
            }
            END_NODE | NOP => at += 4,
            _ => return Some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dtoolkit::fdt::Fdt;
    use dtoolkit::{Node as _, Property as _};
    use vm_fdt::FdtWriter;

    #[test]
    fn a_name_grows_and_the_others_stay() {
        let mut writer = FdtWriter::new().unwrap();
        let root = writer.begin_node("").unwrap();
        writer.property_u32("before", 1).unwrap();
        let node = writer.begin_node("node").unwrap();
        writer.property_u32("name", 2).unwrap();
        writer.property_u32("behind", 3).unwrap();
        writer.end_node(node).unwrap();
        writer.end_node(root).unwrap();
        let mut blob = writer.finish().unwrap();
        lengthen(&mut blob, "name", "-of-length").unwrap();
        let fdt = Fdt::new(&blob).unwrap();
        let value = |path: &str, name: &str| fdt.find_node(path).unwrap().property(name).unwrap().value()[3];
        assert_eq!(value("/", "before"), 1);
        assert_eq!(value("/node", "name-of-length"), 2);
        assert_eq!(value("/node", "behind"), 3);
        assert_eq!(lengthen(&mut blob, "absent", "x"), None);
    }
}
