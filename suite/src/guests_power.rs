// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a partition may rely on (`selftest`, `pressure`), what no other VM notices or leaves behind, and what a hostile one
//! cannot do to others.

use turnstile::isa::Isa;

use super::flood;
use super::hostile::{self, found_nothing};
use super::programs;
use super::scenario::{Scenario, Step, guest};
use super::victims::Victims;

/// The architecture of this topic.
const ISA: Isa = Isa::Power64;
/// The memory of guests that test themselves, or look at their registers.
const TESTED: &str = "64MiB";
/// The memory of hostile ones.
const HOSTILE: &str = "128MiB";
/// What the victims of this architecture have of their own.
const VICTIMS: Victims = Victims {
    isa: ISA,
    memory: "64MiB",
    beside: "64MiB",
    resetting: "16MiB",
    crash: "give-up",
    counts: "",
    report: None,
    beacons: "count=40 limit=50000",
};
/// Attacks after which the guest spins, faults or waits for ever.
const FOR_EVER: [&str; 5] = ["translated-nowhere", "other-order", "timer-storm", "spin", "halt"];
/// Attacks that leave the guest able to go on, in groups that take about as long.
const GROUPS: [(&str, &str); 4] = [
    ("calls", "hypercalls,hypercalls-random,system-calls,rtas,rtas-blocks,areas,areas-moving,process-tables"),
    (
        "registers",
        "specials-read,specials-write,machine-state,modes,invalidations,doorbells,doorbells-core,stop",
    ),
    ("pages", "xive-pages,xive-presentation,xive-calls,xive-storm,memory-outside"),
    ("instructions", "instructions,instructions-device"),
];

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (interrupts, threads) in [("xive", 2), ("xics", 4)] {
        let controller = format!("interrupts = \"{interrupts}\"");
        for vcpus in [1, 4] {
            let threads = threads.min(vcpus);
            let (which, more) = (
                format!("{interrupts}-{vcpus}"),
                format!("vcpus = {vcpus}\nthreads = {threads}\n{controller}"),
            );
            scenarios.push(programs::selftest(ISA, &which, TESTED, &more).limit(300));
            let more = format!("{more}\ncmdline = \"count=20000\"");
            scenarios.push(programs::pressure(ISA, &which, TESTED, &more).counted());
        }
        scenarios.push(programs::ten_million(ISA, interrupts, TESTED, &controller, "pressure-alone"));
        scenarios.push(programs::load(ISA, interrupts, TESTED, &controller).limit(200));
    }
    scenarios.extend([
        programs::on_demand(ISA, TESTED).limit(300),
        programs::restarts_on_demand(ISA, VICTIMS.resetting),
        programs::restarts_from_pool(ISA, VICTIMS.resetting, "24MiB"),
        programs::facilities_alone(ISA, "alone", TESTED, ""),
        programs::facilities_of_two(ISA, TESTED, "", ""),
        programs::facilities_shared(ISA, TESTED),
        // POWER10 has registers that POWER9 does not have.
        facilities_shared_on_powernv10(),
    ]);
    scenarios.extend(["powernv9", "powernv10"].map(|board| witness(board, 1, "")));
    scenarios.push(witness("powernv9", 3, ""));
    let mut xics = witness("powernv9", 1, "interrupts = \"xics\"\n");
    xics.name = "power64/services/witness-xics".into();
    scenarios.extend([xics, two_witnesses()]);
    scenarios.extend([VICTIMS.stop(), VICTIMS.start_again(), VICTIMS.spin()]);
    scenarios.extend(VICTIMS.resets());
    scenarios.push(programs::echo(ISA, "console/echo", guest("echo", "echo", "16MiB", "")));
    scenarios.extend(flood::scenarios(ISA, "16MiB"));
    scenarios.extend(GROUPS.map(|(group, attacks)| survived(group, attacks)));
    scenarios.extend(FOR_EVER.map(|attack| hostile::for_ever(ISA, attack, HOSTILE, "")));
    scenarios
}

/// Two guests that look at their registers, on one CPU of a POWER10.
fn facilities_shared_on_powernv10() -> Scenario {
    let mut scenario = programs::facilities_shared(ISA, TESTED);
    scenario.name = "power64/facilities/powernv10-sharing".into();
    scenario.config = scenario.config.replacen("[machine]\n", "[machine]\nboard = \"powernv10\"\n", 1);
    scenario
}

/// A VM with a service that does everything that it must not do, and a guest that looks at its registers, interrupts and breakpoints.
fn witnessing(name: &str, more: &str) -> String {
    let services = format!(
        "[[service]]\nname = \"bad-{name}\"\nprogram = \"misbehave\"\nvm = \"{name}\"\ndevice = \"extra\"\n\
         memory = true\n\
         [[service]]\nname = \"console-{name}\"\nprogram = \"uart\"\nvm = \"{name}\"\n"
    );
    guest(name, "witness", TESTED, &format!("{more}{services}"))
}

/// One of them.
fn witness(board: &str, vcpus: usize, more: &str) -> Scenario {
    let config = witnessing("guest", &format!("vcpus = {vcpus}\n{more}"));
    let config = format!("[machine]\nboard = \"{board}\"\n{config}");
    let steps = vec![Step::Expect(0, "@boot witness"), Step::Expect(0, "@done witness errors=0")];
    Scenario::at(ISA, format!("services/witness-{board}-{vcpus}"), config, steps).counted().limit(600)
}

/// Two of them on one CPU: what one has in its registers is there again when the other has had them, also if that was inside a service.
fn two_witnesses() -> Scenario {
    let shared = "cpus = [0]\nschedule = \"shared\"\n";
    let config =
        witnessing("first", shared) + &witnessing("second", &format!("{shared}cmdline = \"seed=2\"\n"));
    let steps = vec![Step::Expect(0, "@done witness errors=0"), Step::Expect(1, "@done witness errors=0")];
    Scenario::at(ISA, "services/witness-sharing", config, steps).counted().limit(600)
}

/// A group of attacks that leave the guest able to go on, with a second VM that must not notice.
///
/// Not counted: garbage on a CPU never pauses, and where CPUs take turns each of the others then waits for a whole turn.
fn survived(group: &str, attacks: &str) -> Scenario {
    let more = format!("vcpus = 2\ncmdline = \"attack={attacks}\"");
    let config = hostile::beside(HOSTILE, &more, "count=50");
    hostile::survived(ISA, format!("hostile/{group}"), config).limit(900).judge(found_nothing)
}
