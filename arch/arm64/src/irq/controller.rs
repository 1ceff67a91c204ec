// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupt controller as boot code drives it, whichever version it is.

use arrayvec::ArrayVec;
use turnstile_arch_common::mmio::Registers;
use turnstile_firmware::Range;
use turnstile_vm::attention::KickToken;

use super::{gicv2, gicv3, probe, select};
use crate::board::discover::{GicNode, Spi};
use crate::cpu::regs::gicv2::window;

/// The distributor, and how to reach what belongs to each CPU.
#[derive(Clone, Debug)]
pub struct Controller {
    node: GicNode,
    distributor: Distributor,
}

#[derive(Clone, Copy, Debug)]
enum Distributor {
    V3(gicv3::Distributor),
    V2(gicv2::Distributor),
}

/// Returns the register blocks that are mapped where they are.
pub fn devices(node: &GicNode) -> ArrayVec<Range, 9> {
    match node {
        GicNode::V3(node) => node.redistributors.iter().chain([&node.distributor]).copied().collect(),
        GicNode::V2(_) => ArrayVec::new(),
    }
}

/// Returns the pages that are mapped in the [`window`], each with its address there and its physical one.
pub fn fixed(node: &GicNode) -> ArrayVec<(u64, u64), 5> {
    match node {
        GicNode::V3(_) => ArrayVec::new(),
        GicNode::V2(node) => ArrayVec::from([
            (window::GICD, node.distributor),
            (window::GICC, node.interface.first),
            (window::GICC + 0x1000, node.interface.second),
            (window::GICH, node.control),
            (window::GICV, node.virtual_interface.first),
        ]),
    }
}

impl Controller {
    /// Brings the distributor up.
    ///
    /// # Safety
    /// [`devices`] and [`fixed`] must be mapped as device memory for ever.
    pub unsafe fn start(node: GicNode) -> Self {
        let distributor = match &node {
            GicNode::V3(node) => {
                // SAFETY: the caller's promise.
                let distributor = unsafe { gicv3::Distributor::new(node) };
                distributor.start();
                Distributor::V3(distributor)
            }
            GicNode::V2(_) => {
                // SAFETY: the caller's promise.
                let distributor = unsafe { gicv2::Distributor::new() };
                distributor.start();
                Distributor::V2(distributor)
            }
        };
        Self { node, distributor }
    }

    /// Returns the page that guests with a GICv2 have as their CPU interface, if there is one.
    pub fn gicv(&self) -> Option<u64> {
        match &self.node {
            GicNode::V3(node) => node.virtual_interface.map(|pages| pages.first),
            GicNode::V2(node) => Some(node.virtual_interface.first),
        }
    }

    /// Finds the registers that belong to the CPU with `affinity`: its redistributor, or with GICv2 the distributor, of
    /// whose first registers each CPU has its own. `None` if there are none, so that it cannot be used.
    pub fn redistributor(&self, affinity: u64) -> Option<Registers> {
        match &self.node {
            // SAFETY: mapped for ever, as promised to `start`.
            GicNode::V3(node) => unsafe { gicv3::redistributor(node, affinity) },
            // SAFETY: as above.
            GicNode::V2(_) => Some(unsafe { Registers::new(window::GICD) }),
        }
    }

    /// Brings up what of the controller belongs to this CPU. Returns what kicks it.
    pub fn start_cpu(&self, affinity: u64, redistributor: Registers) -> KickToken {
        match &self.distributor {
            Distributor::V3(_) => {
                gicv3::start_cpu(redistributor);
                gicv3::kick_token(affinity)
            }
            Distributor::V2(distributor) => distributor.start_cpu(),
        }
    }

    /// Learns what can only be tried, on the boot CPU before its first guest.
    pub fn probe(&self) {
        if let Distributor::V2(distributor) = self.distributor {
            select::set_backed(probe::deactivation_resamples(distributor));
        }
    }

    /// Routes an SPI to the CPU with `affinity` and `token`, and enables it.
    pub fn enable_spi(&self, intid: u32, affinity: u64, token: KickToken) {
        match &self.distributor {
            Distributor::V3(distributor) => distributor.enable_spi(intid, affinity),
            Distributor::V2(distributor) => distributor.enable_spi(intid, token),
        }
    }

    /// Routes a device's SPI, which nobody has, to a CPU that is online, masked. False if that cannot be.
    pub fn connect_spi(&self, spi: Spi, affinity: u64, token: KickToken) -> bool {
        match &self.distributor {
            Distributor::V3(distributor) => distributor.connect_spi(spi, affinity),
            Distributor::V2(distributor) => distributor.connect_spi(spi, token),
        }
    }

    /// Masks a device's SPI, which does not come again from then on, or unmasks it. On any CPU.
    pub fn mask_spi(&self, intid: u32, masked: bool) {
        match &self.distributor {
            Distributor::V3(distributor) => distributor.mask_spi(intid, masked),
            Distributor::V2(distributor) => distributor.mask_spi(intid, masked),
        }
    }
}
