// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits that a service handles, against a recorder that is the service.

use std::string::String;

use turnstile_arch_common::service::{Outside, Touch, Typed};
use turnstile_papr::rtas::Function;
use turnstile_service::abi::{CONFIGURATION, Kind, member_device};
use turnstile_service::image::{BY_PLACE, BY_VALUE, Doorbells};
use turnstile_service::image::{Header, Image, PAGE as UNIT};

use super::*;
use crate::cpu::regs::msr;
use crate::exit::inside::Inside;
use crate::exit::service;
use crate::service::{Bar, ISA, Port, Served, Service, Services, Space};

/// Nothing outside of it is reached here.
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

    fn wake(&self) {
        fakes::write("wake", 0);
    }

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

    fn crashed(&self, _: u32, _: core::fmt::Arguments<'_>) {
        fakes::write("crash", 0);
    }
}

const DEVICE: u64 = 0x100_0001_0000;
/// The number of the configuration space of its PCI function, which is the third member's.
const FUNCTION: u64 = member_device(2, CONFIGURATION);

/// A vCPU whose VM has a terminal and a device in memory, with numbers 3 and 4 in the service.
fn served() -> (&'static Vcpu, Frame) {
    served_with(Doorbells::NONE)
}

/// The same, and the device has these doorbells.
fn served_with(doorbells: Doorbells) -> (&'static Vcpu, Frame) {
    served_from(0, doorbells)
}

/// The same, of which the first is this queue's.
fn served_from(bell: u64, doorbells: Doorbells) -> (&'static Vcpu, Frame) {
    let device =
        |service| Served { base: DEVICE, size: 0x1000, device: 4, mask: u64::MAX, bell, doorbells, service };
    served_by(service(), |service| (vec![device(service)], vec![]))
}

/// A service.
fn service() -> Service {
    let header = Header { isa: ISA, code: UNIT, stack: UNIT, ..Header::default() };
    let mut file = header.bytes().to_vec();
    file.resize((UNIT + header.file()) as usize, 0);
    let space = Space::new(Image::parse(file.leak(), ISA).unwrap(), 1_000_000).unwrap();
    Service::new(String::from("service"), space, &Nothing, Port::default())
}

/// A vCPU whose VM has a terminal and these devices of a service.
fn served_by(
    service: Service,
    devices: impl FnOnce(&'static Service) -> (Vec<Served>, Vec<Bar>),
) -> (&'static Vcpu, Frame) {
    let vcpu = vcpus(1)[0];
    let service = &*Box::leak(Box::new(service));
    let mut services = Services::none();
    (services.memory, services.bars) = devices(service);
    services.terminal = Some(Served {
        base: 0,
        size: 1,
        device: 3,
        mask: u64::MAX,
        bell: 0,
        doorbells: Doorbells::NONE,
        service,
    });
    services.functions = vec![Served::nowhere(FUNCTION, Doorbells::NONE, service)];
    services.all = vec![service];
    vcpu.vm.set_services(services);
    begin(vcpu.vm);
    crate::vcpu::facility::load(vcpu);
    (vcpu, wait::frame(vcpu))
}

fn event() -> (Option<Kind>, [u64; 4]) {
    let arguments = ["service a", "service b", "service c", "service d"];
    (Kind::from_number(fakes::get("service enters")), arguments.map(fakes::get))
}

#[test]
fn a_terminal_is_read_from_the_service() {
    let (_, mut frame) = served();
    fakes::set("service count", 3);
    fakes::set("service 1", u64::from_le_bytes(*b"abc\0\0\0\0\0"));
    assert_eq!(service::get(&mut frame, 0), Answer { code: 0, value: 3 });
    assert_eq!((frame.gpr(5), frame.gpr(6)), (u64::from_be_bytes(*b"abc\0\0\0\0\0"), 0));
    assert_eq!(event(), (Some(Kind::TerminalRead), [3, 0, 0, 0]));
    fakes::set("service count", u64::MAX);
    assert_eq!(service::get(&mut frame, 0).value, 16, "no more than there can be");
    fakes::take_log();
    assert_eq!(service::get(&mut frame, 7).code, -4i64 as u64, "there is no such terminal");
    assert_eq!((frame.gpr(5), fakes::take_log()), (0, vec![]));
}

/// Calls a function of the firmware, which has so many results, and returns the first.
fn call_firmware(
    frame: &mut Frame,
    vcpu: &'static Vcpu,
    call: (Function, u32),
    arguments: &[u32],
) -> Option<u32> {
    const BLOCK: u64 = 0x200;
    let (function, results) = call;
    let block = [&[function.token(), arguments.len() as u32, results][..], arguments].concat();
    for (at, word) in (BLOCK..).step_by(4).zip(&block) {
        assert!(vcpu.vm.set_word(at, *word));
    }
    crate::exit::calls::firmware(frame, vcpu, [BLOCK, 0, 0, 0, 0, 0, 0], crate::vm::monitor::monitor());
    vcpu.vm.word(BLOCK + 4 * block.len() as u64)
}

#[test]
fn configuration_space_is_the_members_own() {
    let (vcpu, mut frame) = served();
    let register = 1 << 11 | 4;
    assert_eq!(call_firmware(&mut frame, vcpu, (Function::ReadPciConfig, 2), &[register, 4]), Some(0));
    assert_eq!(event(), (Some(Kind::Read), [FUNCTION, 4, 4, 0]));
    assert_eq!(call_firmware(&mut frame, vcpu, (Function::WritePciConfig, 1), &[register, 4, 6]), Some(0));
    assert_eq!(event(), (Some(Kind::Write), [FUNCTION, 4, 4, 6]));
}

#[test]
fn with_statistics_the_calls_of_a_terminal_do_the_same() {
    let (_, mut frame) = served();
    fakes::set("service count", 3);
    assert_eq!(service::timed_get(&mut frame, 0), Answer { code: 0, value: 3 });
    assert_eq!(service::timed_put(&mut frame, 0, 8, 0, 0), Answer::SUCCESS);
    assert_eq!(service::timed_get(&mut frame, 7).code, -4i64 as u64, "there is no such terminal");
}

#[test]
fn a_terminal_is_written_to_the_service() {
    let (_, mut frame) = served();
    frame.set_gpr(5, 7);
    let high = u64::from_be_bytes(*b"hello wo");
    assert_eq!(service::put(&mut frame, 0, 8, high, 0), Answer::SUCCESS);
    assert_eq!(event(), (Some(Kind::TerminalWrite), [3, 8, u64::from_le_bytes(*b"hello wo"), 0]));
    assert_eq!(frame.gpr(5), 0);
    fakes::take_log();
    assert_eq!(service::put(&mut frame, 0, 17, 0, 0).code, -4i64 as u64);
    assert_eq!(fakes::take_log(), []);
}

/// Behind a call that looks at its attention word, the answer is still there, and nothing else.
#[test]
fn an_answer_survives_what_the_attention_word_says() {
    let (vcpu, mut frame) = served();
    for register in 0..13 {
        frame.set_gpr(register, 7);
    }
    fakes::set("SRR0", 0x1234);
    vcpu.attention.raise(Reasons::UNHALT);
    assert_eq!(service::attend(&mut frame, 0), Entry::Some);
    assert_eq!((frame.pc, vcpu.attention.is_pending()), (0x1234, false));
    let found: Vec<u64> = (3..13).map(|register| frame.gpr(register)).collect();
    assert_eq!(found, [7, 7, 7, 7, 0, 0, 0, 0, 0, 0]);
}

/// What an access of a device by an instruction has left, in real mode.
fn accessed(frame: &mut Frame, instruction: u32, address: u64) {
    accessed_in(frame, msr::LE, instruction, address);
}

/// The same in either byte order.
fn accessed_in(frame: &mut Frame, order: u64, instruction: u32, address: u64) {
    let bytes = if order == 0 { instruction.to_be_bytes() } else { instruction.to_le_bytes() };
    assert!(resident(frame).vm.write(0x200, &bytes));
    fakes::set("HSRR0", 0x200);
    fakes::set("HSRR1", msr::SF | order);
    fakes::set("HDSISR", 1 << 30);
    fakes::set("HDAR", address);
    fakes::set("ASDR", address & !0xfff);
    frame.vector = vector::HYPERVISOR_DATA_STORAGE;
}

/// Accesses a device by an instruction, in real mode.
fn access(frame: &mut Frame, instruction: u32, address: u64) {
    accessed(frame, instruction, address);
    assert_eq!(service::full(frame, Code::FULL), Entry::Some);
}

/// `stw r3, 0(r4)`, and the same of R14; `sth r3, 0(r4)`; `stwu r3, 0(r4)`; `stwbrx r3, 0, r4`.
const STORE: u32 = 0x9064_0000;
const STORE_UNSTORED: u32 = 0x91c4_0000;
const STORE_HALF: u32 = 0xb064_0000;
const STORE_UPDATE: u32 = 0x9464_0000;
const STORE_REVERSED: u32 = 0x7c60_252c;

/// Stores to a device: the light tier.
fn store(frame: &mut Frame, instruction: u32, address: u64) -> u32 {
    store_in(frame, msr::LE, instruction, address)
}

/// The same in either byte order.
fn store_in(frame: &mut Frame, order: u64, instruction: u32, address: u64) -> u32 {
    accessed_in(frame, order, instruction, address);
    fakes::set("HDSISR", 1 << 30 | 1 << 25);
    light(frame)
}

/// What the vector calls.
fn light(frame: &mut Frame) -> u32 {
    frame.data.expect("it is a guest's")(frame, vector::HYPERVISOR_DATA_STORAGE)
}

/// How often a service has been entered since the log was taken last.
fn entered() -> usize {
    fakes::take_log().iter().filter(|access| matches!(access, Access::Write("service enters", _))).count()
}

#[test]
fn a_doorbell_is_rung_by_the_number_that_is_stored() {
    let (_, mut frame) = served_with(Doorbells { first: 0x100, size: 4, by: BY_VALUE });
    let bell = DEVICE + 0x100;
    fakes::take_log();
    for (instruction, value, queue) in [(STORE, 5, 5), (STORE_HALF, 0x1_0004, 4), (STORE, 99, 3)] {
        frame.set_gpr(3, value);
        assert_eq!(store(&mut frame, instruction, bell), 0);
        assert_eq!(event(), (Some(Kind::Doorbell), [1 << queue, 0, 0, 0]));
        assert_eq!([fakes::get("HSRR0"), fakes::get("HSRR1")], [0x204, msr::SF | msr::LE]);
    }
    assert_eq!(entered(), 4, "it is attached first");
    // Not of this tier: a register that it does not have; with relocation on, where no table leads to the instruction; and
    // what is no doorbell.
    assert_eq!(store(&mut frame, STORE_UNSTORED, bell), Code::FULL);
    for beside in [bell - 4, bell + 4, DEVICE + 0x1000] {
        assert_eq!(store(&mut frame, STORE, beside), Code::FULL);
    }
    accessed(&mut frame, STORE, bell);
    assert_eq!(light(&mut frame), Code::FULL, "a load");
    fakes::set("HDSISR", 1 << 30 | 1 << 25);
    fakes::set("HSRR1", msr::SF | msr::LE | msr::IR);
    assert_eq!(light(&mut frame), Code::FULL);
    assert_eq!(entered(), 0);
    frame.set_gpr(14, 7);
    assert_eq!(frame.entry(), Entry::All);
    access(&mut frame, STORE_UNSTORED, bell);
    assert_eq!((event(), frame.pc), ((Some(Kind::Doorbell), [1 << 7, 0, 0, 0]), 0x204));
}

#[test]
fn a_doorbell_is_rung_by_its_place() {
    let (_, mut frame) = served_with(Doorbells { first: 0x100, size: 0x40, by: BY_PLACE });
    // Whatever is stored, by any store: stwx r14, r4, r5 is left to the full tier.
    for (instruction, offset, queue) in
        [(STORE, 0x108, 2), (STORE_UNSTORED, 0x13c, 15), (STORE_HALF, 0x106, 1)]
    {
        assert_eq!(store(&mut frame, instruction, DEVICE + offset), 0);
        assert_eq!(event(), (Some(Kind::Doorbell), [1 << queue, 0, 0, 0]));
    }
    accessed(&mut frame, STORE, DEVICE + 0x104);
    assert_eq!(light(&mut frame), Code::FULL, "a load");
    assert_eq!(store(&mut frame, 0x7dc4_292e, DEVICE + 0x104), Code::FULL);
    access(&mut frame, 0x7dc4_292e, DEVICE + 0x104);
    assert_eq!(event(), (Some(Kind::Doorbell), [1 << 1, 0, 0, 0]));
}

#[test]
fn a_members_doorbells_are_behind_those_of_others() {
    for by in [BY_VALUE, BY_PLACE] {
        let (_, mut frame) = served_from(8, Doorbells { first: 0x100, size: 0x10, by });
        frame.set_gpr(3, 2);
        let ways: [fn(&mut Frame); 3] = [
            |frame| assert_eq!(store(frame, STORE, DEVICE + 0x108), 0),
            // Not at a word: the light tier's other way.
            |frame| assert_eq!(store(frame, STORE_HALF, DEVICE + 0x10a), 0),
            |frame| access(frame, STORE, DEVICE + 0x108),
        ];
        for (number, way) in ways.into_iter().enumerate() {
            fakes::set("service a", 0);
            way(&mut frame);
            assert_eq!(event(), (Some(Kind::Doorbell), [1 << 10, 0, 0, 0]), "{number}");
        }
    }
}

#[test]
fn who_rings_while_somebody_is_inside_goes_on_at_once() {
    let (vcpu, mut frame) = served_with(Doorbells { first: 0x100, size: 4, by: BY_VALUE });
    let service = vcpu.vm.services().unwrap().all[0];
    assert!(service.rings(0));
    fakes::take_log();
    frame.set_gpr(3, 6);
    assert_eq!(store(&mut frame, STORE, DEVICE + 0x100), 0);
    assert_eq!((entered(), fakes::get("HSRR0")), (0, 0x204));
    // SAFETY: inside, for a vCPU that nobody else has.
    unsafe { service.rung(&mut Inside(vcpu)) };
    assert_eq!(event(), (Some(Kind::Doorbell), [1 << 6 | 1, 0, 0, 0]), "who was inside sees to it");
}

#[test]
fn who_rings_hears_what_the_attention_word_says() {
    let (vcpu, mut frame) = served_with(Doorbells { first: 0x100, size: 4, by: BY_VALUE });
    assert!(vcpu.vm.services().unwrap().all[0].rings(0));
    vcpu.attention.raise(Reasons::UNHALT);
    assert_eq!(store(&mut frame, STORE, DEVICE + 0x100), Reasons::UNHALT.bits());
    assert_eq!(fakes::get("HSRR0"), 0x204);
}

/// The service's own CPU runs it, not who rings: that wakes the CPU, once.
#[test]
fn who_rings_for_a_cpu_that_sleeps_wakes_it() {
    let doorbells = Doorbells { first: 0x100, size: 4, by: BY_VALUE };
    let device = |service| Served {
        base: DEVICE,
        size: 0x1000,
        device: 4,
        mask: u64::MAX,
        bell: 0,
        doorbells,
        service,
    };
    let (_, mut frame) = served_by(service().on_own_cpu(), |service| (vec![device(service)], vec![]));
    for wakes in [1, 0] {
        fakes::take_log();
        assert_eq!(store(&mut frame, STORE, DEVICE + 0x100), 0);
        assert_eq!([fakes::get("HSRR0"), fakes::get("HSRR1")], [0x204, msr::SF | msr::LE]);
        let log = fakes::take_log();
        let count =
            |name| log.iter().filter(|access| matches!(access, Access::Write(n, _) if *n == name)).count();
        assert_eq!((count("wake"), count("service enters")), (wakes, 0));
    }
}

/// Whichever comes first in the VM, and whichever is looked at first.
#[test]
fn each_device_has_doorbells_of_its_own() {
    let [quiet, by_place, first, second, moves] = core::array::from_fn(|n| DEVICE + 0x1000 * n as u64);
    let [value, place] = [BY_VALUE, BY_PLACE].map(|by| Doorbells { first: 0x100, size: 0x10, by });
    let (vcpu, mut frame) = served_by(service(), |service| {
        let at = |base, bell, doorbells| Served {
            base,
            size: 0x1000,
            device: 4,
            mask: u64::MAX,
            bell,
            doorbells,
            service,
        };
        let still =
            [(quiet, 0, Doorbells::NONE), (by_place, 4, place), (first, 8, value), (second, 12, value)];
        let bar = Bar::new(Served { bell: 16, ..Served::nowhere(5, value, service) });
        (still.map(|(base, bell, doorbells)| at(base, bell, doorbells)).into(), vec![bar])
    });
    assert_eq!((frame.bells.start, frame.bells.size), (first + 0x100, 0x10), "found without a search");
    let services = vcpu.vm.services().unwrap();
    assert!(services.move_bar(services.all[0], 5, moves, 0x10c));
    frame.set_gpr(3, 3);
    for (device, queue) in [(by_place, 6), (first, 11), (second, 15), (moves, 19)] {
        assert_eq!(store(&mut frame, STORE, device + 0x108), 0, "{queue}");
        assert_eq!(event(), (Some(Kind::Doorbell), [1 << queue, 0, 0, 0]));
        assert_eq!(fakes::get("HSRR0"), 0x204, "{queue}");
    }
    fakes::take_log();
    assert_eq!(store(&mut frame, STORE_UNSTORED, second + 0x108), Code::FULL);
    // A BAR may be smaller than its doorbells.
    for nothing in [quiet + 0x108, moves + 0x10c, first, first + 0x110, second + 0xfc] {
        assert_eq!(store(&mut frame, STORE, nothing), Code::FULL, "{nothing:#x}");
    }
    assert_eq!((entered(), fakes::get("HSRR0")), (0, 0x200));
}

/// A device is little-endian, whatever the guest is.
#[test]
fn a_doorbell_is_rung_in_either_byte_order() {
    let (_, mut frame) = served_with(Doorbells { first: 0x100, size: 4, by: BY_VALUE });
    let bell = DEVICE + 0x100;
    frame.set_gpr(0, 9 << 24 | 9);
    frame.set_gpr(3, 5 << 24 | 6);
    for (order, queue) in [(msr::LE, 6), (0, 5)] {
        assert_eq!(store_in(&mut frame, order, STORE, bell), 0);
        assert_eq!(event(), (Some(Kind::Doorbell), [1 << queue, 0, 0, 0]));
    }
    // `stw r3, 0x90(r4)`, which is one of R0 if it is read in the wrong order.
    assert_eq!(store_in(&mut frame, 0, STORE | 0x90, bell), 0);
    assert_eq!(event(), (Some(Kind::Doorbell), [1 << 5, 0, 0, 0]));
    // A store that changes the order is not of the light tier.
    assert_eq!(store(&mut frame, STORE_REVERSED, bell), Code::FULL);
    access(&mut frame, STORE_REVERSED, bell);
    assert_eq!((event(), frame.pc), ((Some(Kind::Doorbell), [1 << 5, 0, 0, 0]), 0x204));
}

#[test]
fn a_store_that_is_more_than_a_doorbell_is_left_to_the_full_tier() {
    let (vcpu, mut frame) = served_with(Doorbells { first: 0xffc, size: 4, by: BY_VALUE });
    let bell = DEVICE + 0xffc;
    fakes::take_log();
    assert_eq!(store(&mut frame, STORE_UPDATE, bell), Code::FULL, "it changes R4");
    assert_eq!(store(&mut frame, STORE, bell + 2), Code::FULL, "it is in two pages");
    accessed(&mut frame, STORE, bell);
    fakes::set("HDSISR", 1 << 30 | 1 << 25 | 1 << 17);
    assert_eq!(light(&mut frame), Code::FULL, "the guest's tables");
    fakes::set("HDSISR", 1 << 30 | 1 << 25);
    fakes::set("HSRR0", vcpu.vm.life().ram.size());
    assert_eq!(light(&mut frame), Code::FULL, "no instruction");
    assert_eq!(entered(), 0);
    // What is no whole word is one nevertheless.
    assert_eq!(store(&mut frame, STORE_HALF, bell + 2), 0);
    assert_eq!(entered(), 2, "it is attached first");
}

#[test]
fn devices_in_memory_are_the_services() {
    let (_, mut frame) = served();
    frame.set_gpr(3, 0x1122_3344);
    // stw r3, 0(r4)
    access(&mut frame, 0x9064_0000, DEVICE + 8);
    assert_eq!(event(), (Some(Kind::Write), [4, 8, 4, 0x1122_3344]));
    assert_eq!(frame.pc, 0x204);
    // lbzu r3, 0(r4): it faults meanwhile, which changes HDAR.
    fakes::set("service value", 0x1ff);
    access(&mut frame, 0x8c64_0000, DEVICE + 5);
    assert_eq!(event(), (Some(Kind::Read), [4, 5, 1, 0]));
    assert_eq!((frame.gpr(3), frame.gpr(4), frame.pc), (0xff, DEVICE + 5, 0x204));
    // Beyond its end, and elsewhere: not the service's.
    fakes::take_log();
    access(&mut frame, 0x9064_0000, DEVICE + 0xffe);
    access(&mut frame, 0x9064_0000, DEVICE + 0x1000);
    assert!(!fakes::take_log().iter().any(|access| matches!(access, Access::Write("service enters", _))));
}

/// A service that crashes on an event twice is not there: the guest goes on.
#[test]
fn a_guest_goes_on_without_its_service() {
    let (_, mut frame) = served();
    fakes::set("service", u64::from(vector::HYPERVISOR_DATA_STORAGE));
    access(&mut frame, 0x8064_0000, DEVICE);
    assert_eq!((frame.gpr(3), frame.pc), (0xffff_ffff, 0x204));
    assert_eq!(service::get(&mut frame, 0), Answer::SUCCESS, "nothing was typed");
}

#[test]
fn what_is_wanted_of_a_service_is_handled_behind_an_exit() {
    let (vcpu, mut frame) = served();
    let services = vcpu.vm.services().unwrap();
    services.all[0].want(turnstile_service::gate::Pending::ALARM);
    vcpu.attention.raise(Reasons::SERVICE | Reasons::UNHALT);
    frame.vector = vector::MAINTENANCE;
    assert_eq!(full(&mut frame, Code::FULL), Entry::Some);
    assert_eq!(event().0, Some(Kind::Alarm));
    assert!(!vcpu.attention.is_pending());
}
