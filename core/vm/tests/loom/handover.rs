// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was done before something is handed over comes with it: vCPUs between CPUs, lives of a VM, starts of vCPUs.
//!
//! Who hands over is the first thread: loom looks at the last access to a value alone when it thinks of other orders.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use turnstile_vm::attention::{Attention, Posted, Reasons};
use turnstile_vm::inbox::Inbox;
use turnstile_vm::lifecycle::{Lifecycle, Phase, Stop};
use turnstile_vm::psci::{Action, Psci, Start};
use turnstile_vm::remote::{Payload, RemoteCell};

/// Somebody does something and hands `what` over, to who finds that it `has` it and then what was done.
pub(crate) fn comes_with<T: Send + Sync + 'static>(
    what: impl Fn() -> T + Send + Sync + 'static,
    hand_over: fn(&T),
    has: fn(&T) -> bool,
) {
    loom::model(move || {
        let (what, done) = (Arc::new(what()), Arc::new(AtomicU32::new(0)));
        let next = {
            let (what, done) = (what.clone(), done.clone());
            thread::spawn(move || !has(&what) || done.load(Ordering::Relaxed) == 1)
        };
        done.store(1, Ordering::Relaxed);
        hand_over(&what);
        assert!(next.join().unwrap());
    });
}

fn resident() -> Attention {
    let attention = Attention::new();
    attention.load(1);
    attention
}

#[test]
fn a_vcpu_that_is_parked_comes_to_who_wakes_it() {
    comes_with(
        resident,
        |attention| {
            // A reason that is there already has its poster wake it, or this.
            let _ = attention.park();
        },
        |attention| attention.post(Reasons::INBOX) == Posted::Wake,
    );
}

#[test]
fn a_vcpu_that_is_put_comes_to_who_loads_it() {
    comes_with(resident, Attention::put, |attention| {
        attention.load(2);
        true
    });
}

#[test]
fn a_vcpu_that_is_put_comes_to_who_claims_it() {
    comes_with(resident, Attention::put, |attention| attention.claim().is_some());
}

#[test]
fn a_vcpu_that_was_claimed_comes_to_who_has_it_next() {
    loom::model(|| {
        let (attention, done) = (Arc::new(Attention::new()), Arc::new(AtomicU32::new(0)));
        let claim = attention.claim().unwrap();
        let next = {
            let (attention, done) = (attention.clone(), done.clone());
            // Claims it: a load has a fence, which would make up for what the end of the claim lacks.
            thread::spawn(move || attention.claim().is_none() || done.load(Ordering::Relaxed) == 1)
        };
        done.store(1, Ordering::Relaxed);
        assert_eq!(attention.release(claim), Posted::Seen);
        assert!(next.join().unwrap());
    });
}

#[test]
fn an_interrupt_that_is_drained_comes_with_what_its_poster_did() {
    comes_with(
        || (Inbox::<2>::new(), resident()),
        |(inbox, attention)| assert_eq!(inbox.post(attention, 9), Posted::Kick(1)),
        |(inbox, _)| {
            let mut found = false;
            inbox.drain(|intid| found |= intid == 9);
            found
        },
    );
}

#[test]
fn reasons_that_are_taken_come_with_what_they_are_about() {
    comes_with(
        resident,
        |attention| assert_eq!(attention.post(Reasons::REMOTE), Posted::Kick(1)),
        |attention| attention.take_only(Reasons::REMOTE) == Reasons::REMOTE,
    );
    comes_with(
        resident,
        |attention| assert_eq!(attention.post(Reasons::REMOTE), Posted::Kick(1)),
        |attention| attention.take() == Reasons::REMOTE,
    );
}

#[test]
fn a_life_comes_with_what_was_prepared() {
    comes_with(|| Lifecycle::new(1), |life| assert!(life.start()), |life| life.phase() == Phase::Running);
}

#[test]
fn a_stop_comes_with_what_led_to_it() {
    comes_with(
        || {
            let life = Lifecycle::new(1);
            assert!(life.start());
            life
        },
        |life| assert!(life.begin_stop(Stop::Reset)),
        |life| life.phase() == Phase::Stopping(Stop::Reset),
    );
}

#[test]
fn the_last_to_acknowledge_finds_what_the_others_have_done() {
    comes_with(
        || {
            let life = Lifecycle::new(2);
            assert!(life.start() && life.begin_stop(Stop::Reset));
            life
        },
        |life| {
            let _ = life.acknowledge(0);
        },
        |life| life.acknowledge(1).is_some(),
    );
}

#[test]
fn a_vm_that_has_stopped_comes_with_its_teardown() {
    comes_with(
        || {
            let life = Lifecycle::new(1);
            assert!(life.start() && life.begin_stop(Stop::Reset));
            assert_eq!(life.acknowledge(0), Some(Stop::Reset));
            life
        },
        Lifecycle::finish,
        |life| life.phase() == Phase::Stopped(Stop::Reset),
    );
}

const CPU_OFF: u32 = 0x8400_0002;
const CPU_ON: u32 = 0xc400_0003;
const ENTRY: u64 = 0x2000;

fn turn_on(psci: &Psci) -> bool {
    psci.call(0, CPU_ON, [1, ENTRY, 7]) == Action::Start(1)
}

#[test]
fn a_vcpu_that_is_off_comes_to_who_turns_it_on() {
    comes_with(
        || {
            let psci = Psci::new(0..2, 0x1000..0x9000);
            assert!(turn_on(&psci));
            assert_eq!(psci.take_start(1), Some(Start { entry: ENTRY, context: 7 }));
            psci
        },
        |psci| assert_eq!(psci.call(1, CPU_OFF, [0; 3]), Action::Off),
        turn_on,
    );
}

#[test]
fn a_vcpu_that_is_turned_on_comes_with_its_start() {
    comes_with(
        || Psci::new(0..2, 0x1000..0x9000),
        |psci| assert!(turn_on(psci)),
        |psci| psci.take_start(1).is_some_and(|start| start.entry == ENTRY),
    );
}

/// The words that are given, and what is made of them.
const WORDS: Payload = [1, 2, 3, 4];

fn serve(cell: &RemoteCell) {
    while !cell.serve(|payload: Payload| {
        assert_eq!(payload, WORDS);
        10
    }) {
        thread::yield_now();
    }
}

fn request(cell: &RemoteCell, attention: &Attention) {
    assert_eq!(cell.call(attention, WORDS, |_| {}, thread::yield_now), 10);
}

#[test]
fn an_operation_comes_with_its_words() {
    loom::model(|| {
        let shared = Arc::new((RemoteCell::new(), Attention::new()));
        let owner = {
            let shared = shared.clone();
            thread::spawn(move || serve(&shared.0))
        };
        request(&shared.0, &shared.1);
        owner.join().unwrap();
    });
}

#[test]
fn a_result_comes_with_what_the_owner_has_done() {
    loom::model(|| {
        let shared = Arc::new((RemoteCell::new(), Attention::new(), AtomicU32::new(0)));
        let requester = {
            let shared = shared.clone();
            thread::spawn(move || {
                request(&shared.0, &shared.1);
                assert_eq!(shared.2.load(Ordering::Relaxed), 1);
            })
        };
        shared.2.store(1, Ordering::Relaxed);
        serve(&shared.0);
        requester.join().unwrap();
    });
}
