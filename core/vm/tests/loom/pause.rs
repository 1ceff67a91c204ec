// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pauses against vCPUs that run.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use turnstile_vm::attention::{Attention, Reasons};
use turnstile_vm::pause::Pause;

/// A VM of one vCPU in its guest, which reads a clock: the machine's, less an offset.
struct Vm {
    attention: Attention,
    pause: Pause,
    offset: AtomicU64,
    kick: AtomicU32,
}

impl Vm {
    fn new() -> Arc<Self> {
        let attention = Attention::new();
        attention.load(0);
        Arc::new(Self { attention, pause: Pause::new(1), offset: AtomicU64::new(0), kick: AtomicU32::new(0) })
    }

    fn post(&self, reasons: Reasons) {
        // A vCPU that waits looks at its word itself.
        let _ = self.attention.post(reasons);
        self.kick.fetch_or(1, Ordering::Release);
    }

    /// The vCPU is out of its guest: waits as long as it is held. Returns whether it has stopped the clock.
    fn attend(&self, now: u64) -> bool {
        let mut closed = false;
        loop {
            self.attention.take();
            if self.pause.acknowledge(0) {
                closed |= self.pause.close(now);
            }
            if !self.pause.holds() {
                return closed;
            }
            while !self.attention.is_pending() {
                thread::yield_now();
            }
        }
    }
}

#[test]
fn a_vcpu_goes_on_after_each_pause_with_its_clock_right() {
    loom::model(|| {
        let vm = Vm::new();
        let other = {
            let vm = vm.clone();
            thread::spawn(move || {
                assert!(vm.pause.begin());
                vm.post(Reasons::STOP);
                let ended = vm.pause.end(100, |ticks| vm.offset.store(ticks, Ordering::Relaxed));
                vm.post(Reasons::START);
                ended
            })
        };
        // Until it has seen the end, or at least that nothing holds it: the kick says that there is something to see.
        let mut closed = false;
        for _ in 0..2 {
            if vm.kick.swap(0, Ordering::Acquire) != 0 {
                closed |= vm.attend(40);
                // In its guest again: the clock is right.
                let stood = vm.offset.load(Ordering::Relaxed);
                assert!(if closed { stood == 60 } else { stood == 0 }, "{closed} {stood}");
            }
        }
        let ended = other.join().unwrap();
        closed |= vm.attend(40);
        assert_eq!(ended, Some(if closed { 60 } else { 0 }));
        assert_eq!(vm.offset.load(Ordering::Relaxed), if closed { 60 } else { 0 });
    });
}

#[test]
fn of_two_vcpus_one_stops_the_clock_behind_what_the_other_has_done() {
    loom::model(|| {
        let pause = Arc::new(Pause::new(2));
        assert!(pause.begin());
        let guest = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let vcpu = |index: usize| {
            let (pause, guest) = (pause.clone(), guest.clone());
            move || {
                guest[index].store(1, Ordering::Relaxed);
                let last = pause.acknowledge(index);
                if last {
                    assert_eq!([0, 1].map(|index| guest[index].load(Ordering::Relaxed)), [1, 1]);
                    assert!(pause.close(10));
                }
                last
            }
        };
        let other = thread::spawn(vcpu(1));
        let first = vcpu(0)();
        assert!(first != other.join().unwrap(), "one of the two is last");
        assert!(pause.stands());
    });
}

#[test]
fn an_end_that_meets_the_last_vcpu_does_not_count_it_for_the_next_pause() {
    loom::model(|| {
        let pause = Arc::new(Pause::new(1));
        assert!(pause.begin());
        let vcpu = {
            let pause = pause.clone();
            thread::spawn(move || pause.acknowledge(0) && pause.close(1))
        };
        let ended = pause.end(3, |_| {});
        assert!(pause.begin());
        let closed = vcpu.join().unwrap();
        match ended {
            Some(2) => assert!(closed),
            // It has acknowledged the next one, this one in time, or neither.
            Some(0) => assert!(!closed || pause.stands()),
            other => panic!("{other:?}"),
        }
        if !closed || ended == Some(2) {
            let last = pause.acknowledge(0);
            assert!(last && pause.close(4) || pause.stands(), "the next one is acknowledged, once");
        }
    });
}

/// Two vCPUs leave their guests for a short pause, while a user pauses the VM and lets it go on.
#[test]
fn nobody_is_in_a_guest_while_the_work_of_a_short_pause_is_done() {
    loom::model(|| {
        let pause = Arc::new(Pause::new(2));
        // Memory that guests reach without any order of their own, and that the work changes.
        let memory = Arc::new(loom::cell::UnsafeCell::new(0));
        assert!(pause.begin_short() && !pause.acknowledge(0));
        let last = {
            let (pause, memory) = (pause.clone(), memory.clone());
            thread::spawn(move || {
                assert!(pause.acknowledge(1) && pause.is_short());
                // SAFETY: the model fails if anybody else reaches it meanwhile.
                memory.with_mut(|memory| unsafe { *memory += 1 });
                let go_on = pause.end_short();
                (go_on, pause.close(10))
            })
        };
        assert!(pause.begin(), "no user has paused it");
        let ended = pause.end(20, |_| {});
        if !pause.holds() {
            // The first one is in its guest again.
            // SAFETY: as above.
            memory.with(|memory| assert_eq!(unsafe { *memory }, 1, "the work has been done"));
        }
        let (go_on, closed) = last.join().unwrap();
        assert_eq!(ended, Some(if closed { 10 } else { 0 }));
        assert!(!pause.holds() && !(go_on && closed));
    });
}

/// Who leaves last for a user's pause is slow: that ends, the other one is in its guest again, and a short pause begins.
#[test]
fn who_was_last_does_no_work_while_another_is_in_its_guest() {
    loom::model(|| {
        let pause = Arc::new(Pause::new(2));
        let memory = Arc::new(loom::cell::UnsafeCell::new(0));
        assert!(pause.begin() && !pause.acknowledge(0));
        let last = {
            let (pause, memory) = (pause.clone(), memory.clone());
            thread::spawn(move || {
                if pause.acknowledge(1) && pause.is_short() {
                    // SAFETY: the model fails if anybody else reaches it meanwhile.
                    memory.with_mut(|memory| unsafe { *memory += 1 });
                }
            })
        };
        assert_eq!(pause.end(5, |_| {}), Some(0));
        assert!(pause.begin_short() && !pause.is_short());
        // SAFETY: as above.
        memory.with(|memory| assert_eq!(unsafe { *memory }, 0));
        last.join().unwrap();
    });
}
