// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers: who may do what to which, modes, the command register's messages, the 8259's way in, and a guest that tries
//! everything.

mod common;

use common::world::{Op, World};
use proptest::prelude::*;
use turnstile_vapic::{Mode, Signal};

fn xapic() -> World {
    let mut world = World::new(false);
    world.with(|lapic, cx| lapic.reset(cx));
    world.with(|lapic, cx| lapic.write_page(cx, 0xf0, 4, 0x1ff));
    world
}

fn write(world: &mut World, msr: u32, value: u64) -> bool {
    world.with(|lapic, cx| lapic.write_msr(cx, msr, value)).is_ok()
}

fn read(world: &mut World, msr: u32) -> Option<u64> {
    world.with(|lapic, cx| lapic.read_msr(cx, msr)).ok()
}

/// What the manuals' table of x2APIC MSRs says: readable, and the bits that may be written.
fn rights(msr: u32) -> (bool, Option<u64>) {
    match msr {
        0x802 | 0x803 | 0x80a | 0x80d | 0x810..=0x827 | 0x839 => (true, None),
        0x808 => (true, Some(0xff)),
        0x80b => (false, Some(0)),
        0x80f => (true, Some(0x13ff)),
        0x828 => (true, Some(0)),
        0x830 => (true, Some(0xffff_ffff_000c_dfff)),
        // Timer mode 3 is reserved, too.
        0x832 => (true, Some(0x7_50ff & !(1 << 18))),
        0x833 | 0x834 => (true, Some(0x1_57ff)),
        0x835 | 0x836 => (true, Some(0x1_f7ff)),
        0x837 => (true, Some(0x1_50ff)),
        0x838 => (true, Some(0xffff_ffff)),
        0x83e => (true, Some(0xb)),
        0x83f => (false, Some(0xff)),
        _ => (false, None),
    }
}

#[test]
fn every_x2apic_msr_has_its_rights() {
    for msr in 0x800..=0x8ff {
        let (readable, writable) = rights(msr);
        let mut world = World::new(false);
        assert_eq!(read(&mut world, msr).is_some(), readable, "read of {msr:#x}");
        for bit in 0..64 {
            let may = writable.is_some_and(|bits| bits >> bit & 1 != 0 || msr == 0x832 && bit == 18);
            let mut world = World::new(false);
            assert_eq!(write(&mut world, msr, 1 << bit), may, "bit {bit} of {msr:#x}");
        }
        assert_eq!(write(&mut World::new(false), msr, 0), writable.is_some(), "zero to {msr:#x}");
    }
    assert!(!write(&mut World::new(false), 0x832, 3 << 17));
    let mut other = xapic();
    assert!((0x800..=0x8ff).all(|msr| read(&mut other, msr).is_none() && !write(&mut other, msr, 0)));
}

#[test]
fn values_come_back() {
    let mut world = World::new(false);
    for (msr, value) in
        [(0x808u32, 0x5a), (0x80f, 0x11ef), (0x830, 0x7_0000_0041), (0x832, 0x2_00ec), (0x83e, 0xb)]
    {
        assert!(write(&mut world, msr, value));
        assert_eq!(read(&mut world, msr), Some(value), "{msr:#x}");
    }
    assert_eq!(read(&mut world, 0x802), Some(0));
    assert_eq!(read(&mut world, 0x80d), Some(1));
    // Disabling masks the LVT, and keeps it masked.
    assert!(write(&mut world, 0x80f, 0xff));
    assert_eq!(read(&mut world, 0x832), Some(0x3_00ec));
    assert!(write(&mut world, 0x837, 0xfe));
    assert_eq!(read(&mut world, 0x837), Some(0x1_00fe));
}

#[test]
fn modes_change_only_as_allowed() {
    const NONE: u64 = 0;
    const X: u64 = 0x800;
    const X2: u64 = 0xc00;
    for (from, to, allowed) in [
        (X, X, true),
        (X, NONE, true),
        (X, X2, true),
        (X, 0x400, false),
        (NONE, X, true),
        (NONE, X2, false),
        (X2, X, false),
        (X2, NONE, true),
        (X2, X2, true),
        (X2, 0x400, false),
    ] {
        let mut world = xapic();
        let base = |mode| 0xfee0_0000 | mode;
        world.with(|lapic, cx| lapic.set_base(cx, base(from), |_| false)).expect("from");
        let result = world.with(|lapic, cx| lapic.set_base(cx, base(to), |_| false));
        assert_eq!(result.is_ok(), allowed, "{from:#x} → {to:#x}");
        let expected = if allowed { to } else { from };
        assert_eq!(world.lapic.base(), base(expected) | 0x100);
        assert_eq!(world.lapic.page(), (expected == X).then_some(0xfee0_0000));
    }
    let mut world = xapic();
    assert!(world.with(|lapic, cx| lapic.set_base(cx, 0xd000_0800, |page| page == 0xd000_0000)).is_ok());
    assert_eq!(world.lapic.page(), Some(0xd000_0000));
    assert!(world.with(|lapic, cx| lapic.set_base(cx, 0x1000_0800, |_| false)).is_err());
    assert!(world.with(|lapic, cx| lapic.set_base(cx, 0xd000_0801, |_| true)).is_err());
    let mut old = turnstile_vapic::Lapic::new(0, false);
    assert!(world.with(|_, cx| old.set_base(cx, 0xfee0_0c00, |_| true)).is_err(), "there is no x2APIC");
    // Disabled, it forgets.
    world.with(|lapic, cx| lapic.set_base(cx, 0xfee0_0000, |_| true)).expect("off");
    assert_eq!(world.lapic.mode(), Mode::Disabled);
    world.with(|lapic, cx| lapic.set_base(cx, 0xfee0_0800, |_| true)).expect("on");
    assert_eq!(world.with(|lapic, cx| lapic.read_page(cx, 0xf0, 4)), 0xff);
}

#[test]
fn the_page_has_32_bit_registers_16_bytes_apart() {
    let mut world = xapic();
    let mut read = |offset, size| world.with(|lapic, cx| lapic.read_page(cx, offset, size));
    assert_eq!(read(0x30, 4), 0x0105_0014);
    assert_eq!((read(0x30, 1), read(0x31, 1), read(0x32, 2)), (0x14, 0x00, 0x0105));
    assert_eq!((read(0x34, 4), read(0x32, 4), read(0x30, 8)), (0, 0, 0));
    assert_eq!(read(0xe0, 4), 0xffff_ffff);
    for (offset, size, value) in [(0x80, 2, 0x50), (0x81, 4, 0x50), (0x84, 4, 0x50)] {
        world.with(|lapic, cx| lapic.write_page(cx, offset, size, value));
        assert_eq!(world.with(|lapic, cx| lapic.read_page(cx, 0x80, 4)), 0);
    }
    world.with(|lapic, cx| lapic.write_page(cx, 0x80, 4, 0x50));
    assert_eq!(world.with(|lapic, cx| lapic.read_page(cx, 0x80, 4)), 0x50);
}

#[test]
fn errors_come_together_until_they_are_asked_for() {
    let mut world = xapic();
    let page =
        |world: &mut World, offset, value| world.with(|lapic, cx| lapic.write_page(cx, offset, 4, value));
    page(&mut world, 0x370, 0xe1);
    page(&mut world, 0x300, 0x4_0005);
    assert_eq!(world.machine.take(), Some(0xe1), "the error interrupt");
    world.with(|lapic, cx| lapic.read_page(cx, 0x400, 4));
    assert_eq!(world.with(|lapic, cx| lapic.read_page(cx, 0x280, 4)), 0);
    page(&mut world, 0x280, 0);
    assert_eq!(world.with(|lapic, cx| lapic.read_page(cx, 0x280, 4)), 0xa0);
    page(&mut world, 0x280, 0);
    assert_eq!(world.with(|lapic, cx| lapic.read_page(cx, 0x280, 4)), 0);
}

#[test]
fn an_interrupt_to_one_other_vcpu_is_sent_at_once() {
    let mut world = World::new(false);
    world.fabric.routes = turnstile_vapic::Routes::new(4);
    let mut send = |msr, value| {
        let is_sent = world.with(|lapic, cx| lapic.try_send_msr(cx, msr, value));
        (is_sent, world.fabric.posts.borrow_mut().split_off(0))
    };
    assert_eq!(send(0x830, 0x3_0000_4041), (true, vec![(3, 0x41, false)]));
    let others = [
        (0x830, 0x0_0000_0041, "itself"),
        (0x830, 0x4_0000_0041, "nobody is there"),
        (0x830, 0xffff_ffff_0000_0041, "all"),
        (0x830, 0x3_0000_000f, "an illegal vector"),
        (0x830, 0x3_0000_0441, "an NMI"),
        (0x830, 0x3_0000_0841, "a logical destination"),
        (0x830, 0x3_000c_0041, "a shorthand"),
        (0x83f, 0x3_0000_0041, "another register"),
    ];
    for (msr, value, what) in others {
        assert_eq!(send(msr, value), (false, vec![]), "{what}");
    }
    assert_eq!(read(&mut world, 0x830), Some(0x3_0000_4041));
    // In the xAPIC's mode there are no such registers.
    world.with(|lapic, cx| lapic.reset(cx));
    assert!(!world.with(|lapic, cx| lapic.try_send_msr(cx, 0x830, 0x3_0000_0041)));
    assert!(!world.with(|lapic, cx| lapic.try_self_ipi_msr(cx.hardware, 0x83f, 0x41)));
    assert!(!world.with(|lapic, cx| lapic.try_x2apic_eoi(cx.hardware)));
}

#[test]
fn a_disabled_apic_accepts_nothing_whatever_it_did_before() {
    for busy in [false, true] {
        let mut world = World::new(false);
        if busy {
            assert!(write(&mut world, 0x83f, 0x41));
        }
        assert!(write(&mut world, 0x80f, 0xff));
        assert!(!world.with(|lapic, cx| lapic.try_self_ipi_msr(cx.hardware, 0x83f, 0x51)));
        assert!(write(&mut world, 0x83f, 0x51));
        assert_eq!(world.machine.take(), busy.then_some(0x41), "what was there before stays");
        assert_eq!(world.machine.take(), None);
        assert!(write(&mut world, 0x80f, 0x1ff));
        assert!(write(&mut world, 0x83f, 0x51));
        assert_eq!(world.machine.take(), Some(0x51));
    }
}

/// A poster lays down its vector before it gives the reason: the owner may take the vector with an earlier reason, and finds nothing with
/// this one.
#[test]
fn a_reason_whose_vector_has_been_taken_brings_nothing() {
    for has_pv_eoi in [false, true] {
        let mut world = World::new(has_pv_eoi);
        let mailbox = turnstile_vapic::Mailbox::new();
        for vector in [0x31, 0x71, 0xb1, 0xf1] {
            let reasons = turnstile_vm::attention::Reasons::mailbox(vector);
            world.with(|lapic, cx| lapic.drain(cx, &mailbox, reasons));
            assert_eq!(world.machine.take(), None, "{vector:#x}");
        }
    }
}

#[test]
fn the_command_register_sends() {
    let mut world = World::new(false);
    world.fabric.routes = turnstile_vapic::Routes::new(4);
    let mut send = |value: u64| {
        assert!(write(&mut world, 0x830, value), "{value:#x}");
        let mut posts = world.fabric.posts.borrow_mut().split_off(0);
        posts.sort_unstable();
        (posts, world.fabric.signals.borrow_mut().split_off(0))
    };
    let nothing = (vec![], vec![]);
    assert_eq!(send(0x2_0000_0041), (vec![(2, 0x41, false)], vec![]));
    assert_eq!(send(0x2_0000_c041), (vec![(2, 0x41, false)], vec![]), "never level-triggered");
    assert_eq!(send(0x9_0000_0041), nothing, "nobody is there");
    assert_eq!(send(0x000c_0041).0, [1, 2, 3].map(|n| (n, 0x41, false)));
    assert_eq!(send(0x0008_0041).0, [0, 1, 2, 3].map(|n| (n, 0x41, false)));
    assert_eq!(send(0xffff_ffff_0000_0041).0.len(), 4);
    assert_eq!(send(0x3_0000_0400).1, [(3, Signal::Nmi)]);
    assert_eq!(send(0x1_0000_c500).1, [(1, Signal::Init)]);
    assert_eq!(send(0x1_0000_8500), nothing, "INIT taken back");
    assert_eq!(send(0x1_0000_069a).1, [(1, Signal::Startup(0x9a))]);
    assert_eq!(send(0x1_0000_0200), nothing, "SMI");
    assert_eq!(send(0x1_0000_0741), nothing);
    assert_eq!(send(0x000c_0500).1, [1, 2, 3].map(|n| (n, Signal::Init)));
    assert_eq!(send(0x0004_0041), nothing, "itself, at once");
    assert_eq!(world.machine.take(), Some(0x41));
}

#[test]
fn the_8259_comes_through_lint0() {
    let mut world = xapic();
    // Virtual wire mode, as firmware leaves it; the task priority does not hold it back.
    world.with(|lapic, cx| lapic.write_page(cx, 0x350, 4, 0x700));
    world.with(|lapic, cx| lapic.write_page(cx, 0x80, 4, 0xf0));
    world.with(|lapic, cx| lapic.set_line(cx, Some(0x08)));
    assert!(world.with(|lapic, cx| lapic.has_deliverable(cx.hardware)));
    // It changes its mind before the guest has taken it.
    world.with(|lapic, cx| lapic.set_line(cx, Some(0x09)));
    world.fabric.next_from_8259.set(Some(0x0c));
    assert_eq!(world.machine.take(), Some(0x09));
    world.with(|lapic, cx| lapic.settle(cx));
    assert_eq!(*world.fabric.acknowledged.borrow(), [0x09]);
    assert!(world.with(|lapic, cx| lapic.has_deliverable(cx.hardware)), "the next one");
    world.with(|lapic, cx| lapic.set_line(cx, None));
    assert_eq!(world.machine.take(), None);
    // Masked, nothing; as an interrupt of the APIC, its own vector.
    world.with(|lapic, cx| lapic.write_page(cx, 0x350, 4, 0x1_0700));
    world.with(|lapic, cx| lapic.set_line(cx, Some(0x08)));
    assert_eq!(world.machine.take(), None);
    world.with(|lapic, cx| lapic.set_line(cx, None));
    world.with(|lapic, cx| lapic.write_page(cx, 0x350, 4, 0x61));
    world.with(|lapic, cx| lapic.write_page(cx, 0x80, 4, 0));
    world.with(|lapic, cx| lapic.set_line(cx, Some(0x08)));
    assert_eq!(world.machine.take(), Some(0x61));
    // Without an APIC it is the CPU's own pin.
    world.with(|lapic, cx| lapic.set_base(cx, 0xfee0_0000, |_| true)).expect("off");
    assert_eq!(world.machine.take(), Some(0x08));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Nothing a guest does to any register panics, and afterwards INIT makes it an APIC that works.
    #[test]
    fn survives_everything(steps in prop::collection::vec((0u8..6, any::<u32>(), any::<u64>(), 0u32..64), 1..200)) {
        let mut world = World::new(true);
        for (act, at, value, shift) in steps {
            let value = value >> shift;
            world.machine.clock = world.machine.clock.wrapping_add(value);
            match act {
                0 => {
 let _ = write(&mut world, 0x800 + (at & 0xff), value);
}
                1 => {
 let _ = read(&mut world, 0x800 + (at & 0xff));
}
                2 => world.with(|lapic, cx| lapic.write_page(cx, at & 0xfff, at as u8 >> 5, value as u32)),
                3 => {
 let _ = world.with(|lapic, cx| lapic.read_page(cx, at & 0xfff, 1 << (at >> 30)));
}
                4 => {
 let _ = world.with(|lapic, cx| lapic.set_base(cx, value, |_| at & 1 != 0));
}
                _ => {
                    world.with(|lapic, cx| lapic.set_tsc_deadline(cx, value));
                    world.with(|lapic, cx| lapic.timer(cx));
                    world.with(|lapic, cx| lapic.shift_clock(cx.hardware, value));
                    let _ = world.machine.take();
                }
            }
        }
        world.with(|lapic, cx| lapic.reset(cx));
        world.with(|lapic, cx| lapic.set_base(cx, 0xfee0_0c00, |_| false)).expect("x2APIC");
        world.ideal.init();
        world.fabric.broadcasts.borrow_mut().clear();
        world.step(Op::Init);
        world.step(Op::SelfIpi(0x41));
        world.step(Op::End);
        world.step(Op::Observe);
        prop_assert_eq!(world.taken, [0x41]);
    }
}
