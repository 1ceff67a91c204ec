// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Model-checks the gate: every interleaving, every value a weak memory order allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p turnstile-service --release --test loom`
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use turnstile_service::gate::{Gate, Pending};

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
        Arc::new(Self {
            gate: Gate::new(),
            memory: AtomicU32::new(0),
            ring: AtomicU32::new(0),
            kills: AtomicU32::new(0),
        })
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
