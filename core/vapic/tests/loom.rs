// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Posting from other physical CPUs under all interleavings. Run with
//! `RUSTFLAGS="--cfg loom" cargo test --release --test loom`.
#![cfg(loom)]

use loom::sync::{Arc, Mutex};
use loom::thread;
use turnstile_vapic::{IoApic, Mailbox};
use turnstile_vm::attention::{Attention, Reasons};

struct Vcpu {
    attention: Attention,
    mailbox: Mailbox,
}

impl Vcpu {
    fn new() -> Arc<Self> {
        Arc::new(Self { attention: Attention::new(), mailbox: Mailbox::new() })
    }

    /// The owner looks, if it has a reason to.
    fn look(&self, mut deliver: impl FnMut(u8, bool)) {
        if self.attention.is_pending() {
            self.mailbox.drain(self.attention.take(), &mut deliver);
        }
    }
}

/// Two posters, one of them of the same vector by both ways: each vector arrives, and the reason to look with it.
#[test]
fn nothing_posted_is_lost() {
    loom::model(|| {
        let vcpu = Vcpu::new();
        let posters = [(0x41, false), (0x61, true)].map(|(vector, level)| {
            let vcpu = vcpu.clone();
            thread::spawn(move || {
                let _ = vcpu.mailbox.post(&vcpu.attention, vector, level);
            })
        });
        let mut seen = [0; 2];
        let mut deliver = |vector, level| {
            assert_eq!(level, vector == 0x61);
            seen[usize::from(level)] += 1;
        };
        vcpu.look(&mut deliver);
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        vcpu.look(&mut deliver);
        assert_eq!(seen, [1, 1]);
        assert!(!vcpu.attention.is_pending());
    });
}

/// A device raises its line while the same vector comes as an edge: whichever the owner finds first, the I/O APIC hears of
/// the end, and its pin is free in the end.
#[test]
fn a_level_that_meets_an_edge_is_ended() {
    use std::num::NonZeroU64;
    use turnstile_vapic::{Bus, Context, Hardware, Lapic, Routes, Signal};

    #[derive(Default)]
    struct Machine(Option<u8>);
    impl Hardware for Machine {
        fn is_waiting(&self) -> bool {
            self.0.is_some()
        }
        fn offer(&mut self, vector: u8, _: bool) {
            self.0 = Some(vector);
        }
        fn withdraw(&mut self) {
            self.0 = None;
        }
        fn task_priority(&self) -> u8 {
            0
        }
        fn set_task_priority(&mut self, _: u8) {}
        fn eoi_word(&self, _: NonZeroU64) -> bool {
            unreachable!()
        }
        fn set_eoi_word(&mut self, _: NonZeroU64, _: bool) {}
        fn now(&self) -> u64 {
            0
        }
        fn arm(&mut self, _: u64) {}
    }

    struct Vm {
        vcpu: Arc<Vcpu>,
        ioapic: Mutex<IoApic>,
        routes: Routes,
    }
    impl Vm {
        fn line(&self, asserted: bool) {
            self.ioapic.lock().unwrap().set_line(0, asserted, |message| self.deliver(message));
        }
    }
    impl Bus for Vm {
        fn routes(&self) -> &Routes {
            &self.routes
        }
        fn post(&self, _: usize, vector: u8, level: bool) {
            let _ = self.vcpu.mailbox.post(&self.vcpu.attention, vector, level);
        }
        fn signal(&self, _: usize, _: Signal) {}
        fn end_of_interrupt(&self, vector: u8) {
            self.ioapic.lock().unwrap().end_of_interrupt(vector, |message| self.deliver(message));
        }
        fn acknowledge(&self, _: u8) -> Option<u8> {
            None
        }
    }

    loom::model(|| {
        let vm =
            Arc::new(Vm { vcpu: Vcpu::new(), ioapic: Mutex::new(IoApic::new()), routes: Routes::new(1) });
        vm.ioapic.lock().unwrap().write(0, 0x10, |_| {});
        vm.ioapic.lock().unwrap().write(0x10, 1 << 15 | 0x41, |_| {});
        let mut lapic = Lapic::new(0, true);
        let mut machine = Machine::default();
        let mut cx = Context { hardware: &mut machine, bus: &*vm };
        lapic.reset(&mut cx);
        lapic.set_base(&mut cx, 0xfee0_0c00, |_| false).unwrap();
        lapic.write_msr(&mut cx, 0x80f, 0x1ff).unwrap();
        vm.post(0, 0x41, false);
        let device = {
            let vm = vm.clone();
            thread::spawn(move || vm.line(true))
        };
        let mut served = false;
        let mut guest = |cx: &mut Context<'_, Machine, Vm>| {
            lapic.drain(cx, &vm.vcpu.mailbox, vm.vcpu.attention.take());
            if cx.hardware.0.take().is_some() {
                // The handler serves the device, if it finds it asking.
                vm.line(false);
                lapic.write_msr(cx, 0x80b, 0).unwrap();
                served = true;
            }
        };
        guest(&mut cx);
        device.join().unwrap();
        for _ in 0..3 {
            guest(&mut cx);
        }
        assert!(served);
        vm.ioapic.lock().unwrap().write(0, 0x10, |_| {});
        let entry = vm.ioapic.lock().unwrap().read(0x10);
        assert_eq!(entry & 1 << 14, 0, "remote IRR is set for ever");
    });
}
