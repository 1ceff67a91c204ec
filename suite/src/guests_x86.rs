// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest on a PC may rely on (`selftest`, `pressure`), and what no other VM notices or leaves behind.

use turnstile::isa::Isa;
use turnstile::top::reading::VmReading;
use turnstile_exitstat::Reason;

use super::flood;
use super::programs;
use super::scenario::{Ending, Record, Scenario, Step, guest};
use super::victims::Victims;

/// The architecture of this topic.
const ISA: Isa = Isa::X86_64;
/// The memory of guests that test themselves.
const TESTED: &str = "32MiB";
/// The memory of those that look at their registers.
const FACILITIES: &str = "16MiB";
/// What the victims of this architecture have of their own.
const VICTIMS: Victims = Victims {
    isa: ISA,
    memory: "16MiB",
    beside: "16MiB",
    resetting: "8MiB",
    crash: "triple-fault",
    counts: "triple-fault = \"crash\"",
    report: Some("triple fault"),
    beacons: "count=40 limit=5000",
};

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for apic in ["x2apic", "xapic"] {
        for vcpus in [1, 4] {
            let more = format!("vcpus = {vcpus}\napic = \"{apic}\"");
            let selftest = programs::selftest(ISA, &format!("{apic}-{vcpus}"), TESTED, &more).limit(300);
            // The other three show what it does: one vCPU, and the xAPIC.
            scenarios.push(if (apic, vcpus) == ("xapic", 1) { selftest.long() } else { selftest });
        }
    }
    scenarios.push(programs::on_demand(ISA, TESTED).limit(300));
    scenarios.push(programs::restarts_on_demand(ISA, "16MiB"));
    scenarios.push(programs::restarts_from_pool(ISA, "16MiB", "24MiB"));
    for paravirt in ["all", "none"] {
        scenarios.extend([pressure(paravirt, 1).long(), pressure(paravirt, 4), load(paravirt)]);
    }
    scenarios.push(clock_of_another());
    // With paravirtual EOI: what is without it is a part of that, and takes minutes as well.
    let more = "paravirt = \"all\"";
    scenarios.push(programs::ten_million(ISA, "all", TESTED, more, "pressure-pending"));
    scenarios.extend([
        programs::facilities_alone(ISA, "alone", FACILITIES, ""),
        programs::facilities_of_two(ISA, FACILITIES, "", ""),
        programs::facilities_shared(ISA, FACILITIES),
    ]);
    scenarios.extend([VICTIMS.stop(), VICTIMS.start_again(), VICTIMS.spin()]);
    scenarios.extend(VICTIMS.resets());
    scenarios.push(programs::echo(ISA, "console/echo", guest("echo", "echo", "16MiB", "")));
    scenarios.extend(flood::scenarios(ISA, "16MiB"));
    scenarios
}

/// The clock of one VM rings 8,192 times a second, that of another 64 times: on the CPU of the other nothing rings for the first.
fn clock_of_another() -> Scenario {
    let vm = |name: &str, cpu: u32, rate: u32| {
        let more = format!("cpus = [{cpu}]\nstatistics = true\ncmdline = \"how=clock rate={rate}\"");
        guest(name, "crash", "8MiB", &more)
    };
    let config = vm("slow", 0, 10) + &vm("fast", 1, 3);
    let scenario =
        Scenario::at(ISA, "devices/clock-of-another", config, vec![Step::Expect(1, "@rung"), Step::Read]);
    scenario.counted().ending(Ending::Poweroff).judge(|record| {
        let vms = record.readings.first().map_or(&[][..], |reading| &reading.vms);
        let interrupts = |vm: &VmReading| vm.exits(Reason::OtherInterrupt).count();
        match vms {
            [slow, fast] if interrupts(fast) >= 500 && interrupts(slow) <= 150 => Ok(()),
            _ => Err(format!(
                "the CPUs were interrupted {:?} times",
                vms.iter().map(interrupts).collect::<Vec<_>>()
            )),
        }
    })
}

/// Interrupts of all vectors at once, between all vCPUs, with and without paravirtual EOI.
fn pressure(paravirt: &str, vcpus: u32) -> Scenario {
    let more = format!("vcpus = {vcpus}\nparavirt = \"{paravirt}\"");
    programs::pressure(ISA, &format!("{paravirt}-{vcpus}"), TESTED, &more).counted()
}

/// The mixed load: so many interrupts come, and with paravirtual EOI most of their ends are spared.
fn load(paravirt: &str) -> Scenario {
    let scenario = programs::load(ISA, paravirt, TESTED, &format!("paravirt = \"{paravirt}\""));
    match paravirt {
        "all" => scenario.judge(|record| rates(record, true)),
        _ => scenario.judge(|record| rates(record, false)),
    }
}

fn rates(record: &Record, spares: bool) -> Result<(), String> {
    let line = record.console(0).lines().find(|line| line.starts_with("@load")).unwrap_or_default();
    let number = |key: &str| {
        let value = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        value.and_then(|value| value.trim().parse::<u32>().ok()).unwrap_or(0)
    };
    let (interrupts, spared) = (number("interrupts"), number("spared"));
    let right = if spares { spared * 10 > interrupts * 9 } else { spared == 0 };
    match (21_000..23_000).contains(&interrupts) && right {
        true => Ok(()),
        false => Err(format!("{interrupts} interrupts came, and {spared} EOIs were spared")),
    }
}
