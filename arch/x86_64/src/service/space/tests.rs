// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::format;

use turnstile_arch_common::service::Space as _;
use turnstile_service::abi::Kind;

use super::super::pages::tests::image;
use super::*;
use crate::cpu::regs::fakes;

/// A space whose memory has been begun.
fn space(limit: u64) -> &'static Space {
    fakes::reset();
    let space = Box::leak(Box::new(Space::new(image(), limit).unwrap()));
    // SAFETY: a test has it alone.
    unsafe { space.begin(false) };
    space
}

fn enter(space: &Space) -> Left {
    // SAFETY: a test has it alone, and it has been begun.
    unsafe { space.enter(&EVENT) }
}

fn leave(registers: &mut Registers, exit: u32) -> &mut Vmcb {
    // SAFETY: the service's own, while it runs.
    let vmcb = unsafe { &mut *registers.vmcb };
    vmcb.set_exit_code(exit.into());
    vmcb
}

const EVENT: Event = Event::new(Kind::Write, [1, 2, 3, 4, 5]);

#[test]
fn it_is_entered_at_its_entry_with_its_stack_and_nothing_else() {
    let space = space(1000);
    pretend(|registers| {
        let vmcb = leave(registers, code::VMMCALL);
        assert_eq!((vmcb.rip(), vmcb.rsp(), vmcb.rax()), (BASE + 64, BASE + 0x8000, 0));
        assert_eq!(vmcb.rflags(), flags::RESERVED);
        vmcb.set_rip(BASE + 0x200);
        vmcb.set_rsp(1);
        vmcb.set_rax(2);
        vmcb.set_rflags(u64::MAX);
        assert_eq!(registers.arguments, [2, 1, 2, 3, 4, 5]);
        assert_eq!(registers.others, [0; 8]);
        registers.others = [9; 8];
        registers.arguments = [0, 7, 6, 5, 4, 3];
    });
    for _ in 0..2 {
        // SAFETY: a test has it alone, and it has been begun.
        unsafe {
            assert_eq!(space.enter(&EVENT), Left::Call);
            assert_eq!(space.call(), [0, 7, 6, 5, 4, 3]);
        }
    }
}

#[test]
fn it_goes_on_behind_a_call_and_where_it_was_interrupted() {
    let space = space(1000);
    pretend(|registers| _ = leave(registers, code::VMMCALL));
    enter(space);
    pretend(|registers| {
        assert_eq!((registers.arguments[0], registers.arguments[1]), (77, 1));
        let vmcb = leave(registers, code::INTR);
        assert_eq!(vmcb.rip(), BASE + 64 + 3);
        vmcb.set_rip(BASE + 0x300);
    });
    // SAFETY: as above.
    assert_eq!(unsafe { space.resume(Some(77)) }, Left::Interrupt);
    pretend(|registers| {
        assert_eq!(registers.arguments[0], 77);
        assert_eq!(leave(registers, code::NESTED_PAGE_FAULT).rip(), BASE + 0x300);
    });
    // SAFETY: as above.
    assert_eq!(unsafe { space.resume(None) }, Left::Fault);
}

#[test]
fn whatever_is_no_call_and_no_interrupt_is_a_fault() {
    let space = space(1000);
    for exit in (0..=0xff).chain([code::NESTED_PAGE_FAULT, code::INVALID]) {
        std::thread_local!(static EXIT: core::cell::Cell<u32> = const { core::cell::Cell::new(0) });
        EXIT.set(exit);
        pretend(|registers| _ = leave(registers, EXIT.get()));
        let expected = match exit {
            0x81 => Left::Call,
            // #MC, INTR, NMI, INIT.
            0x52 | 0x60 | 0x61 | 0x63 => Left::Interrupt,
            _ => Left::Fault,
        };
        assert_eq!(enter(space), expected, "{exit:#x}");
    }
}

#[test]
fn the_timer_rings_before_it_is_late() {
    fakes::set("TSC", 0);
    let space = space(2_000_000);
    fakes::set("TSC", 5_000);
    pretend(|registers| _ = leave(registers, code::INTR));
    enter(space);
    assert!(!space.is_late());
    // The fake machine's counter ticks once in a nanosecond.
    fakes::set("TSC", 2_004_999);
    assert!(!space.is_late());
    fakes::set("TSC", 2_005_000);
    assert!(space.is_late());
    let passed = time::end_deadlines();
    assert!(passed.devices, "the timer was set to ring by then");
}

#[test]
fn what_is_excused_is_not_its_time() {
    fakes::set("TSC", 5_000);
    let space = space(2_000_000);
    pretend(|registers| _ = leave(registers, code::INTR));
    enter(space);
    // SAFETY: nobody is inside.
    unsafe { space.excuse(|| fakes::set("TSC", 9_005_000)) };
    fakes::set("TSC", 11_004_999);
    assert!(!space.is_late());
    fakes::set("TSC", 11_005_000);
    assert!(space.is_late());
}

#[test]
fn only_an_access_of_a_window_where_nothing_is_mapped_is_a_miss() {
    std::thread_local!(static LEFT: core::cell::Cell<(u32, [u64; 2])> = const { core::cell::Cell::new((0, [0; 2])) });
    let space = space(1000);
    let missed = |code, info, address| {
        LEFT.set((code, [info, address]));
        pretend(|registers| {
            let (code, info) = LEFT.get();
            leave(registers, code).set_exit_info(info);
        });
        enter(space);
        // SAFETY: nobody is inside.
        unsafe { space.missed() }
    };
    const FINAL: u64 = 1 << 32;
    let there = (2 << 30) + 0x123_4568;
    assert_eq!(missed(code::NESTED_PAGE_FAULT, FINAL | 4, there), Pages::address(there));
    assert_eq!(missed(code::NESTED_PAGE_FAULT, FINAL | 6, there), Pages::address(there), "a store");
    // What is there, a fetch, a walk; the program's own addresses, another exit.
    for info in [FINAL | 7, FINAL | 0x14, 1 << 33 | 6] {
        assert_eq!(missed(code::NESTED_PAGE_FAULT, info, there), None, "{info:#x}");
    }
    assert_eq!(missed(code::NESTED_PAGE_FAULT, FINAL | 6, 1 << 30), None);
    assert_eq!(missed(code::SHUTDOWN, FINAL | 6, there), None);
}

#[test]
fn the_timer_is_set_once_in_that_time() {
    let space = space(2_000_000);
    fakes::set("TSC", 10_000);
    pretend(|registers| _ = leave(registers, code::VMMCALL));
    enter(space);
    fakes::take_log();
    fakes::set("TSC", 20_000);
    enter(space);
    assert_eq!(fakes::take_log(), [fakes::Access::Read("TSC")], "it rings early enough");
}

#[test]
fn parts_are_clean_on_the_same_cpu_alone() {
    let space = space(1000);
    pretend(|registers| {
        let vmcb = leave(registers, code::VMMCALL);
        assert_eq!(vmcb.clean(), 0, "the first time");
        assert!(vmcb.asid() > crate::state::asid::vcpus(), "no vCPU has it: {}", vmcb.asid());
    });
    enter(space);
    pretend(|registers| assert_eq!(leave(registers, code::VMMCALL).clean(), part::ALL));
    enter(space);
    std::thread::spawn(move || {
        pretend(|registers| assert_eq!(leave(registers, code::VMMCALL).clean(), 0, "another CPU"));
        enter(space);
    })
    .join()
    .unwrap();
}

#[test]
fn a_report_says_where_and_why() {
    let space = space(1000);
    pretend(|registers| {
        registers.others[0] = 0xb0b;
        let vmcb = leave(registers, code::NESTED_PAGE_FAULT);
        vmcb.set_exit_info([6, 0x1234]);
        vmcb.set_rip(BASE + 0x123);
    });
    struct Report(&'static Space);
    impl fmt::Display for Report {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.explain(Left::Fault, f)
        }
    }
    enter(space);
    let report = format!("{}", Report(space));
    assert!(report.starts_with("at 0x600000000123 (program + 0x123): an access that its pages do not allow (exit 0x400, 0x6, 0x1234)\n"), "{report}");
    assert!(report.contains("rbx 0000000000000b0b") && report.contains("rdi 0000000000000002"), "{report}");
}

#[test]
fn what_windows_have_left_in_a_tlb_is_nobodys() {
    use turnstile_arch_common::service::Window;

    let space = space(1000);
    std::thread_local!(static ASIDS: core::cell::RefCell<std::vec::Vec<u32>> = const { core::cell::RefCell::new(std::vec::Vec::new()) });
    pretend(|registers| {
        let vmcb = leave(registers, code::VMMCALL);
        ASIDS.with_borrow_mut(|asids| asids.push(vmcb.asid()));
    });
    let mut windows = [Window { size: 0x20_0000, on_demand: true, ..Window::default() }];
    // SAFETY: nobody is inside, and the fake maps nothing.
    unsafe { space.attach(3, &mut windows) }.unwrap();
    enter(space);
    enter(space);
    // SAFETY: as above.
    unsafe { space.withdraw(&windows[0], 0..0x20_0000) };
    enter(space);
    // SAFETY: as above.
    unsafe { space.detach(3) };
    enter(space);
    let asids = ASIDS.take();
    assert_eq!(asids[0], asids[1]);
    assert!(asids[3] > asids[2] && asids[2] > asids[1], "one that was never used: {asids:?}");
}
