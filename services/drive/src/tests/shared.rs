// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several members with parts of one disk: nobody waits for the others, reaches what is theirs, or loses anything by what becomes of them.

use turnstile_rig::{Behind, BlockDriver, Computer, Ram, Random, Reply, Shape, request};
use turnstile_service_rt::drive::Drive as Settings;
use turnstile_virtio::config::{BlockRange, BlockRequest};

use crate::lent::commands::range_piece;

use super::host::{Host, SECTORS, driver};
use super::works::{FEATURES, any, table};

/// Where the partitions are, and how many sectors each has.
const FIRSTS: [usize; 3] = [40, 168, 296];
const LENGTH: usize = 128;

/// A partition, by its number.
const fn partition(number: u8) -> Settings {
    Settings { partition: Some(number), read_only: false }
}

fn write_table(bytes: &mut [u8]) {
    table(bytes, &FIRSTS.map(|first| (first as u64, (first + LENGTH - 1) as u64)));
}

/// A host with members, each of which has such a part, and their drivers.
fn hosted(shape: Shape, members: &[Settings], left: Option<u64>) -> (Host, Vec<BlockDriver>) {
    let mut host = Host::several(shape, members, left, |nvme| {
        nvme.holds.set(true);
        write_table(&mut nvme.platter.bytes.borrow_mut());
    });
    let drivers = (0..members.len()).map(|member| begin(&mut host, member)).collect();
    (host, drivers)
}

/// A driver of this member, which works.
fn begin(host: &mut Host, member: usize) -> BlockDriver {
    host.member = member;
    let mut driver = driver(host);
    assert!(driver.start(host, FEATURES));
    driver
}

/// Asks for something of a member.
fn ask(host: &mut Host, driver: &mut BlockDriver, member: usize, request: &turnstile_rig::Request) {
    host.member = member;
    assert!(driver.ask(host, 0, request));
}

/// Asks for as much of a member as its queue has room for. Returns how many requests that are.
fn fill(
    host: &mut Host,
    driver: &mut BlockDriver,
    member: usize,
    request: impl Fn(u64) -> turnstile_rig::Request,
) -> usize {
    host.member = member;
    (0..).take_while(|number| driver.ask(host, 0, &request(*number))).count()
}

/// What a member has got meanwhile.
fn replies(host: &mut Host, driver: &mut BlockDriver, member: usize) -> Vec<Reply> {
    host.member = member;
    driver.interrupts(host).into_iter().map(|(_, reply)| reply).collect()
}

/// The sectors of a partition.
fn sectors(host: &Host, number: usize) -> Vec<u8> {
    host.board.nvme.platter.bytes.borrow()[FIRSTS[number] * 512..][..LENGTH * 512].to_vec()
}

/// All bytes of the disk but those of the partitions are as they were.
fn nothing_else_is_written(host: &Host) {
    let mut bytes = vec![0; (SECTORS * 512) as usize];
    write_table(&mut bytes);
    for (number, first) in FIRSTS.into_iter().enumerate() {
        bytes[first * 512..][..LENGTH * 512].copy_from_slice(&sectors(host, number));
    }
    assert!(*host.board.nvme.platter.bytes.borrow() == bytes);
}

/// Rounds of anything by all members at once, in which `meanwhile` does something. Each has what it has written, and nothing else.
fn mixed(host: &mut Host, drivers: &mut [BlockDriver], rounds: usize, meanwhile: impl Fn(&mut Host)) {
    let random = &mut Random(0x7368_6172);
    let mut disks = vec![vec![0; LENGTH * 512]; drivers.len()];
    for _ in 0..rounds {
        let mut expected = vec![Vec::new(); drivers.len()];
        for place in 0..12 {
            for (member, driver) in drivers.iter_mut().enumerate() {
                let (request, answer) = any(random, place, &mut disks[member]);
                ask(host, driver, member, &request);
                expected[member].push(answer);
            }
        }
        meanwhile(host);
        while host.wait() {}
        for (member, driver) in drivers.iter_mut().enumerate() {
            let begun = driver.asked[0] - expected[member].len();
            host.member = member;
            for (_, reply) in driver.finish(host) {
                assert!(reply.bytes == expected[member][reply.number - begun], "{member}: {}", reply.number);
            }
        }
    }
    for (member, disk) in disks.iter().enumerate() {
        assert!(sectors(host, member) == *disk, "partition {member}");
    }
    nothing_else_is_written(host);
    assert_eq!(host.board.nvme.face().strays.get(), 0);
}

#[test]
fn each_member_has_its_own_part() {
    let (mut host, mut drivers) = hosted(Shape::default(), &[partition(1), partition(2), partition(3)], None);
    for (member, driver) in drivers.iter().enumerate() {
        host.member = member;
        assert_eq!(host.read(driver.config, 4), LENGTH as u64);
    }
    mixed(&mut host, &mut drivers, 40, |_| {});
    assert!(host.board.log.borrow().is_empty(), "{}", host.board.log.borrow());
}

/// A controller that takes fewer commands at once than the members have tags.
#[test]
fn a_controller_with_little_room_has_some_for_each() {
    for entries in [2, 4, 9] {
        let shape = Shape { entries, ..Shape::default() };
        let (mut host, mut drivers) = hosted(shape, &[partition(1), partition(2), partition(3)], None);
        mixed(&mut host, &mut drivers, 10, |_| {});
        // One that always has something to ask for keeps nobody waiting for long.
        let more = |host: &mut Host, driver: &mut BlockDriver| {
            fill(host, driver, 0, |_| request(BlockRequest::IN, 0, &[], 512));
        };
        more(&mut host, &mut drivers[0]);
        ask(&mut host, &mut drivers[2], 2, &request(BlockRequest::IN, 0, &[], 512));
        let mut turns = 0;
        while replies(&mut host, &mut drivers[2], 2).is_empty() {
            turns += 1;
            assert!(turns < 12, "{entries} entries");
            host.work();
            host.interrupt();
            replies(&mut host, &mut drivers[0], 0);
            more(&mut host, &mut drivers[0]);
        }
    }
}

#[test]
fn who_has_much_to_ask_for_starves_nobody() {
    let (mut host, mut drivers) = hosted(Shape::default(), &[partition(1), partition(2), partition(3)], None);
    let all = fill(&mut host, &mut drivers[0], 0, |number| request(BlockRequest::OUT, number, &[1; 512], 0));
    ask(&mut host, &mut drivers[1], 1, &request(BlockRequest::OUT, 5, &[2; 512], 0));
    ask(&mut host, &mut drivers[2], 2, &request(BlockRequest::IN, 5, &[], 512));
    // All that the controller has been told.
    host.work();
    assert_eq!(sectors(&host, 1)[5 * 512..6 * 512], [2; 512]);
    host.interrupt();
    assert_eq!([1, 2].map(|member| replies(&mut host, &mut drivers[member], member).len()), [1; 2]);
    let first = replies(&mut host, &mut drivers[0], 0).len();
    assert!((4..=16).contains(&first) && first < all, "{first} of {all} at once");
    host.member = 0;
    assert_eq!(drivers[0].finish(&mut host).len(), all - first);
}

/// A member's VM starts again and again for so many nanoseconds.
fn restart_for(host: &mut Host, member: usize, nanoseconds: u64) {
    let begun = host.board.clock.get();
    while host.board.clock.get() - begun < nanoseconds {
        host.member = member;
        host.stop();
        host.start();
        host.board.clock.update(|now| now + 50_000_000);
        if host.board.alarm.get().is_some_and(|at| at <= host.board.clock.get()) {
            host.alarm();
        }
    }
}

/// A command of the second member is lost; its neighbour starts again and again.
#[test]
fn a_neighbour_that_starts_again_and_again_hides_nothing() {
    let (mut host, mut drivers) = hosted(Shape::default(), &[partition(1), partition(2)], None);
    ask(&mut host, &mut drivers[1], 1, &request(BlockRequest::OUT, 5, &[2; 512], 0));
    host.board.nvme.lose();
    restart_for(&mut host, 0, 30_000_000_000);
    assert!(host.board.log.borrow().contains("it has not done what it was told"));
}

/// The command that is lost is that of the VM that starts again and again.
#[test]
fn who_starts_again_and_again_hides_no_lost_command_of_its_own() {
    let (mut host, mut drivers) = hosted(Shape::default(), &[partition(1), partition(2)], None);
    ask(&mut host, &mut drivers[0], 0, &request(BlockRequest::OUT, 5, &[2; 512], 0));
    host.board.nvme.lose();
    restart_for(&mut host, 0, 30_000_000_000);
    assert!(host.board.log.borrow().contains("it has not done what it was told"));
}

/// A member always has something under way for longer than a command may take.
#[test]
fn who_is_busy_for_long_is_not_late() {
    let (mut host, mut drivers) = hosted(Shape::default(), &[partition(1), partition(2)], None);
    let one = request(BlockRequest::IN, 0, &[], 512);
    ask(&mut host, &mut drivers[0], 0, &one);
    for _ in 0..40 {
        ask(&mut host, &mut drivers[0], 0, &one);
        host.board.nvme.run_some(host.board.shared, &mut Random(1), 1);
        host.interrupt();
        host.alarm();
        replies(&mut host, &mut drivers[0], 0);
    }
    assert!(host.board.log.borrow().is_empty(), "{}", host.board.log.borrow());
}

/// The first member has something done all the time; a command of the second one is lost.
#[test]
fn a_lost_command_is_missed_though_others_are_done() {
    let (mut host, mut drivers) = hosted(Shape::default(), &[partition(1), partition(2)], None);
    ask(&mut host, &mut drivers[1], 1, &request(BlockRequest::OUT, 5, &[2; 512], 0));
    host.board.nvme.lose();
    let is_missed = |host: &Host| host.board.log.borrow().contains("it has not done what it was told");
    let seconds = (0..100).take_while(|_| {
        ask(&mut host, &mut drivers[0], 0, &request(BlockRequest::IN, 0, &[], 512));
        host.work();
        host.interrupt();
        host.alarm();
        !is_missed(&host) && replies(&mut host, &mut drivers[0], 0).len() == 1
    });
    assert!((5..20).contains(&seconds.count()));
    assert!(is_missed(&host));
    while host.wait() {}
    assert_eq!(replies(&mut host, &mut drivers[1], 1).len(), 1);
    assert_eq!(sectors(&host, 1)[5 * 512..6 * 512], [2; 512]);
}

/// A controller may take a gigabyte at once, for which nobody is to wait.
#[test]
fn who_discards_much_does_so_by_the_piece() {
    assert_eq!(range_piece(u32::MAX, 0), 8 << 20);
    assert_eq!(range_piece(u32::MAX, 1 << 21), 8 << 20);
    assert_eq!([range_piece(8, 16), range_piece(0, 16), range_piece(0, 0)], [4096, 8192, 512]);
}

/// Two members always have something to ask for, of a controller that does one thing at once.
#[test]
fn members_have_as_many_turns_as_others() {
    let shape = Shape { entries: 2, ..Shape::default() };
    let (mut host, mut drivers) = hosted(shape, &[partition(1), partition(2)], None);
    let mut done = [0; 2];
    for _ in 0..200 {
        for (member, driver) in drivers.iter_mut().enumerate() {
            fill(&mut host, driver, member, |_| request(BlockRequest::IN, 0, &[], 512));
        }
        host.work();
        host.interrupt();
        for (member, driver) in drivers.iter_mut().enumerate() {
            done[member] += replies(&mut host, driver, member).len();
        }
    }
    let [first, second] = done;
    assert!(first.abs_diff(second) <= (first + second) / 4, "{first} and {second}");
}

#[test]
fn killed_at_any_step_it_loses_nothing_of_anybody() {
    let killed_at = |step| {
        let (mut host, mut drivers) = hosted(Shape::default(), &[partition(1), partition(2)], Some(step));
        mixed(&mut host, &mut drivers, 1, |_| {});
        host.kills.deaths != 0
    };
    let steps = (0..).step_by(89).take_while(|step| killed_at(*step)).count();
    assert!(steps > 10, "it was killed at {steps} steps");
}

#[test]
fn what_becomes_of_the_controller_has_become_of_it_for_all() {
    let (mut host, mut drivers) = hosted(Shape::default(), &[partition(1), partition(2), partition(3)], None);
    mixed(&mut host, &mut drivers, 6, |host| {
        host.wait();
        host.board.nvme.fail();
        while host.alarm() && !host.board.nvme.runs() {}
    });
    assert!(host.board.log.borrow().contains("it has stopped"), "{}", host.board.log.borrow());
    assert_eq!(host.kills.deaths, 0);
}

/// Its requests end first, and nobody else has their tags meanwhile.
#[test]
fn a_member_that_stops_leaves_the_others_alone() {
    let (mut host, mut drivers) = hosted(Shape::default(), &[partition(1), partition(2)], None);
    fill(&mut host, &mut drivers[0], 0, |sector| request(BlockRequest::IN, sector, &[], 4096));
    let all = fill(&mut host, &mut drivers[1], 1, |sector| request(BlockRequest::OUT, sector, &[7; 512], 0));
    host.member = 0;
    host.stop();
    host.messages();
    // The other one goes on while the controller has what it was told for this one.
    while host.wait() {}
    assert_eq!(replies(&mut host, &mut drivers[1], 1).len(), all);
    assert!(host.ram().get(Ram::BASE, 4096).iter().any(|byte| *byte != 0));
    host.member = 0;
    assert!(host.ram().get(Ram::BASE, 0x40_0000).iter().all(|byte| *byte == 0), "it is gone");
    host.start();
    let mut again = begin(&mut host, 0);
    ask(&mut host, &mut again, 0, &request(BlockRequest::OUT, 0, &[9; 512], 0));
    assert_eq!(again.finish(&mut host)[0].1.bytes, [0]);
    assert_eq!((sectors(&host, 0)[0], sectors(&host, 1)[..512].to_vec()), (9, vec![7; 512]));
    nothing_else_is_written(&host);
}

/// What the controller still does for a life that is over is done before anything of the next one, also while others have it work.
#[test]
fn the_next_life_begins_behind_what_was_told_for_the_last_one() {
    let (mut host, mut drivers) = hosted(Shape::default(), &[partition(1), partition(2)], None);
    for sector in 0..10 {
        ask(&mut host, &mut drivers[0], 0, &request(BlockRequest::OUT, sector, &[1; 512], 0));
    }
    host.stop();
    host.messages();
    host.start();
    let mut again = begin(&mut host, 0);
    for sector in 0..10 {
        ask(&mut host, &mut again, 0, &request(BlockRequest::OUT, sector, &[2; 512], 0));
        ask(&mut host, &mut drivers[1], 1, &request(BlockRequest::OUT, sector, &[3; 512], 0));
    }
    while host.wait() {}
    host.member = 0;
    assert_eq!(again.finish(&mut host).len(), 10);
    assert_eq!(replies(&mut host, &mut drivers[1], 1).len(), 10);
    assert_eq!([0, 1].map(|number| sectors(&host, number)[..10 * 512].to_vec()), [[2; 5120], [3; 5120]]);
}

#[test]
fn a_partition_that_is_not_there_is_its_members_trouble_alone() {
    let members = [partition(1), partition(9), partition(2)];
    let (mut host, mut drivers) = hosted(Shape::default(), &members, None);
    let log = host.board.log.borrow().clone();
    assert_eq!(log, "partition 9 cannot be used: there is no such partition\n");
    host.member = 1;
    assert_eq!(host.read(drivers[1].config, 4), 0);
    for (member, status) in [(0, 0), (1, 1), (2, 0)] {
        for kind in [BlockRequest::OUT, BlockRequest::FLUSH] {
            let data: &[u8] = if kind == BlockRequest::OUT { &[5; 512] } else { &[] };
            ask(&mut host, &mut drivers[member], member, &request(kind, 0, data, 0));
            assert_eq!(drivers[member].finish(&mut host)[0].1.bytes, [status], "{member}: {kind}");
        }
    }
    nothing_else_is_written(&host);
}

#[test]
fn a_hostile_member_reaches_nothing_of_another() {
    let (mut host, mut drivers) = hosted(Shape::default(), &[partition(1), partition(2)], None);
    ask(&mut host, &mut drivers[1], 1, &request(BlockRequest::OUT, 0, &[8; 512], 0));
    drivers[1].finish(&mut host);
    let ends = [LENGTH as u64, LENGTH as u64 - 1, u64::MAX - 39, u64::MAX / 512, 1 << 55, FIRSTS[1] as u64];
    for sector in ends {
        for request in [
            request(BlockRequest::OUT, sector, &[6; 1024], 0),
            request(BlockRequest::IN, sector, &[], 1024),
            request(
                BlockRequest::WRITE_ZEROES,
                0,
                &BlockRange { sector, sectors: 2, flags: 0 }.to_bytes(),
                0,
            ),
            request(BlockRequest::DISCARD, 0, &BlockRange { sector, sectors: 2, flags: 0 }.to_bytes(), 0),
        ] {
            ask(&mut host, &mut drivers[0], 0, &request);
            assert_eq!(drivers[0].finish(&mut host)[0].1.bytes.last(), Some(&1), "{sector}");
        }
    }
    assert_eq!(sectors(&host, 1)[..512], [8; 512]);
    assert!(host.board.nvme.platter.discarded.borrow().is_empty());
    nothing_else_is_written(&host);
}

/// The same partition of several, who only read it.
#[test]
fn who_only_reads_may_have_what_others_have() {
    let read_only = Settings { partition: Some(2), read_only: true };
    let mut host = Host::several(Shape::default(), &[read_only; 8], None, |nvme| {
        write_table(&mut nvme.platter.bytes.borrow_mut());
        nvme.platter.bytes.borrow_mut()[FIRSTS[1] * 512..][..512].fill(4);
    });
    use super::works::FEW;
    use turnstile_virtio::config::Block;
    for member in 0..8 {
        host.member = member;
        let mut driver = driver(&mut host);
        assert!(driver.start(&mut host, FEW.difference(Block::FLUSH | Block::CONFIG_WCE)), "{member}");
        ask(&mut host, &mut driver, member, &request(BlockRequest::IN, 0, &[], 512));
        assert_eq!(driver.finish(&mut host)[0].1.bytes, [&[4; 512][..], &[0]].concat());
        ask(&mut host, &mut driver, member, &request(BlockRequest::OUT, 0, &[5; 512], 0));
        assert_eq!(driver.finish(&mut host)[0].1.bytes, [1]);
    }
    assert_eq!(sectors(&host, 1)[..512], [4; 512]);
}
