// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts of a PC's processors: a vCPU that begins finds what was done before it was told to.
//!
//! Who writes is the first thread: loom looks at the last access to a value alone when it thinks of other orders.

use turnstile_vm::startup::{Start, Startup};

use super::handover::comes_with;

fn waiting() -> Startup {
    Startup::new(1)
}

/// A vCPU that has begun.
fn on() -> Startup {
    let startup = waiting();
    startup.reset();
    assert_eq!(startup.take_start(0), Some(Start::Boot));
    startup
}

/// Says whether the vCPU begins, which it does as `expected`.
fn begins(startup: &Startup, expected: Start) -> bool {
    startup.take_start(0).inspect(|start| assert_eq!(*start, expected)).is_some()
}

#[test]
fn a_boot_comes_with_the_memory_that_was_filled() {
    comes_with(waiting, Startup::reset, |startup| begins(startup, Start::Boot));
}

#[test]
fn a_startup_comes_with_the_code_at_its_page() {
    comes_with(
        waiting,
        |startup| assert!(startup.startup(0, 9)),
        |startup| begins(startup, Start::Startup(9)),
    );
}

#[test]
fn a_resumption_comes_with_the_code_that_goes_on() {
    comes_with(waiting, |startup| assert!(startup.resume(0)), |startup| begins(startup, Start::Resume));
}

/// Also if somebody else sends the startup IPI.
#[test]
fn an_init_comes_before_what_the_next_start_does() {
    comes_with(
        on,
        |startup| assert!(startup.init(0)),
        |startup| startup.startup(0, 7) && begins(startup, Start::Startup(7)),
    );
}
