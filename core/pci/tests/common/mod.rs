// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device that has something of everything.

use turnstile_pci::bar::Bar;
use turnstile_pci::function::{Function, Identity, MsixPlaces};

pub fn identity(device: u16, class: u32) -> Identity {
    Identity {
        vendor: 0x1af4,
        device,
        revision: 1,
        class,
        subsystem_vendor: 0x1af5,
        subsystem: 0x1100,
        interrupt_pin: true,
    }
}

/// BARs 0 (64-bit memory, 16 KiB), 2 (ports, 32), 3 (32-bit memory, 4 KiB); a vendor's capability at 0x40 with one dword of which
/// 24 bits can be written; MSI-X with 33 vectors at 0x4c, its table at 0 of BAR 3, its pending bits at 0x800.
pub fn device() -> Function {
    let mut function = Function::new(&identity(0x1041, 0x02_0000));
    function.add_bar(0, Bar::Memory64 { size: 0x4000, prefetchable: true }).unwrap();
    function.add_bar(2, Bar::Io { size: 32 }).unwrap();
    function.add_bar(3, Bar::Memory32 { size: 0x1000, prefetchable: false }).unwrap();
    let body = [12, 0xaa, 0xff, 0xff, 0xff, 0x55, 1, 2, 3, 4];
    assert_eq!(function.add_capability(9, &body, &[0, 0, 0xff, 0xff, 0xff]), Ok(0x40));
    let places = MsixPlaces { vectors: 33, table: (3, 0), pending: (3, 0x800) };
    function.add_msix(places).unwrap();
    function
}
