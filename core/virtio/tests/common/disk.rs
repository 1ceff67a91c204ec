// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk behind PCI.

use turnstile_pci::function::Function;
use turnstile_pci::msix::Control;
use turnstile_virtio::config::{BLOCK, Block, Configuration};
use turnstile_virtio::features::Features;
use turnstile_virtio::pci;
use turnstile_virtio::pci::Kind;
use turnstile_virtio::registers::Registers;

pub const OFFERED: Features = Features::INDIRECT_DESC.union(Features::EVENT_IDX).union(Features::RING_RESET);
pub const OPEN: Control = Control { enabled: true, masked: false };

pub type Disk = pci::Device<2, 3, Block>;

pub fn disk() -> Disk {
    let registers = Registers::new(OFFERED | Block::FLUSH | Block::CONFIG_WCE, &[], [256, 64]);
    pci::Device::new(registers, Block { capacity: 0x1234_5678_9abc, ..Block::default() }, 8)
}

pub fn function() -> Function {
    let kind = Kind { device: BLOCK, class: 0x01_8000, interrupt_pin: true, places: 8 };
    kind.function(2, Block::LENGTH as u32, 3).unwrap()
}
