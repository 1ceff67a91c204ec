// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device behind MMIO, as drivers of version 2 find it (virtio 1.2, section 4.2).

use std::collections::HashSet;

use turnstile_rig::{Computer, Guest, OPTIONS, Ram, Reply};
use turnstile_service_rt::Event;

use super::host::{ACCEPTED, Host, REGISTERS, host_behind_mmio};
use super::requests::{ENOUGH, news, room};

const QUEUE_READY: u64 = 0x44;
const QUEUE_NOTIFY: u64 = 0x50;
const INTERRUPT_STATUS: u64 = 0x60;
const INTERRUPT_ACK: u64 = 0x64;
const STATUS: u64 = 0x70;
const QUEUE_RESET: u64 = 0xc0;

/// When a driver acknowledges an interrupt.
#[derive(Clone, Copy, Debug)]
enum Acknowledges {
    /// Before it looks at its queue, as Linux's.
    First,
    /// Behind that, as others.
    Last,
}

struct Driver {
    queue: Guest,
    acknowledges: Acknowledges,
}

fn read(host: &mut Host, at: u64) -> u64 {
    host.read(REGISTERS + at, 4)
}

fn write(host: &mut Host, at: u64, value: u64) {
    host.write(REGISTERS + at, 4, value);
}

impl Driver {
    /// Resets the device and makes it work.
    fn start(host: &mut Host, acknowledges: Acknowledges) -> Self {
        let identity = [0, 4, 8, 0xc].map(|at| read(host, at));
        assert_eq!(identity, [0x7472_6976, 2, 4, 0x1af4]);
        for status in [0, 1, 3] {
            write(host, STATUS, status);
        }
        for select in [0, 1] {
            write(host, 0x24, select);
            write(host, 0x20, ACCEPTED.word(select as u32).into());
        }
        write(host, STATUS, 11);
        assert_eq!(read(host, STATUS), 11);
        let queue = Guest::new(host.ram(), Ram::BASE, 16, OPTIONS, 0x4000);
        enable(host, &queue);
        write(host, STATUS, 15);
        Self { queue, acknowledges }
    }

    fn ask(&mut self, host: &mut Host, length: u32) {
        let (_, notify) = self.queue.ask(host.ram(), &room(length)).unwrap();
        if notify {
            write(host, QUEUE_NOTIFY, 0);
        }
    }

    /// Handles an interrupt, if there is one; it looks at its queue for a reason alone.
    fn interrupts(&mut self, host: &mut Host) -> Vec<Reply> {
        let mut replies = Vec::new();
        if host.messages().is_empty() {
            return replies;
        }
        let reasons = read(host, INTERRUPT_STATUS);
        if let Acknowledges::First = self.acknowledges {
            write(host, INTERRUPT_ACK, reasons);
        }
        if reasons & 1 != 0 {
            replies.extend(self.queue.take(host.ram()));
            while self.queue.arm(host.ram()) {
                replies.extend(self.queue.take(host.ram()));
            }
        }
        if let Acknowledges::Last = self.acknowledges {
            write(host, INTERRUPT_ACK, reasons);
        }
        replies
    }

    fn finish(&mut self, host: &mut Host) -> Vec<Reply> {
        let mut all = Vec::new();
        loop {
            all.extend(self.interrupts(host));
            if !host.wait() && host.board.messages.borrow().is_empty() {
                break;
            }
        }
        assert_eq!(self.queue.in_flight(), 0, "a request or an interrupt is lost");
        all
    }
}

fn enable(host: &mut Host, queue: &Guest) {
    let areas = queue.ring.layout.areas();
    write(host, 0x30, 0);
    assert_eq!(read(host, 0x34), 16);
    write(host, 0x38, 16);
    for (at, address) in [(0x80, areas.descriptors), (0x90, areas.driver), (0xa0, areas.device)] {
        write(host, at, address & 0xffff_ffff);
        write(host, at + 4, address >> 32);
    }
    write(host, QUEUE_READY, 1);
}

fn running() -> (Host, Driver) {
    let mut host = host_behind_mmio(ENOUGH, None);
    let driver = Driver::start(&mut host, Acknowledges::First);
    (host, driver)
}

#[test]
fn a_notification_is_a_doorbell_and_an_interrupt_an_edge() {
    let (mut host, mut driver) = running();
    driver.finish(&mut host);
    driver.ask(&mut host, 24);
    assert_eq!(host.subject.rung, 1);
    assert_eq!(host.board.messages.borrow().len(), 1);
    let replies = driver.finish(&mut host);
    assert_eq!((replies.len(), news(&mut HashSet::new(), &replies[0])), (1, 24));
    assert_eq!(read(&mut host, INTERRUPT_STATUS), 0, "it was acknowledged");
    assert!(host.board.decoded.borrow().iter().all(Option::is_none), "nothing moves");
}

/// A life of a driver, in which the service is killed at one step. Returns whether it was.
fn killed_at(step: u64, acknowledges: Acknowledges) -> bool {
    let mut host = host_behind_mmio(ENOUGH, Some(step));
    let mut driver = Driver::start(&mut host, acknowledges);
    let mut had = HashSet::new();
    let mut lengths = Vec::new();
    for length in [8, 256, 24, 0, 264] {
        driver.ask(&mut host, length);
        if length == 24 {
            lengths.extend(driver.interrupts(&mut host).iter().map(|reply| news(&mut had, reply)));
        }
    }
    lengths.extend(driver.finish(&mut host).iter().map(|reply| news(&mut had, reply)));
    assert_eq!(lengths, [8, 256, 24, 0, 256], "step {step}");
    host.kills.deaths != 0
}

#[test]
fn killed_at_any_step_it_loses_no_request_and_no_interrupt() {
    for acknowledges in [Acknowledges::First, Acknowledges::Last] {
        let mut step = 0;
        while killed_at(step, acknowledges) {
            step += 1;
        }
        assert!(step > 300, "{acknowledges:?}: {step}");
    }
}

/// The edge was sent, and the service is killed before the driver asks for the reason. Nothing else of that life interrupts again.
#[test]
fn an_interrupt_of_before_a_kill_has_a_reason() {
    let (mut host, mut driver) = running();
    driver.finish(&mut host);
    driver.ask(&mut host, 24);
    assert_eq!(host.messages().len(), 1);
    host.kill();
    assert_eq!(read(&mut host, INTERRUPT_STATUS), 1);
}

#[test]
fn a_queue_that_is_reset_is_the_drivers_again() {
    for (register, value) in [(QUEUE_READY, 0), (QUEUE_RESET, 1)] {
        let (mut host, mut driver) = running();
        driver.finish(&mut host);
        write(&mut host, register, value);
        assert_eq!((read(&mut host, QUEUE_READY), read(&mut host, QUEUE_RESET)), (0, 0));
        driver.queue.ask(host.ram(), &room(8)).unwrap();
        host.event(Event::Doorbell { queues: 1, now: 0 });
        host.kill();
        assert_eq!(host.subject.counter.drawn.get(), 0, "nobody looks there");
        driver.queue = Guest::new(host.ram(), Ram::BASE, 16, OPTIONS, 0x4000);
        enable(&mut host, &driver.queue);
        driver.ask(&mut host, 8);
        assert_eq!(driver.finish(&mut host).len(), 1);
    }
}

#[test]
fn what_a_hostile_driver_writes_does_no_harm() {
    let (mut host, mut driver) = running();
    driver.finish(&mut host);
    for number in [1, 31, 32, 0xffff, 0x1_0000, 0xffff_ffff] {
        write(&mut host, QUEUE_NOTIFY, number);
    }
    for (offset, size) in [(0x71, 4), (0x70, 1), (0x70, 8), (0x6e, 4), (0x1fc, 8), (0x1ff, 1), (0x100, 4)] {
        host.write(REGISTERS + offset, size, 0);
        host.read(REGISTERS + offset, size);
    }
    for queue in [1, 0xffff, 0x1_0000] {
        write(&mut host, 0x30, queue);
        write(&mut host, QUEUE_READY, 0);
        write(&mut host, QUEUE_RESET, 1);
        assert_eq!(read(&mut host, 0x34), 0);
    }
    driver.ask(&mut host, 16);
    assert_eq!(driver.finish(&mut host).len(), 1, "it works as before");
    // Rings where there is no memory: the device needs a reset, and says so once.
    write(&mut host, STATUS, 0);
    let mut broken = Driver::start(&mut host, Acknowledges::First);
    broken.finish(&mut host);
    write(&mut host, 0x30, 0);
    write(&mut host, QUEUE_READY, 0);
    write(&mut host, 0x84, 0xffff);
    write(&mut host, QUEUE_READY, 1);
    assert_eq!((read(&mut host, STATUS), read(&mut host, INTERRUPT_STATUS)), (0x4f, 2));
    assert_eq!(host.messages().len(), 1);
    host.kill();
    assert_eq!((read(&mut host, STATUS), read(&mut host, INTERRUPT_STATUS)), (0x4f, 2), "over a kill, too");
}
