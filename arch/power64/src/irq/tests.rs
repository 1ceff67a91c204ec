// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ring and the wire against a recorder: what they access, and in which order.

use std::cell::RefCell;
use std::rc::Rc;

use turnstile_papr::code::Code as Return;
use turnstile_papr::hcall::Hcall;
use turnstile_papr::xics::Icp;

use super::device;
use super::escalation::Escalation;
use super::firmware::Processor;
use super::own::{Own, Presentation};
use super::ring::Ring;
use super::tima::{OWN, RESET, VALID};
use crate::board::opal;
use crate::cpu::regs::fakes::{self, Access};
use crate::memory::{GuestRam, kept};
use crate::vm::BootState;
use crate::vm::Vm;

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
    own.follow(icp.is_presented());
    assert_eq!(fakes::take_log(), []);
    let _ = icp.set_request(4);
    own.follow(icp.is_presented());
    own.follow(icp.is_presented());
    assert_eq!(fakes::take_log(), [Access::Write("OsPending", 0)]);
    assert!(own.is_interrupted());
    assert_eq!(icp.accept(), 0xff00_0002);
    own.follow(icp.is_presented());
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

/// Calls of the guest by which it places a queue, at a page of its memory.
fn place_queue(vm: &Vm, page: u64) -> Return {
    vm.board.call(&vm.life().ram, Hcall::IntSetQueueConfig, &[1, 0, 6, page << 12, 12]).code
}

#[test]
fn memory_that_the_controller_may_write_to_is_given_to_nobody() {
    const REFUSED: u64 = -11i64 as u64;
    fakes::reset();
    let vm = crate::vcpu::facility::tests::vm(7, Presentation::Xive)[0].vm;
    let ram = Box::leak(vec![0u64; 0x4000 / 8].into_boxed_slice());
    let memory = GuestRam::new(ram.as_ptr() as u64, 0x4000);
    let live = || vm.prepare(0, memory.clone(), BootState::default());
    live();
    assert_eq!(place_queue(vm, 1), Return::SUCCESS);
    vm.end();
    assert!(!kept::is_kept(&memory), "the firmware has taken the queue back");
    live();
    assert_eq!(place_queue(vm, 1), Return::SUCCESS);
    fakes::set("OPAL", REFUSED);
    assert_eq!(vm.board.call(&vm.life().ram, Hcall::IntReset, &[0; 5]).code, Return::HARDWARE);
    let before = kept::bytes();
    vm.end();
    assert!(kept::is_kept(&memory));
    assert_eq!(kept::bytes(), before + 0x4000);
    vm.end();
    assert_eq!(kept::bytes(), before + 0x4000, "it is counted once");
}

/// A firmware with one source's buffer; `routed` gets the arguments of routes.
fn source(trigger: u64, mut routed: impl FnMut([u64; 4]) + 'static) {
    opal::fake::set(move |token, arguments| {
        let put = |at: usize, value: u64| {
            // SAFETY: a result of the service, which the caller has made room for.
            unsafe { (arguments[at] as *mut u64).write(value.to_be()) };
        };
        match token {
            129 => {
                put(2, 0x6_0200_0000_0000);
                put(3, trigger);
            }
            131 => routed(arguments[..4].try_into().unwrap()),
            _ => {}
        }
        0
    });
}

/// The numbers are those of the process: one test takes them all.
#[test]
fn a_device_interrupts_the_hypervisor_once_until_it_is_unmasked() {
    fakes::reset();
    // No test runs on that.
    const CPU: usize = 7;
    let routes = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&routes);
    source(1 << 50, move |route| log.borrow_mut().push(route));
    let number = device::connect(0xf_e000, CPU, 0x1c).unwrap();
    assert_eq!(routes.take(), [[0xf_e000, 0x1c, 4, number.into()]]);
    assert_ne!(number, crate::board::uart::INTERRUPT);
    assert!(number as usize >= super::escalation::NUMBERS, "it is no vCPU's");
    const ONE: [Access; 1] = [Access::Read("ESB")];
    let accesses = |pq, masked| {
        fakes::set("ESB", pq);
        fakes::take_log();
        device::mask(number, masked);
        fakes::take_log()
    };
    assert_eq!(accesses(0b10, true), ONE, "what is told is masked: P is left alone, and Q");
    assert_eq!(accesses(0b11, true), ONE);
    assert_eq!(accesses(0b00, true), [ONE[0]; 2]);
    assert_eq!(accesses(0b10, false), ONE);
    assert_eq!(accesses(0b11, false), [ONE[0], Access::Write("ESB", 0)], "what has come is sent");
    fakes::take_log();
    device::mask(number - 1, false);
    device::mask(number + 1, true);
    device::mask(0, true);
    assert_eq!(fakes::take_log(), [], "what is not connected is not touched");
    let others = (1..).map_while(|_| device::connect(0xf_e001, CPU, 0x1c).ok()).count();
    assert_eq!(others, super::queue::DEVICES - 1);
    source(0, |_| {});
    assert!(device::connect(0xf_e002, CPU, 0x1c).is_err(), "what cannot be sent again is not connected");
}

/// The guest's STOP may have another level: it finds its register as it was.
#[test]
fn a_wait_loses_nothing_and_leaves_the_guests_level() {
    fakes::reset();
    // No deadline of the hypervisor's is due.
    fakes::set("HDEC", 100);
    fakes::set("PSSCR", 0x30_0001);
    crate::vcpu::idle::wait();
    let log = written();
    let own: Vec<_> = log.into_iter().filter(|(name, _)| ["PSSCR", "STOP"].contains(name)).collect();
    assert_eq!(own, [("PSSCR", 0), ("STOP", 0), ("PSSCR", 0x30_0001)]);
}
