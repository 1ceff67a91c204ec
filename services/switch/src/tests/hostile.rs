// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one member does harms no other.

use turnstile_rig::Random;

use super::driver::{ACCEPTED, Driver, STATUS, packet, run};
use super::host::{ECAM, FIRMWARE, Host, VMS, pairs};

/// Both others exchange packets.
fn others_work(host: &mut Host, drivers: &mut [Driver], number: u32) {
    for (from, to) in [(1, 2), (2, 1)] {
        let sent = packet(from, Some(to), number, 200);
        assert!(drivers[from - 1].send(host, &sent));
        run(host, drivers);
        let got = std::mem::take(&mut drivers[to - 1].got);
        assert!(got.contains(&sent), "{number}: from {from} to {to}");
    }
}

/// A ring that breaks a rule is its own member's, whichever queue it is.
#[test]
fn a_broken_ring_needs_a_reset() {
    for number in 0..3 {
        let mut host = Host::new([(0, 0); VMS], None);
        let [mut bad, one, other] = Driver::all(&mut host);
        let mut others = [one, other];
        if number == 0 {
            assert!(bad.start(&mut host, ACCEPTED));
        }
        bad.queues[number].ring.offer(&host.board.rams[0], 0, 500, 1);
        bad.ring(&mut host, number);
        others_work(&mut host, &mut others, 1);
        // A receiver is found out by the first packet for it.
        assert!(others[0].send(&mut host, &packet(1, None, 2, 46)));
        run(&mut host, &mut others);
        assert_eq!(host.board.messages.borrow()[0].last(), Some(&0x50), "queue {number}");
        assert_eq!(host.read(0, STATUS, 1), 15 | 64);
        host.kill();
        assert_eq!(host.read(0, STATUS, 1), 15 | 64);
        others_work(&mut host, &mut others, 3);
        host.board.messages.borrow_mut()[0].clear();
        assert!(bad.start(&mut host, ACCEPTED));
        bad.refill(&mut host, 16);
        bad.got.clear();
        assert!(others[0].send(&mut host, &packet(1, None, 4, 46)));
        run(&mut host, &mut others);
        bad.interrupts(&mut host);
        assert_eq!(bad.got, [packet(1, None, 4, 46)]);
    }
}

/// Whatever is written anywhere: no event goes on for long, nothing panics, and the others' packets arrive.
#[test]
fn a_hostile_member_gets_nowhere() {
    for seed in 1..40_u64 {
        let random = &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Some have several pairs of queues.
        let more = if seed % 2 == 0 { pairs(4) } else { 0 };
        let several = if seed % 3 == 0 { pairs(2) } else { 0 };
        let mut host = Host::new([(more, 0), (0, 0), (several, 0)], None);
        let mut bad = match more {
            0 => Driver::running(&mut host, 0),
            _ => Driver::running_pairs(&mut host, 0, 4),
        };
        let mut others = [1, 2].map(|member| match member {
            2 if several != 0 => {
                let mut driver = Driver::running_pairs(&mut host, 2, 2);
                driver.command(&mut host, 4, 0, &[2, 0]);
                driver
            }
            _ => Driver::running(&mut host, member),
        });
        host.board.tick.set(50_000);
        for round in 0..150 {
            match random.below(8) {
                0 => host.write(0, ECAM + random.below(0x1100), 1 << random.below(4), random.any()),
                1 => host.write(0, FIRMWARE + random.below(0x40), 1 << random.below(4), random.any()),
                2 => host.write(0, FIRMWARE + random.below(0x6000), 1 << random.below(4), random.any()),
                3 => drop(host.read(0, FIRMWARE + random.below(0x6000), 1 << random.below(4))),
                4 => host.ring(random.any()),
                5 => drop(bad.send(&mut host, &packet(0, None, 9, 100))),
                _ => {
                    host.board.rams[0].disturb(random, if more == 0 { 0x2000 } else { 0x4_0000 });
                    host.ring(0xf);
                }
            }
            if random.below(20) == 0 {
                host.kill();
            }
            if round % 10 == 0 {
                others_work(&mut host, &mut others, round);
            }
        }
    }
}
