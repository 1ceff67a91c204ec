// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files that make an SD card of a Raspberry Pi 4 boot the hypervisor, beside the firmware's own
//! (Raspberry Pi documentation, "The config.txt file").

use std::fs;
use std::path::{Path, PathBuf};

use turnstile_machine::image;

use crate::config::show_size;
use crate::failure::{Context, Failure, Result};
use crate::layout::write_atomically;

/// Where the firmware is told to load the hypervisor: an `Image` begins at a multiple of 2 MiB.
const IMAGE_ADDRESS: u64 = 0x20_0000;
/// Where it is told to load the bundle. By itself it would put it behind the image's file, into its `.bss`.
const BUNDLE_ADDRESS: u64 = 0x400_0000;
/// The bundle ends below this, also on a board with 1 GiB, for behind it the firmware puts the device tree.
const BUNDLE_END: u64 = 0x2000_0000;

/// The files of a card.
#[derive(Debug)]
pub struct Card {
    /// The hypervisor.
    pub image: PathBuf,
    /// The bundle.
    pub bundle: PathBuf,
    /// `config.txt`, `cmdline.txt` and `README.txt`.
    pub texts: [PathBuf; 3],
}

/// Writes the files of a card for this hypervisor and this bundle.
pub fn write(folder: &Path, image: &Path, bundle: &Path) -> Result<Card> {
    let read = |file: &Path| fs::read(file).context(|| format!("cannot read {}", file.display()));
    let (image, bundle) = (read(image)?, read(bundle)?);
    check(&image, bundle.len() as u64)?;
    let file = |name: &str, bytes: &[u8]| {
        let file = folder.join(name);
        write_atomically(&file, bytes).map(|()| file)
    };
    Ok(Card {
        image: file("kernel8.img", &image)?,
        bundle: file("bundle.img", &bundle)?,
        texts: [
            file("config.txt", config().as_bytes())?,
            file("cmdline.txt", b"link=plain\n")?,
            file("README.txt", README.as_bytes())?,
        ],
    })
}

/// Checks that what is loaded does not overlap.
fn check(hypervisor: &[u8], bundle: u64) -> Result<()> {
    let header = image::parse(hypervisor).map_err(|error| Failure::failed(error.to_string()))?;
    let end = IMAGE_ADDRESS + header.text_offset + header.image_size.max(hypervisor.len() as u64);
    if end > BUNDLE_ADDRESS {
        return Err(Failure::failed("the hypervisor's image is too large for a card"));
    }
    let most = BUNDLE_END - BUNDLE_ADDRESS;
    if bundle > most {
        let what =
            format!("the bundle has {}, and on a card it has at most {}", show_size(bundle), show_size(most));
        return Err(Failure::usage(what).help("use smaller kernels and initrds"));
    }
    Ok(())
}

fn config() -> String {
    format!(
        "# Turnstile in the place of a kernel.\n\
         arm_64bit=1\n\
         kernel=kernel8.img\n\
         kernel_address={IMAGE_ADDRESS:#x}\n\
         initramfs bundle.img {BUNDLE_ADDRESS:#x}\n\
         \n\
         # The console: the PL011 on GPIO 14 and 15, 115200 baud. It is Bluetooth's otherwise.\n\
         enable_uart=1\n\
         init_uart_clock=48000000\n\
         dtoverlay=disable-bt\n"
    )
}

const README: &str = "\
Turnstile on a Raspberry Pi 4 Model B
=====================================

These files, and four of the board's firmware, make a card that boots the hypervisor and the VMs of
your configuration:

  kernel8.img   the hypervisor
  bundle.img    the VMs: descriptions, kernels, initial RAM disks
  config.txt    tells the firmware what to load, and where
  cmdline.txt   the hypervisor's command line

1. Format a card (or a partition on it) with FAT32.
2. Copy the files of this folder onto it.
3. Add these from Raspberry Pi's firmware repository, https://github.com/raspberrypi/firmware, folder
   boot/. They are Raspberry Pi's, under its own license, and no part of Turnstile.

     start4.elf
     fixup4.dat
     bcm2711-rpi-4-b.dtb
     overlays/disable-bt.dtbo   (in a folder overlays)

4. Connect a serial adapter for 3.3 V: ground to pin 6, its receiver to pin 8 (GPIO 14), its
   transmitter to pin 10 (GPIO 15); 115200 baud, 8 bits, no parity.
5. Put the card in and switch the board on. The hypervisor says its name and starts the VMs. Each line
   that a VM writes has the VM's name in front if there are several; what you type goes to the first VM.

The firmware adds words of its own to the command line. The hypervisor says that they mean nothing to
it, and goes on.

When all VMs have powered off, the hypervisor switches the board off; it stays off until its power is
taken away and given back.
";

#[cfg(test)]
mod tests {
    use super::*;

    /// A hypervisor that takes `size` bytes of memory.
    fn image_of(size: u64) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[16..24].copy_from_slice(&size.to_le_bytes());
        bytes[24..32].copy_from_slice(&0xa_u64.to_le_bytes());
        bytes[56..60].copy_from_slice(b"ARM\x64");
        bytes
    }

    #[test]
    fn the_firmware_is_told_where_everything_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("h"), image_of(1 << 20)).unwrap();
        fs::write(path("b"), b"bundle").unwrap();
        let card = write(&path("card"), &path("h"), &path("b")).unwrap();
        assert_eq!(fs::read(&card.image).unwrap(), image_of(1 << 20));
        assert_eq!(fs::read(&card.bundle).unwrap(), b"bundle");
        let config = fs::read_to_string(path("card/config.txt")).unwrap();
        for (key, file) in [("kernel=", &card.image), ("initramfs ", &card.bundle)] {
            let name = file.file_name().unwrap().to_str().unwrap();
            assert!(config.lines().any(|line| line.starts_with(&format!("{key}{name}"))), "{config}");
        }
        for line in [
            "arm_64bit=1",
            "kernel_address=0x200000",
            "initramfs bundle.img 0x4000000",
            "dtoverlay=disable-bt",
        ] {
            assert!(config.lines().any(|one| one == line), "{line} is missing in {config}");
        }
    }

    #[test]
    fn what_would_overlap_is_refused() {
        assert!(check(&image_of(62 << 20), 448 << 20).is_ok());
        assert!(check(&image_of((62 << 20) + 1), 1).is_err());
        assert!(check(&image_of(1 << 20), (448 << 20) + 1).is_err());
        assert!(check(b"no image", 1).is_err());
    }
}
