// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PCI's configuration mechanism #1 (PCI Local Bus Specification 3.0, 3.2.2.3.2), for VMs with PCI functions, and the host bridge.
//! The functions' services answer for their configuration spaces; in memory they are devices as others are.

use turnstile_pci::absent;
use turnstile_pci::address::{Address, ecam};

use super::service::{self, Found};
use crate::vm::Vcpu;

/// Where the configuration spaces of bus 0 are in memory.
const CONFIGURATION: u64 = turnstile_machine::pc::PCI_CONFIGURATION.start;
/// The host bridge's configuration space up to its last word that is not zero: QEMU's PCI Express host bridge, class 06h.
const BRIDGE: [u32; 3] = [0x0008_1b36, 0, 0x0600_0000];

/// What an access of a configuration space is to.
enum Target {
    /// A function of a service.
    Function(Found),
    /// The host bridge, at this offset.
    Bridge(u16),
    /// Nothing.
    Nothing,
}

impl Target {
    fn of(vcpu: &'static Vcpu, address: Address, offset: u16) -> Self {
        if address.bus() != 0 || address.function() != 0 {
            return Self::Nothing;
        }
        match address.device() {
            0 => Self::Bridge(offset),
            slot => service::function(vcpu, slot.into(), offset.into()).map_or(Self::Nothing, Self::Function),
        }
    }
}

/// Returns what an access to the ports of the data is to; `None` if it is to none, or the VM has no functions.
fn at_port(vcpu: &'static Vcpu, port: u16, size: u8) -> Option<Target> {
    has_functions(vcpu).then_some(())?;
    let (address, offset) = vcpu.vm.board.pci.lock().target(port, size)?;
    Some(Target::of(vcpu, address, offset))
}

fn has_functions(vcpu: &'static Vcpu) -> bool {
    vcpu.vm.services().is_some_and(|services| !services.functions.is_empty())
}

/// Reads a port; `None` if nothing is there.
pub(super) fn read_port(vcpu: &'static Vcpu, port: u16, size: u8) -> Option<u64> {
    let value = match at_port(vcpu, port, size) {
        Some(Target::Function(found)) => return Some(found.access_fully(vcpu, &found.event(true, size, 0))),
        Some(Target::Bridge(offset)) => bridge(offset, size),
        Some(Target::Nothing) => absent(size),
        None => {
            has_functions(vcpu).then_some(())?;
            vcpu.vm.board.pci.lock().read(port, size)?
        }
    };
    Some(value.into())
}

/// Writes a port. Nothing happens if nothing is there.
pub(super) fn write_port(vcpu: &'static Vcpu, port: u16, size: u8, value: u64) {
    match at_port(vcpu, port, size) {
        Some(Target::Function(found)) => found.write_fully(vcpu, size, value),
        Some(_) => {}
        None if has_functions(vcpu) => _ = vcpu.vm.board.pci.lock().write(port, size, value as u32),
        None => {}
    }
}

/// Reads memory where no device is: the host bridge's configuration space, or ones.
pub(super) fn read_memory(vcpu: &'static Vcpu, address: u64, size: u8) -> u64 {
    match address.checked_sub(CONFIGURATION).and_then(ecam) {
        Some((function, offset)) if function.requester() == 0 && size <= 4 && has_functions(vcpu) => {
            bridge(offset, size).into()
        }
        _ => u64::MAX,
    }
}

/// Reads the host bridge's configuration space.
fn bridge(offset: u16, size: u8) -> u32 {
    let word = |at: u16| u64::from(BRIDGE.get(usize::from(at)).copied().unwrap_or(0));
    let at = offset / 4;
    let words = word(at) | word(at.saturating_add(1)) << 32;
    (words >> (offset % 4 * 8)) as u32 & absent(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bridge_is_read_in_parts() {
        let read = [(0, 4), (0, 2), (2, 2), (8, 4), (10, 2), (11, 1), (12, 4), (0xffc, 4), (3, 1)]
            .map(|(offset, size)| bridge(offset, size));
        assert_eq!(read, [0x0008_1b36, 0x1b36, 8, 0x0600_0000, 0x600, 6, 0, 0, 0]);
    }
}
