// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network cards, disk controllers, and what is behind them: the arguments that add them.

use std::path::PathBuf;

use turnstile_bundle::DriveKind;

use super::{Boot, as_value};
use crate::config::{Board, NetworkCard};

/// A TCP port of this computer that leads to one of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The port of this computer's loopback interface.
    pub host: u16,
    /// The guest's port.
    pub guest: u16,
}

/// A disk controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    /// Its kind.
    pub kind: DriveKind,
    /// Its number among those of the kind.
    pub number: usize,
    /// What is behind it; nothing that anybody uses if there is none.
    pub behind: Option<Behind>,
}

/// A disk behind a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behind {
    /// A file has its bytes.
    File {
        /// The file.
        file: PathBuf,
        /// Whether that is a qcow2 image, and not the disk's bytes as they are.
        is_qcow2: bool,
        /// Whether it is only read.
        read_only: bool,
        /// What the disk is called.
        serial: String,
    },
    /// It keeps nothing, and reads as zeros. Each command takes as long as any, however many there are at once.
    Zeros {
        /// How large it is, in bytes.
        bytes: u64,
        /// How long a command takes, in nanoseconds.
        latency: u64,
    },
}

/// What a virtio device needs to be behind an IOMMU: others of QEMU's reach memory past it.
const BEHIND_IOMMU: &str = ",iommu_platform=on";

/// QEMU's device that is such a card.
const fn device(card: NetworkCard) -> &'static str {
    match card {
        NetworkCard::Virtio => "virtio-net-pci",
        NetworkCard::E1000e => "e1000e",
    }
}

impl Boot {
    /// The arguments that add a network card. It has no program for firmware: that would look for something to boot.
    pub(super) fn card(&self, number: usize, card: NetworkCard) -> Vec<String> {
        let mut device = format!("{},netdev=net{number},romfile=", device(card));
        if card == NetworkCard::Virtio && self.iommu {
            device.push_str(",disable-legacy=on");
            device.push_str(BEHIND_IOMMU);
        }
        let mut arguments = self.place(number, &mut device);
        let network = if self.wired { format!("hubport,id=net{number},hubid=0") } else { self.user(number) };
        arguments.extend(["-netdev".into(), network, "-device".into(), device]);
        arguments
    }

    /// A card's network of QEMU's own.
    fn user(&self, number: usize) -> String {
        let mut network = format!("user,id=net{number}");
        for Forward { host, guest } in self.forwards.iter().filter(|_| number == 0) {
            network.push_str(&format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}"));
        }
        network
    }

    /// The arguments that give a device a place of its own, where there is not one for all, and that a device needs, which says so.
    fn place(&self, number: usize, device: &mut String) -> Vec<String> {
        if !matches!(self.board, Board::Powernv9 | Board::Powernv10) {
            return Vec::new();
        }
        // A bridge has one port, and that one slot.
        let bridge = format!("pnv-phb,id=phb{number},chip-id=0,index={number}");
        let port = format!("pnv-phb-root-port,id=port{number},bus=phb{number}");
        device.push_str(&format!(",bus=port{number}"));
        ["-device".into(), bridge, "-device".into(), port].into()
    }

    /// The arguments that add a disk controller, behind all cards. What a guest flushes is in the file then, whatever becomes of QEMU or of this
    /// computer: with `writeback`, QEMU asks the computer for that when it is flushed, and not before. What this computer cannot read or write is
    /// an error for the guest: without `report`, QEMU would stop the whole machine when a file has no room, and say nothing.
    pub(super) fn drive(&self, at: usize, Drive { kind, number, behind }: &Drive) -> Vec<String> {
        let id = format!("{kind}{number}");
        let (drive, serial) = match behind {
            Some(Behind::Zeros { bytes, latency }) => {
                (format!("driver=null-co,read-zeroes=on,size={bytes},latency-ns={latency}"), "zeros")
            }
            Some(Behind::File { file, is_qcow2, read_only, serial }) => {
                let format = if *is_qcow2 { "qcow2" } else { "raw" };
                let read_only = if *read_only { ",readonly=on" } else { "" };
                let file = as_value(file);
                (format!("format={format},cache=writeback{read_only},file={file}"), serial.as_str())
            }
            None => ("driver=null-co,size=1M".to_owned(), "none"),
        };
        let mut device = match kind {
            DriveKind::Nvme => format!("nvme,drive={id},serial={serial}"),
            DriveKind::Virtio => {
                let behind = if self.iommu { BEHIND_IOMMU } else { "" };
                format!(
                    "virtio-blk-pci,drive={id},serial={serial},disable-legacy=on,werror=report,rerror=report{behind}"
                )
            }
        };
        let mut arguments = self.place(self.cards.len() + at, &mut device);
        let drive = format!("if=none,id={id},{drive}");
        arguments.extend(["-drive".into(), drive, "-device".into(), device]);
        arguments
    }
}
