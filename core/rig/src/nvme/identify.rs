// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a controller says what it is (section 5.15).

use turnstile_block::disk::SECTOR;

use super::controller::Nvme;

impl Nvme {
    /// What Identify answers: the structure of this number.
    pub(super) fn identify(&self, structure: u8, namespace: u32) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 4096];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let shape = &self.shape;
        match structure {
            0 => {
                let is_other = shape.others.contains(&namespace);
                if is_other || namespace == shape.namespace {
                    let blocks = self.platter.bytes.borrow().len() as u64 / shape.block_bytes();
                    put(0, &blocks.to_le_bytes());
                    // The third of three formats is in use.
                    put(25, &[2, 2]);
                    put(33, &[shape.deallocation]);
                    put(136, &[if is_other { 8 } else { 0 }, 0, shape.block, 0]);
                }
            }
            1 => {
                put(77, &[shape.most]);
                put(512, &[0x66, 0x44]);
                put(516, &(1 + shape.others.len() as u32).to_le_bytes());
                put(520, &shape.optional.to_le_bytes());
                put(525, &[shape.cache.into()]);
            }
            2 => {
                let all = shape.others.iter().copied().chain([shape.namespace]);
                let mut above: Vec<_> = all.filter(|&number| number > namespace).collect();
                above.sort_unstable();
                for (at, number) in (0..).step_by(4).zip(above) {
                    put(at, &number.to_le_bytes());
                }
            }
            _ => return None,
        }
        let patches = self.identified.borrow();
        let patches = patches.iter().filter(|((of, _), _)| *of == structure);
        for ((_, at), byte) in patches {
            bytes[usize::from(*at)] = *byte;
        }
        Some(bytes)
    }

    /// How many blocks the disk has.
    pub(super) fn blocks(&self) -> u64 {
        self.platter.bytes.borrow().len() as u64 / self.shape.block_bytes().max(SECTOR)
    }
}
