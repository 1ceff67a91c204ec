// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Controllers that are slow, broken or dead.

use turnstile_rig::{BlockDriver, Computer, Random, Shape, request};
use turnstile_service_rt::drive::Drive as Settings;
use turnstile_virtio::config::{Block, BlockRequest};

use super::host::{Host, SECTORS, driver};
use super::works::{FEATURES, FEW, any, once, running};

/// How often the status of a slow controller is read: more often than one event waits for it, and more often than all of them do.
const SLOW: u32 = 60_000;
const VERY_SLOW: u32 = 202_000;

#[test]
fn a_slow_controller_is_there_later() {
    let mut host = Host::new(Shape::default(), Settings::default(), |nvme| nvme.slowness.set(VERY_SLOW));
    assert!(host.driven && host.board.log.borrow().contains("takes its time"));
    let mut driver = driver(&mut host);
    assert_eq!(host.read(driver.config, 4), 0, "it is not known yet");
    let mut turns = 0;
    while host.alarm() {
        turns += 1;
    }
    assert!(turns > 10, "{turns} turns");
    assert!(driver.start(&mut host, FEATURES), "it offers what it now knows of");
    assert_eq!(host.read(driver.config, 4), SECTORS);
    assert_eq!(once(&mut host, &mut driver, BlockRequest::IN, 0, &[], 512)[512], 0);
}

/// A driver that is there before it is told.
#[test]
fn a_driver_is_told_when_the_disk_is_there() {
    let mut host = Host::new(Shape::default(), Settings::default(), |nvme| nvme.slowness.set(VERY_SLOW));
    let mut driver = driver(&mut host);
    assert!(driver.start(&mut host, FEW));
    assert!(host.messages().is_empty());
    while host.alarm() {}
    assert_eq!(host.messages(), [0x50], "the configuration has changed");
    assert_eq!(host.read(driver.config, 4), SECTORS);
    assert_eq!(once(&mut host, &mut driver, BlockRequest::IN, 0, &[], 512)[512], 0);
}

#[test]
fn a_controller_that_does_not_end_its_reset_is_left_alone() {
    let mut host = Host::new(Shape::default(), Settings::default(), |_| {});
    host.board.nvme.slowness.set(u32::MAX);
    host.kill();
    assert!(
        !host.driven && host.board.log.borrow().contains("takes its time"),
        "{}",
        host.board.log.borrow()
    );
    let driver = driver(&mut host);
    assert_eq!(host.read(driver.config, 4), 0);
}

#[test]
fn a_controller_that_stops_begins_anew_and_loses_nothing() {
    let random = &mut Random(0x6661_7461);
    let (mut host, mut driver) = running(Shape::default(), Settings::default());
    let mut disk = vec![0; (SECTORS * 512) as usize];
    for _ in 0..20 {
        let mut expected = Vec::new();
        for place in 0..10 {
            let (request, answer) = any(random, place, &mut disk);
            assert!(driver.ask(&mut host, 0, &request));
            expected.push(answer);
        }
        let begun = driver.asked[0] - expected.len();
        let mut replies = Vec::new();
        if host.wait() {
            replies.extend(driver.interrupts(&mut host));
        }
        host.board.nvme.fail();
        // Nobody hears of it but by looking.
        while host.alarm() && !host.board.nvme.runs() {}
        replies.extend(driver.finish(&mut host));
        for (_, reply) in replies {
            assert!(reply.bytes == expected[reply.number - begun], "{}", reply.number);
        }
    }
    assert!(*host.board.nvme.platter.bytes.borrow() == disk);
    assert!(host.board.log.borrow().contains("it has stopped"), "{}", host.board.log.borrow());
    assert_eq!(host.kills.deaths, 0);
}

#[test]
fn a_lost_interrupt_costs_a_second() {
    let (mut host, mut driver) = running(Shape::default(), Settings::default());
    host.board.nvme.holds.set(false);
    host.board.nvme.mute.set(true);
    assert!(driver.ask(&mut host, 0, &request(BlockRequest::IN, 0, &[], 512)));
    // What is done at once is found at once; the second one is done later.
    driver.finish(&mut host);
    host.board.nvme.holds.set(true);
    assert!(driver.ask(&mut host, 0, &request(BlockRequest::IN, 0, &[], 512)));
    while host.wait() {}
    assert!(host.messages().is_empty());
    let before = host.board.clock.get();
    assert!(host.alarm());
    assert!(host.board.clock.get() - before > 900_000_000);
    assert_eq!(driver.finish(&mut host).len(), 1);
}

#[test]
fn a_dead_controller_fails_requests_and_nothing_hangs() {
    let (mut host, mut driver) = running(Shape::default(), Settings::default());
    for sector in 0..3 {
        assert!(driver.ask(&mut host, 0, &request(BlockRequest::IN, sector, &[], 512)));
    }
    let before = host.board.clock.get();
    let mut replies = Vec::new();
    // It takes commands and does none, however often it begins anew.
    while host.alarm() {
        replies.extend(driver.interrupts(&mut host));
    }
    assert_eq!(replies.len(), 3, "{}", host.board.log.borrow());
    assert!(replies.iter().all(|(_, reply)| reply.bytes[512] == 1));
    assert!(host.board.clock.get() - before < 60_000_000_000);
    assert_eq!(once(&mut host, &mut driver, BlockRequest::OUT, 0, &[1; 512], 0), [1]);
    assert_eq!(host.kills.deaths, 0);
}

/// One whose pin stays high would take the CPU: the hypervisor unmasks the interrupt no more.
#[test]
fn a_controller_that_is_gone_interrupts_nobody() {
    let (mut host, mut driver) = running(Shape::default(), Settings::default());
    assert!(driver.ask(&mut host, 0, &request(BlockRequest::IN, 0, &[], 512)));
    while host.alarm() {}
    assert!(host.driven);
    host.stray();
    assert!(!host.driven, "{}", host.board.log.borrow());
}

/// Nothing of an earlier life of the VM is done behind something of a later one.
#[test]
fn what_was_under_way_when_the_vm_stopped_ends_before_anything_begins() {
    let (mut host, mut driver) = running(Shape::default(), Settings::default());
    for place in 0..4 {
        assert!(driver.ask(&mut host, 0, &request(BlockRequest::OUT, place, &[1; 512], 0)));
    }
    host.restart();
    host.messages();
    let mut driver = super::host::driver(&mut host);
    assert!(driver.start(&mut host, FEATURES));
    // The last ones first: the controller may do what it was told in any order.
    host.order = Random(77);
    for place in 0..4 {
        assert!(driver.ask(&mut host, 0, &request(BlockRequest::OUT, place, &[2; 512], 0)));
    }
    assert_eq!(driver.finish(&mut host).len(), 4);
    assert_eq!(host.board.nvme.platter.bytes.borrow()[..4 * 512], [2; 4 * 512]);
}

/// Nobody sees that the controller takes longer than one event.
#[test]
fn a_slow_controller_is_waited_for_also_when_the_service_was_killed() {
    let (mut host, mut driver) = running(Shape::default(), Settings::default());
    host.board.nvme.slowness.set(SLOW);
    for place in 0..4 {
        assert!(driver.ask(&mut host, 0, &request(BlockRequest::OUT, place, &[3; 512], 0)));
    }
    host.kill();
    assert_eq!(host.read(driver.config, 4), SECTORS);
    let replies = driver.finish(&mut host);
    assert!(replies.len() == 4 && replies.iter().all(|(_, reply)| reply.bytes == [0]));
    assert_eq!(host.board.nvme.platter.bytes.borrow()[..4 * 512], [3; 4 * 512]);
}

/// A driver that works with what is not there any more has to begin anew, and is told so.
#[test]
fn a_driver_whose_disk_is_gone_is_told_to_begin_anew() {
    let (mut host, driver) = running(Shape::default(), Settings::default());
    host.board.nvme.slowness.set(u32::MAX);
    host.kill();
    assert!(!host.driven);
    assert_eq!((host.messages(), host.read(driver.common + 0x14, 1)), (vec![0x50], 15 | 64));
    let mut driver = super::host::driver(&mut host);
    assert!(driver.start(&mut host, FEW.difference(Block::FLUSH | Block::CONFIG_WCE)));
    assert_eq!(once(&mut host, &mut driver, BlockRequest::IN, 0, &[], 512)[512], 1);
}

#[test]
fn a_register_reads_as_it_is_whatever_was_done_meanwhile() {
    let (mut host, mut driver) = running(Shape::default(), Settings::default());
    assert!(driver.ask(&mut host, 0, &request(BlockRequest::IN, 0, &[], 512)));
    host.work();
    assert_eq!(host.read(driver.config, 4), SECTORS);
    assert_eq!(driver.interrupts(&mut host).len(), 1, "that was found, too");
}

#[test]
fn a_partition_table_that_does_not_come_is_not_waited_for() {
    let settings = Settings { partition: Some(1), read_only: false };
    let mut host = Host::new(Shape::default(), settings, |nvme| nvme.holds.set(true));
    let mut turns = 0;
    while host.alarm() {
        turns += 1;
        assert!(turns < 100_000);
    }
    assert!(host.board.log.borrow().contains("has not done"), "{}", host.board.log.borrow());
}

/// What a guest writes while the controller begins anew goes nowhere: commands of before may still read the stages, and the table comes.
#[test]
fn nothing_of_a_guest_reaches_memory_of_the_controller_that_begins_anew() {
    let settings = Settings { partition: Some(1), read_only: false };
    let mut host = Host::new(Shape::default(), settings, |nvme| {
        super::works::table(&mut nvme.platter.bytes.borrow_mut(), &[(40, 99)]);
    });
    let mut driver = driver(&mut host);
    assert!(driver.start(&mut host, FEATURES));
    host.board.nvme.holds.set(true);
    assert!(driver.ask(&mut host, 0, &request(BlockRequest::OUT, 0, &[0x5a; 512], 0)));
    host.work();
    driver.interrupts(&mut host);
    host.board.nvme.fail();
    assert!(driver.ask(&mut host, 0, &request(BlockRequest::OUT, 1, &[0xa5; 512], 0)));
    // It begins anew, and the table is asked for.
    while host.alarm() && !host.board.nvme.runs() {}
    let before = host.shared();
    for sector in 2..9 {
        assert!(driver.ask(&mut host, 0, &request(BlockRequest::OUT, sector, &[0xa5; 512], 0)));
    }
    let after = host.shared();
    let has_guests_bytes = |bytes: &[u8]| bytes.windows(64).filter(|bytes| *bytes == [0xa5; 64]).count();
    assert_eq!(has_guests_bytes(&after), has_guests_bytes(&before));
    driver.finish(&mut host);
    let bytes = host.board.nvme.platter.bytes.borrow();
    assert!(bytes[41 * 512..49 * 512].iter().all(|byte| *byte == 0xa5) && bytes[40 * 512] == 0x5a);
}

/// A command that was done while nobody looked is not late.
#[test]
fn who_was_paused_finds_nothing_late() {
    let (mut host, mut driver) = running(Shape::default(), Settings::default());
    assert!(driver.ask(&mut host, 0, &request(BlockRequest::IN, 0, &[], 512)));
    assert!(host.alarm(), "somebody looks, and finds it is not done");
    host.work();
    host.board.clock.update(|now| now + 60_000_000_000);
    assert!(host.alarm());
    assert_eq!(driver.interrupts(&mut host).len(), 1);
    assert!(host.board.log.borrow().is_empty(), "{}", host.board.log.borrow());
}

/// So many interrupts one after another are a storm.
const STORM: u32 = 50;

/// A pin of which a reset with completions that nobody has taken makes one that is high for ever.
fn with_stuck_pin() -> (Host, BlockDriver) {
    let shape = Shape { msix: false, ..Shape::default() };
    let (mut host, mut driver) = running(shape, Settings::default());
    host.board.nvme.keeps_pin.set(true);
    assert!(driver.ask(&mut host, 0, &request(BlockRequest::OUT, 0, &[7; 512], 0)));
    host.work();
    host.kill();
    assert!(host.board.nvme.is_high());
    (host, driver)
}

/// Interrupts that come at once, until none does.
fn interrupts(host: &mut Host) -> u32 {
    let mut count = 0;
    while count < STORM && host.interrupt() {
        count += 1;
    }
    count
}

#[test]
fn a_pin_that_stays_high_takes_nobodys_cpu_and_costs_time_alone() {
    let (mut host, mut driver) = with_stuck_pin();
    assert!(interrupts(&mut host) < STORM);
    let mut replies = 0;
    for sector in 0..20 {
        assert!(driver.ask(&mut host, 0, &request(BlockRequest::OUT, sector, &[7; 512], 0)));
        host.work();
        let before = host.board.clock.get();
        assert!(host.alarm(), "somebody looks");
        assert!(host.board.clock.get() - before < 2_000_000, "soon");
        replies += driver.interrupts(&mut host).len();
        assert!(interrupts(&mut host) < 4, "it is known to interrupt for nothing");
    }
    // That of before the kill, too.
    assert_eq!(replies, 21);
    assert!(!host.alarm(), "nothing is under way");
    assert_eq!(host.board.nvme.platter.bytes.borrow()[..20 * 512], [7; 20 * 512]);
    assert_eq!(host.board.log.borrow().matches("for nothing").count(), 1);
}

/// It takes its time, with its pin high.
#[test]
fn a_pin_that_is_high_while_its_controller_begins_takes_nobodys_cpu() {
    let (mut host, mut driver) = with_stuck_pin();
    host.board.nvme.slowness.set(100);
    host.board.nvme.fail();
    let mut turns = 0;
    while host.alarm() {
        assert!(interrupts(&mut host) < STORM);
        host.work();
        turns += 1;
    }
    assert!(turns > 100, "{turns} turns");
    assert_eq!(driver.interrupts(&mut host).len(), 1);
}

/// A controller whose interrupts bring something again is not looked at any more.
#[test]
fn interrupts_that_bring_something_are_waited_for_again() {
    let (mut host, mut driver) = with_stuck_pin();
    assert!(interrupts(&mut host) < STORM);
    host.board.nvme.mend_pin();
    let mut soon = 0;
    for _ in 0..4 {
        assert!(driver.ask(&mut host, 0, &request(BlockRequest::IN, 0, &[], 512)));
        let before = host.board.clock.get();
        assert!(host.alarm());
        soon += u32::from(host.board.clock.get() - before < 2_000_000);
        host.work();
        assert_eq!(interrupts(&mut host), 1);
        driver.interrupts(&mut host);
    }
    assert_eq!(soon, 2, "the alarm was set once more before");
}
