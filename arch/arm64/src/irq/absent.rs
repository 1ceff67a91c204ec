// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The virtual CPU interface of a vCPU that is in no CPU: nothing of it is in hardware.

use turnstile_vgic::{GroupEnables, ListRegister, LrState, Maintenance, VirtualInterface};

/// No virtual CPU interface. The model of a vCPU that is not resident has nothing in list registers and does not plan
/// any, so it asks for nothing here but the end of physical interrupts; and those were ended when it was put.
#[derive(Debug)]
pub struct Absent {
    /// The lines that would be high if the vCPU were in a CPU, as far as that can be known: a bit for each PPI.
    pub lines: u32,
}

impl VirtualInterface for Absent {
    fn encode(_: ListRegister) -> u64 {
        0
    }

    fn read_lr(&mut self, _: usize) -> LrState {
        LrState::Invalid
    }

    fn write_lr(&mut self, _: usize, _: ListRegister) {}

    fn clear_lr(&mut self, _: usize) {}

    fn empty_lrs(&mut self) -> u16 {
        u16::MAX
    }

    fn eoi_lrs(&mut self) -> u16 {
        0
    }

    fn take_eoi_count(&mut self) -> u8 {
        0
    }

    fn set_maintenance(&mut self, _: Maintenance) {}

    fn group_enables(&mut self) -> GroupEnables {
        GroupEnables { group0: true, group1: true }
    }

    fn is_asserted(&mut self, pintid: u32) -> bool {
        self.lines >> (pintid & 31) & 1 != 0
    }

    fn deactivate_physical(&mut self, _: u32) {}
}
