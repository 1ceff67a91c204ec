// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serving physical interrupts that have arrived: this CPU's timer, its run queue, devices of the hypervisor.

use turnstile_arch_common::println;
use turnstile_vm::attention::Reasons;

use crate::irq::interrupts::{self, Arrived};
use crate::irq::lapic;
use crate::time;
use crate::vm::Vcpu;
use crate::vm::monitor::{Monitor, monitor};

/// Serves interrupts that have arrived on the CPU where `vcpu` is resident.
pub(crate) fn serve(vcpu: Option<&Vcpu>, monitor: &dyn Monitor, arrived: Arrived) {
    if arrived.contains(Arrived::TIMER) {
        let passed = time::end_deadlines();
        if let Some(vcpu) = vcpu {
            let reason = |passed, reason| if passed { reason } else { Reasons::empty() };
            let reasons =
                reason(passed.guest, Reasons::DEADLINE) | reason(passed.schedule, Reasons::RESCHEDULE);
            if !reasons.is_empty() {
                vcpu.attention.raise(reasons);
            }
        }
        if passed.devices {
            monitor.deadline();
        }
    }
    if let Some(vcpu) = vcpu
        && arrived.contains(Arrived::RESCHEDULE)
    {
        vcpu.attention.raise(Reasons::RESCHEDULE);
    }
    if arrived.contains(Arrived::DEVICES) {
        serve_devices(monitor, arrived);
    }
    if arrived.contains(Arrived::APIC_ERROR) {
        println!("turnstile: the local APIC reports errors: {:#x}", lapic::errors());
    }
}

#[inline(never)] // So that other interrupts pay one test for all of them.
fn serve_devices(monitor: &dyn Monitor, arrived: Arrived) {
    arrived.devices().for_each(|vector| monitor.interrupt(vector.into()));
}

/// Waits until this CPU, where no vCPU is resident, is interrupted or kicked, and handles that.
pub fn wait_for_interrupt() {
    serve(None, monitor(), interrupts::wait());
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::vec::Vec;

    use turnstile_arch_common::monitor::CommonMonitor;
    use turnstile_vm::lifecycle::Stop;

    use super::*;
    use crate::cpu::regs::fakes;
    use crate::vm::Vm;

    /// Keeps what it is told of.
    #[derive(Default)]
    struct Told(Mutex<Vec<u32>>);

    impl CommonMonitor<Vm> for Told {
        fn mmio_read(&self, _: &'static Vm, _: u64, _: u8) -> Option<u64> {
            None
        }
        fn mmio_write(&self, _: &'static Vm, _: u64, _: u8, _: u64) -> bool {
            false
        }
        fn interrupt(&self, number: u32) {
            self.0.lock().unwrap().push(number);
        }
        fn deadline(&self) {}
        fn waiting(&self, _: &'static Vm) {}
        fn stopped(&self, _: &'static Vm, _: Stop) {}
        fn paused(&self, _: &'static Vm) {}
        fn short_of_memory(&self, _: &'static Vm, _: u32) {}
        fn resumed(&self, _: &'static Vm) {}
    }

    impl Monitor for Told {
        fn port_read(&self, _: &'static Vm, _: u16, _: u8) -> Option<u64> {
            None
        }
        fn port_write(&self, _: &'static Vcpu, _: u16, _: u8, _: u64) -> bool {
            false
        }
        fn resumes(&self, _: &'static Vm) -> bool {
            false
        }
        fn shut_down(&self, _: &'static Vcpu) {}
    }

    #[test]
    fn each_interrupt_has_its_number() {
        fakes::reset();
        let numbers = |bits| {
            let told = Told::default();
            serve(None, &told, Arrived::from_bits(bits));
            told.0.into_inner().unwrap()
        };
        assert_eq!(numbers(0), []);
        assert_eq!(numbers(1), [0x30]);
        assert_eq!(numbers(4 | 8 | 16), [], "not the hypervisor's");
        for number in 0..8 {
            assert_eq!(numbers(32 << number), [0x31 + number]);
        }
        assert_eq!(numbers(1 | 32 | 4096), [0x30, 0x31, 0x38]);
        assert_eq!(numbers(!0x1fff), [], "there are no others");
    }
}
