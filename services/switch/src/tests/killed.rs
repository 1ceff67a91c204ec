// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service is killed at any step and started anew: it goes on, and no packet is damaged.

use super::driver::{Driver, packet, run};
use super::host::{Host, VMS, settings};

/// Lives of drivers, in which the service is killed at one step. Returns whether it was.
fn killed_at(step: u64) -> bool {
    let mut host = Host::new([(0, 0); VMS], Some(step));
    let mut drivers = Driver::all(&mut host);
    let packets = [(0, Some(1)), (1, Some(0)), (2, None), (1, Some(2)), (0, None)];
    for (number, (from, to)) in (0..).zip(packets) {
        assert!(drivers[from].send(&mut host, &packet(from, to, number, 300 * number as usize)));
    }
    drivers[0].command(&mut host, 0, 1, &[1]);
    run(&mut host, &mut drivers);
    assert_eq!(drivers[0].done, [true], "step {step}");
    for (member, driver) in drivers.iter_mut().enumerate() {
        assert!(
            driver.queues[1..].iter().all(|queue| queue.in_flight() == 0),
            "step {step}: an interrupt is lost"
        );
        for (number, (from, to)) in (0..).zip(packets) {
            let sent = packet(from, to, number, 300 * number as usize);
            let copies = driver.got.iter().filter(|got| **got == sent).count();
            let wanted = from != member && to.is_none_or(|to| to == member);
            assert!(copies <= 2 && (copies != 0 || !wanted), "step {step}: {number} came {copies} times");
        }
        let known = |got: &Vec<u8>| {
            (0..)
                .zip(packets)
                .any(|(number, (from, to))| *got == packet(from, to, number, 300 * number as usize))
        };
        assert!(driver.got.iter().all(known), "step {step}: damaged");
    }
    host.kills.deaths != 0
}

#[test]
fn killed_at_any_step_it_goes_on() {
    let mut step = 0;
    while killed_at(step) {
        // Each step of a write of registers is like those of others.
        step += if (500..16_800).contains(&step) { 29 } else { 1 };
    }
    assert!(step > 1000, "{step}");
}

/// A VM that starts anew while the service crashes has a device as after a reset.
#[test]
fn killed_when_a_member_starts_it_knows_nothing_of_before() {
    for step in 0.. {
        let mut host = Host::new([(0, 0); VMS], None);
        let mut drivers = Driver::all(&mut host);
        host.kills.left = Some(step);
        host.detach(1);
        host.attach(1, [settings(1, 0), 0]);
        host.kills.left = None;
        let is_last = host.kills.deaths == 0;
        host.kill();
        let before = host.board.rams[1].get(turnstile_rig::Ram::BASE, super::host::MEMORY);
        assert!(drivers[0].send(&mut host, &packet(0, None, 1, 46)));
        while host.alarm() {}
        assert!(host.board.rams[1].get(turnstile_rig::Ram::BASE, super::host::MEMORY) == before, "{step}");
        drivers[2].interrupts(&mut host);
        assert_eq!(drivers[2].got.len(), 1);
        if is_last {
            assert!(step > 10, "{step}");
            break;
        }
    }
}

/// Members run on other CPUs while the service begins anew: they find their devices all the time.
#[test]
fn killed_it_takes_no_device_away() {
    let mut host = Host::new([(0, 0); VMS], None);
    Driver::all(&mut host);
    let before = host.board.gone.get();
    host.kill();
    assert_eq!(host.board.gone.get(), before);
}
