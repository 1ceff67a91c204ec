// SPDX-License-Identifier: Apache-2.0 OR MIT
//! INIT and startup IPIs.

use turnstile_vm::startup::{Start, Startup};

#[test]
fn the_first_begins_and_the_others_wait() {
    let startup = Startup::new(2);
    assert_eq!(startup.take_start(0), None, "nobody has let it begin");
    startup.reset();
    assert_eq!((startup.take_start(0), startup.take_start(1)), (Some(Start::Boot), None));
    assert_eq!(startup.take_start(0), None, "once");
    assert!(startup.is_on(0) && !startup.is_on(1));
    assert!(!startup.waits(0) && startup.waits(1));
}

#[test]
fn a_startup_ipi_counts_after_an_init_only() {
    let startup = Startup::new(2);
    startup.reset();
    assert!(startup.waits(1) && startup.startup(1, 0x9a) && !startup.waits(1));
    assert!(!startup.startup(1, 0x10), "the second one of the customary two is ignored");
    assert_eq!(startup.take_start(1), Some(Start::Startup(0x9a)));
    assert!(!startup.startup(1, 0x10), "it runs");
    assert!(startup.init(1) && !startup.is_on(1));
    assert!(!startup.init(1), "it waits already");
    assert!(startup.startup(1, 0), "page 0 is a page");
    assert_eq!(startup.take_start(1), Some(Start::Startup(0)));
}

#[test]
fn init_and_startup_in_one_breath_restart() {
    let startup = Startup::new(1);
    startup.reset();
    assert_eq!(startup.take_start(0), Some(Start::Boot));
    assert!(startup.init(0) && startup.startup(0, 7));
    assert!(!startup.is_on(0), "who looks finds that the vCPU must leave its guest");
    assert_eq!(startup.take_start(0), Some(Start::Startup(7)));
}

#[test]
fn an_init_takes_a_start_back() {
    let startup = Startup::new(2);
    startup.reset();
    assert!(startup.startup(1, 3));
    assert!(!startup.init(1), "it did not run");
    assert_eq!(startup.take_start(1), None);
}

#[test]
fn the_firmware_lets_go_on_who_has_got_an_init() {
    let startup = Startup::new(2);
    startup.reset();
    assert!(!startup.resume(0), "it is to begin as the boot protocol says");
    assert_eq!(startup.take_start(0), Some(Start::Boot));
    assert!(!startup.resume(0) && startup.is_on(0), "it runs");
    assert!(startup.init(0) && startup.resume(0) && !startup.is_on(0));
    assert!(!startup.startup(0, 7), "a startup IPI finds nobody that waits");
    assert_eq!((startup.take_start(0), startup.take_start(0)), (Some(Start::Resume), None));
    assert!(startup.is_on(0) && startup.init(0) && startup.startup(0, 7) && !startup.resume(0));
    assert_eq!(startup.take_start(0), Some(Start::Startup(7)), "the startup IPI was first");
}

#[test]
fn who_is_not_there_has_no_state() {
    let startup = Startup::new(1);
    assert!(!startup.resume(1));
    assert!(!startup.init(1) && !startup.startup(1, 0) && !startup.is_on(1));
    assert_eq!(startup.take_start(1), None);
}
