// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Model-checks the protocols between vCPUs: every interleaving, every value a weak memory order allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p turnstile-vm --release --test loom`
#![cfg(loom)]

#[path = "loom/handover.rs"]
mod handover;
#[path = "loom/pause.rs"]
mod pause;
#[path = "loom/startup.rs"]
mod startup;

use std::sync::atomic::{AtomicUsize as Count, Ordering::Relaxed};

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use turnstile_vm::attention::{Attention, KickToken, Posted, Reasons};
use turnstile_vm::inbox::Inbox;
use turnstile_vm::lifecycle::{Lifecycle, Phase, Stop};
use turnstile_vm::psci::{Action, Psci, Start};
use turnstile_vm::remote::{Payload, RemoteCell};

/// A vCPU as its owner runs it, with the physical kick as the interrupt controller keeps it: pending until taken.
struct Vcpu {
    attention: Attention,
    inbox: Inbox<2>,
    cell: RemoteCell,
    kick: AtomicU32,
    kicks: Count,
    wakes: Count,
}

impl Vcpu {
    fn new(residence: KickToken) -> Self {
        let attention = Attention::new();
        attention.load(residence);
        Self {
            attention,
            inbox: Inbox::new(),
            cell: RemoteCell::new(),
            kick: AtomicU32::new(0),
            kicks: Count::new(0),
            wakes: Count::new(0),
        }
    }

    fn send_kick(&self) {
        self.kicks.fetch_add(1, Relaxed);
        // Release: the barrier that orders the kick behind the attention word. A read-modify-write: kicks merge,
        // but the interrupt taken in the end is ordered behind each of them.
        self.kick.fetch_or(1, Ordering::Release);
    }

    fn post(&self, intid: u32) {
        match self.inbox.post(&self.attention, intid) {
            Posted::Seen => {}
            Posted::Kick(_) => self.send_kick(),
            Posted::Wake => {
                self.wakes.fetch_add(1, Relaxed);
            }
        }
    }

    /// One round of the owner's loop: look before entering, then run the guest until a kick. Says whether a kick
    /// came; without one, the guest runs on.
    fn enter(&self, found: &mut Vec<u32>) -> bool {
        while self.attention.is_pending() {
            if self.attention.take().contains(Reasons::INBOX) {
                self.inbox.drain(|intid| found.push(intid));
            }
        }
        self.kick.swap(0, Ordering::Acquire) != 0
    }
}

#[test]
fn no_wake_up_is_lost_and_each_post_kicks_at_most_once() {
    loom::model(|| {
        let vcpu = Arc::new(Vcpu::new(1));
        let posters: Vec<_> = [3, 40]
            .map(|intid| {
                let vcpu = vcpu.clone();
                thread::spawn(move || vcpu.post(intid))
            })
            .into_iter()
            .collect();
        let mut found = Vec::new();
        let mut entries = 0;
        // The guest runs; each kick makes it exit and look.
        while vcpu.enter(&mut found) {
            entries += 1;
        }
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        // Whatever was posted later left its kick behind, or the word would be zero.
        while vcpu.kick.load(Ordering::Acquire) != 0 {
            vcpu.enter(&mut found);
            entries += 1;
        }
        // Without a kick the guest would run on for ever: nothing may be left.
        assert!(!vcpu.attention.is_pending(), "the guest runs while the word is not zero");
        found.sort();
        assert_eq!(found, [3, 40]);
        assert!(vcpu.kicks.load(Relaxed) <= 2 && entries <= 3);
    });
}

#[test]
fn posts_to_a_word_that_is_not_zero_do_not_kick() {
    loom::model(|| {
        let vcpu = Arc::new(Vcpu::new(1));
        let posters = [3, 40, 3].map(|intid| {
            let vcpu = vcpu.clone();
            thread::spawn(move || vcpu.post(intid))
        });
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        assert_eq!(vcpu.kicks.load(Relaxed), 1, "nobody cleared the word");
        let mut found = Vec::new();
        assert!(vcpu.enter(&mut found));
        assert_eq!(found, [3, 40]);
    });
}

#[test]
fn a_drained_interrupt_comes_with_what_its_poster_wrote() {
    loom::model(|| {
        let vcpu = Arc::new(Vcpu::new(1));
        let data = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let posters = [0u32, 1].map(|at| {
            let (vcpu, data) = (vcpu.clone(), data.clone());
            thread::spawn(move || {
                data[at as usize].store(7, Ordering::Relaxed);
                // The same word, so that one poster's exchange overwrites the other's.
                vcpu.post(at);
            })
        });
        if vcpu.attention.take().contains(Reasons::INBOX) {
            vcpu.inbox.drain(|intid| assert_eq!(data[intid as usize].load(Ordering::Relaxed), 7));
        }
        posters.into_iter().for_each(|poster| poster.join().unwrap());
    });
}

#[test]
fn a_post_meets_the_loading_of_a_vcpu() {
    loom::model(|| {
        let vcpu = Arc::new(Vcpu::new(1));
        vcpu.attention.put();
        let poster = {
            let vcpu = vcpu.clone();
            thread::spawn(move || vcpu.post(9))
        };
        vcpu.attention.load(1);
        let seen = vcpu.attention.is_pending();
        poster.join().unwrap();
        assert!(seen || vcpu.kicks.load(Relaxed) == 1, "loaded without seeing the post, and not kicked");
    });
}

#[test]
fn a_vcpu_is_parked_or_woken_once_whoever_comes_first() {
    loom::model(|| {
        let vcpu = Arc::new(Vcpu::new(1));
        let posters = [9, 10].map(|intid| {
            let vcpu = vcpu.clone();
            thread::spawn(move || vcpu.post(intid))
        });
        let parked = vcpu.attention.park();
        // Its time may come, too.
        let timed = parked && vcpu.attention.wake();
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        let holders = usize::from(!parked) + usize::from(timed) + vcpu.wakes.load(Relaxed);
        assert_eq!(holders, 1, "it is in one run queue");
        assert!(vcpu.attention.is_pending());
    });
}

#[test]
fn a_claim_keeps_the_state_to_itself_and_loses_no_post() {
    loom::model(|| {
        let vcpu = Arc::new(Vcpu::new(1));
        // What a claim guards: its users may not meet.
        let state = Arc::new(AtomicU32::new(0));
        let parked = vcpu.attention.park();
        assert!(parked);
        let poster = {
            let vcpu = vcpu.clone();
            thread::spawn(move || vcpu.post(3))
        };
        let claimer = {
            let (vcpu, state) = (vcpu.clone(), state.clone());
            thread::spawn(move || {
                let Some(claim) = vcpu.attention.claim() else { return };
                state.store(state.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                if vcpu.attention.release(claim) == Posted::Wake {
                    vcpu.wakes.fetch_add(1, Relaxed);
                }
            })
        };
        // The home finds that its deadline has come; or somebody hands it over.
        let own = vcpu.attention.wake();
        if own {
            vcpu.attention.load(2);
            state.store(state.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            vcpu.attention.put();
        }
        poster.join().unwrap();
        claimer.join().unwrap();
        assert_eq!(usize::from(own) + vcpu.wakes.load(Relaxed), 1, "exactly one has it");
        assert!(vcpu.attention.is_pending());
        let used = state.load(Ordering::Relaxed);
        assert!(u32::from(own) <= used && used <= 2);
    });
}

/// Serves a cell: adds the first and the last word, and one.
fn serve(vcpu: &Vcpu, served: &Count) {
    vcpu.cell.serve(|payload: Payload| {
        served.fetch_add(1, Relaxed);
        payload[0] + payload[3] + 1
    });
}

/// Something to wait for, where three threads that spin would be too much for the model checker.
#[derive(Default)]
struct Event {
    count: Mutex<u32>,
    changed: Condvar,
}

impl Event {
    fn signal(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    /// Waits for a signal that `seen` does not count yet.
    fn wait(&self, seen: &mut u32) {
        let mut count = self.count.lock().unwrap();
        while *count == *seen {
            count = self.changed.wait(count).unwrap();
        }
        *seen = *count;
    }
}

#[test]
fn two_requesters_are_served_once_each_and_get_their_own_results() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let target = Arc::new(Vcpu::new(1));
        let event = Arc::new(Event::default());
        let served = Count::new(0);
        let requesters = [10u64, 20].map(|value| {
            let (target, event) = (target.clone(), event.clone());
            thread::spawn(move || {
                let mut seen = 0;
                let relax = || event.wait(&mut seen);
                let kick = |_| event.signal();
                let result = target.cell.call(&target.attention, [value, 0, 0, value], kick, relax);
                event.signal();
                assert_eq!(result, 2 * value + 1);
            })
        });
        let mut seen = 0;
        while served.load(Relaxed) < 2 {
            if target.attention.take().contains(Reasons::REMOTE) {
                serve(&target, &served);
                event.signal();
            } else {
                event.wait(&mut seen);
            }
        }
        requesters.into_iter().for_each(|requester| requester.join().unwrap());
        assert_eq!(served.load(Relaxed), 2);
    });
}

#[test]
fn two_vcpus_that_ask_each_other_do_not_deadlock() {
    loom::model(|| {
        let vcpus = Arc::new([Vcpu::new(1), Vcpu::new(2)]);
        let served = Arc::new([Count::new(0), Count::new(0)]);
        let run = |me: usize| {
            let (vcpus, served) = (vcpus.clone(), served.clone());
            move || {
                let other = &vcpus[1 - me];
                let relax = || {
                    serve(&vcpus[me], &served[me]);
                    thread::yield_now();
                };
                let result =
                    other.cell.call(&other.attention, [me as u64, 0, 0, 5], |_| other.send_kick(), relax);
                assert_eq!(result, me as u64 + 6);
                // Back in its loop: it looks before it enters its guest, or idles, and serves there, too.
                while served[me].load(Relaxed) == 0 {
                    serve(&vcpus[me], &served[me]);
                    thread::yield_now();
                }
            }
        };
        let other = thread::spawn(run(1));
        run(0)();
        other.join().unwrap();
        assert_eq!((served[0].load(Relaxed), served[1].load(Relaxed)), (1, 1));
    });
}

#[test]
fn one_reason_to_stop_counts_and_one_vcpu_is_last() {
    loom::model(|| {
        let life = Arc::new(Lifecycle::new(2));
        let wrote = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        assert!(life.start());
        let won = Arc::new(Count::new(0));
        let last = Arc::new(Count::new(0));
        let run = |me: usize, reason: Stop| {
            let (life, won, last, wrote) = (life.clone(), won.clone(), last.clone(), wrote.clone());
            move || {
                won.fetch_add(usize::from(life.begin_stop(reason)), Relaxed);
                wrote[me].store(1, Ordering::Relaxed);
                let acknowledged = life.acknowledge(me);
                if acknowledged.is_some() {
                    last.fetch_add(1, Relaxed);
                    let all = wrote.iter().all(|wrote| wrote.load(Ordering::Relaxed) == 1);
                    assert!(all, "the last does not see what the others did before");
                    life.finish();
                }
                // Once more, late: it must not count for a stop that is over, nor for the next.
                assert_eq!(life.acknowledge(me), None);
            }
        };
        let other = thread::spawn(run(1, Stop::Reset));
        run(0, Stop::PowerOff)();
        other.join().unwrap();
        assert_eq!((won.load(Relaxed), last.load(Relaxed)), (1, 1));
        assert!(matches!(life.phase(), Phase::Stopped(Stop::Reset | Stop::PowerOff)));
    });
}

#[test]
fn a_late_acknowledgment_does_not_count_for_the_next_stop() {
    loom::model(|| {
        let life = Arc::new(Lifecycle::new(2));
        assert!(life.start() && life.begin_stop(Stop::Reset));
        assert_eq!(life.acknowledge(1), None);
        let late = {
            let life = life.clone();
            thread::spawn(move || life.acknowledge(1))
        };
        assert_eq!(life.acknowledge(0), Some(Stop::Reset));
        life.finish();
        assert!(life.start());
        assert_eq!(late.join().unwrap(), None);
        assert!(life.begin_stop(Stop::Killed));
        assert_eq!(life.acknowledge(0), None, "vCPU 1 has not acknowledged this stop");
        assert_eq!(life.acknowledge(1), Some(Stop::Killed));
    });
}

#[test]
fn a_stop_is_not_lost_while_the_one_before_is_finished() {
    loom::model(|| {
        let life = Arc::new(Lifecycle::new(2));
        assert!(life.start() && life.begin_stop(Stop::Reset));
        assert_eq!(life.acknowledge(0), None);
        let other = {
            let life = life.clone();
            thread::spawn(move || {
                assert_eq!(life.acknowledge(1), Some(Stop::Reset));
                life.finish();
                // Of the next stop, if that has begun by now.
                life.acknowledge(1)
            })
        };
        // Whoever starts the VM does so as soon as it has stopped, and then it is stopped again.
        while !life.start() {
            thread::yield_now();
        }
        assert!(life.begin_stop(Stop::Killed));
        let first = life.acknowledge(0);
        let second = other.join().unwrap().or_else(|| life.acknowledge(1));
        assert_eq!(first.or(second), Some(Stop::Killed), "one of the two is last");
    });
}

#[test]
fn one_of_two_callers_turns_a_vcpu_on_and_it_starts_there() {
    loom::model(|| {
        let psci = Arc::new(Psci::new(0..3, 0x1000..0x9000));
        let callers = [0x2000u64, 0x3000].map(|entry| {
            let psci = psci.clone();
            thread::spawn(move || psci.call(0, 0xc400_0003, [2, entry, entry + 1]))
        });
        let early = psci.take_start(2);
        let actions = callers.map(|caller| caller.join().unwrap());
        let start = early.or_else(|| psci.take_start(2)).expect("nobody turned it on");
        assert_eq!(start, Start { entry: start.entry, context: start.entry + 1 });
        let winner = usize::from(start.entry == 0x3000);
        assert_eq!(actions[winner], Action::Start(2));
        assert!(matches!(actions[1 - winner], Action::Return(_)));
        assert_eq!(psci.take_start(2), None);
    });
}
