// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A controller that reaches the VM's memory.

use turnstile_rig::{Behind, BlockDriver, Computer, Random, Request, Shape, request};
use turnstile_service_rt::drive::Drive as Settings;
use turnstile_virtio::config::BlockRequest;
use turnstile_virtio::features::Features;

use super::host::{Host, SECTORS, driver};
use super::works::{FEATURES, any, once};

/// A host whose driver works.
fn running() -> (Host, BlockDriver) {
    let mut host = Host::direct(Shape::default(), Settings::default(), |nvme| nvme.holds.set(true));
    let mut driver = driver(&mut host);
    assert!(driver.start(&mut host, FEATURES));
    (host, driver)
}

/// Says whether bytes of a guest are in the memory that program and controller share.
fn is_copied(host: &Host, bytes: &[u8]) -> bool {
    host.shared().windows(bytes.len()).any(|there| there == bytes)
}

#[test]
fn no_byte_is_copied() {
    let (mut host, mut driver) = running();
    let bytes: Vec<u8> = (0..8192u32).map(|at| (at / 7) as u8).collect();
    assert_eq!(once(&mut host, &mut driver, BlockRequest::OUT, 3, &bytes, 0), [0]);
    assert_eq!(host.board.nvme.platter.bytes.borrow()[3 * 512..][..8192], bytes);
    let read = once(&mut host, &mut driver, BlockRequest::IN, 3, &[], 8192);
    assert!(read == [&bytes[..], &[0]].concat());
    assert!(!is_copied(&host, &bytes[..64]));
    assert_eq!(host.board.nvme.face().strays.get(), 0);
}

/// More than a command has, and buffers that lie as no list of pages has them.
#[test]
fn buffers_of_any_kind_are_served() {
    // Up to 16 KiB, which one command has, or two pages.
    [5, 1].into_iter().for_each(|most| serve_buffers(Shape { most, ..Shape::default() }));
}

fn serve_buffers(shape: Shape) {
    let random = &mut Random(0x6469_7265);
    let mut host = Host::direct(shape, Settings::default(), |nvme| nvme.holds.set(true));
    let mut driver = driver(&mut host);
    assert!(driver.start(&mut host, FEATURES));
    let mut disk: Vec<u8> = (0..SECTORS * 512).map(|_| random.any() as u8).collect();
    host.board.nvme.platter.bytes.borrow_mut().clone_from(&disk);
    for _ in 0..200 {
        let bytes = 512 * (1 + random.below(30)) as u32;
        let sector = random.below(SECTORS - u64::from(bytes / 512));
        let place = &mut disk[sector as usize * 512..][..bytes as usize];
        let mut cuts = Vec::new();
        let mut left = bytes;
        while left != 0 {
            let most = [3, 512, 4096, 70_000][random.below(4) as usize];
            // A request has 128 buffers at most.
            let cut = if cuts.len() > 100 { left } else { (1 + random.below(most) as u32).min(left) };
            cuts.push(cut);
            left -= cut;
        }
        let expected = if random.below(2) == 0 {
            random_fill(random, place);
            let readable = [&BlockRequest { kind: BlockRequest::OUT, sector }.to_bytes()[..], place].concat();
            cuts.insert(0, 16);
            let ask = Request { readable, readable_cuts: cuts, writable: vec![1], indirect: true };
            assert!(driver.ask(&mut host, 0, &ask));
            vec![0]
        } else {
            let mut ask = request(BlockRequest::IN, sector, &[], bytes);
            ask.writable = [&cuts[..], &[1]].concat();
            assert!(driver.ask(&mut host, 0, &ask));
            [&place[..], &[0]].concat()
        };
        let replies = driver.finish(&mut host);
        assert!(replies.len() == 1 && replies[0].1.bytes == expected);
    }
    assert!(*host.board.nvme.platter.bytes.borrow() == disk);
    assert_eq!(host.board.nvme.face().strays.get(), 0);
}

fn random_fill(random: &mut Random, bytes: &mut [u8]) {
    bytes.fill_with(|| random.any() as u8);
}

/// The driver's buffers are its own again when the status reads zero, and not before.
#[test]
fn a_reset_of_the_device_ends_behind_the_controllers_commands() {
    let (mut host, mut driver) = running();
    host.board.nvme.platter.bytes.borrow_mut().fill(0x77);
    for sector in 0..4 {
        assert!(driver.ask(&mut host, 0, &request(BlockRequest::IN, sector, &[], 512)));
    }
    let before = host.memory();
    host.write(driver.common + 0x14, 1, 0);
    assert_ne!(host.read(driver.common + 0x14, 1), 0, "the controller may write to buffers");
    assert!(host.memory() == before, "it has done nothing yet");
    host.work();
    host.interrupt();
    assert_eq!(host.read(driver.common + 0x14, 1), 0);
    let after = host.memory();
    assert!(after != before, "now it has");
    host.messages();
    assert!(driver.start(&mut host, FEATURES));
    assert_eq!(once(&mut host, &mut driver, BlockRequest::IN, 0, &[], 512)[..512], [0x77; 512]);
}

/// A controller that does not finish: the reset of the virtio device ends with the controller's.
#[test]
fn a_reset_of_the_device_is_bounded() {
    let (mut host, mut driver) = running();
    assert!(driver.ask(&mut host, 0, &request(BlockRequest::IN, 0, &[], 512)));
    host.write(driver.common + 0x14, 1, 0);
    let before = host.board.clock.get();
    while host.read(driver.common + 0x14, 1) != 0 {
        assert!(host.alarm(), "somebody looks");
    }
    assert!(host.board.clock.get() - before < 15_000_000_000, "{}", host.board.clock.get() - before);
    let memory = host.memory();
    host.work();
    assert!(host.memory() == memory, "the controller was reset");
    host.messages();
    let mut again = super::host::driver(&mut host);
    assert!(again.start(&mut host, FEATURES));
    assert_eq!(once(&mut host, &mut again, BlockRequest::IN, 0, &[], 512)[512], 0);
    driver.asked.clear();
}

/// A driver that breaks a rule while commands are under way, and then resets its device.
#[test]
fn a_reset_behind_a_broken_rule_waits_too() {
    let (mut host, mut driver) = running();
    assert!(driver.ask(&mut host, 0, &request(BlockRequest::IN, 0, &[], 512)));
    // No room for a status.
    let mut broken = request(BlockRequest::IN, 0, &[], 0);
    broken.writable.clear();
    assert!(driver.ask(&mut host, 0, &broken));
    assert_ne!(host.read(driver.common + 0x14, 1) & 64, 0, "it needs a reset");
    host.write(driver.common + 0x14, 1, 0);
    assert_ne!(host.read(driver.common + 0x14, 1), 0);
    host.work();
    host.interrupt();
    assert_eq!(host.read(driver.common + 0x14, 1), 0);
}

/// A guest resets its device while the controller, which has done nothing for long, is being reset: that has to end first.
#[test]
fn a_reset_is_not_over_while_the_controller_begins_anew() {
    let (mut host, mut driver) = running();
    assert!(driver.ask(&mut host, 0, &request(BlockRequest::IN, 0, &[], 512)));
    host.board.nvme.slowness.set(u32::MAX);
    while !host.board.log.borrow().contains("has not done") {
        assert!(host.alarm());
    }
    host.write(driver.common + 0x14, 1, 0);
    assert_ne!(host.read(driver.common + 0x14, 1), 0);
    host.board.nvme.slowness.set(0);
    while host.alarm() {}
    assert_eq!(host.read(driver.common + 0x14, 1), 0);
}

/// A reset of a queue alone would not wait for the controller.
#[test]
fn a_queue_is_not_reset_by_itself() {
    let mut host = Host::direct(Shape::default(), Settings::default(), |_| {});
    let mut driver = driver(&mut host);
    assert!(!driver.start(&mut host, FEATURES.union(Features::RING_RESET)));
    assert!(driver.start(&mut host, FEATURES));
}

/// No failure is reported while the controller may write to the guest's buffers: its reset ends first.
#[test]
fn requests_fail_behind_the_end_of_the_controllers_reset() {
    let (mut host, mut driver) = running();
    assert!(driver.ask(&mut host, 0, &request(BlockRequest::IN, 0, &[], 512)));
    let mut failed = Vec::new();
    // It takes commands and does none. The last reset takes its time.
    while host.board.log.borrow().matches("has not done").count() < 4 && host.alarm() {
        failed.extend(driver.interrupts(&mut host));
        if host.board.log.borrow().matches("has not done").count() == 3 {
            host.board.nvme.slowness.set(if host.board.nvme.runs() { 2000 } else { 0 });
        }
    }
    assert!(failed.is_empty());
    while host.alarm() {
        failed.extend(driver.interrupts(&mut host));
        let is_reset = !host.board.nvme.runs();
        assert!(is_reset || failed.is_empty());
    }
    assert!(failed.len() == 1 && failed[0].1.bytes[512] == 1);
}

/// One that does not end its reset is kept from memory by the hypervisor first.
#[test]
fn a_controller_that_does_not_end_its_reset_is_cut_off_before_requests_fail() {
    let (mut host, mut driver) = running();
    assert!(driver.ask(&mut host, 0, &request(BlockRequest::IN, 0, &[], 512)));
    let mut failed = Vec::new();
    while host.alarm() {
        failed.extend(driver.interrupts(&mut host));
        if host.board.log.borrow().matches("has not done").count() == 3 && host.board.nvme.runs() {
            host.board.nvme.slowness.set(u32::MAX);
        }
        assert!(host.is_cut_off || failed.is_empty());
    }
    assert!(host.is_cut_off, "{}", host.board.log.borrow());
    assert!(failed.len() == 1 && failed[0].1.bytes[512] == 1);
    assert_eq!(once(&mut host, &mut driver, BlockRequest::IN, 0, &[], 512)[512], 1);
}

/// The same, if it interrupts all the time.
#[test]
fn a_controller_that_interrupts_meanwhile_is_cut_off_too() {
    let (mut host, mut driver) = running();
    assert!(driver.ask(&mut host, 0, &request(BlockRequest::IN, 0, &[], 512)));
    let begun = host.board.clock.get();
    while !host.is_cut_off && host.alarm() {
        let count = host.board.log.borrow().matches("has not done").count();
        if count == 3 && host.board.nvme.runs() {
            host.board.nvme.slowness.set(u32::MAX);
        } else if count == 4 {
            host.stray();
        }
        assert!(host.board.clock.get() - begun < 120_000_000_000, "{}", host.board.log.borrow());
    }
    assert!(host.is_cut_off, "{}", host.board.log.borrow());
}

/// Descriptors that name what is not the guest's memory are none: neither where the controller reaches that, nor where its own memory is.
#[test]
fn addresses_of_the_controller_are_no_memory() {
    for address in [super::host::LENT, super::host::LENT + 0x1000, u64::MAX - 511, 0] {
        let (mut host, mut driver) = running();
        let queue = &mut driver.queues[0];
        assert!(queue.ask(host.ram(), &request(BlockRequest::IN, 0, &[], 512)).is_some());
        // The first table is behind the queue. Its second buffer is that of the data.
        host.ram().put(queue.ring.end + 16, &u64::to_le_bytes(address));
        host.write(driver.notify, 2, 0);
        assert_ne!(host.read(driver.common + 0x14, 1) & 64, 0, "{address:#x}: it needs a reset");
        let memory = host.memory();
        host.work();
        assert!(host.memory() == memory);
    }
}

/// The guest's memory is the controller's to write while nothing was reported, and not behind that.
#[test]
fn what_was_reported_is_not_written_again() {
    let random = &mut Random(0x7265_706f);
    let mut disk = vec![0; (SECTORS * 512) as usize];
    let (mut host, mut driver) = running();
    for round in 0..40 {
        for place in 0..10 {
            assert!(driver.ask(&mut host, 0, &any(random, place, &mut disk).0));
        }
        if round % 3 == 0 {
            host.wait();
            host.kill();
        }
        driver.finish(&mut host);
        let memory = host.memory();
        host.work();
        assert!(host.memory() == memory, "round {round}");
    }
    assert!(*host.board.nvme.platter.bytes.borrow() == disk);
}
