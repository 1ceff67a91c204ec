// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The function of a virtio device: identity, BARs, and capabilities that say where its structures are.

use turnstile_pci::bar::Bar;
use turnstile_pci::function::{Function, Identity, MsixPlaces, Unfit};
use turnstile_pci::register::CAPABILITY_VENDOR;

/// The BAR of MSI-X.
pub const BAR_MSIX: u8 = 1;
/// The BAR of virtio's structures.
pub const BAR_VIRTIO: u8 = 4;
/// How many bytes of it each structure has; notifications have a page of their own.
const REGION: u32 = 0x1000;
/// Where in that BAR drivers notify queues: each place has four bytes.
pub const NOTIFICATIONS: u32 = 3 * REGION;
/// How far notifications of queues are apart, in bytes.
pub(super) const NOTIFY_MULTIPLIER: u32 = 4;
/// The type of the capability that is a window to the BARs (section 4.1.4.9).
pub(super) const WINDOW: u8 = 5;

/// The structures, in their order in the BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    Common,
    Isr,
    Config,
    Notify,
}

impl Region {
    const ALL: [Self; 4] = [Self::Common, Self::Isr, Self::Config, Self::Notify];

    /// Returns which structure is at an offset of a BAR, and the offset in it.
    pub(super) fn of(bar: u8, offset: u64) -> Option<(Self, u64)> {
        let index = usize::try_from(offset / u64::from(REGION)).ok().filter(|_| bar == BAR_VIRTIO)?;
        Some((*Self::ALL.get(index)?, offset % u64::from(REGION)))
    }

    /// Its type in a capability.
    const fn kind(self) -> u8 {
        match self {
            Self::Common => 1,
            Self::Notify => 2,
            Self::Isr => 3,
            Self::Config => 4,
        }
    }
}

/// Where the pending bits of MSI-X are in their BAR, behind a table of so many vectors.
pub(super) const fn pending_offset(vectors: usize) -> u64 {
    let table = (vectors as u64 * 16).next_power_of_two();
    if table < 0x800 { 0x800 } else { table }
}

/// What kind of device a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The device's type (section 5), below 64.
    pub device: u16,
    /// PCI's class code.
    pub class: u32,
    /// Whether it has INTA, for drivers that do not use MSI-X.
    pub interrupt_pin: bool,
    /// In how many places drivers notify queues at most. With more queues, those whose numbers have the same remainder share one, and what is written
    /// there says which it is (section 4.1.5.2).
    pub places: u16,
}

impl Kind {
    /// Makes the function of such a device with `queues` queues, a configuration of `config` bytes, and `vectors`
    /// vectors of MSI-X. Nothing about it is of before virtio 1.0.
    pub fn function(&self, queues: u16, config: u32, vectors: u16) -> Result<Function, Unfit> {
        let mut function = Function::new(&Identity {
            vendor: 0x1af4,
            device: 0x1040 + self.device,
            revision: 1,
            class: self.class,
            subsystem_vendor: 0x1af4,
            subsystem: 0x1100,
            interrupt_pin: self.interrupt_pin,
        });
        let pending = pending_offset(vectors.into());
        function.add_bar(BAR_MSIX, Bar::Memory32 { size: 2 * pending as u32, prefetchable: false })?;
        function.add_bar(BAR_VIRTIO, Bar::Memory32 { size: 4 * REGION, prefetchable: false })?;
        for (begin, region) in (0..).step_by(REGION as usize).zip(Region::ALL) {
            let length = match region {
                Region::Common => super::common::LENGTH as u32,
                Region::Isr => 4,
                Region::Config => config,
                Region::Notify => NOTIFY_MULTIPLIER * u32::from(queues.min(self.places)),
            };
            if length > REGION {
                return Err(Unfit::BarSize(length.into()));
            }
            if length != 0 {
                add(&mut function, region, begin, length)?;
            }
        }
        let (window, writable) = (capability(20, WINDOW, 0, 0, 0), writable_window());
        function.add_capability(CAPABILITY_VENDOR, &window, &writable)?;
        let places = MsixPlaces { vectors, table: (BAR_MSIX, 0), pending: (BAR_MSIX, pending as u32) };
        function.add_msix(places)?;
        Ok(function)
    }
}

fn add(function: &mut Function, region: Region, begin: u32, length: u32) -> Result<(), Unfit> {
    let is_notify = region == Region::Notify;
    let mut body = capability(if is_notify { 20 } else { 16 }, region.kind(), BAR_VIRTIO, begin, length);
    if let (true, Some(multiplier)) = (is_notify, body.get_mut(14..)) {
        multiplier.copy_from_slice(&NOTIFY_MULTIPLIER.to_le_bytes());
    }
    let used = if is_notify { 18 } else { 14 };
    function.add_capability(CAPABILITY_VENDOR, body.get(..used).unwrap_or_default(), &[])?;
    Ok(())
}

/// A `virtio_pci_cap` behind its first two bytes, with 4 bytes behind it.
fn capability(length: u8, kind: u8, bar: u8, offset: u32, size: u32) -> [u8; 18] {
    let [o0, o1, o2, o3] = offset.to_le_bytes();
    let [s0, s1, s2, s3] = size.to_le_bytes();
    [length, kind, bar, 0, 0, 0, o0, o1, o2, o3, s0, s1, s2, s3, 0, 0, 0, 0]
}

/// What a driver may write of the window: BAR, offset, length.
const fn writable_window() -> [u8; 14] {
    [0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]
}
