// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk without a file system: GRUB's sectors, the hypervisor's image and the bundle, whose sectors GRUB is told
//! (GNU GRUB manual, "BIOS installation" and "Block list syntax"; its `boot.S` and `diskboot.S` say what an installer changes).

/// Bytes of a sector.
const SECTOR: usize = 512;
/// The geometry of the disk.
pub const HEADS: usize = 16;
/// Its sectors in a track.
pub const SECTORS: usize = 63;
/// The image's first sector; GRUB lies before it.
const IMAGE: usize = 2048;

/// Offsets in GRUB's first sector: the sector to go on with; a jump over the correction of the drive's number, which
/// old firmware needs and an installer on a hard disk takes out; the table of partitions; the signature.
const KERNEL_SECTOR: usize = 0x5c;
const DRIVE_CHECK: usize = 0x66;
const PARTITIONS: usize = 0x1be;
const SIGNATURE: usize = 0x1fe;
/// In its second sector: where the third one is.
const BLOCK_LIST: usize = 0x1f4;

/// Where everything lies.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    image: usize,
    bundle: usize,
}

/// Plans a disk with files of these sizes.
pub fn plan(image: usize, bundle: usize) -> Plan {
    Plan { image: image.div_ceil(SECTOR), bundle: bundle.div_ceil(SECTOR) }
}

impl Plan {
    /// The bundle's first sector.
    fn bundle_at(self) -> usize {
        IMAGE + self.image
    }

    /// The size of the disk in whole cylinders.
    pub fn cylinders(self) -> usize {
        (self.bundle_at() + self.bundle).div_ceil(HEADS * SECTORS)
    }

    /// What GRUB does.
    pub fn configuration(self, append: &str) -> String {
        let (image, bundle, at) = (self.image, self.bundle, self.bundle_at());
        format!("multiboot2 (hd0){IMAGE}+{image} {append}\nmodule2 (hd0){at}+{bundle}\nboot\n")
    }

    /// The disk; `None` if GRUB's parts are not what they should be.
    pub fn disk(self, first: &[u8], core: &[u8], image: &[u8], bundle: &[u8]) -> Option<Vec<u8>> {
        let mut disk = vec![0; self.cylinders() * HEADS * SECTORS * SECTOR];
        let mut put = |at: usize, bytes: &[u8]| -> Option<()> {
            disk.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
            Some(())
        };
        if first.len() != SECTOR || core.len() < 2 * SECTOR || SECTOR + core.len() > IMAGE * SECTOR {
            return None;
        }
        put(0, first)?;
        put(KERNEL_SECTOR, &1_u64.to_le_bytes())?;
        put(DRIVE_CHECK, &[0x90, 0x90])?;
        // One partition, active, over all that is behind GRUB: firmware takes what has none for no disk.
        let size = (self.image + self.bundle) as u32;
        put(PARTITIONS, &[0x80, 0, 2, 0, 0xda, 0xff, 0xff, 0xff])?;
        put(PARTITIONS + 8, &(IMAGE as u32).to_le_bytes())?;
        put(PARTITIONS + 12, &size.to_le_bytes())?;
        put(SIGNATURE, &[0x55, 0xaa])?;
        put(SECTOR, core)?;
        put(SECTOR + BLOCK_LIST, &2_u64.to_le_bytes())?;
        put(IMAGE * SECTOR, image)?;
        put(self.bundle_at() * SECTOR, bundle)?;
        Some(disk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_where_grub_is_told() {
        let plan = plan(1025, 512);
        assert_eq!(plan.configuration("x"), "multiboot2 (hd0)2048+3 x\nmodule2 (hd0)2051+1\nboot\n");
        let disk = plan.disk(&[1; 512], &[2; 2048], &[3; 1025], &[4; 512]).unwrap();
        assert_eq!(disk.len(), plan.cylinders() * HEADS * SECTORS * SECTOR);
        assert_eq!((disk[0], disk[512], disk[510], disk[511]), (1, 2, 0x55, 0xaa));
        assert_eq!(disk[512 + BLOCK_LIST..512 + BLOCK_LIST + 8], 2_u64.to_le_bytes());
        assert_eq!((disk[2048 * 512], disk[2048 * 512 + 1025], disk[2051 * 512]), (3, 0, 4));
    }

    #[test]
    fn a_loader_that_does_not_fit_is_refused() {
        let plan = plan(1, 1);
        assert!(plan.disk(&[0; 511], &[0; 2048], &[0], &[0]).is_none());
        assert!(plan.disk(&[0; 512], &[0; 512], &[0], &[0]).is_none());
        assert!(plan.disk(&[0; 512], &[0; 2048 * 512], &[0], &[0]).is_none());
    }
}
