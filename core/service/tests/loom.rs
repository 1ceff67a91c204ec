// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Model-checks the gate: every interleaving, every value a weak memory order allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p turnstile-service --release --test loom`
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::Notify;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use turnstile_service::abi::{Answer, Event, Kind};
use turnstile_service::gate::{Gate, Pending};
use turnstile_service::request::Request;

/// A service whose memory is a sum. It is read and written apart, and without order: if two are inside, or one does not see what
/// the one before has left, something is missing in it.
struct Service {
    gate: Gate,
    memory: AtomicU32,
    /// What a guest has put into its ring, and nobody has taken.
    ring: AtomicU32,
    kills: AtomicU32,
}

impl Service {
    fn new() -> Arc<Self> {
        Self::behind(Gate::new())
    }

    fn behind(gate: Gate) -> Arc<Self> {
        Arc::new(Self { gate, memory: AtomicU32::new(0), ring: AtomicU32::new(0), kills: AtomicU32::new(0) })
    }

    fn add(&self, number: u32) {
        self.memory.store(self.memory.load(Ordering::Relaxed) + number, Ordering::Relaxed);
    }

    fn handle(&self, pending: Pending) {
        if pending.has(Pending::KILL) {
            self.kills.fetch_add(1, Ordering::Relaxed);
        }
        if pending.queues() != 0 {
            // Relaxed: what orders it is the gate.
            let taken = self.ring.swap(0, Ordering::Relaxed);
            self.add(taken);
        }
    }

    fn handle_all(&self, mut pending: Option<Pending>) {
        while let Some(some) = pending {
            self.handle(some);
            pending = self.gate.leave();
        }
    }

    fn ring(&self) {
        self.ring.fetch_add(1, Ordering::Relaxed);
        self.handle_all(self.gate.post(Pending::doorbell(0)));
    }

    /// Goes inside at once if nobody is.
    fn ring_shortly(&self) {
        self.ring.fetch_add(1, Ordering::Relaxed);
        if self.gate.enter() {
            self.handle(Pending::doorbell(0));
            return self.handle_all(self.gate.leave());
        }
        self.handle_all(self.gate.post(Pending::doorbell(0)));
    }

    fn access(&self) {
        while !self.gate.enter() {
            thread::yield_now();
        }
        self.add(100);
        self.handle_all(self.gate.leave());
    }

    fn memory(&self) -> u32 {
        self.memory.load(Ordering::Relaxed)
    }
}

#[test]
fn no_doorbell_is_lost() {
    loom::model(|| {
        let service = Service::new();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let service = service.clone();
                thread::spawn(move || service.ring())
            })
            .collect();
        service.ring();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(!service.gate.is_inside());
        assert_eq!((service.memory(), service.ring.load(Ordering::Relaxed)), (3, 0));
    });
}

/// A guest writes into its ring by plain stores: who handles the doorbell finds them.
#[test]
fn what_was_written_before_a_doorbell_is_seen() {
    loom::model(|| {
        let shared = Arc::new((Gate::new(), AtomicU32::new(0)));
        assert!(shared.0.enter());
        let other = shared.clone();
        let inside = thread::spawn(move || {
            let (gate, written) = &*other;
            if gate.leave().is_some() {
                assert_eq!(written.load(Ordering::Relaxed), 1);
            }
        });
        shared.1.store(1, Ordering::Relaxed);
        let _ = shared.0.add(Pending::doorbell(0));
        inside.join().unwrap();
    });
}

#[test]
fn an_access_and_doorbells_meet() {
    loom::model(|| {
        let service = Service::new();
        let other = service.clone();
        let other = thread::spawn(move || other.ring());
        service.access();
        other.join().unwrap();
        assert!(!service.gate.is_inside());
        assert_eq!(service.memory(), 101);
    });
}

#[test]
fn a_kill_is_seen_once_whoever_is_inside() {
    loom::model(|| {
        let service = Service::new();
        let other = service.clone();
        let other = thread::spawn(move || other.gate.kill());
        service.access();
        other.join().unwrap();
        service.ring();
        assert!(!service.gate.is_inside() && !service.gate.is_killed());
        assert_eq!((service.memory(), service.kills.load(Ordering::Relaxed)), (101, 1));
    });
}

#[test]
fn who_rings_by_the_short_way_loses_nothing() {
    loom::model(|| {
        let service = Service::new();
        let other = service.clone();
        let other = thread::spawn(move || other.ring_shortly());
        service.ring_shortly();
        other.join().unwrap();
        assert!(!service.gate.is_inside());
        assert_eq!((service.memory(), service.ring.load(Ordering::Relaxed)), (2, 0));
    });
}

/// A service that has a CPU of its own.
struct Own {
    service: Arc<Service>,
    request: Request,
    /// An interrupt of that CPU: it waits until one has come.
    kick: Notify,
}

impl Own {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            service: Service::behind(Gate::asleep()),
            request: Request::new(),
            kick: Notify::new(),
        })
    }

    /// What a guest does that rings: an exit that finds nobody inside takes all, and passes it on.
    fn ring(&self) {
        self.service.ring.fetch_add(1, Ordering::Relaxed);
        if self.service.gate.add(Pending::doorbell(0)) {
            let taken = self.service.gate.take();
            assert!(taken.has_found_asleep(), "nobody else is ever inside");
            self.service.gate.pass_on(taken);
            self.kick.notify();
        }
    }

    fn tell(&self, pending: Pending) {
        if self.service.gate.tell(pending) {
            self.kick.notify();
        }
    }

    fn ask(&self) -> u64 {
        let event = Event::new(Kind::Read, [5, 0, 0, 0, 0]);
        self.request.ask(&event, || self.tell(Pending::REQUEST), thread::yield_now).value
    }

    /// What the CPU does until so much has been handled.
    fn run(&self, all: u32) {
        while self.service.memory() + 1000 * self.service.kills.load(Ordering::Relaxed) != all {
            if self.service.gate.is_awake() && self.service.gate.has_any() {
                let pending = self.service.gate.take();
                assert!(!pending.has_found_asleep());
                self.service.handle(pending);
                if let Some(event) = self.request.event() {
                    self.service.add(100);
                    self.request.answer(&Answer { value: event.0[1] + 1, ..Answer::default() });
                }
            } else if !self.service.gate.is_awake() || self.service.gate.sleep() {
                self.kick.wait();
            } else {
                thread::yield_now();
            }
        }
    }
}

/// All interleavings with at most three switches away from who could go on: there are too many others.
fn model(act: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(act);
}

#[test]
fn a_cpu_of_its_own_loses_no_doorbell() {
    model(|| {
        let own = Own::new();
        let other = own.clone();
        let other = thread::spawn(move || other.ring());
        let cpu = own.clone();
        let cpu = thread::spawn(move || cpu.run(2));
        other.join().unwrap();
        own.ring();
        cpu.join().unwrap();
        assert_eq!(own.service.ring.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_cpu_of_its_own_answers_who_asks_and_hears_who_rings() {
    model(|| {
        let own = Own::new();
        let cpu = own.clone();
        let cpu = thread::spawn(move || cpu.run(101));
        own.ring();
        assert_eq!(own.ask(), 6);
        cpu.join().unwrap();
        assert_eq!(own.service.ring.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_cpu_of_its_own_sees_a_kill_whatever_it_does() {
    model(|| {
        let own = Own::new();
        let cpu = own.clone();
        let cpu = thread::spawn(move || cpu.run(1001));
        own.tell(Pending::KILL);
        own.ring();
        cpu.join().unwrap();
    });
}
