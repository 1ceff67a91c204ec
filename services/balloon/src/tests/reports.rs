// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest reports, and what becomes of it.

use turnstile_rig::{BlockDriver, Computer, ECAM, Ram, Random, Ring};
use turnstile_service_rt::{Answer, Attach, BLOCK, Event, ROOM, Service};

use super::host::{ACCEPTED, Host, host, probe};
use crate::Function;

/// The queue of reports.
const REPORTS: usize = 2;
/// Its interrupt.
const VECTOR: u32 = 0x53;

/// Returns the address of a block, none of which but the first has queues.
pub(super) fn block(number: u64) -> u64 {
    Ram::BASE + number * BLOCK
}

/// A driver that works, and has reported nothing.
fn running() -> (Host, BlockDriver) {
    let mut host = host();
    let mut driver = probe(&mut host);
    driver.enable_messages(&mut host);
    assert!(driver.start(&mut host, ACCEPTED));
    (host, driver)
}

/// Offers the `number`th report: ranges that are free; and rings.
fn offer(host: &mut Host, driver: &BlockDriver, number: u16, ranges: &[(u64, u32)]) {
    let (ring, ram) = (&driver.queues[REPORTS].ring, &host.board.ram);
    for (index, range) in (0..).zip(ranges) {
        let (flags, next) = if usize::from(index) + 1 < ranges.len() { (3, index + 1) } else { (2, 0) };
        Ring::describe(ram, ring.layout.areas().descriptors, index.into(), *range, flags, next);
    }
    ring.offer(ram, number - 1, 0, number);
    host.write(driver.notify + 4 * REPORTS as u64, 2, REPORTS as u64);
}

fn completed(host: &Host, driver: &BlockDriver) -> u16 {
    driver.queues[REPORTS].ring.used(&host.board.ram)
}

/// Reports, and waits for the end. Returns how many turns the guest had.
fn report(host: &mut Host, driver: &BlockDriver, number: u16, ranges: &[(u64, u32)]) -> u32 {
    host.board.messages.take();
    offer(host, driver, number, ranges);
    let mut turns = 0;
    while completed(host, driver) != number {
        assert!(host.wait(), "it looks again by itself");
        turns += 1;
    }
    while host.wait() {}
    assert!(host.board.messages.take().contains(&VECTOR), "an interrupt is lost");
    turns
}

#[test]
fn a_guest_gives_back_what_it_reports() {
    let (mut host, driver) = running();
    assert_eq!(host.read(ECAM, 4), 0x1045_1af4);
    assert_eq!(host.read(driver.config, 4), 0, "it asks for no pages");
    report(&mut host, &driver, 1, &[(block(1), BLOCK as u32), (block(3), BLOCK as u32)]);
    assert_eq!([0, 1, 2, 3].map(|number| host.subject.pool.has(block(number))), [false, true, false, true]);
    report(&mut host, &driver, 2, &[(block(1), 3 * BLOCK as u32)]);
    assert_eq!(host.subject.pool.count(), 3);
}

#[test]
fn what_else_is_in_a_block_stays() {
    let (mut host, driver) = running();
    for (number, range) in [
        (1, (block(1), BLOCK as u32 - 0x1000)),
        (2, (block(1) + 0x1000, BLOCK as u32)),
        (3, (block(1) - 0x1000, 0x2000)),
        (4, (block(1) + 1, BLOCK as u32)),
    ] {
        report(&mut host, &driver, number, &[range]);
        assert_eq!(host.subject.pool.count(), 0, "{range:x?}");
    }
    report(&mut host, &driver, 5, &[(block(1) - 0x1000, 2 * BLOCK as u32)]);
    assert!(host.subject.pool.has(block(1)) && host.subject.pool.count() == 1);
}

#[test]
fn a_report_waits_until_nobody_reaches_its_blocks() {
    let (mut host, driver) = running();
    host.subject.pool.delay(100);
    offer(&mut host, &driver, 1, &[(block(1), BLOCK as u32)]);
    let mut turns = 0;
    while completed(&host, &driver) == 0 {
        assert!(!host.subject.pool.has(block(1)));
        // A life that begins does not know whether the one before owed an interrupt.
        assert!(turns > 2 || host.board.messages.borrow().is_empty());
        // The first events of lives give the block.
        let most = [2, 1, 1, 2].get(turns).copied().unwrap_or(1);
        assert_eq!(host.subject.pool.asked(), most, "nobody asks twice before the vCPUs have had a turn");
        if turns == 2 {
            host.kill();
        }
        assert!(host.wait(), "it looks again by itself");
        turns += 1;
    }
    assert!(host.subject.pool.has(block(1)) && turns > 5);
    assert!(host.board.messages.take().contains(&VECTOR));
    while host.wait() {}
    host.subject.pool.asked();
    host.event(Event::Alarm(0));
    assert_eq!(host.subject.pool.asked(), 0, "nobody looks where nothing is reported");
}

#[test]
fn what_was_reported_before_a_reset_is_in_use_again() {
    for is_killed in [false, true] {
        let (mut host, mut driver) = running();
        host.subject.pool.delay(100);
        offer(&mut host, &driver, 1, &[(block(1), BLOCK as u32), (block(2), BLOCK as u32)]);
        assert!(host.wait() && completed(&host, &driver) == 0);
        if is_killed {
            host.kill();
        }
        assert!(driver.start(&mut host, ACCEPTED));
        host.subject.pool.delay(0);
        report(&mut host, &driver, 1, &[(block(3), BLOCK as u32)]);
        assert_eq!([1, 2, 3].map(|number| host.subject.pool.has(block(number))), [false, false, true]);
    }
}

/// The service is killed at one step of a reset behind a report that was not completed. Returns whether it was.
fn killed_at_a_reset(step: u64) -> bool {
    let (mut host, mut driver) = running();
    host.subject.pool.delay(100);
    offer(&mut host, &driver, 1, &[(block(1), BLOCK as u32)]);
    host.kills.left = Some(step);
    assert!(driver.start(&mut host, ACCEPTED));
    host.subject.pool.delay(0);
    report(&mut host, &driver, 1, &[(block(3), BLOCK as u32)]);
    assert_eq!([1, 3].map(|number| host.subject.pool.has(block(number))), [false, true], "step {step}");
    host.kills.deaths != 0
}

#[test]
fn killed_at_any_step_of_a_reset_it_takes_nothing_that_is_in_use_again() {
    let mut step = 0;
    while killed_at_a_reset(step) {
        step += 1;
    }
    assert!(step > 20, "{step}");
}

/// Two reports, and the service is killed at one step. Returns whether it was.
fn killed_at(step: u64) -> bool {
    let (mut host, driver) = running();
    host.kills.left = Some(step);
    host.subject.pool.delay(3);
    for (number, blocks) in [(1, [1, 2]), (2, [2, 3])] {
        let ranges = blocks.map(|number| (block(number), BLOCK as u32));
        report(&mut host, &driver, number, &ranges);
        assert!(
            blocks.iter().all(|number| host.subject.pool.has(block(*number))),
            "step {step}: completed too early"
        );
        assert_eq!(host.subject.pool.count(), 2, "step {step}: what is in use again stays");
        host.subject.pool.take_back();
    }
    host.kills.deaths != 0
}

#[test]
fn killed_at_any_step_it_completes_no_report_too_early() {
    let mut step = 0;
    while killed_at(step) {
        step += 1;
    }
    assert!(step > 30, "{step}");
}

#[test]
fn pages_that_must_keep_their_poison_stay_over_a_kill_too() {
    let (mut host, driver) = running();
    host.write(driver.config + 12, 4, 0xaa);
    report(&mut host, &driver, 1, &[(block(1), BLOCK as u32)]);
    host.kill();
    assert_eq!(host.read(driver.config + 12, 4), 0xaa);
    report(&mut host, &driver, 2, &[(block(1), BLOCK as u32)]);
    assert_eq!(host.subject.pool.count(), 0);
    host.write(driver.config + 12, 4, 0);
    report(&mut host, &driver, 3, &[(block(1), BLOCK as u32)]);
    assert_eq!(host.subject.pool.count(), 1);
}

/// Whatever a driver reports, nothing but its VM's memory is given: the pool of the test would fail.
#[test]
fn hostile_ranges_are_told_that_the_device_needs_a_reset() {
    for range in
        [(0, 0x40_0000), (Ram::BASE - BLOCK, BLOCK as u32), (block(3), 2 * BLOCK as u32), (!0, 0x40_0000)]
    {
        let (mut host, mut driver) = running();
        offer(&mut host, &driver, 1, &[(block(1), BLOCK as u32), range]);
        assert_eq!(host.read(driver.common + 0x14, 1), 15 | 64, "{range:x?}");
        assert!(driver.start(&mut host, ACCEPTED), "which mends it");
        host.board.messages.take();
        report(&mut host, &driver, 1, &[(block(2), BLOCK as u32)]);
    }
}

#[test]
fn a_restless_driver_has_turns_and_gives_its_own_memory_alone() {
    for seed in 1..40 {
        let (mut host, driver) = running();
        let random = &mut Random(seed);
        for number in 1..30 {
            let at = Ram::BASE + random.below(0x100_0000);
            offer(
                &mut host,
                &driver,
                number,
                &[(at, random.below(0x80_0000) as u32), (block(1), BLOCK as u32)],
            );
            host.board.ram.disturb(random, 0x3000);
            host.subject.pool.delay(random.below(5));
            host.event(Event::Alarm(0));
            if random.below(10) == 0 {
                host.kill();
            }
            // An event has 16 slices of 32 ranges.
            assert!(host.subject.pool.asked() <= 2 * 16 * 33);
        }
    }
}

/// The program itself, where no hypervisor is.
#[test]
fn the_program_is_a_balloon() {
    let mut function = Function::NEW;
    assert_eq!(function.attach(Attach::default()), Answer { lines: ROOM, ..Answer::default() });
    let mut read = |device, offset, size| function.event(Event::Read { device, offset, size }).value;
    assert_eq!((read(0, 0, 4), read(0, 0x1_0000, 4)), (0x1045_1af4, 0xffff_ffff));
}
