// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service is killed at any step and started anew: nobody loses anything.

use turnstile_rig::{Behind, Random, Shape};
use turnstile_service_rt::drive::Drive as Settings;

use super::host::{Host, SECTORS, driver};
use super::works::{FEATURES, any};

/// A life of a driver, in which the service is killed at one step. Returns whether it was.
fn killed_at(step: u64, is_direct: bool) -> bool {
    let random = &mut Random(0x6b69_6c6c);
    let mut disk = vec![0; (SECTORS * 512) as usize];
    let mut host = Host::build(Shape::default(), &[Settings::default()], (Some(step), is_direct), |nvme| {
        nvme.holds.set(true)
    });
    let mut driver = driver(&mut host);
    assert!(driver.start(&mut host, FEATURES), "step {step}");
    let mut expected = Vec::new();
    for place in 0..6 {
        let (request, answer) = any(random, place, &mut disk);
        assert!(driver.ask(&mut host, 0, &request));
        expected.push(answer);
    }
    for (_, reply) in driver.finish(&mut host) {
        assert!(reply.bytes == expected[reply.number], "step {step}, request {}", reply.number);
    }
    assert!(*host.board.nvme.platter.bytes.borrow() == disk, "step {step}");
    assert_eq!(host.board.nvme.face().strays.get(), 0, "step {step}");
    host.kills.deaths != 0
}

#[test]
fn killed_at_any_step_it_loses_nothing() {
    // Every seventh, so that all kinds of steps come in little time.
    for is_direct in [false, true] {
        let steps = (0..).step_by(7).take_while(|step| killed_at(*step, is_direct)).count();
        assert!(steps > 50, "it was killed at {steps} steps");
    }
}

#[test]
fn killed_again_and_again_it_loses_nothing() {
    [false, true].into_iter().for_each(killed_often);
}

fn killed_often(is_direct: bool) {
    let random = &mut Random(0x6167_6169);
    let mut disk = vec![0; (SECTORS * 512) as usize];
    let mut host = Host::build(Shape::default(), &[Settings::default()], (Some(900), is_direct), |nvme| {
        nvme.holds.set(true)
    });
    host.kills.most = Some(Random(5));
    let mut driver = driver(&mut host);
    assert!(driver.start(&mut host, FEATURES));
    for _ in 0..150 {
        let mut expected = Vec::new();
        let first = random.below(SECTORS / 8);
        for place in (0..10).map(|at| (first + 3 * at) % (SECTORS / 8)) {
            let (request, answer) = any(random, place, &mut disk);
            assert!(driver.ask(&mut host, 0, &request));
            expected.push(answer);
        }
        let begun = driver.asked[0] - expected.len();
        for (_, reply) in driver.finish(&mut host) {
            assert!(reply.bytes == expected[reply.number - begun], "{}", reply.number);
        }
    }
    assert!(*host.board.nvme.platter.bytes.borrow() == disk);
    assert!(host.kills.deaths > 20, "{} deaths", host.kills.deaths);
}
