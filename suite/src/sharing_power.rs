// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What [`super::sharing`] demands, on POWER. Its timebase is the machine's, and does not begin with a VM: what is measured
//! between two moments waits until every VM is there.

use turnstile::isa::Isa;
use turnstile_link::StopReason;

use super::scenario::{Scenario, Step};
use super::shares::{all_to_the_first, equal, near, one_to_three, shared, shares};
use super::sharing::{
    attacked, beacon, beacon_beside_touches, crash_restart, linux_on_few, restarts, selftest, silent,
    stolen_time, stop_what_waits, two_selftests,
};

/// The moments between which VMs say what they got.
const WINDOW: &str = "cmdline = \"from=1000000 until=1300000\"";

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let two = |name: &str, one: &str, other: &str, judge| {
        let [one, other] = [one, other].map(|class| format!("{class}\n{WINDOW}"));
        shares(name, &[("1", "[0]", &one), ("1", "[0]", &other)], judge).on_power()
    };
    vec![
        two("equal", "", "", equal),
        two("weights", "weight = 100", "weight = 300", one_to_three),
        two("priority", "realtime = 2", "realtime = 1", all_to_the_first),
        three_on_two(),
        selftest(4).on_power(),
        two_selftests("").on_power(),
        beacon("fair", "", "count=15 limit=8000").on_power(),
        beacon("realtime", "realtime = 1", "count=15 limit=200").on_power(),
        beacon_beside_touches(Isa::Power64),
        stop_what_waits().on_power(),
        linux_on_few().on_power(),
        leaping(crash_restart("give-up").on_power()),
        stolen_time(None).on_power(),
        silent(Isa::Power64),
        told(),
        hostile(),
        restart(),
    ]
}

/// The same where the emulator's counted time leaps (CAVEATS.md): a tick may be late by a leap or two.
fn leaping(mut scenario: Scenario) -> Scenario {
    scenario.config = scenario.config.replace("limit=50000", "limit=200000");
    scenario
}

/// Three vCPUs that never wait, on two CPUs: each gets two thirds of one. Not counted, as elsewhere.
fn three_on_two() -> Scenario {
    let more = "vcpus = 3\ncmdline = \"relative from=2000000 until=5000000\"";
    let config = shared("share", "share", "16MiB", "[0, 1]", more);
    let steps = vec![Step::Stopped(0, StopReason::PowerOff)];
    Scenario::power("sharing/three-on-two", config, steps).judge(|record| near(record, 80, |_| 1))
}

/// What two guests are told of their turns is what they miss: the area's counter, and the log of dispatches.
fn told() -> Scenario {
    let class = format!("{} told\"", WINDOW.trim_end_matches('"'));
    let vms = [("1", "[0]", class.as_str()), ("1", "[0]", class.as_str())];
    shares("told", &vms, |record| match (0..2).all(|vm| record.console(vm).contains("@told stolen=")) {
        true => equal(record),
        false => Err("a guest was told nothing".to_owned()),
    })
    .on_power()
}

/// Attacks on what the hypervisor does for a vCPU that shares its CPU. Not counted, as elsewhere.
fn hostile() -> Scenario {
    let attacks =
        "hypercalls-random,areas,areas-moving,doorbells,specials-write,xive-pages,xive-presentation";
    attacked(Isa::Power64, "128MiB", &format!("attack={attacks} stride=5")).limit(600)
}

/// A VM resets itself on the CPU of one that never waits.
fn restart() -> Scenario {
    let config = shared("restart", "restart", "16MiB", "[0]", "")
        + &shared("other", "crash", "16MiB", "[0]", "cmdline = \"how=spin\"");
    restarts(Isa::Power64, config)
}
