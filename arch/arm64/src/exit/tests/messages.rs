// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of devices behind MMIO.

use turnstile_vgic::Model;

use super::machine::{parts_of, vm_with};
use crate::state::pmu::Kind;
use crate::vm::{Vm, VmParts};

/// As many as the VM has behind MMIO, and only at the first byte.
#[test]
fn a_message_to_the_registers_of_a_device_is_an_edge_of_its_line() {
    let vm = |virtio| vm_with(VmParts { virtio, ..parts_of(0, Model::Gicv3, 1, Kind::Off, false, false) });
    let intids = |vm: &Vm| [0, 0x200, 0x400, 4].map(|offset| vm.line_intid(0x0a00_0000 + offset));
    let two = vm(2);
    assert_eq!(intids(two), [Some(48), Some(49), None, None]);
    assert!(two.message(0x0a00_0200, 0) && !two.message(0x0a00_0400, 0));
    assert_eq!(intids(vm(0)), [None; 4]);
}
