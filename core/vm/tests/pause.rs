// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pauses of a VM, step by step.
#![cfg(not(loom))]

use std::cell::Cell;

use turnstile_vm::pause::Pause;

#[test]
fn the_clock_stands_from_the_last_vcpu_s_leaving_to_the_end() {
    let pause = Pause::new(3);
    assert!(!pause.holds() && !pause.stands());
    assert_eq!(pause.end(5, |_| panic!("it is not paused")), None);
    assert!(!pause.acknowledge(0), "there is nothing to acknowledge");
    assert!(pause.begin());
    assert!(!pause.begin(), "it is paused already");
    assert!(pause.holds() && !pause.stands());
    assert_eq!(pause.stands_for(60), None);
    assert!(!pause.acknowledge(2) && !pause.acknowledge(0) && !pause.acknowledge(2), "each counts once");
    assert!(!pause.acknowledge(3) && !pause.acknowledge(usize::MAX), "there is no such vCPU");
    assert!(!pause.close(90), "one is in its guest");
    assert!(pause.acknowledge(1));
    assert!(!pause.acknowledge(1));
    assert!(pause.close(100) && !pause.close(101));
    assert!(pause.holds() && pause.stands() && !pause.begin());
    assert_eq!(pause.stands_for(340), Some(240));
    let adjusted = Cell::new(None);
    let ended = pause.end(350, |ticks| {
        assert!(pause.holds(), "nobody goes on before the clock is right");
        adjusted.set(Some(ticks));
    });
    assert_eq!((ended, adjusted.get(), pause.still()), (Some(250), Some(250), 250));
    assert!(!pause.holds());
    assert_eq!(pause.end(360, |_| panic!("it is not paused")), None);
}

#[test]
fn a_pause_that_ends_before_all_are_out_does_not_touch_the_clock() {
    let pause = Pause::new(2);
    for last in [false, true] {
        assert!(pause.begin());
        assert!(!pause.acknowledge(0));
        assert_eq!(last && pause.acknowledge(1), last);
        assert_eq!(pause.end(50, |_| panic!("the clock has not been stopped")), Some(0));
        assert!(!pause.holds());
        assert!(!pause.close(60), "it is over");
        assert_eq!(pause.still(), 0);
    }
    // The next one is acknowledged by all anew.
    assert!(pause.begin());
    assert!(!pause.acknowledge(1));
    assert!(pause.acknowledge(0) && pause.close(70));
    assert_eq!(pause.end(75, |_| {}), Some(5));
}

#[test]
fn a_new_life_is_not_paused_and_has_stood_still_for_nothing() {
    let pause = Pause::new(1);
    assert!(pause.begin() && pause.acknowledge(0) && pause.close(1));
    assert_eq!(pause.end(9, |_| {}), Some(8));
    assert!(pause.begin() && pause.acknowledge(0) && pause.close(10));
    pause.reset();
    assert!(!pause.holds());
    assert_eq!((pause.still(), pause.end(20, |_| {})), (0, None));
    assert!(pause.begin());
    assert!(pause.acknowledge(0), "not taken for the pause before");
}

#[test]
fn a_clock_that_another_cpu_reads_a_little_early_does_not_run_backwards() {
    let pause = Pause::new(1);
    assert!(pause.begin() && pause.acknowledge(0) && pause.close(100));
    assert_eq!(pause.end(99, |ticks| assert_eq!(ticks, 0)), Some(0));
}

#[test]
fn a_short_pause_holds_until_the_last_vcpu_has_done_its_work() {
    let pause = Pause::new(2);
    for _ in 0..2 {
        assert!(!pause.is_short());
        assert!(pause.begin_short() && !pause.begin_short());
        assert!(pause.holds() && !pause.is_paused(), "no user has paused it");
        assert_eq!(pause.end(5, |_| panic!("it is not a user's")), None);
        assert!(!pause.acknowledge(1) && pause.holds() && !pause.is_short(), "one is in its guest");
        assert!(pause.acknowledge(0) && pause.is_short());
        assert!(!pause.begin_short(), "its work is being done");
        assert!(!pause.close(6) && !pause.stands(), "the clock goes on");
        assert!(pause.end_short(), "the others go on");
        assert!(!pause.holds());
        assert_eq!((pause.still(), pause.clock(7)), (0, 7));
    }
}

/// A user's pause begins at each moment of a short one, and ends at each moment behind that.
#[test]
fn a_users_pause_in_a_short_one_neither_ends_it_nor_is_lost() {
    for (begins, ends) in (0..4).flat_map(|begins| (begins..6).map(move |ends| (begins, ends))) {
        let pause = Pause::new(2);
        assert!(pause.begin_short());
        let user = |moment| {
            if moment == begins {
                assert!(pause.begin() && !pause.begin() && pause.is_paused());
            }
            if moment == ends {
                let stands = pause.stands();
                assert_eq!(pause.end(30, |_| {}), Some(if stands { 10 } else { 0 }));
                assert!(!pause.is_paused());
            }
        };
        user(0);
        assert!(!pause.acknowledge(0));
        user(1);
        assert!(pause.acknowledge(1));
        user(2);
        assert!(pause.holds(), "the work is not done: {begins} {ends}");
        assert!(pause.is_short());
        user(3);
        assert!(pause.holds());
        let is_paused = begins <= 3 && ends > 3;
        assert_eq!(pause.end_short(), !is_paused);
        user(4);
        assert_eq!(pause.close(20), is_paused && ends > 4);
        user(5);
        assert!(!pause.holds(), "{begins} {ends}");
    }
}

/// Who was last in a user's pause is slow: that ends, and a short one begins, before it looks what is to be done.
#[test]
fn who_was_last_in_one_pause_does_not_do_the_work_of_the_next() {
    let pause = Pause::new(2);
    assert!(pause.begin() && !pause.acknowledge(0) && pause.acknowledge(1));
    assert_eq!(pause.end(5, |_| panic!("the clock has not been stopped")), Some(0));
    assert!(pause.begin_short());
    assert!(!pause.is_short() && !pause.close(6), "the other one is in its guest again");
    assert!(!pause.acknowledge(1) && !pause.is_short());
    assert!(pause.acknowledge(0) && pause.is_short() && pause.end_short());
}

#[test]
fn a_short_pause_in_a_users_is_done_before_its_clock_stands() {
    let pause = Pause::new(2);
    assert!(pause.begin() && !pause.acknowledge(0));
    assert!(pause.begin_short());
    assert!(pause.acknowledge(1) && pause.is_short());
    assert!(!pause.close(10), "the work is not done");
    assert!(!pause.end_short(), "the user's goes on");
    assert!(pause.holds() && pause.close(11) && pause.stands());
    assert!(!pause.begin_short(), "nobody would do it");
    assert_eq!(pause.end(12, |_| {}), Some(1));
    assert!(pause.begin() && !pause.acknowledge(0) && pause.acknowledge(1));
    assert!(!pause.begin_short(), "the last one has looked, perhaps");
    pause.reset();
    assert!(pause.begin_short() && !pause.acknowledge(0) && pause.acknowledge(1) && pause.is_short());
    pause.reset();
    assert!(!pause.holds() && !pause.is_short(), "a life that is over");
}
