// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver of NVM Express against a model of a controller.

mod common;

use common::{MILLISECOND, buffer, outcome, ram, sound, start};
use turnstile_drive::drive::{Drive, Failure, Geometry, MOST_BYTES, Refusal, Refused};
use turnstile_drive::nvme::Nvme as Driver;
use turnstile_rig::{Fuse, Nvme, Ram, Shape};

const SECTORS: u64 = 4096;
const TIMEOUT: u64 = 15 * 500 * MILLISECOND;
/// Identify structures, and an operation.
const NAMESPACE: u8 = 0;
const CONTROLLER: u8 = 1;
const LIST: u8 = 2;
const READ: u8 = 2;

fn new(shape: Shape) -> (Nvme, Ram) {
    (Nvme::new(shape, SECTORS), ram::<Driver>())
}

fn begun(nvme: &Nvme, ram: &Ram) -> Result<(Driver, Geometry), Failure> {
    start::<Driver, _>(&nvme.on(ram))
}

/// What comes of a controller of this shape, changed so.
fn tried(shape: Shape, change: impl FnOnce(&Nvme)) -> Result<Geometry, Failure> {
    let (nvme, ram) = new(shape);
    change(&nvme);
    let result = begun(&nvme, &ram).map(|(_, geometry)| geometry);
    sound(&nvme);
    if result.is_err() {
        assert!(!nvme.runs(), "it was reset");
    }
    result
}

/// What comes of it if it identifies itself so.
fn identified(patches: &[((u8, u16), u8)]) -> Result<Geometry, Failure> {
    tried(Shape::default(), |nvme| nvme.identified.borrow_mut().extend(patches.iter().copied()))
}

#[test]
fn a_controller_says_what_its_disk_is() {
    let all = Shape::default();
    let usual = Geometry {
        sectors: SECTORS,
        block: 512,
        depth: 32,
        most_bytes: MOST_BYTES,
        writable: true,
        cache: true,
        most_discarded: u32::MAX,
        discard_alignment: 1,
        most_zeroed: 1024,
    };
    assert_eq!(identified(&[]), Ok(usual));
    let tried = |shape| tried(shape, |_| {}).unwrap();
    assert_eq!(tried(Shape { entries: 2, ..all.clone() }).depth, 1);
    assert_eq!(
        tried(Shape { most: 1, ..all.clone() }),
        Geometry { most_bytes: 8192, most_zeroed: 16, ..usual }
    );
    let unlimited = Geometry { most_zeroed: 65536, ..usual };
    assert_eq!(tried(Shape { most: 0, ..all.clone() }), unlimited);
    // 4096 << 20 has no room in 32 bits, << 255 in none.
    assert_eq!(identified(&[((CONTROLLER, 77), 20)]), Ok(unlimited));
    assert_eq!(identified(&[((CONTROLLER, 77), 255)]), Ok(unlimited));
    let large = Geometry { block: 4096, most_discarded: u32::MAX - 7, discard_alignment: 8, ..usual };
    assert_eq!(tried(Shape { block: 12, ..all.clone() }), large);
    assert!(!tried(Shape { cache: false, ..all.clone() }).cache);
    assert_eq!(tried(Shape { optional: 1 << 3, ..all.clone() }), Geometry { most_discarded: 0, ..usual });
    assert_eq!(tried(Shape { optional: 1 << 2, ..all.clone() }), Geometry { most_zeroed: 0, ..usual });
    let fixed = Geometry { writable: false, most_discarded: 0, most_zeroed: 0, ..usual };
    assert_eq!(identified(&[((NAMESPACE, 99), 1)]), Ok(fixed));
    let preferred = [((NAMESPACE, 24), 1 << 4), ((NAMESPACE, 68), 7)];
    assert_eq!(identified(&preferred), Ok(Geometry { discard_alignment: 8, ..usual }));
    // Of 17 formats the last.
    let formats = [((NAMESPACE, 25), 16), ((NAMESPACE, 26), 1 << 5), ((NAMESPACE, 128 + 4 * 16 + 2), 9)];
    assert_eq!(identified(&formats), Ok(usual));
}

#[test]
fn the_first_namespace_that_can_be_used_is_the_disk() {
    let shape = Shape { namespace: 70, others: vec![3, 5, 99], ..Shape::default() };
    let (nvme, ram) = new(shape);
    nvme.platter.bytes.borrow_mut()[..512].fill(7);
    let (mut driver, _) = begun(&nvme, &ram).unwrap();
    driver.read(&nvme.on(&ram), 0, 0, buffer::<Driver>(0), 512).unwrap();
    assert_eq!(outcome(&mut driver, &nvme.on(&ram)), Ok((0, Ok(()))));
    assert_eq!(ram.get(buffer::<Driver>(0), 512), [7; 512]);
    let few = Shape { namespace: 64, others: (1..64).collect(), ..Shape::default() };
    assert!(tried(few, |_| {}).is_ok());
    let many = Shape { namespace: 65, others: (1..65).collect(), ..Shape::default() };
    assert_eq!(tried(many, |_| {}), Err(Failure::Blocks), "more are not looked at");
}

#[test]
fn what_cannot_be_used_is_refused() {
    let all = Shape::default();
    let refused = |shape| tried(shape, |_| {}).unwrap_err();
    assert_eq!(refused(Shape { version: 0x0001_0000, ..all.clone() }), Failure::Commands);
    assert_eq!(refused(Shape { command_sets: 0x80, ..all.clone() }), Failure::Commands);
    assert_eq!(refused(Shape { page: 1, ..all.clone() }), Failure::Pages);
    assert_eq!(refused(Shape { entries: 1, ..all.clone() }), Failure::Queues);
    assert_eq!(refused(Shape { stride: 10, ..all.clone() }), Failure::Registers);
    assert_eq!(tried(Shape { stride: 9, ..all.clone() }, |_| {}), identified(&[]), "all are there");
    for (at, sizes) in [(512, 0x67), (512, 0x50), (513, 0x33), (513, 0x65)] {
        assert_eq!(identified(&[((CONTROLLER, at), sizes)]), Err(Failure::Queues), "{at} {sizes:#x}");
    }
    let unfit = |at: u16, byte| identified(&[((NAMESPACE, at), byte)]);
    let blocks = Err(Failure::Blocks);
    assert_eq!((unfit(136, 8), unfit(137, 1)), (blocks, blocks), "metadata");
    assert_eq!((unfit(138, 8), unfit(138, 13), unfit(138, 255)), (blocks, blocks, blocks), "sizes of blocks");
    assert_eq!(unfit(29, 1), blocks, "protection");
    assert_eq!(unfit(26, 3), blocks, "a format that there is not");
    assert_eq!((unfit(7, 0xff), unfit(6, 0x80), unfit(1, 0)), (blocks, blocks, blocks), "too large, or none");
    assert!(unfit(6, 0x7f).is_ok());
    let list = |numbers: &[(u16, u8)]| {
        let patches: Vec<_> = numbers.iter().map(|&(at, byte)| ((LIST, at), byte)).collect();
        identified(&patches)
    };
    assert_eq!(list(&[(0, 0)]), blocks, "there is none");
    assert_eq!(list(&[(0, 0xff), (1, 0xff), (2, 0xff), (3, 0xff)]), blocks, "that means all of them");
    let others = Shape { others: vec![1], namespace: 2, ..all };
    let back = |nvme: &Nvme| nvme.identified.borrow_mut().extend([((LIST, 0), 1)]);
    assert_eq!(tried(others, back), blocks, "the list goes back");
}

#[test]
fn a_refused_command_of_the_start_ends_it() {
    for operation in [1, 5, 6, 9] {
        let refuse = |nvme: &Nvme| nvme.statuses.borrow_mut().extend([((0, operation), 6)]);
        assert_eq!(tried(Shape::default(), refuse), Err(Failure::Start(6)));
    }
    let tag = |nvme: &Nvme| nvme.wrong_tag.set(Some(77));
    assert_eq!(tried(Shape::default(), tag), Err(Failure::Finished { queue: 0, tag: 77 }));
    let queue = |nvme: &Nvme| nvme.wrong_queue.set(Some(3));
    assert_eq!(tried(Shape::default(), queue), Err(Failure::Finished { queue: 3, tag: 1 }));
}

#[test]
fn memory_that_does_not_fit_is_refused() {
    let (nvme, ram) = new(Shape::default());
    let begin = |ram: &Ram, at| {
        let mut driver = Driver::NEW;
        driver.begin(&nvme.on(ram), at)
    };
    assert_eq!(begin(&ram, Ram::BASE + 512), Err(Failure::Memory));
    assert_eq!(begin(&ram, u64::MAX - 0xfff), Err(Failure::Memory));
    assert_eq!(begin(&Ram::new(Driver::BYTES as usize, Fuse::default()), Ram::BASE), Ok(()));
    assert_eq!(
        begin(&Ram::new(Driver::BYTES as usize - 1, Fuse::default()), Ram::BASE),
        Err(Failure::Memory)
    );
    nvme.patches.borrow_mut().insert(0x09, 1);
    assert_eq!(begin(&ram, Ram::BASE), Err(Failure::Unknown), "no NVM Express");
    assert_eq!(Driver::reset(&nvme.on(&ram)), Err(Failure::Unknown));
}

#[test]
fn a_slow_controller_is_waited_for() {
    let (nvme, ram) = new(Shape::default());
    let bus = nvme.on(&ram);
    nvme.slowness.set(20);
    let mut driver = Driver::NEW;
    driver.begin(&bus, Ram::BASE).unwrap();
    let calls = (0..).find(|_| driver.proceed(&bus, 0).unwrap().is_some()).unwrap();
    assert!((15..25).contains(&calls), "it reads the status once a call: {calls}");
    assert_eq!(driver.check(&bus), Ok(()));
    driver.stop(&bus);
    assert!(nvme.runs(), "it takes its time here, too");
    let calls = (0..).find(|_| Driver::reset(&bus).unwrap()).unwrap();
    assert!((15..25).contains(&calls) && !nvme.runs(), "{calls}");
    sound(&nvme);
}

#[test]
fn no_memory_is_touched_before_the_reset_has_ended() {
    let (nvme, ram) = new(Shape::default());
    let bus = nvme.on(&ram);
    let _killed = begun(&nvme, &ram).unwrap();
    nvme.slowness.set(5);
    ram.fuse.mend();
    let mut driver = Driver::NEW;
    driver.begin(&bus, Ram::BASE).unwrap();
    let before = ram.get(Ram::BASE, 0x8000);
    while nvme.runs() {
        assert!(ram.get(Ram::BASE, 0x8000) == before);
        assert_eq!(driver.proceed(&bus, 0), Ok(None));
    }
    // Completions that look new are there now.
    nvme.slowness.set(0);
    while driver.proceed(&bus, 0).unwrap().is_none() {}
    driver.read(&bus, 9, 0, buffer::<Driver>(9), 512).unwrap();
    assert_eq!(outcome(&mut driver, &bus), Ok((9, Ok(()))));
    sound(&nvme);
}

/// NVM Express 1.4, section 3.1.5: CC.EN.
#[test]
fn a_controller_on_its_way_is_not_disabled() {
    let (nvme, ram) = new(Shape::default());
    let bus = nvme.on(&ram);
    nvme.slowness.set(9);
    let mut killed = Driver::NEW;
    killed.begin(&bus, Ram::BASE).unwrap();
    for _ in 0..5 {
        assert_eq!(killed.proceed(&bus, 0), Ok(None));
    }
    assert_eq!(Driver::reset(&bus), Ok(false));
    let mut driver = Driver::NEW;
    driver.begin(&bus, Ram::BASE).unwrap();
    assert!((0..60).any(|_| driver.proceed(&bus, 0).unwrap().is_some()));
    sound(&nvme);
}

#[test]
fn a_controller_that_is_never_ready_has_its_time() {
    let (nvme, ram) = new(Shape::default());
    let bus = nvme.on(&ram);
    nvme.slowness.set(u32::MAX);
    let mut driver = Driver::NEW;
    driver.begin(&bus, Ram::BASE).unwrap();
    for now in [5, 6, TIMEOUT + 5] {
        assert_eq!(driver.proceed(&bus, now), Ok(None));
    }
    assert_eq!(driver.proceed(&bus, TIMEOUT + 6), Err(Failure::Slow));
    assert_eq!(driver.proceed(&bus, TIMEOUT + 6), Err(Failure::Unknown), "there is none any more");
    nvme.slowness.set(0);
    assert!(begun(&nvme, &ram).is_ok(), "it was disabled");
    // Nor does its reset end.
    nvme.slowness.set(u32::MAX);
    driver.begin(&bus, Ram::BASE).unwrap();
    assert_eq!((driver.proceed(&bus, 0), driver.proceed(&bus, TIMEOUT)), (Ok(None), Ok(None)));
    assert_eq!(driver.proceed(&bus, TIMEOUT + 1), Err(Failure::Slow));
    assert_eq!(Driver::reset(&bus), Ok(false));
}

#[test]
fn a_command_of_the_start_has_its_time() {
    let (nvme, ram) = new(Shape { timeout: 0, ..Shape::default() });
    let bus = nvme.on(&ram);
    nvme.wrong_phase.set(true);
    let mut driver = Driver::NEW;
    driver.begin(&bus, Ram::BASE).unwrap();
    assert_eq!(
        (driver.proceed(&bus, 7), driver.proceed(&bus, 10_000 * MILLISECOND + 7)),
        (Ok(None), Ok(None))
    );
    assert_eq!(driver.proceed(&bus, 10_000 * MILLISECOND + 8), Err(Failure::Slow));
    assert!(!nvme.runs());
}

#[test]
fn a_controller_that_cannot_go_on_says_so() {
    let (nvme, ram) = new(Shape::default());
    let bus = nvme.on(&ram);
    let (mut driver, _) = begun(&nvme, &ram).unwrap();
    assert_eq!((driver.interrupted(&bus), driver.check(&bus)), (Ok(()), Ok(())));
    nvme.fail();
    assert_eq!(driver.check(&bus), Err(Failure::Fatal));
    driver.stop(&bus);
    assert_eq!(driver.check(&bus), Err(Failure::Unknown));
    // It fails while it is to get ready, and while it is to answer.
    for is_asked in [false, true] {
        let mut driver = Driver::NEW;
        nvme.slowness.set(if is_asked { 0 } else { 3 });
        nvme.wrong_phase.set(is_asked);
        driver.begin(&bus, Ram::BASE).unwrap();
        assert_eq!((driver.proceed(&bus, 0), nvme.runs()), (Ok(None), is_asked));
        nvme.fail();
        assert_eq!(driver.proceed(&bus, 0), Err(Failure::Fatal));
        nvme.slowness.set(0);
    }
    let (driver, _) = begun(&nvme, &ram).unwrap();
    // Somebody else has reset it, or it is not there any more.
    assert_eq!(Driver::reset(&bus), Ok(true));
    assert_eq!(driver.check(&bus), Err(Failure::Fatal));
    nvme.stuck.borrow_mut().insert(0x1c, u32::MAX);
    assert_eq!(driver.check(&bus), Err(Failure::Gone));
    assert_eq!((Driver::reset(&bus), begun(&nvme, &ram).map(drop)), (Err(Failure::Gone), Err(Failure::Gone)));
}

#[test]
fn answers_that_lie_are_noticed() {
    let (nvme, ram) = new(Shape::default());
    let bus = nvme.on(&ram);
    let answer = |lie: &dyn Fn(&Nvme)| {
        let (mut driver, _) = begun(&nvme, &ram).unwrap();
        lie(&nvme);
        driver.read(&bus, 4, 0, buffer::<Driver>(4), 512).unwrap();
        driver.ring(&bus).unwrap();
        driver.finished(&bus)
    };
    let status = |status| move |nvme: &Nvme| nvme.statuses.borrow_mut().extend([((1, READ), status)]);
    assert_eq!(answer(&|_| {}), Ok(Some((4, Ok(())))));
    for tag in [3, 5, 31, 32, 33, 0xffff] {
        assert_eq!(answer(&|nvme| nvme.wrong_tag.set(Some(tag))), Err(Failure::Finished { queue: 1, tag }));
    }
    assert_eq!(answer(&|nvme| nvme.wrong_queue.set(Some(0))), Err(Failure::Finished { queue: 0, tag: 4 }));
    assert_eq!(answer(&|nvme| nvme.wrong_phase.set(true)), Ok(None), "it is not there yet");
    // Media errors, a status of a vendor's, and one that says not to try again.
    for error in [0x281, 0x780, 0x4001, 0x6, 0x2] {
        let expected = if error == 0x4001 { Refused::Unsupported } else { Refused::Io };
        assert_eq!(answer(&status(error)), Ok(Some((4, Err(expected)))), "{error:#x}");
    }
    assert_eq!(answer(&status(1)), Ok(Some((4, Err(Refused::Unsupported)))));
}

#[test]
fn a_tag_is_finished_once() {
    let (nvme, ram) = new(Shape::default());
    let bus = nvme.on(&ram);
    let (mut driver, _) = begun(&nvme, &ram).unwrap();
    for tag in [2, 6] {
        driver.read(&bus, tag, 0, buffer::<Driver>(tag), 512).unwrap();
    }
    nvme.wrong_tag.set(Some(6));
    driver.ring(&bus).unwrap();
    assert_eq!(driver.finished(&bus), Ok(Some((6, Ok(())))));
    assert_eq!(driver.finished(&bus), Err(Failure::Finished { queue: 1, tag: 6 }));
}

#[test]
fn a_bad_sector_fails_its_command_alone() {
    let (nvme, ram) = new(Shape::default());
    let bus = nvme.on(&ram);
    let (mut driver, _) = begun(&nvme, &ram).unwrap();
    nvme.platter.bad.borrow_mut().insert(12);
    driver.write(&bus, 0, 10, buffer::<Driver>(0), 1024).unwrap();
    assert_eq!(outcome(&mut driver, &bus), Ok((0, Ok(()))));
    driver.write(&bus, 0, 11, buffer::<Driver>(0), 1024).unwrap();
    assert_eq!(outcome(&mut driver, &bus), Ok((0, Err(Refused::Io))));
    assert_eq!(driver.check(&bus), Ok(()));
}

#[test]
fn a_lost_interrupt_loses_nothing() {
    let (nvme, ram) = new(Shape::default());
    let bus = nvme.on(&ram);
    let (mut driver, _) = begun(&nvme, &ram).unwrap();
    nvme.mute.set(true);
    let before = nvme.interrupts.get();
    assert_eq!(driver.arm(&bus), Ok(false));
    driver.flush(&bus, 0).unwrap();
    driver.ring(&bus).unwrap();
    assert_eq!((nvme.interrupts.get(), driver.arm(&bus)), (before, Ok(true)));
    assert_eq!(driver.finished(&bus), Ok(Some((0, Ok(())))));
    assert_eq!((driver.arm(&bus), driver.check(&bus)), (Ok(false), Ok(())));
}

#[test]
fn a_burst_is_one_doorbell() {
    let (nvme, ram) = new(Shape::default());
    let bus = nvme.on(&ram);
    let (mut driver, geometry) = begun(&nvme, &ram).unwrap();
    for tag in 0..geometry.depth {
        driver.read(&bus, tag, tag.into(), buffer::<Driver>(tag), 512).unwrap();
    }
    assert_eq!(driver.finished(&bus), Ok(None), "it does not know of them");
    driver.ring(&bus).unwrap();
    driver.ring(&bus).unwrap();
    assert_eq!(nvme.notified.get(), 1);
}

#[test]
fn zeroes_are_given_up_where_that_makes_zeroes() {
    for (deallocation, is_given_up) in [(0b1001, true), (0b1000, false), (0b0001, false), (0b1010, false)] {
        let (nvme, ram) = new(Shape { deallocation, ..Shape::default() });
        let bus = nvme.on(&ram);
        let (mut driver, _) = begun(&nvme, &ram).unwrap();
        for may_discard in [false, true] {
            driver.zero(&bus, 1, 16, 8, may_discard).unwrap();
            assert_eq!(outcome(&mut driver, &bus), Ok((1, Ok(()))));
        }
        assert_eq!(*nvme.platter.zeroed.borrow(), [(8192, 4096, false), (8192, 4096, is_given_up)]);
    }
}

#[test]
fn commands_that_cannot_be_are_refused() {
    let (nvme, ram) = new(Shape { block: 12, ..Shape::default() });
    let (bus, at) = (nvme.on(&ram), buffer::<Driver>(0));
    let mut driver = Driver::NEW;
    assert_eq!(driver.read(&bus, 0, 0, at, 4096), Err(Refusal::Unsupported), "it has not begun");
    assert_eq!((driver.ring(&bus), driver.finished(&bus)), (Err(Failure::Unknown), Err(Failure::Unknown)));
    assert_eq!((driver.arm(&bus), driver.interrupted(&bus)), (Err(Failure::Unknown), Err(Failure::Unknown)));
    nvme.slowness.set(3);
    driver.begin(&bus, Ram::BASE).unwrap();
    assert_eq!(driver.flush(&bus, 0), Err(Refusal::Unsupported), "it is not ready");
    assert_eq!((driver.ring(&bus), driver.finished(&bus), driver.arm(&bus)), (Ok(()), Ok(None), Ok(false)));
    nvme.slowness.set(0);
    let (mut driver, _) = begun(&nvme, &ram).unwrap();
    let end = Ram::BASE + ram.length() as u64;
    let cases = [
        (32, 0, at, 4096, Refusal::Tag),
        (u16::MAX, 0, at, 4096, Refusal::Tag),
        (0, 0, at, 0, Refusal::Range),
        (0, 0, at, 512, Refusal::Range),
        (0, 1, at, 4096, Refusal::Range),
        (0, 0, at, MOST_BYTES + 4096, Refusal::Range),
        (0, SECTORS, at, 4096, Refusal::Range),
        (0, SECTORS - 8, at, 8192, Refusal::Range),
        (0, u64::MAX - 7, at, 4096, Refusal::Range),
        (0, 0, at + 512, 4096, Refusal::Memory),
        (0, 0, end, 4096, Refusal::Memory),
        (0, 0, end - 4096, 8192, Refusal::Memory),
        (0, 0, 0x1000, 4096, Refusal::Memory),
        (0, 0, u64::MAX - 0xfff, 4096, Refusal::Memory),
    ];
    for (tag, sector, address, length, refusal) in cases {
        assert_eq!(driver.read(&bus, tag, sector, address, length), Err(refusal));
        assert_eq!(driver.write(&bus, tag, sector, address, length), Err(refusal));
    }
    for (sector, sectors) in
        [(0, 0), (0, 1), (4, 8), (SECTORS, 8), (0, SECTORS as u32 + 8), (u64::MAX - 7, 8)]
    {
        assert_eq!(driver.zero(&bus, 0, sector, sectors, true), Err(Refusal::Range));
        assert_eq!(driver.discard(&bus, 0, sector, sectors), Err(Refusal::Range));
    }
    driver.flush(&bus, 0).unwrap();
    assert_eq!(driver.flush(&bus, 0), Err(Refusal::Tag));
    driver.ring(&bus).unwrap();
    assert_eq!((driver.finished(&bus), nvme.notified.get()), (Ok(Some((0, Ok(())))), 1));

    let (nvme, ram) = new(Shape { cache: false, optional: 0, ..Shape::default() });
    nvme.identified.borrow_mut().insert((NAMESPACE, 99), 1);
    let bus = nvme.on(&ram);
    let (mut driver, _) = begun(&nvme, &ram).unwrap();
    let unsupported = Err(Refusal::Unsupported);
    assert_eq!((driver.flush(&bus, 0), driver.write(&bus, 0, 0, at, 512)), (unsupported, unsupported));
    assert_eq!(
        (driver.zero(&bus, 0, 0, 8, false), driver.discard(&bus, 0, 0, 8)),
        (unsupported, unsupported)
    );
    assert_eq!(driver.read(&bus, 0, 0, at, 512), Ok(()));
}
