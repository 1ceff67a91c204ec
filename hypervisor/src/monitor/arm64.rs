// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Armv8-A: flash.

use crate::arch::Monitor;
use crate::arch::memory::flash::Access;
use crate::arch::vm::Vm;
use crate::system::System;

impl Monitor for System {
    fn flash(&self, vm: &'static Vm, access: Access) -> Option<u64> {
        self.guest(vm).map_or(Some(0), |guest| guest.machine.flash(vm, access))
    }
}
