// SPDX-License-Identifier: Apache-2.0 OR MIT
mod bells;

use core::cell::RefCell;
use core::fmt;
use std::string::String;
use std::vec::Vec;

use turnstile_arch_common::service::{Outside, Touch};
use turnstile_service::gate::Pending;
use turnstile_service::image::{BY_PLACE, BY_VALUE, Doorbells, Header, Image, PAGE, X86_64};
use turnstile_vm::attention::Reasons;

use super::*;
use crate::cpu::regs::{cr0, cr4};
use crate::cpu::svm::{Vmcb, code};
use crate::exit::tests::{handle, machine_with_ports};
use crate::exit::tier::Code;
use crate::service::{Bar, Port, Registers, Service, Services, Space, Typed, pretend};
use crate::vcpu::frame::{Frame, number};

std::thread_local! {
    /// What the service of this thread got, and what it said outside.
    static SEEN: RefCell<Vec<[u64; 6]>> = const { RefCell::new(Vec::new()) };
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Nothing;

impl Outside for Nothing {
    fn print(&self, count: u64, words: [u64; 2]) -> u64 {
        SAID.with_borrow_mut(|said| said.push(std::format!("print {count} {words:x?}")));
        0
    }
    fn log(&self, _: u64, _: [u64; 2]) {}
    fn random(&self) -> Option<u64> {
        None
    }
    fn lines(&self, changed: u64, levels: u64) {
        SAID.with_borrow_mut(|said| said.push(std::format!("lines {changed:x} {levels:x}")));
    }
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

    fn crashed(&self, number: u32, report: fmt::Arguments<'_>) {
        let report = std::format!("{report}");
        SAID.with_borrow_mut(|said| {
            said.push(std::format!("crash {number}: {}", report.lines().next().unwrap_or_default()))
        });
    }
}

/// Where the device is: ports, and memory.
const PORT: u16 = 0x2e0;
const MEMORY: u64 = 0xfeb0_0000;

/// What [`served`] makes.
type Parts = (&'static Vcpu, Frame, Vmcb, &'static mut [u8], &'static Service);

/// A VM with one service, of which two devices are these.
fn served() -> Parts {
    served_with(Doorbells { first: 0x40, size: 4, by: BY_VALUE })
}

/// The same with these doorbells of the device in memory.
fn served_with(doorbells: Doorbells) -> Parts {
    served_from(0, doorbells)
}

/// The same, of which the first is this queue's.
fn served_from(bell: u64, doorbells: Doorbells) -> Parts {
    served_by(|services, service| {
        let device =
            Served { base: MEMORY, size: 0x100, device: 3, mask: u64::MAX, bell, doorbells, service };
        services.memory = std::vec![device];
    })
}

/// The same, whose device in memory is BAR 4 of a function.
fn served_by_bar(doorbells: Doorbells) -> Parts {
    served_by(|services, service| {
        services.bars = std::vec![Bar::new(Served::nowhere(5, doorbells, service))];
        services.functions = std::vec![Served::nowhere(0, Doorbells::NONE, service)];
    })
}

/// A VM with one service, of which some devices are those that are added.
fn served_by(add: impl FnOnce(&mut Services, &'static Service)) -> Parts {
    let (vcpu, frame, vmcb, ram) = machine_with_ports(&[(PORT, 8), (0xcf8, 8)]);
    let header = Header { isa: X86_64, code: PAGE, stack: PAGE, ..Header::default() };
    let mut file = header.bytes().to_vec();
    file.resize(2 * PAGE as usize, 0);
    let space = Space::new(Image::parse(file.leak(), X86_64).unwrap(), 1000).unwrap();
    let service: &'static Service =
        Box::leak(Box::new(Service::new("test".into(), space, &Nothing, Port::default())));
    let mut services = Services::none();
    add(&mut services, service);
    services.ports = std::vec![Served {
        base: PORT.into(),
        size: 8,
        device: 2,
        mask: u64::MAX,
        bell: 0,
        doorbells: Doorbells { first: 4, size: 4, by: BY_PLACE },
        service
    }];
    services.all = std::vec![service];
    vcpu.vm.set_services(services);
    SEEN.take();
    SAID.take();
    pretend(answer);
    (vcpu, frame, vmcb, ram, service)
}

fn leave(registers: &Registers, exit: u32) {
    // SAFETY: the service's own control block, while it runs.
    unsafe { (*registers.vmcb).set_exit_code(exit.into()) };
}

/// Answers each event with a number.
fn answer(registers: &mut Registers) {
    SEEN.with_borrow_mut(|seen| seen.push(registers.arguments));
    registers.arguments = [0, 0x1122_3344_5566_7788, 0, 0, 0, 0];
    leave(registers, code::VMMCALL);
}

/// What it got but its first event.
fn seen() -> Vec<[u64; 6]> {
    SEEN.take().into_iter().filter(|event| event[0] != Kind::Attach as u64).collect()
}

/// EXITINFO1 of IN or OUT.
fn port(number: u16, size: u64, read: bool) -> u64 {
    u64::from(number) << 16 | size << 4 | u64::from(read)
}

#[test]
fn ports_are_served_without_the_full_tier() {
    let (_, mut frame, mut vmcb, ..) = served();
    for (size, expected) in [(1, 0xffff_ffff_ffff_ff88), (2, 0xffff_ffff_ffff_7788), (4, 0x5566_7788)] {
        vmcb.set_rip(0x1000);
        vmcb.set_rax(u64::MAX);
        vmcb.set_exit_info([port(PORT + 5, size, true), 0x1001]);
        assert_eq!(handle(&mut frame, &mut vmcb, code::IOIO), 0);
        assert_eq!((vmcb.rax(), vmcb.rip()), (expected, 0x1001));
        assert_eq!(seen(), [[1, 2, 5, size, 0, 0]]);
        vmcb.set_rax(0xaabb_ccdd_eeff_0011);
        vmcb.set_exit_info([port(PORT, size, false), 0x1002]);
        assert_eq!(handle(&mut frame, &mut vmcb, code::IOIO), 0);
        assert_eq!(seen(), [[2, 2, 0, size, 0xeeff_0011 & u64::MAX >> (64 - 8 * size), 0]]);
    }
}

#[test]
fn a_port_is_a_doorbell_for_writes_alone() {
    let (_, mut frame, mut vmcb, ..) = served();
    for (read, expected) in [(false, [3, 1, 0, 0, 0, 0]), (true, [1, 2, 4, 2, 0, 0])] {
        vmcb.set_rip(0x1000);
        vmcb.set_rax(0x1234);
        vmcb.set_exit_info([port(PORT + 4, 2, read), 0x1001]);
        assert_eq!(handle(&mut frame, &mut vmcb, code::IOIO), 0);
        assert_eq!((vmcb.rax() == 0x1234, vmcb.rip()), (!read, 0x1001));
        assert_eq!(seen(), [expected]);
    }
}

#[test]
fn ports_of_others_are_left_alone() {
    let (_, mut frame, mut vmcb, ..) = served();
    vmcb.set_exit_info([port(PORT + 8, 1, true), 0x1001]);
    assert_eq!(handle(&mut frame, &mut vmcb, code::IOIO), 0, "nothing is there");
    assert_eq!(vmcb.rax(), 0xff);
    let (_, mut frame, mut vmcb, _) = machine_with_ports(&[(PORT, 8)]);
    vmcb.set_exit_info([port(PORT, 1, true), 0x1001]);
    assert_eq!(handle(&mut frame, &mut vmcb, code::IOIO), Code::FULL, "a VM without services");
    assert_eq!(seen(), [[0; 6]; 0]);
}

#[test]
fn registers_in_memory_are_served_by_both_tiers() {
    let (vcpu, mut frame, mut vmcb, ram, _) = served();
    // The first 2 MiB, one to one.
    for (at, entry) in [(0x2000, 0x3027u64), (0x3000, 0x4027), (0x4000, 0xe7)] {
        ram[at..at + 8].copy_from_slice(&entry.to_le_bytes());
    }
    vmcb.set_cr0(cr0::PE | cr0::PG);
    vmcb.set_cr4(cr4::PAE);
    vmcb.set_cr3(0x2000);
    let mut exit = |frame: &mut Frame, vmcb: &mut Vmcb, bytes: &[u8], address: u64, write: bool| {
        ram[0x1000..0x1000 + bytes.len()].copy_from_slice(bytes);
        let mut codes = Vec::new();
        // The first time it is decoded.
        for _ in 0..2 {
            vmcb.set_rip(0x1000);
            vmcb.set_exit_info([4 | u64::from(write) << 1 | 1 << 32, address]);
            let why = handle(frame, vmcb, code::NESTED_PAGE_FAULT);
            if why != 0 {
                crate::exit::memory::full(frame, vmcb, vcpu, monitor());
            }
            assert_eq!(vmcb.rip(), 0x1000 + bytes.len() as u64);
            codes.push(why);
        }
        codes
    };
    // mov eax, [rbx]; mov [rbx], cx; mov byte ptr [rbx], 5.
    vmcb.set_rax(u64::MAX);
    assert_eq!(exit(&mut frame, &mut vmcb, &[0x8b, 0x03], MEMORY + 8, false), [Code::FULL, 0]);
    assert_eq!(vmcb.rax(), 0x5566_7788);
    assert_eq!(seen(), [[1, 3, 8, 4, 0, 0]; 2]);
    frame.set_rcx(0xabcd_1234);
    assert_eq!(exit(&mut frame, &mut vmcb, &[0x66, 0x89, 0x0b], MEMORY, true), [Code::FULL, 0]);
    assert_eq!(seen(), [[2, 3, 0, 2, 0x1234, 0]; 2]);
    assert_eq!(exit(&mut frame, &mut vmcb, &[0xc6, 0x03, 5], MEMORY + 0xff, true), [Code::FULL, 0]);
    assert_eq!(seen(), [[2, 3, 0xff, 1, 5, 0]; 2]);
    // A doorbell: by both tiers.
    frame.set_rcx(3);
    assert_eq!(exit(&mut frame, &mut vmcb, &[0x89, 0x0b], MEMORY + 0x40, true), [Code::FULL, 0]);
    assert_eq!(seen(), [[3, 8, 0, 0, 0, 0]; 2]);
    assert_eq!(exit(&mut frame, &mut vmcb, &[0x89, 0x0b], MEMORY + 0x44, true), [0, 0]);
    assert_eq!(seen(), [[2, 3, 0x44, 4, 3, 0]; 2], "behind it");
    // Behind the device is nothing.
    assert_eq!(exit(&mut frame, &mut vmcb, &[0x8b, 0x03], MEMORY + 0x100, false), [Code::FULL; 2]);
    assert_eq!(vmcb.rax(), 0xffff_ffff);
    assert_eq!(seen(), [[0; 6]; 0]);
    // OR of memory is read and written, each once; only the full tier does that.
    frame.set_rcx(1);
    assert_eq!(exit(&mut frame, &mut vmcb, &[0x09, 0x0b], MEMORY, true), [Code::FULL; 2]);
    assert_eq!(
        seen(),
        [[1, 3, 0, 4, 0, 0], [2, 3, 0, 4, 0x5566_7789, 0], [1, 3, 0, 4, 0, 0], [2, 3, 0, 4, 0x5566_7789, 0]]
    );
}

#[test]
fn who_faults_is_started_anew_and_the_guest_reads_ones() {
    let (_, mut frame, mut vmcb, _, service) = served();
    pretend(|registers| {
        let is_first = registers.arguments[0] == Kind::Attach as u64;
        answer(registers);
        leave(registers, if is_first { code::VMMCALL } else { code::NESTED_PAGE_FAULT });
    });
    vmcb.set_exit_info([port(PORT, 1, true), 0x1001]);
    assert_eq!(handle(&mut frame, &mut vmcb, code::IOIO), 0);
    assert_eq!(vmcb.rax(), 0xff);
    assert_eq!((service.figures().crashes, SEEN.take().len()), (2, 4));
    assert!(SAID.take()[0].starts_with("crash 1: service test did what it must not do"));
}

#[test]
fn interrupts_are_taken_meanwhile_and_the_attention_word_waits() {
    let (vcpu, mut frame, mut vmcb, ..) = served();
    pretend(|registers| {
        let interrupted =
            SEEN.with_borrow(|seen| seen.len() == 1 && registers.arguments[0] == Kind::Read as u64);
        if interrupted {
            // Another CPU wants the run queue to be looked at.
            cpu::this().arrived.store(Arrived::RESCHEDULE.bits(), core::sync::atomic::Ordering::Relaxed);
            SEEN.with_borrow_mut(|seen| seen.push(registers.arguments));
            leave(registers, code::INTR);
        } else {
            answer(registers);
        }
    });
    vmcb.set_exit_info([port(PORT, 1, true), 0x1001]);
    assert_eq!(
        handle(&mut frame, &mut vmcb, code::IOIO),
        Reasons::RESCHEDULE.bits(),
        "the exit looks at it when it is done"
    );
    assert_eq!(vmcb.rax(), 0x88);
    assert_eq!(seen().len(), 2, "it goes on where it was");
    assert!(vcpu.attention.take().contains(Reasons::RESCHEDULE));
}

#[test]
fn what_others_want_is_handled_when_the_vcpu_attends() {
    let (vcpu, mut frame, mut vmcb, _, service) = served();
    frame.vmcb = &raw mut vmcb;
    service.want(Pending::ALARM);
    look(&mut frame, vcpu);
    assert_eq!(seen(), [[5, 0, 0, 0, 0, 0]]);
    look(&mut frame, vcpu);
    assert_eq!(seen(), [[0; 6]; 0]);
    assert_eq!(frame.get(&vmcb, number::RAX), 0);
}

/// Does a whole exit for an access to a port, and returns RAX.
fn at_port(parts: &mut Parts, number: u16, size: u64, write: Option<u64>) -> u64 {
    let (vcpu, frame, vmcb, ..) = parts;
    vmcb.set_rip(0x1000);
    vmcb.set_rax(write.unwrap_or(0));
    vmcb.set_exit_info([port(number, size, write.is_none()), 0x1001]);
    if handle(frame, vmcb, code::IOIO) != 0 {
        crate::exit::port::full(frame, vmcb, vcpu, monitor());
    }
    assert_eq!(vmcb.rip(), 0x1001);
    vmcb.rax()
}

#[test]
fn the_ports_of_pci_reach_functions_and_the_bridge() {
    let mut parts = served_by_bar(Doorbells::NONE);
    assert_eq!(at_port(&mut parts, 0xcfc, 4, None), 0xffff_ffff, "not enabled");
    at_port(&mut parts, 0xcf8, 4, Some(0xffff_ffff));
    assert_eq!(at_port(&mut parts, 0xcf8, 4, None), 0x80ff_fffc);
    assert_eq!(at_port(&mut parts, 0xcfc, 4, None), 0xffff_ffff, "another bus");
    at_port(&mut parts, 0xcf8, 4, Some(0x8000_0000));
    assert_eq!(at_port(&mut parts, 0xcfc, 4, None), 0x0008_1b36);
    at_port(&mut parts, 0xcfc, 4, Some(5));
    assert_eq!(at_port(&mut parts, 0xcfe, 2, None), 8, "of the bridge, which stays");
    at_port(&mut parts, 0xcf8, 4, Some(0x8000_1000));
    assert_eq!(at_port(&mut parts, 0xcfc, 4, None), 0xffff_ffff, "no function");
    assert_eq!(seen(), [[0; 6]; 0]);
    at_port(&mut parts, 0xcf8, 4, Some(0x8000_0804));
    assert_eq!(at_port(&mut parts, 0xcfd, 1, None), 0x88);
    at_port(&mut parts, 0xcfe, 2, Some(0x1_abcd));
    assert_eq!(seen(), [[1, 0, 5, 1, 0, 0], [2, 0, 6, 2, 0xabcd, 0]]);
    for (number, size) in [(0xcfd, 4), (0xcff, 2), (0xcf8, 2), (0xcfb, 1), (0xcf9, 1)] {
        let ones = u64::MAX >> (64 - 8 * size);
        assert_eq!(at_port(&mut parts, number, size, None) & ones, ones, "{number:x} {size}");
        at_port(&mut parts, number, size, Some(0));
    }
    assert_eq!(seen(), [[0; 6]; 0]);
    assert_eq!(at_port(&mut parts, 0xcf8, 4, None), 0x8000_0804);
    parts.0.vm.board.reset();
    assert_eq!(at_port(&mut parts, 0xcf8, 4, None), 0, "a new life");
}

#[test]
fn without_functions_there_are_no_ports_of_pci() {
    let mut parts = served();
    at_port(&mut parts, 0xcf8, 4, Some(0x8000_0000));
    assert_eq!(at_port(&mut parts, 0xcf8, 4, None), 0xffff_ffff);
    assert_eq!(at_port(&mut parts, 0xcfc, 4, None), 0xffff_ffff);
}
