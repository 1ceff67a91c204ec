// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PCs: ports, and what the chip set does when processors are reset.

use crate::arch::Monitor;
use crate::arch::vm::Vcpu;
use crate::arch::vm::Vm;
use crate::system::System;

impl Monitor for System {
    fn port_read(&self, vm: &'static Vm, port: u16, size: u8) -> Option<u64> {
        self.guest(vm)?.devices().port_read(vm, port, size)
    }

    fn port_write(&self, vcpu: &'static Vcpu, port: u16, size: u8, value: u64) -> bool {
        let guest = self.guest(vcpu.vm);
        guest.is_some_and(|guest| guest.devices().port_write(vcpu.vm, vcpu.index, port, size, value))
    }

    fn resumes(&self, vm: &'static Vm) -> bool {
        self.guest(vm).is_some_and(|guest| guest.devices().resumes())
    }

    fn shut_down(&self, vcpu: &'static Vcpu) {
        if let Some(guest) = self.guest(vcpu.vm) {
            guest.devices().shut_down(vcpu.vm, vcpu.index);
        }
    }
}
