// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life of a VM, step by step.
#![cfg(not(loom))]

use turnstile_vm::lifecycle::{Lifecycle, Next, OnCrash, Phase, Stop};

#[test]
fn a_vm_starts_stops_and_starts_again() {
    let life = Lifecycle::new(3);
    assert_eq!((life.phase(), life.boots()), (Phase::Created, 0));
    assert!(!life.begin_stop(Stop::Killed), "it does not run");
    assert!(life.start() && !life.start());
    assert_eq!((life.phase(), life.boots()), (Phase::Running, 1));
    assert_eq!(life.acknowledge(0), None, "there is nothing to acknowledge");
    assert!(life.begin_stop(Stop::Crash(0xabcd)));
    assert!(!life.begin_stop(Stop::PowerOff), "the first reason counts");
    assert_eq!(life.phase(), Phase::Stopping(Stop::Crash(0xabcd)));
    assert!(!life.start());
    assert_eq!((life.acknowledge(2), life.acknowledge(0), life.acknowledge(2)), (None, None, None));
    assert_eq!((life.acknowledge(3), life.acknowledge(64), life.acknowledge(usize::MAX)), (None, None, None));
    assert_eq!(life.acknowledge(1), Some(Stop::Crash(0xabcd)));
    assert_eq!(life.acknowledge(1), None);
    life.finish();
    assert_eq!(life.phase(), Phase::Stopped(Stop::Crash(0xabcd)));
    assert_eq!(life.acknowledge(1), None);
    assert!(life.start());
    assert_eq!(life.boots(), 2);
    life.finish();
    assert_eq!(life.phase(), Phase::Running, "finish without a stop does nothing");
    assert!(life.begin_stop(Stop::Reset));
    assert_eq!((life.acknowledge(0), life.acknowledge(1)), (None, None), "acknowledged anew");
    assert_eq!(life.acknowledge(2), Some(Stop::Reset));
}

#[test]
fn many_vcpus_and_every_reason() {
    for reason in [Stop::PowerOff, Stop::Reset, Stop::Killed, Stop::Crash(0), Stop::Crash(u16::MAX)] {
        let life = Lifecycle::new(512);
        assert!(life.start() && life.begin_stop(reason));
        assert!((0..511).all(|vcpu| life.acknowledge(vcpu).is_none()));
        assert_eq!(life.acknowledge(511), Some(reason));
    }
}

#[test]
fn what_comes_next() {
    assert_eq!(Stop::PowerOff.next(OnCrash::Restart), Next::Stay);
    assert_eq!(Stop::Killed.next(OnCrash::Restart), Next::Stay);
    assert_eq!(Stop::Reset.next(OnCrash::Stop), Next::Restart);
    assert_eq!(Stop::Crash(1).next(OnCrash::Restart), Next::Restart);
    assert_eq!(Stop::Crash(1).next(OnCrash::Stop), Next::Stay);
}
