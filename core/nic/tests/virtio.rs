// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver against a model of the card, friendly and hostile.

use turnstile_nic::card::{Bus, Card as _, Failure, HEADROOM};
use turnstile_nic::virtio::Virtio;
use turnstile_pci::absent;
use turnstile_rig::{CARD_FEATURES, Card, Fuse, Ram, Random, Slot};
use turnstile_virtio::config::Network;
use turnstile_virtio::driver::pci::{self, Function};
use turnstile_virtio::features::Features;
use turnstile_virtio::violation::Violation;

/// Behind the driver's own memory.
const BUFFERS: u64 = Ram::BASE + Driver::BYTES;
const LENGTH: u32 = 2048;

type Driver = Virtio<16>;

fn ram() -> Ram {
    Ram::new(0x2_0000, Fuse::default())
}

fn begin(card: &Card, ram: &Ram) -> Result<Driver, Failure> {
    let mut driver = Driver::NEW;
    driver.begin(&card.on(ram), Ram::BASE)?;
    Ok(driver)
}

fn at(number: u16) -> u64 {
    BUFFERS + u64::from(number) * u64::from(LENGTH)
}

fn put(ram: &Ram, number: u16, packet: &[u8]) -> u32 {
    ram.put(at(number), &[0xee; HEADROOM as usize]);
    ram.put(at(number), &[0; 10]);
    ram.put(at(number) + u64::from(HEADROOM), packet);
    HEADROOM + packet.len() as u32
}

#[test]
fn packets_come_and_go() {
    for (features, msix) in [(CARD_FEATURES, true), (CARD_FEATURES, false), (Network::MAC, false)] {
        let (card, ram) = (Card::new(features, 128, msix), ram());
        let bus = card.on(&ram);
        let mut driver = begin(&card, &ram).unwrap();
        assert!(card.runs() && driver.mac() == Some([2, 0, 0, 0, 0, 0xca]));
        assert_eq!(card.features(), features | Features::VERSION_1);
        assert_eq!((driver.room_to_send(), driver.room_to_receive()), (16, 16));
        for number in 0..4 {
            driver.offer(&bus, number, at(number), LENGTH).unwrap();
        }
        driver.flush(&bus).unwrap();
        while driver.arm(&bus, false).unwrap() {}
        let before = card.interrupts.get();
        assert!(card.receive_plain(&ram, &[7; 60]));
        assert!(card.interrupts.get() > before, "the driver waits for it: {features:?} {msix}");
        driver.interrupted(&bus).unwrap();
        let asked: &[Vec<u8>] = if features == CARD_FEATURES { &[vec![0, 0, 1]] } else { &[] };
        assert_eq!(*card.commands.borrow(), asked, "for all packets");
        assert_eq!(driver.receive(&bus), Ok(Some((0, HEADROOM + 60))));
        assert_eq!((driver.receive(&bus), ram.get(at(0) + 12, 60)), (Ok(None), vec![7; 60]));

        card.holds.set(true);
        for number in 4..8 {
            let length = put(&ram, number, &[number as u8; 100]);
            driver.send(&bus, number, at(number), length).unwrap();
        }
        assert!(card.sent.borrow().is_empty() && driver.room_to_send() == 12);
        driver.flush(&bus).unwrap();
        assert_eq!(driver.sent(&bus), Ok(None));
        let before = card.interrupts.get();
        assert!(!driver.arm(&bus, true).unwrap());
        card.holds.set(false);
        card.run(&ram);
        assert!(card.interrupts.get() > before);
        let expected: Vec<_> = (4..8).map(|byte| [vec![0; 12], vec![byte; 100]].concat()).collect();
        assert_eq!(*card.sent.borrow(), expected, "the header names no buffers");
        for number in 4..8 {
            assert_eq!(driver.sent(&bus), Ok(Some(number)));
        }
        assert_eq!((driver.sent(&bus), driver.room_to_send()), (Ok(None), 16));
        driver.stop(&bus);
        assert!(!card.runs());
        assert_eq!((driver.flush(&bus), card.strays.get()), (Err(Failure::Unknown), 0));
    }
}

#[test]
fn a_burst_is_one_notification() {
    let (card, ram) = (Card::new(CARD_FEATURES, 128, true), ram());
    let bus = card.on(&ram);
    let mut driver = begin(&card, &ram).unwrap();
    let before = card.notified.get();
    for number in 0..16 {
        let length = put(&ram, number, &[1; 60]);
        driver.send(&bus, number, at(number), length).unwrap();
    }
    assert_eq!(driver.send(&bus, 16, at(16), 72), Err(Failure::Memory), "there is no room");
    driver.flush(&bus).unwrap();
    driver.flush(&bus).unwrap();
    assert_eq!((card.notified.get() - before, card.sent.borrow().len()), (1, 16));
}

#[test]
fn a_card_may_have_fewer_descriptors() {
    let (card, ram) = (Card::new(CARD_FEATURES, 4, true), ram());
    let driver = begin(&card, &ram).unwrap();
    assert_eq!((driver.room_to_send(), driver.room_to_receive()), (4, 4));
}

#[test]
fn what_is_no_card_is_refused() {
    let offered = |features| begin(&Card::new(features, 128, true), &ram()).map(drop);
    assert_eq!(offered(Features::empty()), Ok(()), "no feature is needed");
    let patched = |at: u16, byte| {
        let card = Card::new(CARD_FEATURES, 128, true);
        card.patches.borrow_mut().insert(at, byte);
        begin(&card, &ram()).map(|_| card.strays.get())
    };
    assert_eq!(patched(2, 0x42), Err(Failure::Unknown), "a disk");
    assert_eq!((patched(3, 0x10), patched(6, 0)), (patched(3, 0x10), Err(pci::Failure::Structures.into())));
    // Transitional: 0x1000.
    let card = Card::new(CARD_FEATURES, 128, true);
    card.patches.borrow_mut().extend([(2, 0), (3, 0x10)]);
    assert!(begin(&card, &ram()).is_ok());
    let small = Ram::new(0x2000, Fuse::default());
    assert!(matches!(
        begin(&Card::new(CARD_FEATURES, 128, true), &small),
        Err(Failure::Violation(Violation::Outside(_)))
    ));
}

#[test]
fn registers_that_lie_are_noticed() {
    let stuck = |offset: u64, value: u32, msix| {
        let (card, ram) = (Card::new(CARD_FEATURES, 128, msix), ram());
        card.stuck.borrow_mut().insert(offset, value);
        let result = begin(&card, &ram).map(drop);
        assert_eq!(card.strays.get(), 0);
        result
    };
    let transport = |failure: pci::Failure| Err(Failure::from(failure));
    for status in [1, 0x40, 0xff] {
        assert_eq!(stuck(0x14, status, true), transport(pci::Failure::Reset), "it never ends");
    }
    assert_eq!(stuck(0x14, 0, true), transport(pci::Failure::Features), "it takes none");
    assert_eq!(stuck(0x04, 0, true), transport(pci::Failure::Features), "it is of before virtio 1.0");
    assert_eq!(stuck(0x18, 0, true), transport(pci::Failure::Queue(0)));
    assert_eq!(stuck(0x1a, 0xffff, true), transport(pci::Failure::Vector));
    assert_eq!(stuck(0x10, 0xffff, true), transport(pci::Failure::Vector));
    assert_eq!(
        stuck(0x1e, 0xffff, true),
        transport(pci::Failure::Queue(0)),
        "it would be notified elsewhere"
    );
    assert_eq!(stuck(0x18, 0xffff, false), transport(pci::Failure::Queue(0)), "it does not take the size");
}

/// Its address is of no use, but it works.
#[test]
fn a_configuration_that_changes_all_the_time_is_not_waited_for() {
    struct Restless<'a>(Slot<'a, Card>, std::cell::Cell<u32>);
    impl Function for Restless<'_> {
        fn configuration(&self, offset: u16, size: u8) -> u32 {
            self.0.configuration(offset, size)
        }
        fn length(&self, bar: u8) -> u64 {
            self.0.length(bar)
        }
        fn read(&self, bar: u8, offset: u64, size: u8) -> u32 {
            self.1.update(|count| count + 1);
            if offset == 0x15 { self.1.get() & absent(1) } else { self.0.read(bar, offset, size) }
        }
        fn write(&self, bar: u8, offset: u64, size: u8, value: u32) {
            self.0.write(bar, offset, size, value);
        }
    }
    struct Shaky<'a>(Restless<'a>, &'a Ram);
    impl<'a> Bus for Shaky<'a> {
        type Function = Restless<'a>;
        type Memory = Ram;
        fn function(&self) -> &Restless<'a> {
            &self.0
        }
        fn memory(&self) -> &Ram {
            self.1
        }
        fn time(&self) -> u64 {
            0
        }
    }
    let (card, ram) = (Card::new(CARD_FEATURES, 128, true), ram());
    let mut driver = Driver::NEW;
    driver.begin(&Shaky(Restless(card.on(&ram), 0.into()), &ram), Ram::BASE).unwrap();
    assert_eq!((driver.mac(), card.runs()), (None, true));
}

#[test]
fn a_card_that_cannot_go_on_says_so() {
    for msix in [false, true] {
        let (card, ram) = (Card::new(CARD_FEATURES, 128, msix), ram());
        let bus = card.on(&ram);
        let mut driver = begin(&card, &ram).unwrap();
        driver.interrupted(&bus).unwrap();
        assert_eq!(driver.check(&bus), Ok(()));
        card.fail();
        let broken = Err(Failure::from(pci::Failure::Broken));
        assert_eq!(driver.check(&bus), broken);
        assert_eq!(driver.interrupted(&bus), if msix { Ok(()) } else { broken }, "a pin has a reason");
    }
}

#[test]
fn a_card_that_filters_is_of_no_use() {
    for answer in [1, 0xff] {
        let (card, ram) = (Card::new(CARD_FEATURES, 128, true), ram());
        card.answer.set(answer);
        let mut driver = begin(&card, &ram).unwrap();
        assert_eq!(driver.interrupted(&card.on(&ram)), Err(Failure::Filters));
    }
}

#[test]
fn used_entries_that_lie_are_noticed() {
    let (card, ram) = (Card::new(CARD_FEATURES, 128, true), ram());
    let bus = card.on(&ram);
    // Of the first queue of 16: descriptors, driver's area, index and entries of the device's.
    let used = (Ram::BASE + 16 * 16 + 6 + 2 * 16).next_multiple_of(4);
    let lie = |index: u16, id: u32, length: u32| {
        let mut driver = begin(&card, &ram).unwrap();
        driver.offer(&bus, 3, at(3), LENGTH).unwrap();
        driver.flush(&bus).unwrap();
        ram.put(used + 4, &id.to_le_bytes());
        ram.put(used + 8, &length.to_le_bytes());
        ram.put(used + 2, &index.to_le_bytes());
        driver.receive(&bus)
    };
    assert_eq!(lie(1, 0, 72), Ok(Some((3, 72))));
    let violation = |violation| Err(Failure::Violation(violation));
    assert_eq!(lie(1, 1, 72), violation(Violation::UsedId(1)), "it does not have that one");
    assert_eq!(lie(1, 0x1_0000, 72), violation(Violation::UsedId(0x1_0000)));
    assert_eq!(lie(1, 0, LENGTH + 1), violation(Violation::UsedLength(LENGTH + 1)));
    assert_eq!(lie(2, 0, 72), violation(Violation::UsedJump { next: 0, found: 2 }));
}

/// Nothing that a configuration space says makes the driver reach what is not there, or take no end.
#[test]
fn any_configuration_space_is_borne() {
    let mut random = Random(0x4711);
    let (mut begun, mut refused) = (0, 0);
    for _ in 0..3000 {
        let (card, ram) = (Card::new(CARD_FEATURES, 128, random.below(2) == 0), ram());
        for _ in 0..1 + random.below(6) {
            let at = if random.below(4) == 0 { 0x34 } else { 0x40 + random.below(0xc0) as u16 };
            let byte = if random.below(2) == 0 { random.any() as u8 } else { random.below(8) as u8 * 0x10 };
            card.patches.borrow_mut().insert(at, byte);
        }
        match begin(&card, &ram) {
            Ok(_) => begun += 1,
            Err(_) => refused += 1,
        }
        assert_eq!(card.strays.get(), 0, "{:x?}", card.patches.borrow());
    }
    assert!(begun > 300 && refused > 300, "{begun} {refused}");
}

/// Whatever the card writes to memory meanwhile.
#[test]
fn any_memory_is_borne() {
    let mut random = Random(0x815);
    for _ in 0..2000 {
        let (card, ram) = (Card::new(CARD_FEATURES, 128, true), ram());
        let bus = card.on(&ram);
        let mut driver = begin(&card, &ram).unwrap();
        card.holds.set(true);
        let mut go_on = || -> Result<(), Failure> {
            for number in 0..8 {
                driver.offer(&bus, number, at(number), LENGTH)?;
                driver.send(&bus, number + 8, at(number + 8), 100)?;
            }
            driver.flush(&bus)?;
            ram.disturb(&mut random, Driver::BYTES);
            // Used entries of any kind.
            for page in [0, 0x1000] {
                let used = (Ram::BASE + page + 16 * 16 + 6 + 2 * 16).next_multiple_of(4);
                ram.put(used + 2, &(random.below(18) as u16).to_le_bytes());
                (0..16).for_each(|entry| {
                    ram.put(used + 4 + 8 * entry, &(random.below(18) as u32).to_le_bytes())
                });
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
            Ok(())
        };
        let _ = go_on();
        ram.restless.set(0);
    }
}
