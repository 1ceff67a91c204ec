// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Model-checks the wake list, waking by it, and what CPUs publish about themselves.
//!
//! Who writes is the first thread where it is about what comes with a value: loom looks at the last access to a value alone when it
//! thinks of other orders, and would not find the one in which a thread reads and then exchanges before the first one looks.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p turnstile-sched --release --test loom`
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use turnstile_sched::Published;
use turnstile_sched::published::Progress;
use turnstile_sched::wake::{Link, WakeList};
use turnstile_vm::attention::{Attention, Posted, Reasons};

/// Two vCPUs at home on one CPU.
struct Home {
    list: WakeList,
    links: [Link; 2],
    /// What each had done when it was handed over.
    state: [AtomicU32; 2],
    interrupts: AtomicU32,
}

impl Home {
    fn new() -> Self {
        Self {
            list: WakeList::new(),
            links: Default::default(),
            state: [AtomicU32::new(0), AtomicU32::new(0)],
            interrupts: AtomicU32::new(0),
        }
    }

    fn hand_over(&self, thread: u32) {
        self.state[thread as usize].store(thread + 1, Ordering::Relaxed);
        if self.list.push(thread, &self.links[thread as usize]) {
            self.interrupts.fetch_add(1, Ordering::Release);
        }
    }

    fn take(&self) -> Vec<u32> {
        let mut taken = Vec::new();
        self.list.take(
            |link| &self.links[link as usize],
            |thread| {
                assert_eq!(
                    self.state[thread as usize].load(Ordering::Relaxed),
                    thread + 1,
                    "its state came with it"
                );
                taken.push(thread);
            },
        );
        taken
    }
}

#[test]
fn each_is_taken_once_and_somebody_interrupts() {
    loom::model(|| {
        let home = Arc::new(Home::new());
        let pushers: Vec<_> = [0, 1]
            .map(|vcpu| {
                let home = home.clone();
                thread::spawn(move || home.hand_over(vcpu))
            })
            .into();
        let mut taken = home.take();
        let before = home.interrupts.load(Ordering::Acquire);
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        let late = home.take();
        // What was left in the list after the owner looked has been announced; the look may have come in between.
        if !late.is_empty() {
            assert!(home.interrupts.load(Ordering::Acquire) >= 1);
            assert!(before == 0 || !taken.is_empty() || home.interrupts.load(Ordering::Acquire) >= before);
        }
        taken.extend(late);
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
    });
}

#[test]
fn a_parked_vcpu_is_handed_over_once_whoever_wakes_it() {
    loom::model(|| {
        let (home, attention) = (Arc::new(Home::new()), Arc::new(Attention::new()));
        attention.load(7);
        let posters: Vec<_> = [Reasons::INBOX, Reasons::STOP]
            .map(|reason| {
                let (home, attention) = (home.clone(), attention.clone());
                thread::spawn(move || {
                    if attention.post(reason) == Posted::Wake {
                        home.hand_over(0);
                    }
                })
            })
            .into();
        // The home parks it; its own deadline comes, too.
        let mut own = u32::from(!attention.park());
        if own == 0 {
            own = u32::from(attention.wake());
        }
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        assert_eq!(own + home.take().len() as u32, 1);
        assert!(attention.take().contains(Reasons::INBOX | Reasons::STOP));
    });
}

#[test]
fn what_a_vcpu_has_done_comes_with_it() {
    loom::model(|| {
        let home = Arc::new(Home::new());
        let owner = {
            let home = home.clone();
            thread::spawn(move || home.take())
        };
        home.hand_over(0);
        let mut taken = owner.join().unwrap();
        taken.extend(home.take());
        assert_eq!(taken, [0]);
    });
}

#[test]
fn what_a_cpu_publishes_is_read_whole() {
    let all = |value| Progress { virtual_time: value, at: value, rate: value, limit: value };
    loom::model(move || {
        let published = Arc::new(Published::new());
        let reader = {
            let published = published.clone();
            thread::spawn(move || published.progress())
        };
        published.publish(0, 0, all(1));
        if let Some(progress) = reader.join().unwrap() {
            assert!([all(0), all(1)].contains(&progress), "{progress:?}");
        }
        assert_eq!(published.progress(), Some(all(1)));
    });
}
