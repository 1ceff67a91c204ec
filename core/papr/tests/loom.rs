// SPDX-License-Identifier: Apache-2.0 OR MIT
//! XICS and the starts of vCPUs under all interleavings. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p turnstile-papr --release --test loom`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use turnstile_papr::processors::{Processors, Start};
use turnstile_papr::xics::{Change, IPI, Icp, Ics, NEVER, Servers};

const SOURCE: u32 = 16;

struct Vm {
    icp: Icp,
    ics: Ics,
    told: AtomicU32,
}

impl Servers for Vm {
    fn icp(&self, server: u32) -> Option<&Icp> {
        (server == 0).then_some(&self.icp)
    }

    fn notify(&self, _: u32) {
        self.told.fetch_add(1, Ordering::Release);
    }
}

impl Vm {
    fn new() -> Arc<Self> {
        let vm = Self { icp: Icp::new(), ics: Ics::new(SOURCE, 1), told: AtomicU32::new(0) };
        vm.settle(vm.icp.set_priority(NEVER));
        vm.ics.set_route(SOURCE, 0, 5, &vm);
        Arc::new(vm)
    }

    fn settle(&self, change: Change) {
        self.ics.settle(0, change, self);
    }
}

/// An IPI is asked for while the vCPU ends another interrupt: it is presented in the end, and the vCPU was told.
#[test]
fn an_ipi_is_not_lost_at_the_end_of_another_interrupt() {
    loom::model(|| {
        let vm = Vm::new();
        vm.ics.trigger(SOURCE, &*vm);
        let xirr = vm.icp.accept();
        vm.told.store(0, Ordering::Relaxed);
        let sender = {
            let vm = vm.clone();
            thread::spawn(move || vm.settle(vm.icp.set_request(6)))
        };
        vm.settle(vm.icp.end(xirr));
        sender.join().unwrap();
        assert_eq!(vm.icp.poll().0 & 0xff_ffff, IPI);
        assert!(vm.told.load(Ordering::Relaxed) > 0);
    });
}

/// A source comes while the vCPU accepts and ends it: the second time is presented, or was part of the first.
#[test]
fn a_source_that_is_refused_is_offered_again() {
    loom::model(|| {
        let vm = Vm::new();
        vm.ics.trigger(SOURCE, &*vm);
        let xirr = vm.icp.accept();
        assert_eq!(xirr & 0xff_ffff, SOURCE);
        let device = {
            let vm = vm.clone();
            thread::spawn(move || vm.ics.trigger(SOURCE, &*vm))
        };
        vm.settle(vm.icp.end(xirr));
        device.join().unwrap();
        // It came after the first was accepted.
        assert_eq!(vm.icp.poll().0 & 0xff_ffff, SOURCE);
    });
}

/// An IPI displaces a source while the vCPU raises its priority: neither is lost.
#[test]
fn a_displaced_source_comes_back() {
    loom::model(|| {
        let vm = Vm::new();
        vm.ics.trigger(SOURCE, &*vm);
        let sender = {
            let vm = vm.clone();
            thread::spawn(move || vm.settle(vm.icp.set_request(4)))
        };
        vm.settle(vm.icp.set_priority(5));
        sender.join().unwrap();
        assert_eq!(vm.icp.accept(), 5 << 24 | IPI);
        let _ = vm.icp.set_request(NEVER);
        vm.settle(vm.icp.set_priority(NEVER));
        assert_eq!(vm.icp.poll().0 & 0xff_ffff, SOURCE);
    });
}

/// Of two that start a vCPU one wins, and the vCPU finds what that one has written.
#[test]
fn one_of_two_starts_a_vcpu() {
    loom::model(|| {
        let processors = Arc::new(Processors::new(2));
        let starters = [1u64, 2].map(|number| {
            let processors = processors.clone();
            thread::spawn(move || {
                processors.start(1, Start { entry: number * 0x100, argument: number }).is_ok()
            })
        });
        let mut taken = processors.take_start(1);
        let won = starters.map(|starter| starter.join().unwrap());
        taken = taken.or_else(|| processors.take_start(1));
        assert_ne!(won[0], won[1]);
        let winner = if won[0] { 1 } else { 2 };
        assert_eq!(taken, Some(Start { entry: winner * 0x100, argument: winner }));
        assert_eq!(processors.take_start(1), None);
    });
}
