// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attention, inbox and remote operations as one thread and as real threads see them.
#![cfg(not(loom))]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use proptest::prelude::*;
use turnstile_vm::attention::{Attention, Posted, Reasons};
use turnstile_vm::inbox::Inbox;
use turnstile_vm::remote::{Payload, RemoteCell};

#[test]
fn the_first_poster_kicks_and_the_others_do_not() {
    let attention = Attention::new();
    attention.load(5);
    assert!(!attention.is_pending());
    assert_eq!(attention.post(Reasons::STOP), Posted::Kick(5));
    assert_eq!(attention.post(Reasons::INBOX), Posted::Seen);
    assert_eq!(attention.post(Reasons::STOP), Posted::Seen);
    assert!(attention.is_pending());
    assert_eq!(attention.take(), Reasons::STOP | Reasons::INBOX);
    assert!(!attention.is_pending());
    assert_eq!(attention.take(), Reasons::empty());
    assert_eq!(attention.post(Reasons::SERVICE), Posted::Kick(5));
}

#[test]
fn taking_some_reasons_leaves_the_others() {
    let attention = Attention::new();
    attention.load(1);
    attention.raise(Reasons::REMOTE | Reasons::STOP);
    assert_eq!(attention.take_only(Reasons::REMOTE | Reasons::INBOX), Reasons::REMOTE);
    assert!(attention.is_pending());
    assert_eq!(attention.post(Reasons::INBOX), Posted::Seen, "the owner has to look anyway");
    assert_eq!(attention.take(), Reasons::STOP | Reasons::INBOX);
}

#[test]
fn a_queued_vcpu_keeps_its_reasons_and_is_not_kicked() {
    let attention = Attention::new();
    assert_eq!((attention.residence(), attention.post(Reasons::INBOX)), (None, Posted::Seen));
    attention.load(3);
    assert_eq!(attention.residence(), Some(3));
    assert!(attention.is_pending());
    attention.take();
    attention.put();
    assert_eq!(attention.post(Reasons::INBOX), Posted::Seen);
}

#[test]
fn a_parked_vcpu_is_woken_once() {
    let attention = Attention::new();
    attention.load(3);
    assert!(attention.park());
    assert_eq!(attention.residence(), None);
    assert_eq!(attention.post(Reasons::INBOX), Posted::Wake);
    assert_eq!(attention.post(Reasons::STOP), Posted::Seen);
    assert!(!attention.wake(), "it is queued");
    attention.load(4);
    assert_eq!(attention.take(), Reasons::INBOX | Reasons::STOP | Reasons::DEADLINE);
    assert!(attention.park());
    assert!(attention.wake(), "its time has come");
    assert_eq!(attention.post(Reasons::INBOX), Posted::Seen);
}

#[test]
fn a_vcpu_with_something_to_look_at_is_not_parked() {
    let attention = Attention::new();
    attention.load(3);
    attention.raise(Reasons::INBOX);
    assert!(!attention.park());
    assert_eq!(attention.residence(), None);
    assert!(!attention.wake(), "who tried to park it has it");
}

#[test]
fn a_claim_is_exclusive_and_a_post_meanwhile_wakes_when_it_ends() {
    let attention = Attention::new();
    attention.load(3);
    assert!(attention.claim().is_none(), "it is resident");
    assert!(attention.park());
    let claim = attention.claim().expect("it is parked");
    assert!(attention.claim().is_none());
    assert_eq!(attention.post(Reasons::INBOX), Posted::Seen);
    assert_eq!(attention.residence(), None);
    assert_eq!(attention.release(claim), Posted::Wake);
    let claim = attention.claim().expect("it is queued");
    assert_eq!(attention.release(claim), Posted::Seen);
    attention.load(4);
    assert_eq!(attention.residence(), Some(4));
}

#[test]
fn an_intid_beyond_the_inbox_is_dropped() {
    let (attention, inbox) = (Attention::new(), Inbox::<4>::new());
    attention.load(1);
    for intid in [128, 1019, 8192, u32::MAX] {
        assert_eq!(inbox.post(&attention, intid), Posted::Seen);
    }
    assert!(!attention.is_pending());
    inbox.drain(|intid| panic!("delivered {intid}"));
}

proptest! {
    #[test]
    fn each_posted_interrupt_is_delivered_once_in_ascending_order(intids in prop::collection::vec(0..128u32, 0..64)) {
        let (attention, inbox) = (Attention::new(), Inbox::<4>::new());
        attention.load(1);
        let kicks = intids.iter().filter(|&&intid| inbox.post(&attention, intid) != Posted::Seen).count();
        prop_assert_eq!(kicks, usize::from(!intids.is_empty()));
        let mut found = Vec::new();
        inbox.drain(|intid| found.push(intid));
        let expected: Vec<_> = intids.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        prop_assert_eq!(found, expected);
        inbox.drain(|intid| panic!("delivered {intid} again"));
    }
}

#[test]
fn nothing_is_lost_between_real_threads() {
    let (attention, inbox) = (Attention::new(), Inbox::<4>::new());
    attention.load(1);
    // Each poster waits for its interrupt to be taken before it posts it again.
    let taken: [AtomicU32; 3] = Default::default();
    const ROUNDS: u32 = 2_000;
    thread::scope(|scope| {
        for (me, taken) in (0u32..).zip(&taken) {
            let (attention, inbox) = (&attention, &inbox);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let _ = inbox.post(attention, me * 40);
                    while taken.load(Ordering::Acquire) == round {
                        thread::yield_now();
                    }
                }
            });
        }
        while taken.iter().any(|taken| taken.load(Ordering::Relaxed) < ROUNDS) {
            if attention.is_pending() && attention.take().contains(Reasons::INBOX) {
                inbox.drain(|intid| {
                    taken[intid as usize / 40].fetch_add(1, Ordering::Release);
                });
            }
            thread::yield_now();
        }
    });
    assert!(taken.iter().all(|taken| taken.load(Ordering::Relaxed) == ROUNDS));
}

#[test]
fn remote_operations_are_done_by_the_owner_for_one_requester_at_a_time() {
    #[derive(Clone, Copy)]
    struct Add(u64, u64);
    impl From<Add> for Payload {
        fn from(add: Add) -> Self {
            [add.0, add.1, 0, 0]
        }
    }
    impl From<Payload> for Add {
        fn from(payload: Payload) -> Self {
            Add(payload[0], payload[1])
        }
    }
    let (attention, cell, done) = (Attention::new(), RemoteCell::new(), AtomicBool::new(false));
    attention.load(1);
    assert!(!cell.serve(|_: Add| panic!("nothing was requested")));
    thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let mut served = 0;
            while !done.load(Ordering::Relaxed) {
                served += u32::from(cell.serve(|add: Add| {
                    assert!(!cell.serve(|_: Add| panic!("served twice")));
                    add.0 + add.1
                }));
                thread::yield_now();
            }
            served
        });
        let requester = |base: u64| {
            for value in 0..500 {
                let sum = cell.call(&attention, Add(base, value), |_| {}, thread::yield_now);
                assert_eq!(sum, base + value);
            }
        };
        let other = scope.spawn(move || requester(1 << 40));
        requester(0);
        other.join().unwrap();
        done.store(true, Ordering::Relaxed);
        assert_eq!(owner.join().unwrap(), 1000);
    });
}
