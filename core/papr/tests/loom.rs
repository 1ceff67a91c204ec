// SPDX-License-Identifier: Apache-2.0 OR MIT
//! XICS, the starts of vCPUs and the log of dispatches under all interleavings. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p turnstile-papr --release --test loom`.
//!
//! Who writes is the first thread where it is about what comes with a value: loom looks at the last access to a value alone when it
//! thinks of other orders, and would not find the one in which a thread reads and then exchanges before the first one looks.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use turnstile_papr::Memory;
use turnstile_papr::code::Code;
use turnstile_papr::dispatch::{Left, Turn};
use turnstile_papr::processors::{Processors, Start};
use turnstile_papr::vpa::{Areas, offset};
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

fn start(number: u64) -> Start {
    Start { entry: number * 0x100, argument: number, little_endian: number == 1 }
}

/// Of two that start a vCPU one wins, and the vCPU finds what that one has written.
#[test]
fn one_of_two_starts_a_vcpu() {
    loom::model(|| {
        let processors = Arc::new(Processors::new(2));
        let starters = [1u64, 2].map(|number| {
            let processors = processors.clone();
            thread::spawn(move || processors.start(1, start(number)).is_ok())
        });
        let mut taken = processors.take_start(1);
        let won = starters.map(|starter| starter.join().unwrap());
        taken = taken.or_else(|| processors.take_start(1));
        assert_ne!(won[0], won[1]);
        let winner = if won[0] { 1 } else { 2 };
        assert_eq!(taken, Some(start(winner)));
        assert_eq!(processors.take_start(1), None);
    });
}

/// Who starts a vCPU that has stopped finds what that has done.
#[test]
fn a_stop_comes_with_what_was_done_before() {
    loom::model(|| {
        let (processors, done) = (Arc::new(Processors::new(1)), Arc::new(AtomicU32::new(0)));
        assert!(processors.start(0, start(1)).is_ok() && processors.take_start(0).is_some());
        let starter = {
            let (processors, done) = (processors.clone(), done.clone());
            thread::spawn(move || processors.start(0, start(2)).is_err() || done.load(Ordering::Relaxed) == 1)
        };
        done.store(1, Ordering::Relaxed);
        processors.stop(0);
        assert!(starter.join().unwrap());
    });
}

/// Who accepts an IPI, or sees it by polling, finds what its sender has done.
#[test]
fn an_ipi_comes_with_what_its_sender_did() {
    for polls in [false, true] {
        loom::model(move || {
            let (vm, done) = (Vm::new(), Arc::new(AtomicU32::new(0)));
            let receiver = {
                let (vm, done) = (vm.clone(), done.clone());
                thread::spawn(move || {
                    let xirr = if polls { vm.icp.poll().0 } else { vm.icp.accept() };
                    xirr & 0xff_ffff != IPI || done.load(Ordering::Relaxed) == 1
                })
            };
            done.store(1, Ordering::Relaxed);
            vm.settle(vm.icp.set_request(6));
            assert!(receiver.join().unwrap());
        });
    }
}

/// A source was refused and is offered again by its vCPU while it comes once more: it is accepted with what its device did then,
/// or comes again.
#[test]
fn a_source_comes_with_what_its_device_did() {
    loom::model(|| {
        let (vm, done) = (Vm::new(), Arc::new(AtomicU32::new(0)));
        vm.settle(vm.icp.set_priority(0));
        vm.ics.trigger(SOURCE, &*vm);
        let vcpu = {
            let (vm, done) = (vm.clone(), done.clone());
            thread::spawn(move || {
                vm.settle(vm.icp.set_priority(NEVER));
                let xirr = vm.icp.accept();
                let seen = xirr & 0xff_ffff == SOURCE && done.load(Ordering::Relaxed) == 1;
                (xirr, seen)
            })
        };
        done.store(1, Ordering::Relaxed);
        vm.ics.trigger(SOURCE, &*vm);
        let (xirr, seen) = vcpu.join().unwrap();
        vm.settle(vm.icp.end(xirr | NEVER_ACCEPTED));
        assert!(seen || vm.icp.poll().0 & 0xff_ffff == SOURCE);
    });
}

/// The least favoured priority, as it is returned with what is accepted.
const NEVER_ACCEPTED: u32 = (NEVER as u32) << 24;

/// What a guest registers, as the model checker sees it: whether the log has an entry, and its number.
struct Shared {
    entries: AtomicU32,
    number: AtomicU32,
}

const AREA: u64 = 0x1000;
const LOG: u64 = 0x2000;

impl Memory for Shared {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        bytes.fill(0);
        match address - offset::SIZE {
            // Sizes, which are read once each; all turns are to be logged.
            AREA => bytes.copy_from_slice(&(640u32 << 16).to_be_bytes()[..bytes.len()]),
            LOG => bytes.copy_from_slice(&4096u32.to_be_bytes()[..bytes.len()]),
            _ if address == AREA + offset::LOG_MASK => bytes.fill(7),
            _ => {}
        }
        true
    }

    fn write(&self, address: u64, _: &[u8]) -> bool {
        match address {
            LOG.. => self.entries.store(1, Ordering::Relaxed),
            _ if address == AREA + offset::LOG_INDEX => self.number.store(1, Ordering::Relaxed),
            _ => {}
        }
        true
    }
}

/// A guest that sees the number of an entry sees the entry.
#[test]
fn an_entry_of_the_log_comes_with_its_number() {
    loom::model(|| {
        let memory = Arc::new(Shared { entries: AtomicU32::new(0), number: AtomicU32::new(0) });
        let guest = {
            let memory = memory.clone();
            thread::spawn(move || {
                memory.number.load(Ordering::Acquire) == 0 || memory.entries.load(Ordering::Relaxed) == 1
            })
        };
        let mut areas = Areas::default();
        assert_eq!(areas.call(1 << 45, AREA, &*memory), Code::SUCCESS);
        assert_eq!(areas.call(2 << 45, LOG, &*memory), Code::SUCCESS);
        memory.number.store(0, Ordering::Relaxed);
        areas.leave(Left { now: 1, stolen: 0 }, &*memory);
        areas.dispatch(&Turn { processor: 0, now: 9, ready: 5, stolen: 4, pc: 0, msr: 0 }, &*memory);
        assert_eq!(memory.number.load(Ordering::Relaxed), 1, "it is logged");
        assert!(guest.join().unwrap());
    });
}
