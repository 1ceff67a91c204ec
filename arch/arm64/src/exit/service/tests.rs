// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::boxed::Box;
use std::cell::RefCell;
use std::fmt;
use std::string::String;
use std::vec;
use std::vec::Vec;

use turnstile_arch_common::service::{Left, Outside, Touch, Typed};
use turnstile_service::abi::{self, Call};
use turnstile_service::gate::Pending;
use turnstile_service::image::{BY_PLACE, Doorbells};
use turnstile_service::image::{Header, Image, PAGE};
use turnstile_vm::attention::Reasons;

use super::*;
use crate::cpu::class;
use crate::cpu::regs::fakes::{self, Access};
use crate::exit::full::turnstile_full_exit;
use crate::exit::light::aborts;
use crate::exit::tests::{exit, machine};
use crate::service::{ISA, Port, Served, Service, Services, Space, pretend};
use crate::vm::{MESSAGES, Vm};

std::thread_local! {
    /// What the service of this thread got, and what it said outside.
    static SEEN: RefCell<Vec<[u64; 6]>> = const { RefCell::new(Vec::new()) };
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Nothing;

impl Outside for Nothing {
    fn print(&self, _: u64, _: [u64; 2]) -> u64 {
        0
    }
    fn log(&self, _: u64, _: [u64; 2]) {}
    fn random(&self) -> Option<u64> {
        None
    }
    fn lines(&self, _: u64, _: u64) {}
    fn message(&self, _: usize, _: u64, _: u64) -> bool {
        false
    }

    fn decode(&self, _: usize, _: u64, _: u64, _: u64) -> bool {
        false
    }

    fn call(&self, _: u64) {}

    fn wake(&self) {}

    fn alarm(&self, _: u64) -> u64 {
        0
    }
    fn typed(&self) -> Typed {
        Typed::default()
    }
    fn took(&self, _: &Typed, _: u64) -> bool {
        false
    }
    fn allow(&self, _: bool) {}
    fn unmask(&self) {}
    fn touch(&self, _: usize, _: u64) -> Result<u64, Touch> {
        Err(Touch::Foreign)
    }

    fn crashed(&self, _: u32, report: fmt::Arguments<'_>) {
        SAID.with_borrow_mut(|said| said.push(std::format!("{report}")));
    }
}

/// Where the device is.
const DEVICE: u64 = 0x0900_0000;
const VALUE: u64 = 0x1122_3344_5566_7788;

/// A VM with one service, whose device 3 is there.
fn served() -> (&'static Vm, Frame, &'static Service) {
    served_with(Doorbells::NONE)
}

fn served_with(doorbells: Doorbells) -> (&'static Vm, Frame, &'static Service) {
    served_from(0, doorbells)
}

/// The same, and its doorbells are those of queues from `bell` on.
fn served_from(bell: u64, doorbells: Doorbells) -> (&'static Vm, Frame, &'static Service) {
    served_at(Port::default(), bell, doorbells)
}

fn served_at(port: Port, bell: u64, doorbells: Doorbells) -> (&'static Vm, Frame, &'static Service) {
    let (vm, _) = machine(1, false);
    let header = Header { isa: ISA, code: PAGE, stack: PAGE, ..Header::default() };
    let mut file = header.bytes().to_vec();
    file.resize(2 * PAGE as usize, 0);
    fakes::set("CNTFRQ_EL0", 1_000_000_000);
    let space = Space::new(Image::parse(file.leak(), ISA).unwrap(), 1000).unwrap();
    let service: &'static Service = Box::leak(Box::new(Service::new("test".into(), space, &Nothing, port)));
    let mut services = Services::none();
    services.memory =
        vec![Served { base: DEVICE, size: 0x1000, device: 3, mask: u64::MAX, doorbells, bell, service }];
    services.all = vec![service];
    vm.set_services(services);
    SEEN.take();
    SAID.take();
    pretend(answer);
    let vcpu = vm.vcpus()[0];
    (vm, Frame::new(vcpu, aborts(vcpu)), service)
}

/// Answers each event with a number.
fn answer(general: &mut [u64; 31], event: Option<&Event>) -> Left {
    SEEN.with_borrow_mut(|seen| seen.extend(event.map(|event| event.0)));
    general[..6].copy_from_slice(&[Call::Done as u64, VALUE, 0, 0, 0, 0]);
    Left::Call
}

/// What it got but its first event.
fn seen() -> Vec<[u64; 6]> {
    SEEN.take().into_iter().filter(|event| event[0] != Kind::Attach as u64).collect()
}

/// ISS of an access of 1 << `size` bytes.
fn iss(size: u64, register: u64, write: bool) -> u64 {
    1 << 24 | size << 22 | register << 16 | 1 << 15 | u64::from(write) << 6 | u64::from(FAULT_TRANSLATION)
}

fn at(address: u64) {
    fakes::set("HPFAR_EL2", address >> 12 << 4);
    fakes::set("FAR_EL2", 0xffff_0000_0000_0000 | address & 0xfff);
}

#[test]
fn accesses_are_served_without_the_full_tier() {
    let (_, mut frame, _) = served();
    at(DEVICE + 0x18);
    for (size, expected) in [(0, 0x88), (1, 0x7788), (2, 0x5566_7788), (3, VALUE)] {
        frame.set(2, u64::MAX);
        fakes::set("ELR_EL2", 0x4000_0000);
        assert_eq!(exit(&mut frame, class::DATA_ABORT, iss(size, 2, false)).0, 0);
        assert_eq!((frame.get(2), fakes::get("ELR_EL2")), (expected, 0x4000_0004));
        assert_eq!(seen(), [[1, 3, 0x18, 1 << size, 0, 0]]);
        frame.set(17, 0xaabb_ccdd_eeff_0011);
        assert_eq!(exit(&mut frame, class::DATA_ABORT, iss(size, 17, true)).0, 0);
        assert_eq!(
            seen(),
            [[2, 3, 0x18, 1 << size, 0xaabb_ccdd_eeff_0011 & u64::MAX >> (64 - (8 << size)), 0]]
        );
    }
    let before = frame.get(30);
    assert_eq!(exit(&mut frame, class::DATA_ABORT, iss(2, 31, false)).0, 0, "to the zero register");
    assert_eq!((seen().len(), frame.get(30)), (1, before));
}

#[test]
fn what_is_not_served_is_left_to_the_full_tier() {
    let (_, mut frame, _) = served();
    let mut left = |address, iss| {
        at(address);
        let (code, log) = exit(&mut frame, class::DATA_ABORT, iss);
        assert!(!log.iter().any(|access| matches!(access, Access::Write(..))), "nothing is done: {log:?}");
        assert_eq!((code, seen()), (Code::SYNC, vec![]));
    };
    left(DEVICE + 0x1000, iss(2, 2, false));
    left(DEVICE - 4, iss(2, 2, true));
    // Registers that are not in the frame; a syndrome that says nothing; a walk; a permission fault.
    left(DEVICE, iss(2, 20, false));
    left(DEVICE, iss(2, 20, true));
    left(DEVICE, iss(2, 2, true) & !(1 << 24));
    left(DEVICE, iss(2, 2, true) | 1 << 7);
    left(DEVICE, iss(2, 2, true) | 8);
    // A load that extends a sign.
    left(DEVICE, iss(0, 2, false) | 1 << 21);
}

#[test]
fn the_full_tier_serves_the_rest() {
    let (_, mut frame, _) = served();
    at(DEVICE + 8);
    for (iss, register, expected) in [
        (iss(2, 20, false), 20, 0x5566_7788),
        (iss(0, 20, false) | 1 << 21, 20, 0xffff_ffff_ffff_ff88),
        (iss(3, 29, false), 29, VALUE),
    ] {
        fakes::set("ESR_EL2", class::DATA_ABORT << 26 | 1 << 25 | iss);
        turnstile_full_exit(&mut frame, Code::SYNC);
        assert_eq!((frame.get(register), seen().len()), (expected, 1));
    }
    frame.set(28, 0x99);
    fakes::set("ESR_EL2", class::DATA_ABORT << 26 | 1 << 25 | iss(0, 28, true));
    turnstile_full_exit(&mut frame, Code::SYNC);
    assert_eq!(seen(), [[2, 3, 8, 1, 0x99, 0]]);
}

#[test]
fn a_vm_without_services_does_not_notice_them() {
    let (vm, frame) = machine(1, false);
    assert_eq!((frame.aborts, aborts(vm.vcpus()[0])), (Code::SYNC, Code::SYNC));
}

/// An interrupt that comes while a service is inside is taken; what it announces waits for the guest's entry.
#[test]
fn doorbells_are_rung_from_either_tier_and_wait_for_nobody() {
    let (vm, mut frame, service) = served_with(Doorbells { first: 0x100, size: 8, by: BY_PLACE });
    let mut store = |offset: u64, register: u64| {
        at(DEVICE + offset);
        fakes::set("ELR_EL2", 0x4000_0000);
        let (code, iss) = (if register == 2 { 0 } else { Code::SYNC }, iss(2, register, true));
        assert_eq!(exit(&mut frame, class::DATA_ABORT, iss).0, code);
        if code == Code::SYNC {
            turnstile_full_exit(&mut frame, code);
        }
        assert_eq!(fakes::get("ELR_EL2"), 0x4000_0004);
    };
    for register in [2, 20] {
        store(0x104, register);
        assert_eq!(seen(), [[Kind::Doorbell as u64, 2, 0, 0, 0, 0]], "x{register}");
    }
    store(0x108, 2);
    assert_eq!(seen()[0][0], Kind::Write as u64, "behind the area");
    // Somebody else is inside, who sees to it.
    // SAFETY: as an exit handler.
    let owned = unsafe { vm.vcpus()[0].owned() };
    assert!(service.rings(7));
    store(0x100, 2);
    assert_eq!(seen(), Vec::<[u64; 6]>::new());
    // SAFETY: inside since the ring above.
    unsafe { service.rung(&mut Inside::<Gicv3>::new(vm.vcpus()[0], owned)) };
    let bells: Vec<u64> = seen().into_iter().map(|event| event[1]).collect();
    assert_eq!(bells, [1 << 7 | 1]);
}

#[test]
fn a_members_doorbells_are_its_own_from_either_tier() {
    let (_, mut frame, _) = served_from(8, Doorbells { first: 0x100, size: 12, by: BY_PLACE });
    for (register, code) in [(2, 0), (20, Code::SYNC)] {
        at(DEVICE + 0x108);
        assert_eq!(exit(&mut frame, class::DATA_ABORT, iss(2, register, true)).0, code);
        if code == Code::SYNC {
            turnstile_full_exit(&mut frame, code);
        }
        assert_eq!(seen(), [[Kind::Doorbell as u64, 1 << 10, 0, 0, 0, 0]], "x{register}");
    }
}

/// The service has handled what its guest has rung for, and says so to it: what came the last time comes again without leaving the
/// light exit.
#[test]
fn a_message_for_the_guest_that_rings_is_a_list_register() {
    let (lr, mut handle) = handled_message(0);
    assert_eq!(handle(0), (0, lr, 1), "nothing is posted");
    // Not handled yet, or another one, or where nothing is: as by anybody, which here is nobody.
    assert_eq!(handle(0), (0, lr, 0));
    fakes::set("ICH_LR0_EL2", 0);
    assert_eq!((handle(1), handle(-1)), ((0, 0, 0), (0, 0, 0)));
}

/// The number is the same in both VMs.
#[test]
fn a_message_of_another_vm_is_not_for_the_guest_that_rings() {
    let (_, mut handle) = handled_message(1);
    assert_eq!(handle(0), (0, 0, 0));
}

/// A guest has handled the first message of a device of the VM with this number, whose service sends the next one when it is rung:
/// it comes to its own guest, which has number 0. Returns the list register of the first one, and what sends the next one, with
/// another number: it returns the exit's code, the list register, and how often that was written.
fn handled_message(vm: u8) -> (u64, impl FnMut(i32) -> (u32, u64, usize)) {
    let port = Port { vm: Some(vm), ..Port::default() };
    let (vm, mut frame, _) = served_at(port, 0, Doorbells::NONE);
    let (vcpu, intid) = (vm.vcpus()[0], MESSAGES.first);
    let base = vm.machine.map().pci.frame.base;
    // SAFETY: the vCPU is this thread's.
    let owned = || unsafe { vcpu.owned() };
    vm.with_gic::<Gicv3, _>(|cx| {
        owned().gic.dist_write(cx, 0, 4, 3);
        // GICD_ISENABLER2, and GICD_ICFGR4: edges.
        owned().gic.dist_write(cx, 0x108, 4, 1);
        owned().gic.dist_write(cx, 0xc10, 4, 2);
    });
    at(DEVICE);
    exit(&mut frame, class::DATA_ABORT, iss(2, 2, true));
    // The first one is posted, as by anybody.
    assert!(vm.message(base + 0x40, intid.into()));
    turnstile_full_exit(&mut frame, Code::SYNC);
    let lr = fakes::get("ICH_LR0_EL2");
    assert_eq!((lr >> 62, lr as u32), (1, intid));
    fakes::set("ICH_LR0_EL2", 0);
    fakes::take_log();
    let handle = move |more: i32| {
        pretend(move |general, _| {
            let word = abi::message_word(0, intid.wrapping_add_signed(more));
            general[..6].copy_from_slice(&[Call::Done as u64, 0, abi::MESSAGE, 0, base + 0x40, word]);
            Left::Call
        });
        at(DEVICE);
        let (code, log) = exit(&mut frame, class::DATA_ABORT, iss(2, 2, true));
        let written = log.iter().filter(|access| **access == Access::Write("ICH_LR0_EL2", lr)).count();
        (code, fakes::get("ICH_LR0_EL2"), written)
    };
    (lr, handle)
}

#[test]
fn interrupts_are_taken_meanwhile() {
    let (vm, mut frame, _) = served();
    let vcpu = vm.vcpus()[0];
    at(DEVICE);
    exit(&mut frame, class::DATA_ABORT, iss(2, 2, false));
    let mut times = 0;
    pretend(move |general, event| {
        times += 1;
        if times < 3 {
            general[7] = times;
            return Left::Interrupt;
        }
        assert_eq!((event, general[7]), (None, 2), "it goes on with its registers");
        answer(general, event)
    });
    // A kick.
    fakes::set("ICC_IAR1_EL1", 0);
    vcpu.attention.raise(Reasons::INBOX);
    let (code, log) = exit(&mut frame, class::DATA_ABORT, iss(2, 2, false));
    assert_eq!((code, frame.get(2)), (Reasons::INBOX.bits(), 0x5566_7788));
    let taken = log.iter().filter(|access| **access == Access::Write("ICC_DIR_EL1", 0)).count();
    assert_eq!(taken, 2);
}

#[test]
fn one_that_takes_too_long_is_started_anew() {
    let (_, mut frame, service) = served();
    at(DEVICE);
    exit(&mut frame, class::DATA_ABORT, iss(2, 2, false));
    fakes::set("ICC_IAR1_EL1", 1023);
    let mut interrupts = 0;
    pretend(move |general, event| {
        if interrupts < 3 {
            fakes::set("CNTPCT_EL0", fakes::get("CNTPCT_EL0") + 700);
            interrupts += 1;
            return Left::Interrupt;
        }
        answer(general, event)
    });
    assert_eq!(exit(&mut frame, class::DATA_ABORT, iss(2, 2, false)).0, 0);
    assert_eq!(
        (service.figures().crashes, frame.get(2)),
        (0, 0x5566_7788),
        "a pause of the machine is forgiven once"
    );
    let mut interrupts = 0;
    pretend(move |general, event| {
        if interrupts < 5 {
            fakes::set("CNTPCT_EL0", fakes::get("CNTPCT_EL0") + 700);
            interrupts += 1;
            return Left::Interrupt;
        }
        answer(general, event)
    });
    assert_eq!(exit(&mut frame, class::DATA_ABORT, iss(2, 2, false)).0, 0);
    assert_eq!((service.figures().crashes, frame.get(2)), (1, 0x5566_7788));
    assert!(SAID.with_borrow(|said| said[0].starts_with("service test took longer")), "{:?}", SAID.take());
}

#[test]
fn behind_what_is_excused_an_interrupt_ends_the_rest_of_its_time() {
    let (_, mut frame, service) = served();
    at(DEVICE);
    exit(&mut frame, class::DATA_ABORT, iss(2, 2, false));
    let begun = fakes::get("CNTPCT_EL0");
    assert_eq!(fakes::get("CNTHP_CVAL_EL2"), begun + 1000);
    // What its memory is cleared for takes longer than it may, and the timer's interrupt is taken meanwhile.
    let clear = || {
        fakes::set("CNTPCT_EL0", begun + 1500);
        time::end_deadlines();
        assert_eq!(fakes::get("CNTHP_CTL_EL2"), 0);
    };
    // SAFETY: nobody is inside.
    unsafe { turnstile_arch_common::service::Space::excuse(service.space(), clear) };
    assert_eq!((fakes::get("CNTHP_CTL_EL2"), fakes::get("CNTHP_CVAL_EL2")), (1, begun + 2500));
}

#[test]
fn a_fault_is_explained() {
    let (_, mut frame, service) = served();
    at(DEVICE);
    let mut first = true;
    pretend(move |general, event| {
        if std::mem::take(&mut first) {
            fakes::set("ESR_EL2", 0x24 << 26 | 1 << 6);
            fakes::set("FAR_EL2", 0xdead_0000);
            fakes::set("ELR_EL2", 0xffff_ff80_0020_0010);
            general[9] = 0x5ea;
            return Left::Fault;
        }
        answer(general, event)
    });
    fakes::set("ELR_EL2", 0x4000_0000);
    assert_eq!(exit(&mut frame, class::DATA_ABORT, iss(2, 2, false)).0, 0);
    assert_eq!(
        (service.figures().crashes, fakes::get("ELR_EL2")),
        (1, 0x4000_0004),
        "the guest's registers are its own"
    );
    let said = SAID.take().join("\n");
    for part in [
        "a store to where it has no memory to write, address 0xdead0000",
        "program + 0x10",
        "x9  00000000000005ea",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn what_comes_from_elsewhere_is_handled_by_who_looks() {
    let (vm, mut frame, service) = served();
    service.want(Pending::doorbell(4));
    vm.vcpus()[0].attention.raise(Reasons::SERVICE);
    turnstile_full_exit(&mut frame, Code::SETTLE);
    assert_eq!(seen(), [[Kind::Doorbell as u64, 1 << 4, 0, 0, 0, 0]]);
    assert!(!vm.vcpus()[0].attention.is_pending());
}
