// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guest physical memory as an instruction sees it that is carried out for the guest: the local APIC's page, the I/O APIC, RAM
//! and ROM, what services serve, PCI's host bridge, and nothing. A PC has no other devices in memory.

use super::{apic, pci, service};
use crate::cpu::svm::Vmcb;
use crate::memory::user;
use crate::vm::Vcpu;

/// Where the I/O APIC is.
const IOAPIC: u64 = 0xfec0_0000;
/// Bytes of its registers.
const IOAPIC_SIZE: u64 = 0x1000;

/// What a device of the hypervisor's own is, at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// A register of the vCPU's local APIC.
    Apic(u32),
    /// A register of the I/O APIC.
    IoApic(u32),
}

/// Finds a device of the hypervisor's own. HOT.
#[inline(always)] // A few comparisons.
pub(super) fn own(vcpu: &'static Vcpu, address: u64) -> Option<Own> {
    if let Some(offset) = apic::page_offset(vcpu, address) {
        return Some(Own::Apic(offset));
    }
    let offset = address.wrapping_sub(IOAPIC);
    (offset < IOAPIC_SIZE).then_some(Own::IoApic(offset as u32))
}

/// Reads a device of the hypervisor's own.
#[inline(always)] // Two callers, one of them light.
pub(super) fn read_own(vcpu: &'static Vcpu, vmcb: &mut Vmcb, own: Own, size: u8) -> u64 {
    match own {
        Own::Apic(offset) => apic::read_page(vcpu, vmcb, offset, size),
        Own::IoApic(offset) => vcpu.vm.ioapic_read(offset).into(),
    }
}

/// Writes a device of the hypervisor's own.
#[inline(always)] // Two callers, one of them light.
pub(super) fn write_own(vcpu: &'static Vcpu, vmcb: &mut Vmcb, own: Own, size: u8, value: u64) {
    match own {
        Own::Apic(offset) => apic::write_page(vcpu, vmcb, offset, size, value),
        Own::IoApic(offset) => vcpu.vm.ioapic_write(offset, value as u32),
    }
}

/// Reads up to eight bytes. Where nothing is, they are ones.
pub(super) fn read(vcpu: &'static Vcpu, vmcb: &mut Vmcb, address: u64, size: u8) -> u64 {
    if let Some(host) = vcpu.vm.life().ram.host(address, size.into()) {
        let mut bytes = [0; 8];
        if let Some(part) = bytes.get_mut(..usize::from(size)) {
            // SAFETY: RAM of the VM, which runs.
            unsafe { user::copy_from(host, part) };
        }
        return u64::from_le_bytes(bytes);
    }
    if let Some(own) = own(vcpu, address) {
        return read_own(vcpu, vmcb, own, size);
    }
    service::at_address(vcpu, address).map_or_else(
        || pci::read_memory(vcpu, address, size),
        |found| found.access_fully(vcpu, &found.event(true, size, 0)),
    )
}

/// Writes up to eight bytes. Where nothing is, they are lost.
pub(super) fn write(vcpu: &'static Vcpu, vmcb: &mut Vmcb, address: u64, size: u8, value: u64) {
    if let Some(host) = vcpu.vm.life().ram.host(address, size.into()) {
        if let Some(part) = value.to_le_bytes().get(..usize::from(size)) {
            // SAFETY: RAM of the VM, which runs.
            unsafe { user::copy_to(host, part) };
        }
        return;
    }
    if let Some(own) = own(vcpu, address) {
        write_own(vcpu, vmcb, own, size, value);
    } else if let Some(found) = service::at_address(vcpu, address) {
        found.write_fully(vcpu, size, value);
    }
}
