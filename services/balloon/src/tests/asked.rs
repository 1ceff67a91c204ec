// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest is asked for, and what becomes of the pages that it gives and takes back.

use turnstile_rig::{BlockDriver, Computer, Ram, Random, Ring};
use turnstile_service_rt::{BLOCK, Event};
use turnstile_virtio::config::Balloon as Configuration;
use turnstile_virtio::features::Features;

use super::host::{ACCEPTED, Host, ask, host, probe, tell_again};
use super::reports::block;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Pages of a block.
const PAGES: u64 = BLOCK / PAGE;
/// The queues.
const INFLATE: u16 = 0;
const DEFLATE: u16 = 1;
const REPORT: u16 = 2;
/// The message of the configuration.
const CONFIGURED: u32 = 0x50;
/// Where the driver writes numbers of pages, for each queue.
const NUMBERS: u64 = Ram::BASE + 0x10_0000;

/// A guest whose driver gives pages and takes them back.
struct Guest {
    host: Host,
    driver: BlockDriver,
    /// How many requests there were on each queue.
    counts: [u16; 2],
}

impl Guest {
    fn new() -> Self {
        Self::with(ACCEPTED)
    }

    fn with(features: Features) -> Self {
        let mut host = host();
        let mut driver = probe(&mut host);
        driver.enable_messages(&mut host);
        assert!(driver.start(&mut host, features));
        let mut guest = Self { host, driver, counts: [0; 2] };
        while guest.wait() {}
        guest
    }

    /// Lets the hypervisor tell the service what it wants to hear. Returns whether there was anything.
    fn wait(&mut self) -> bool {
        tell_again(&mut self.host) || self.host.wait()
    }

    /// Names pages on a queue, and rings.
    fn name(&mut self, queue: u16, pages: impl IntoIterator<Item = u64>) {
        self.offer(queue, pages);
        self.ring(queue);
    }

    fn ring(&mut self, queue: u16) {
        self.host.write(self.driver.notify + 4 * u64::from(queue), 2, queue.into());
    }

    /// Reports a block, the first of all.
    fn offer_report(&self, block: u64) {
        let (ring, ram) = (&self.driver.queues[usize::from(REPORT)].ring, &self.host.board.ram);
        Ring::describe(ram, ring.layout.areas().descriptors, 0, (block, BLOCK as u32), 2, 0);
        ring.offer(ram, 0, 0, 1);
    }

    /// Names pages on a queue.
    fn offer(&mut self, queue: u16, pages: impl IntoIterator<Item = u64>) {
        let at = usize::from(queue);
        let (ring, ram) = (&self.driver.queues[at].ring, &self.host.board.ram);
        let bytes: Vec<u8> = pages.into_iter().flat_map(|page| (page as u32).to_le_bytes()).collect();
        let numbers = NUMBERS + 0x4000 * u64::from(queue);
        ram.put(numbers, &bytes);
        Ring::describe(ram, ring.layout.areas().descriptors, 0, (numbers, bytes.len() as u32), 0, 0);
        ring.offer(ram, self.counts[at], 0, self.counts[at] + 1);
        self.counts[at] += 1;
    }

    /// Says whether all requests on a queue are completed.
    fn is_done(&self, queue: u16) -> bool {
        let at = usize::from(queue);
        self.driver.queues[at].ring.used(&self.host.board.ram) == self.counts[at]
    }

    fn finish(&mut self, queue: u16) {
        while !self.is_done(queue) {
            assert!(self.wait(), "it looks again by itself");
        }
        while self.wait() {}
    }

    fn give(&mut self, pages: impl IntoIterator<Item = u64>) {
        self.name(INFLATE, pages);
        self.finish(INFLATE);
    }

    fn take_back(&mut self, pages: impl IntoIterator<Item = u64>) {
        self.name(DEFLATE, pages);
        self.finish(DEFLATE);
    }

    /// Which of the blocks 1 to 3 have gone.
    fn gone(&self) -> [bool; 3] {
        [1, 2, 3].map(|number| self.host.subject.pool.has(block(number)))
    }

    fn wanted(&mut self) -> u64 {
        self.host.read(self.driver.config, 4)
    }

    /// How often the driver was told that its configuration has changed.
    fn told(&self) -> usize {
        self.host.board.messages.take().into_iter().filter(|data| *data == CONFIGURED).count()
    }
}

/// The pages of a block.
fn pages(number: u64) -> std::ops::Range<u64> {
    block(number) / PAGE..block(number) / PAGE + PAGES
}

#[test]
fn a_guest_is_told_once_for_how_many_pages_it_is_asked() {
    let mut guest = Guest::new();
    assert_eq!((guest.wanted(), guest.told()), (0, 0), "nothing is asked");
    ask(&mut guest.host, 1024);
    assert_eq!((guest.wanted(), guest.told()), (1024, 1));
    ask(&mut guest.host, 1024);
    assert_eq!((guest.wanted(), guest.told()), (1024, 0));
    guest.host.kill();
    assert_eq!(guest.wanted(), 1024, "before anybody has told it again");
    while guest.wait() {}
    assert_eq!((guest.wanted(), guest.told()), (1024, 0));
    ask(&mut guest.host, u64::MAX);
    assert_eq!((guest.wanted(), guest.told()), (u32::MAX.into(), 1));
    ask(&mut guest.host, 0);
    assert_eq!((guest.wanted(), guest.told()), (0, 1));
}

#[test]
fn who_is_asked_before_it_has_a_driver_finds_that() {
    let mut host = host();
    ask(&mut host, 7);
    let mut driver = probe(&mut host);
    driver.enable_messages(&mut host);
    assert!(driver.start(&mut host, ACCEPTED));
    assert_eq!(host.read(driver.config, 4), 7);
    // What is kept is forgotten when it may be the reason of a crash.
    host.begin(false);
    let mut driver = probe(&mut host);
    assert!(driver.start(&mut host, ACCEPTED));
    assert_eq!(host.read(driver.config, 4), 0, "a new life is asked for nothing before it is told");
    assert!(tell_again(&mut host));
    assert_eq!(host.read(driver.config, 4), 7, "it is told again");
}

/// Linux writes the poison before it says that it is ready.
#[test]
fn who_is_asked_while_a_driver_begins_keeps_what_that_has_written() {
    let mut host = host();
    let driver = probe(&mut host);
    let (status, poison) = (driver.common + 0x14, driver.config + 12);
    for value in [0, 1, 3] {
        host.write(status, 1, value);
    }
    host.write(poison, 4, 0xaa);
    ask(&mut host, 7);
    assert_eq!((host.read(driver.config, 4), host.read(poison, 4)), (7, 0xaa));
    host.write(status, 1, 0);
    ask(&mut host, 8);
    assert_eq!((host.read(driver.config, 4), host.read(poison, 4)), (8, 0), "a reset ends that");
}

/// The service is killed at one step while its guest is asked. Returns whether it was.
fn asked_and_killed_at(step: u64) -> bool {
    let mut guest = Guest::new();
    guest.host.kills.left = Some(step);
    ask(&mut guest.host, 1024);
    while guest.wait() {}
    assert_eq!(guest.wanted(), 1024, "step {step}");
    assert!(guest.told() >= 1, "step {step}: nobody has told the driver");
    guest.host.kills.deaths != 0
}

#[test]
fn killed_at_any_step_it_tells_the_driver() {
    let mut step = 0;
    while asked_and_killed_at(step) {
        step += 1;
    }
    assert!(step > 3, "{step}");
}

#[test]
fn a_block_goes_when_all_of_its_pages_were_given() {
    let mut guest = Guest::new();
    let random = &mut Random(5);
    let mut all: Vec<u64> = pages(1).chain(pages(3)).collect();
    for index in (1..all.len()).rev() {
        all.swap(index, random.below(index as u64 + 1) as usize);
    }
    let mut left = [PAGES; 3];
    for some in all.chunks(100) {
        guest.give(some.iter().copied());
        some.iter().for_each(|page| left[((page * PAGE - block(1)) / BLOCK) as usize] -= 1);
        assert_eq!(guest.gone(), left.map(|left| left == 0));
    }
    assert_eq!(guest.gone(), [true, false, true]);
}

#[test]
fn a_block_stays_that_the_guest_uses_some_of() {
    let mut guest = Guest::new();
    let [first, last] = [pages(1).start, pages(1).end - 1];
    guest.give(first..last);
    guest.take_back([first + 7]);
    guest.give([last]);
    assert_eq!(guest.gone(), [false; 3]);
    guest.give([first + 7]);
    assert_eq!(guest.gone(), [true, false, false]);
    // It uses all of it, and gives the half of it again.
    guest.take_back(pages(1));
    guest.host.subject.pool.take_back();
    guest.give(first..first + PAGES / 2);
    assert_eq!(guest.gone(), [false; 3]);
    guest.give(first + PAGES / 2..=last);
    assert_eq!(guest.gone(), [true, false, false]);
}

/// A driver that takes a page back while its block is about to go may use it when that request is completed: the block goes before, also if it is
/// given again by a life that does not know of the page.
#[test]
fn what_is_taken_back_while_it_is_given_is_in_use_behind_both() {
    for is_killed in [false, true] {
        let mut guest = Guest::new();
        guest.host.subject.pool.delay(5);
        guest.name(INFLATE, pages(2));
        assert!(guest.wait() && !guest.is_done(INFLATE));
        guest.name(DEFLATE, [pages(2).start]);
        if is_killed {
            guest.host.kill();
        }
        while !guest.is_done(DEFLATE) {
            assert!(guest.wait(), "it looks again by itself");
        }
        assert!(guest.is_done(INFLATE), "the block may go behind that");
        guest.host.subject.pool.take_back();
        while guest.wait() {}
        guest.give(pages(2).skip(1));
        assert_eq!(guest.gone(), [false; 3]);
    }
}

/// Blocks stay as long as the vCPUs have had no turn: nobody asks again and again meanwhile, whatever else waits, and in whichever order.
#[test]
fn an_event_looks_once_at_each_kind_of_request_that_waits() {
    for rung in [[INFLATE, DEFLATE, REPORT], [REPORT, INFLATE, DEFLATE]] {
        let mut guest = Guest::new();
        guest.give([pages(1).start]);
        guest.host.subject.pool.delay(100);
        guest.offer(INFLATE, pages(2));
        guest.offer(DEFLATE, [pages(1).start]);
        guest.offer_report(block(3));
        for queue in rung {
            guest.ring(queue);
        }
        guest.host.subject.pool.asked();
        for _ in 0..10 {
            let since = guest.host.board.clock.get();
            assert!(guest.wait(), "it looks again by itself");
            assert_eq!(guest.host.subject.pool.asked(), 2, "once for what is given, once for the report");
            // The time is looked at between two queues.
            let times = (guest.host.board.clock.get() - since) / guest.host.board.tick.get();
            assert_eq!(times, 2, "each of the three queues has one turn");
        }
        guest.host.subject.pool.delay(0);
        guest.finish(DEFLATE);
        assert!(guest.is_done(INFLATE) && guest.gone()[1..] == [true; 2]);
    }
}

/// Whichever queue is next: others were in their turn before.
#[test]
fn what_is_given_and_taken_back_at_once_is_in_use_behind_both() {
    for delay in 0..40 {
        let mut guest = Guest::new();
        guest.host.subject.pool.delay(delay);
        guest.offer(INFLATE, pages(1));
        guest.offer_report(block(3));
        guest.host.event(Event::Doorbell { queues: 0b101, now: 0 });
        guest.finish(INFLATE);
        guest.host.subject.pool.delay(0);
        guest.offer(INFLATE, pages(2));
        guest.offer(DEFLATE, [pages(2).start]);
        guest.host.event(Event::Doorbell { queues: 0b11, now: 0 });
        guest.finish(DEFLATE);
        guest.host.subject.pool.take_back();
        guest.give(pages(2).skip(1));
        assert_eq!(guest.gone(), [false; 3], "{delay}");
    }
}

/// Its requests are forgotten with their queue.
#[test]
fn pages_are_taken_back_behind_a_reset_of_the_queue_that_was_giving() {
    let mut guest = Guest::with(ACCEPTED.union(Features::RING_RESET));
    guest.host.subject.pool.delay(100);
    guest.name(INFLATE, pages(2));
    assert!(guest.wait() && !guest.is_done(INFLATE));
    let common = guest.driver.common;
    guest.host.write(common + 0x16, 2, INFLATE.into());
    guest.host.write(common + 0x3a, 2, 1);
    guest.name(DEFLATE, [pages(2).start]);
    assert!(guest.is_done(DEFLATE), "it waits for nothing");
}

/// Nobody knows which of its pages are in use again.
#[test]
fn of_a_driver_that_does_not_tell_no_block_goes() {
    let mut guest = Guest::with(ACCEPTED.difference(Configuration::MUST_TELL_HOST));
    guest.give(pages(1));
    guest.give(pages(1).rev());
    assert_eq!(
        (guest.gone(), guest.host.subject.pool.asked()),
        ([false; 3], 2),
        "it asks for the end of a request alone"
    );
}

#[test]
fn a_driver_that_begins_anew_has_given_nothing() {
    let mut guest = Guest::new();
    let last = pages(1).end - 1;
    guest.give(pages(1).start..last);
    assert!(guest.driver.start(&mut guest.host, ACCEPTED));
    guest.counts = [0; 2];
    guest.give([last]);
    assert_eq!(guest.gone(), [false; 3]);
    guest.give(pages(1).start..last);
    assert_eq!(guest.gone(), [true, false, false]);
}

#[test]
fn a_service_that_begins_anew_knows_of_no_page() {
    let mut guest = Guest::new();
    let last = pages(1).end - 1;
    guest.give(pages(1).start..last);
    guest.host.kill();
    guest.give([last]);
    assert_eq!(guest.gone(), [false; 3], "what it does not know may be in use");
    guest.give(pages(1));
    assert_eq!(guest.gone(), [true, false, false]);
}

/// The service is killed at one step while a guest gives blocks, and uses some of them again. Returns whether it was.
fn gives_and_killed_at(step: u64) -> bool {
    let mut guest = Guest::new();
    let middle = pages(1).start + PAGES / 2;
    guest.host.subject.pool.delay(2);
    guest.host.kills.left = Some(step);
    guest.give(pages(1).start..middle);
    guest.give(middle..pages(1).end);
    guest.give(pages(3));
    assert!(!guest.gone()[1], "step {step}");
    // It uses a page of each, and gives others again: they stay.
    guest.take_back([middle, pages(3).start]);
    guest.host.subject.pool.take_back();
    guest.give([middle + 1, pages(3).start + 1]);
    guest.give(pages(2));
    assert!(!guest.gone()[0] && !guest.gone()[2], "step {step}: what is in use has gone");
    let dead = guest.host.kills.deaths != 0;
    // A block that was given in one request is known from that, whoever was killed.
    assert!(guest.gone()[1], "step {step}");
    dead
}

#[test]
fn killed_at_any_step_it_gives_nothing_that_is_in_use() {
    let mut step = 0;
    while gives_and_killed_at(step) {
        step += 1;
    }
    assert!(step > 30, "{step}");
}

/// Pages that are none of the VM's memory are nobody's; the pool of the test would fail.
#[test]
fn hostile_numbers_are_ignored() {
    let mut guest = Guest::new();
    let random = &mut Random(9);
    let end = (Ram::BASE + super::host::MEMORY as u64) / PAGE;
    for outside in [0..PAGES, end..end + PAGES, 0xffff_fe00..0x1_0000_0000] {
        guest.give(outside);
    }
    for _ in 0..50 {
        guest.give((0..200).map(|_| random.any() & 0xffff_ffff));
        guest.take_back((0..200).map(|_| random.any() & 0xffff_ffff));
    }
    assert_eq!(guest.gone(), [false; 3]);
}

/// What waits of a report is not what is taken back.
#[test]
fn a_report_goes_though_a_page_is_taken_back_meanwhile() {
    let mut guest = Guest::new();
    guest.give(pages(1));
    guest.host.subject.pool.delay(5);
    guest.offer_report(block(2));
    guest.ring(REPORT);
    guest.take_back([pages(1).start]);
    assert_eq!(guest.gone(), [true, true, false]);
}
