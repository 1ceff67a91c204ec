// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a virtio device uses the IOMMU that is in front of it (Virtual I/O Device Specification 1.2, sections 4.1.4 and 6).

use pci_types::capability::PciCapability;
use pci_types::{EndpointHeader, PciAddress, PciHeader};

use super::bridge::{CONFIGURATION, HostBridge};
use crate::service::Window;

/// Who has virtio's functions, and their devices' IDs (section 4.1.2).
const VENDOR: u16 = 0x1af4;
const DEVICES: core::ops::RangeInclusive<u16> = 0x1000..=0x107f;

/// The kind of the capability that says where the common configuration is (section 4.1.4).
const COMMON: u8 = 1;
/// In a capability: the BAR, the offset there, and the end of that.
const BAR: u16 = 4;
const OFFSET: u16 = 8;
const END: u16 = 12;

/// In the common configuration: which 32 features are shown, and they (section 4.1.4.3).
const FEATURE_SELECT: u64 = 0;
const FEATURES: u64 = 4;
/// VIRTIO_F_ACCESS_PLATFORM, 33, among the second 32 features (section 6): the device reaches memory as the platform translates it.
const ACCESS_PLATFORM: u32 = 1 << 1;

/// Says whether a function is a virtio device that reaches memory past an IOMMU, or does not say that it does not. Its program has this of its
/// BARs, which must be decoded; nobody may drive it yet.
pub(super) fn bypasses(bridge: &impl HostBridge, function: PciAddress, bars: &[(u8, Window)]) -> bool {
    let (vendor, device) = PciHeader::new(function).id(bridge);
    if vendor != VENDOR || !DEVICES.contains(&device) {
        return false;
    }
    upper_features(bridge, function, bars).is_none_or(|features| features & ACCESS_PLATFORM == 0)
}

/// Returns the second 32 features that a device offers. Through its BAR, as its driver will: a device's window in its configuration space
/// (VIRTIO_PCI_CAP_PCI_CFG) ends QEMU where the host bridge has an address space of its own.
fn upper_features(bridge: &impl HostBridge, function: PciAddress, bars: &[(u8, Window)]) -> Option<u32> {
    let common = common(bridge, function, bars)?;
    // SAFETY: registers of a function that nobody drives. What is selected is its driver's to select anew.
    unsafe {
        bridge.store(common + FEATURE_SELECT, 1)?;
        bridge.load(common + FEATURES)
    }
}

/// Returns the physical address of a device's common configuration. A device that knows virtio 0.9 alone has none.
fn common(bridge: &impl HostBridge, function: PciAddress, bars: &[(u8, Window)]) -> Option<u64> {
    // SAFETY: reading a capability changes nothing.
    let get = |register| unsafe { bridge.read(function, register) };
    let header = EndpointHeader::from_header(PciHeader::new(function), bridge)?;
    // A list that does not end is no list, and a capability that ends behind the space is none.
    let mut places =
        header.capabilities(bridge).take(CONFIGURATION / 4).filter_map(|capability| match capability {
            PciCapability::Vendor(capability) => Some(capability.offset),
            _ => None,
        });
    let at = places.find(|at| usize::from(at + END) <= CONFIGURATION && (get(*at) >> 24) as u8 == COMMON)?;
    let (bar, offset) = (get(at + BAR) as u8, u64::from(get(at + OFFSET)));
    let (_, window) = bars.iter().find(|(number, _)| *number == bar)?;
    let holds = offset.is_multiple_of(4) && offset + FEATURES + 4 <= window.size;
    holds.then_some(window.host + offset)
}
