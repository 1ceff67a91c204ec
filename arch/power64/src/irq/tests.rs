// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ring and the wire against a recorder: what they access, and in which order.

use turnstile_papr::xics::Icp;

use super::board::Presentation;
use super::escalation::Escalation;
use super::firmware::Processor;
use super::own::Own;
use super::ring::Ring;
use super::tima::{OWN, RESET, VALID};
use crate::regs::fakes::{self, Access};

const CAM: u32 = 0x123;

fn own(presentation: Presentation, keeps: bool) -> Own {
    fakes::reset();
    let named = Processor { cam: CAM, keeps };
    Own::new(Ring::new(named.cam, named.keeps), presentation, Escalation::None)
}

fn written() -> Vec<(&'static str, u64)> {
    let writes = |access| match access {
        Access::Write(name, value) => Some((name, value)),
        Access::Read(_) => None,
    };
    fakes::take_log().into_iter().filter_map(writes).collect()
}

#[test]
fn a_guest_that_drives_its_ring_finds_it_as_it_left_it() {
    let mut own = own(Presentation::Xive, false);
    let icp = Icp::new();
    own.load(&icp);
    assert_eq!(written(), [("OsWords", RESET), ("OsCam", (CAM | VALID).into())]);
    // The guest opens its ring, and something comes that it has not accepted.
    fakes::set("OsWords", 0x80ff_2000_0000_0002);
    assert!(own.put(), "it has to run");
    assert_eq!(fakes::take_log()[0], Access::Read("OsPull"), "before the words are read");
    own.load(&icp);
    assert_eq!(
        written(),
        [("OsWords", 0x00ff_2000_0000_0000 | RESET & !OWN), ("OsCam", (CAM | VALID).into())]
    );
}

#[test]
fn where_the_controller_keeps_the_words_they_are_not_written() {
    let mut own = own(Presentation::Xive, true);
    own.load(&Icp::new());
    assert_eq!(written(), [("OsCam", (CAM | VALID).into())]);
}

#[test]
fn only_what_is_not_masked_keeps_a_vcpu_running() {
    let mut own = own(Presentation::Xive, false);
    for (priority, pending, runs) in [
        (0xff, 0, false),
        (0xff, 1, true),
        (0xff, 0x80, true),
        (0, 0x80, false),
        (6, 2, false),
        (7, 2, true),
        (1, 0x80, true),
    ] {
        fakes::set("OsWords", priority << 48 | pending << 40);
        assert_eq!(own.put(), runs, "{priority} {pending}");
    }
}

#[test]
fn the_wire_follows_the_model_and_costs_nothing_otherwise() {
    let mut own = own(Presentation::Xics, false);
    let icp = Icp::new();
    own.begin(&icp);
    assert_eq!(fakes::get("OsPriority"), 0xff, "nothing is masked but by the model");
    let _ = icp.set_priority(0xff);
    fakes::take_log();
    own.follow(&icp);
    assert_eq!(fakes::take_log(), []);
    let _ = icp.set_request(4);
    own.follow(&icp);
    own.follow(&icp);
    assert_eq!(fakes::take_log(), [Access::Write("OsPending", 0)]);
    assert!(own.is_interrupted());
    assert_eq!(icp.accept(), 0xff00_0002);
    own.follow(&icp);
    let log: Vec<Access> = fakes::take_log();
    assert_eq!(log, [Access::Read("OsAcknowledge"), Access::Write("OsPriority", 0xff)]);
    assert!(!own.is_interrupted());
}

#[test]
fn an_interrupt_of_the_model_is_raised_again_where_the_vcpu_goes() {
    let mut own = own(Presentation::Xics, false);
    let icp = Icp::new();
    let _ = icp.set_priority(0xff);
    let _ = icp.set_request(4);
    own.load(&icp);
    assert_eq!(written().last(), Some(&("OsPending", 0)));
    assert!(own.put());
    own.load(&icp);
    assert_eq!(written().last(), Some(&("OsPending", 0)));
}

#[test]
fn a_prod_is_taken_once_and_forgotten_by_a_new_life() {
    let mut own = own(Presentation::Xics, false);
    own.prod();
    assert!(own.take_prod() && !own.take_prod());
    own.prod();
    own.begin(&Icp::new());
    assert!(!own.take_prod());
}
