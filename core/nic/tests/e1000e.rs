// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver of the 82574 against a model of the card, friendly and hostile.

use std::collections::VecDeque;

use turnstile_nic::any::Any;
use turnstile_nic::card::{Bus, Card, Failure, HEADROOM};
use turnstile_nic::e1000e;
use turnstile_nic::virtio::Virtio;
use turnstile_rig::{E1000e, E1000eSlot, Fuse, Lie, Ram, Random};
use turnstile_virtio::driver::pci;
use turnstile_virtio::violation::Violation;

/// Behind the driver's own memory.
const BUFFERS: u64 = Ram::BASE + Driver::BYTES;
const LENGTH: u32 = 2048;
const MILLISECOND: u64 = 1_000_000;

type Driver = e1000e::E1000e<16>;

struct Machine<'a>(&'a E1000e, E1000eSlot<'a>, &'a Ram);

impl<'a> Machine<'a> {
    fn new(card: &'a E1000e, ram: &'a Ram) -> Self {
        Self(card, card.on(ram), ram)
    }
}

impl<'a> Bus for Machine<'a> {
    type Function = E1000eSlot<'a>;
    type Memory = Ram;

    fn function(&self) -> &E1000eSlot<'a> {
        &self.1
    }

    fn memory(&self) -> &Ram {
        self.2
    }

    fn time(&self) -> u64 {
        self.0.time()
    }
}

fn ram() -> Ram {
    Ram::new(0x2_0000, Fuse::default())
}

fn begin(card: &E1000e, ram: &Ram) -> Result<Driver, Failure> {
    let mut driver = Driver::NEW;
    driver.begin(&Machine::new(card, ram), Ram::BASE)?;
    Ok(driver)
}

fn at(number: u16) -> u64 {
    BUFFERS + u64::from(number) * u64::from(LENGTH)
}

fn put(ram: &Ram, number: u16, packet: &[u8]) -> u32 {
    ram.put(at(number), &[0xee; HEADROOM as usize]);
    ram.put(at(number) + u64::from(HEADROOM), packet);
    HEADROOM + packet.len() as u32
}

fn packet_of(ram: &Ram, number: u16, length: u32) -> Vec<u8> {
    ram.get(at(number) + u64::from(HEADROOM), (length - HEADROOM) as usize)
}

/// Offers these buffers, and waits for packets.
fn offer(driver: &mut Driver, bus: &Machine<'_>, numbers: std::ops::Range<u16>) {
    for number in numbers {
        driver.offer(bus, number, at(number), LENGTH).unwrap();
    }
    driver.flush(bus).unwrap();
    assert_eq!(driver.arm(bus, false), Ok(false));
}

#[test]
fn packets_come_and_go() {
    for by_messages in [true, false] {
        let (card, ram) = (E1000e::new(by_messages), ram());
        let bus = Machine::new(&card, &ram);
        let mut driver = begin(&card, &ram).unwrap();
        assert!(card.runs() && driver.settle(&bus) == Ok(None));
        assert_eq!(driver.mac(), Some([0x52, 0x54, 0x12, 0, 0x34, 0xca]));
        assert_eq!((driver.room_to_send(), driver.room_to_receive()), (15, 15));
        offer(&mut driver, &bus, 0..4);
        assert!(card.interrupts.get() == 0 && card.receive(&ram, &[7; 60]));
        assert_eq!(card.interrupts.get(), 1, "the driver waits for it");
        driver.interrupted(&bus).unwrap();
        assert!(!card.line());
        assert_eq!(driver.receive(&bus), Ok(Some((0, HEADROOM + 60))));
        assert_eq!((driver.receive(&bus), packet_of(&ram, 0, HEADROOM + 60)), (Ok(None), vec![7; 60]));
        assert_eq!((ram.get(at(0), 12), driver.room_to_receive()), (vec![0; 12], 12));

        card.holds.set(true);
        for number in 4..7 {
            let length = put(&ram, number, &[number as u8; 100]);
            driver.send(&bus, number, at(number), length).unwrap();
        }
        assert!(card.sent.borrow().is_empty() && driver.room_to_send() == 12);
        driver.flush(&bus).unwrap();
        assert_eq!((driver.sent(&bus), driver.arm(&bus, true)), (Ok(None), Ok(false)));
        card.holds.set(false);
        card.run(&ram);
        assert_eq!(card.interrupts.get(), 2);
        let expected: Vec<_> = (4..7).map(|byte| vec![byte; 100]).collect();
        assert_eq!(*card.sent.borrow(), expected, "without what is before them");
        for number in 4..7 {
            assert_eq!(driver.sent(&bus), Ok(Some(number)));
        }
        assert_eq!((driver.sent(&bus), driver.room_to_send()), (Ok(None), 15));
        assert_eq!((driver.check(&bus), card.strays.get()), (Ok(()), 0));
        driver.stop(&bus);
        assert!(!card.runs() && !card.receive(&ram, &[7; 60]));
        assert_eq!((driver.flush(&bus), card.strays.get()), (Err(Failure::Unknown), 0));
    }
}

/// A wake-up is not lost whenever a packet comes, and nothing interrupts that nobody waits for.
#[test]
fn interrupts_come_when_they_are_asked_for() {
    for by_messages in [true, false] {
        let (card, ram) = (E1000e::new(by_messages), ram());
        let bus = Machine::new(&card, &ram);
        let mut driver = begin(&card, &ram).unwrap();
        driver.offer(&bus, 0, at(0), LENGTH).unwrap();
        driver.offer(&bus, 1, at(1), LENGTH).unwrap();
        driver.flush(&bus).unwrap();
        assert!(card.receive(&ram, &[1; 60]) && card.interrupts.get() == 0, "nobody waits");
        assert_eq!(driver.arm(&bus, false), Ok(true), "there is one");
        driver.interrupted(&bus).unwrap();
        assert_eq!((driver.receive(&bus).unwrap().is_some(), driver.arm(&bus, false)), (true, Ok(false)));
        let before = card.interrupts.take();
        assert!(card.receive(&ram, &[1; 60]) && card.interrupts.take() == 1, "{before}: another one");
        driver.interrupted(&bus).unwrap();
        assert!(driver.receive(&bus).unwrap().is_some());
        assert_eq!(driver.arm(&bus, false), Ok(false));
        // Who does not wait for what was sent hears nothing of it, and then everything.
        for wanted in [false, true, false] {
            let length = put(&ram, 2, &[1; 60]);
            driver.send(&bus, 2, at(2), length).unwrap();
            assert_eq!(driver.arm(&bus, wanted), Ok(false));
            card.interrupts.set(0);
            driver.flush(&bus).unwrap();
            assert_eq!(card.interrupts.get(), u32::from(wanted));
            assert_eq!(driver.arm(&bus, true), Ok(true));
            assert_eq!(driver.arm(&bus, false), Ok(false));
            driver.interrupted(&bus).unwrap();
            assert_eq!((driver.sent(&bus), driver.arm(&bus, false)), (Ok(Some(2)), Ok(false)));
        }
        assert_eq!(card.strays.get(), 0);
    }
}

#[test]
fn a_burst_is_one_notification() {
    let (card, ram) = (E1000e::new(true), ram());
    let bus = Machine::new(&card, &ram);
    let mut driver = begin(&card, &ram).unwrap();
    let before = card.notified.get();
    for number in 0..15 {
        let length = put(&ram, number, &[1; 60]);
        driver.send(&bus, number, at(number), length).unwrap();
    }
    assert_eq!(driver.send(&bus, 15, at(15), 72), Err(Failure::Memory), "there is no room");
    driver.flush(&bus).unwrap();
    driver.flush(&bus).unwrap();
    assert_eq!((card.notified.get() - before, card.sent.borrow().len()), (1, 15));
    offer(&mut driver, &bus, 0..15);
    assert_eq!(driver.offer(&bus, 15, at(15), LENGTH), Err(Failure::Memory));
}

/// The card itself would not take the shortest ones, and what was in the buffer before is nobody's business.
#[test]
fn short_packets_have_zeros_behind_them() {
    let (card, ram) = (E1000e::new(true), ram());
    let bus = Machine::new(&card, &ram);
    let mut driver = begin(&card, &ram).unwrap();
    for number in 0..15 {
        ram.put(at(number), &[0xaa; 64]);
    }
    for (number, length) in (0..15).zip([14, 17, 0, 1, 16]) {
        ram.put(at(number) + u64::from(HEADROOM), &vec![0x55; length]);
        driver.send(&bus, number, at(number), HEADROOM + length as u32).unwrap();
    }
    driver.flush(&bus).unwrap();
    let whole = |length| [vec![0x55; length], vec![0; 60 - length]].concat();
    assert_eq!(*card.sent.borrow(), [14, 17, 0, 1, 16].map(whole));
    assert_eq!(card.strays.get(), 0);
}

#[test]
fn what_does_not_fit_is_refused() {
    let (card, ram) = (E1000e::new(true), ram());
    let bus = Machine::new(&card, &ram);
    let mut driver = begin(&card, &ram).unwrap();
    for length in [0, 11, HEADROOM + 1519, u32::MAX] {
        assert_eq!(driver.send(&bus, 0, at(0), length), Err(Failure::Memory), "{length}");
    }
    for length in [0, 11, HEADROOM + 1521, u32::MAX] {
        assert_eq!(driver.offer(&bus, 0, at(0), length), Err(Failure::Memory), "{length}");
    }
    assert_eq!(driver.offer(&bus, 0, u64::MAX, LENGTH), Err(Failure::Memory));
    assert_eq!(driver.send(&bus, 0, u64::MAX, 72), Err(Failure::Memory));
    assert_eq!((driver.room_to_send(), driver.room_to_receive()), (15, 15));
    assert_eq!(driver.send(&bus, 0, at(0), HEADROOM + 1518), Ok(()));
    assert_eq!(driver.offer(&bus, 0, at(0), HEADROOM + 1522), Ok(()));
}

/// Its registers are let alone for a millisecond, and events go on while it loads its NVM.
#[test]
fn a_card_may_take_its_time() {
    for by_messages in [true, false] {
        let (card, ram) = (E1000e::new(by_messages), ram());
        card.loads.set(20 * MILLISECOND);
        let bus = Machine::new(&card, &ram);
        let mut driver = Driver::NEW;
        driver.begin(&bus, Ram::BASE).unwrap();
        assert!(card.clock.get() < 2 * MILLISECOND, "an event ends");
        assert!(!card.runs() && driver.mac().is_none() && driver.check(&bus) == Ok(()));
        offer(&mut driver, &bus, 0..2);
        let length = put(&ram, 2, &[9; 60]);
        driver.send(&bus, 2, at(2), length).unwrap();
        driver.flush(&bus).unwrap();
        assert_eq!((driver.receive(&bus), driver.sent(&bus)), (Ok(None), Ok(None)));
        let mut turns = 0;
        while let Some(until) = driver.settle(&bus).unwrap() {
            assert!(until > card.clock.get() && turns < 25);
            driver.interrupted(&bus).unwrap();
            driver.flush(&bus).unwrap();
            card.clock.set(until);
            turns += 1;
        }
        assert!(card.runs() && turns > 10 && card.sent.borrow().is_empty());
        driver.flush(&bus).unwrap();
        assert_eq!(driver.arm(&bus, true), Ok(true));
        assert_eq!((driver.sent(&bus), card.sent.take()), (Ok(Some(2)), vec![vec![9; 60]]));
        assert!(card.receive(&ram, &[1; 60]) && driver.receive(&bus) == Ok(Some((0, HEADROOM + 60))));
        assert_eq!(card.strays.get(), 0);
    }
}

#[test]
fn a_card_that_takes_no_end_is_given_up() {
    let broken = Err(Failure::from(pci::Failure::Reset));
    let (card, ram) = (E1000e::new(true), ram());
    card.hangs.set(true);
    let bus = Machine::new(&card, &ram);
    assert_eq!(Driver::reset(&bus), broken);
    assert_eq!(begin(&card, &ram).map(drop), broken);
    assert!(card.clock.get() < 4 * MILLISECOND && card.strays.get() == 0);
    card.hangs.set(false);
    card.loads.set(u64::MAX / 2);
    let mut driver = begin(&card, &ram).unwrap();
    let begun = card.clock.get();
    let failure = loop {
        match driver.settle(&bus) {
            Ok(until) => card.clock.set(until.unwrap()),
            Err(failure) => break failure,
        }
    };
    assert_eq!((Err(failure), driver.flush(&bus)), (broken, Err(Failure::Unknown)));
    assert!(card.clock.get() - begun < 60 * MILLISECOND && card.strays.get() == 0);
}

/// Until its driver begins, a card is silent, whatever firmware has left it with.
#[test]
fn a_reset_is_all_that_a_card_needs_to_be_silent() {
    for by_messages in [true, false] {
        let (card, ram) = (E1000e::new(by_messages), ram());
        ram.put(Ram::BASE, &(Ram::BASE + 0x1000).to_le_bytes());
        assert!(card.receive(&ram, &[1; 60]));
        card.interrupts.set(0);
        assert_eq!(Driver::reset(&Machine::new(&card, &ram)), Ok(()));
        assert!(!card.receive(&ram, &[1; 60]) && card.interrupts.get() == 0 && !card.line());
        assert_eq!(card.strays.get(), 0);
    }
}

#[test]
fn what_is_no_card_is_refused() {
    let patched = |bytes: &[(u16, u8)]| {
        let card = E1000e::new(true);
        card.patches.borrow_mut().extend(bytes.iter().copied());
        let result = begin(&card, &ram()).map(drop);
        assert!(result.is_ok() || card.runs(), "it is let alone");
        result
    };
    assert_eq!(patched(&[(2, 0xf6)]), Ok(()), "the 82574LA");
    for other in [&[(2, 0x0e)][..], &[(0, 0x87)], &[(3, 0x15)], &[(0, 0xff), (1, 0xff), (2, 0xff), (3, 0xff)]]
    {
        assert_eq!(patched(other), Err(Failure::Unknown), "{other:?}");
    }
    let card = E1000e::new(true);
    card.length.set(0x5000);
    assert_eq!(begin(&card, &ram()).map(drop), Err(Failure::Registers));
    let small = Ram::new(0x2fff, Fuse::default());
    assert_eq!(begin(&E1000e::new(true), &small).map(drop), Err(Failure::Memory));
    let (card, ram) = (E1000e::new(true), ram());
    let mut driver = Driver::NEW;
    assert_eq!(driver.begin(&Machine::new(&card, &ram), Ram::BASE + 128), Err(Failure::Memory));
    assert_eq!(driver.flush(&Machine::new(&card, &ram)), Err(Failure::Unknown));
}

#[test]
fn registers_that_lie_are_noticed() {
    let stuck = |offset: u64, value: u32| {
        let (card, ram) = (E1000e::new(false), ram());
        card.stuck.borrow_mut().insert(offset, value);
        let result = begin(&card, &ram).map(drop);
        assert_eq!(card.strays.get(), 0);
        assert!(result.is_ok() || !card.runs(), "it is reset");
        result
    };
    let transport = |failure: pci::Failure| Err(Failure::from(failure));
    for gone in [0, 0x10] {
        assert_eq!(stuck(gone, u32::MAX), transport(pci::Failure::Reset));
    }
    for (at, queue) in [(0x2800, 0), (0x2804, 0), (0x2808, 0), (0x3800, 1), (0x3804, 1), (0x3808, 1)] {
        assert_eq!(stuck(at, 0x80), transport(pci::Failure::Queue(queue)), "{at:#x}");
    }
    for control in [0x100, 0x400] {
        for value in [0, u32::MAX] {
            assert_eq!(stuck(control, value), transport(pci::Failure::Broken));
        }
    }
    for head in [0x2810, 0x3810] {
        let jump = Violation::UsedJump { next: 0, found: 16 };
        assert_eq!(stuck(head, 16), Err(jump.into()), "it is behind the ring");
    }
    assert_eq!(
        stuck(8, u32::MAX),
        Ok(()),
        "it does not say that it accesses no memory: it is reset all the same"
    );
    let (card, ram) = (E1000e::new(false), ram());
    card.stuck.borrow_mut().insert(0x5404, 0x1234);
    assert_eq!(begin(&card, &ram).unwrap().mac(), None);
}

#[test]
fn a_card_that_cannot_go_on_says_so() {
    for by_messages in [false, true] {
        let (card, ram) = (E1000e::new(by_messages), ram());
        let bus = Machine::new(&card, &ram);
        let mut driver = begin(&card, &ram).unwrap();
        assert_eq!((driver.interrupted(&bus), driver.check(&bus)), (Ok(()), Ok(())));
        card.fail();
        let broken = Err(Failure::from(pci::Failure::Broken));
        assert_eq!(driver.check(&bus), broken);
        card.stuck.borrow_mut().insert(0xc0, u32::MAX);
        assert_eq!(driver.interrupted(&bus), if by_messages { Ok(()) } else { broken }, "a pin has a reason");
    }
}

#[test]
fn what_is_no_whole_packet_has_no_length() {
    let (card, ram) = (E1000e::new(true), ram());
    let bus = Machine::new(&card, &ram);
    let mut driver = begin(&card, &ram).unwrap();
    offer(&mut driver, &bus, 0..12);
    let part = Lie { goes_on: true, ..Lie::default() };
    let bad = Lie { errors: 1, ..Lie::default() };
    let sum = Lie { errors: 0x60, ..Lie::default() };
    let nothing = Lie { length: Some(0), ..Lie::default() };
    for lie in [part, part, Lie::default(), Lie::default(), bad, sum, nothing, part, bad, Lie::default()] {
        assert!(card.receive_as(&ram, &[1; 60], lie));
    }
    let whole = HEADROOM + 60;
    for (number, length) in (0..).zip([0, 0, 0, whole, 0, whole, HEADROOM, 0, 0, whole]) {
        assert_eq!(driver.receive(&bus), Ok(Some((number, length))));
    }
    let long = Lie { length: Some(2037), ..Lie::default() };
    assert!(
        card.receive_as(&ram, &[1; 60], Lie { length: Some(2036), ..long })
            && card.receive_as(&ram, &[1; 60], long)
    );
    assert_eq!(driver.receive(&bus), Ok(Some((10, 2048))));
    assert_eq!(driver.receive(&bus), Err(Violation::UsedLength(2037).into()), "it has no more room");
    assert_eq!(driver.receive(&bus), Ok(None));
}

/// Packets with numbers, both ways, in any order of everything. Whoever takes them acts on interrupts alone.
#[test]
fn no_packet_is_lost_or_comes_twice() {
    let mut random = Random(0xca4d);
    for round in 0..60 {
        let (card, ram) = (E1000e::new(round % 2 == 0), ram());
        card.holds.set(true);
        let bus = Machine::new(&card, &ram);
        let mut driver = begin(&card, &ram).unwrap();
        let mut free: VecDeque<u16> = (0..8).collect();
        for number in 8..9 + random.below(7) as u16 {
            driver.offer(&bus, number, at(number), LENGTH).unwrap();
        }
        driver.flush(&bus).unwrap();
        let (mut to_send, mut out, mut came, mut taken) = (0_u32, 0_u32, 0_u32, 0_u32);
        let bytes = |number: u32| number.to_le_bytes().repeat(5 + number as usize % 300);
        let mut is_due = true;
        for step in 0..3000 {
            match random.below(4) {
                0 if step < 2800 => came += u32::from(card.receive(&ram, &bytes(came))),
                1 => card.send_some(&ram, random.below(5) as usize),
                2 if step < 2800 && !free.is_empty() => {
                    let number = free.pop_front().unwrap();
                    let length = put(&ram, number, &bytes(to_send));
                    driver.send(&bus, number, at(number), length).unwrap();
                    to_send += 1;
                    driver.flush(&bus).unwrap();
                }
                _ => {}
            }
            for packet in card.sent.take() {
                let mut expected = bytes(out);
                expected.resize(expected.len().max(60), 0);
                assert!(packet == expected, "{out}");
                out += 1;
            }
            is_due |= step == 2800;
            if card.interrupts.take() != 0 || card.line() {
                driver.interrupted(&bus).unwrap();
                is_due = true;
            }
            if std::mem::take(&mut is_due) {
                while let Some(number) = driver.sent(&bus).unwrap() {
                    free.push_back(number);
                }
                while let Some((number, length)) = driver.receive(&bus).unwrap() {
                    assert!(packet_of(&ram, number, length) == bytes(taken), "{taken}");
                    taken += 1;
                    driver.offer(&bus, number, at(number), LENGTH).unwrap();
                }
                driver.flush(&bus).unwrap();
                is_due = driver.arm(&bus, free.len() < 4 || step >= 2800).unwrap();
            }
        }
        assert_eq!((out, taken, free.len()), (to_send, came, 8), "{round}");
        assert!(out > 200 && came > 200, "{out} {came}");
        assert_eq!(card.strays.get(), 0);
    }
}

/// Whatever the card writes to memory meanwhile, and whatever its registers say.
#[test]
fn any_memory_and_any_registers_are_borne() {
    let mut random = Random(0x815);
    let (mut ends, mut failures) = (0, 0);
    for _ in 0..3000 {
        let (card, ram) = (E1000e::new(random.below(2) == 0), ram());
        let bus = Machine::new(&card, &ram);
        let mut driver = begin(&card, &ram).unwrap();
        card.holds.set(true);
        let mut go_on = || -> Result<(), Failure> {
            for number in 0..8 {
                driver.offer(&bus, number, at(number), LENGTH)?;
                driver.send(&bus, number + 8, at(number + 8), random.below(100) as u32 + HEADROOM)?;
            }
            driver.flush(&bus)?;
            ram.disturb(&mut random, Driver::BYTES);
            for page in [0, 0x1000] {
                for index in 0..16 {
                    let descriptor = Ram::BASE + page + 16 * index;
                    let bytes = [
                        random.any() as u8,
                        random.below(9) as u8,
                        0,
                        0,
                        random.any() as u8,
                        random.any() as u8,
                    ];
                    ram.put(descriptor + 8, &bytes);
                }
            }
            for _ in 0..random.below(3) {
                let register = [0, 8, 0xc0, 0x100, 0x400, 0x2810, 0x2818, 0x3810][random.below(8) as usize];
                card.stuck.borrow_mut().insert(register, random.any() as u32);
            }
            driver.interrupted(&bus)?;
            let (mut received, mut sent) = (0, 0);
            while let Some((number, length)) = driver.receive(&bus)? {
                assert!(number < 8 && length <= LENGTH);
                received += 1;
            }
            while let Some(number) = driver.sent(&bus)? {
                assert!((8..16).contains(&number));
                sent += 1;
            }
            assert!(received <= 8 && sent <= 8, "no more than there were");
            driver.arm(&bus, true)?;
            driver.check(&bus)
        };
        match go_on() {
            Ok(()) => ends += 1,
            Err(_) => failures += 1,
        }
        ram.restless.set(0);
        driver.stop(&bus);
    }
    assert!(ends > 100 && failures > 100, "{ends} {failures}");
}

/// Nothing that a configuration space says makes the driver take no end.
#[test]
fn any_configuration_space_is_borne() {
    let mut random = Random(0x4712);
    for _ in 0..2000 {
        let (card, ram) = (E1000e::new(random.below(2) == 0), ram());
        for _ in 0..1 + random.below(6) {
            let at = if random.below(4) == 0 { 0x34 } else { 4 + random.below(0xfc) as u16 };
            card.patches.borrow_mut().insert(at, random.any() as u8);
        }
        assert!(begin(&card, &ram).is_ok() && card.strays.get() == 0);
    }
}

#[test]
fn each_card_has_its_driver() {
    let (card, ram) = (E1000e::new(true), ram());
    let bus = Machine::new(&card, &ram);
    let mut any = Any::<16>::NEW;
    assert_eq!((any.flush(&bus), any.mac(), any.room_to_send()), (Err(Failure::Unknown), None, 0));
    assert_eq!(Any::<16>::reset(&bus), Ok(()));
    any.begin(&bus, Ram::BASE).unwrap();
    assert!(card.runs() && any.mac().is_some() && any.room_to_receive() == 15);
    any.offer(&bus, 3, at(3), LENGTH).unwrap();
    any.flush(&bus).unwrap();
    assert_eq!((any.settle(&bus), any.arm(&bus, false)), (Ok(None), Ok(false)));
    assert!(card.receive(&ram, &[1; 60]) && card.interrupts.get() == 1);
    any.interrupted(&bus).unwrap();
    assert_eq!(any.receive(&bus), Ok(Some((3, HEADROOM + 60))));
    any.stop(&bus);
    assert!(!card.runs() && any.flush(&bus) == Err(Failure::Unknown));
    card.patches.borrow_mut().insert(2, 0);
    assert_eq!(
        (Any::<16>::reset(&bus), any.begin(&bus, Ram::BASE)),
        (Err(Failure::Unknown), Err(Failure::Unknown))
    );
    assert_eq!(Any::<16>::BYTES, Virtio::<16>::BYTES.max(Driver::BYTES));
}

#[test]
fn what_the_card_was_not_told_of_it_cannot_return() {
    let (card, ram) = (E1000e::new(true), ram());
    let bus = Machine::new(&card, &ram);
    let mut driver = begin(&card, &ram).unwrap();
    driver.offer(&bus, 0, at(0), LENGTH).unwrap();
    ram.put(Ram::BASE + 12, &[3]);
    assert_eq!((driver.receive(&bus), driver.arm(&bus, false)), (Ok(None), Ok(false)));
    driver.flush(&bus).unwrap();
    assert_eq!(driver.receive(&bus), Ok(Some((0, HEADROOM))));
}

/// Nothing of the time before is left, neither here nor there.
#[test]
fn it_begins_anew_after_a_stop() {
    let (card, ram) = (E1000e::new(false), ram());
    let bus = Machine::new(&card, &ram);
    let mut driver = Driver::NEW;
    for round in 0..3 {
        driver.begin(&bus, Ram::BASE).unwrap();
        offer(&mut driver, &bus, 0..9);
        let length = put(&ram, 9, &[round; 60]);
        driver.send(&bus, 9, at(9), length).unwrap();
        driver.flush(&bus).unwrap();
        assert!(card.receive_as(&ram, &[1; 60], Lie { goes_on: true, ..Lie::default() }));
        assert_eq!((card.sent.take(), driver.receive(&bus)), (vec![vec![round; 60]], Ok(Some((0, 0)))));
        driver.stop(&bus);
        assert_eq!(driver.receive(&bus), Ok(None), "all buffers are the caller's");
    }
    driver.begin(&bus, Ram::BASE).unwrap();
    offer(&mut driver, &bus, 3..4);
    assert!(card.receive(&ram, &[2; 60]));
    assert_eq!((driver.receive(&bus), card.strays.get()), (Ok(Some((3, HEADROOM + 60))), 0));
}
