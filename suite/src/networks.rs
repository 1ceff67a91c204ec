// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Networks of Debian's kernel: what passes between two VMs, who may not speak, VMs that come and go, and a switch that is killed
//! meanwhile.

use turnstile::isa::Isa;
use turnstile_link::{Command, StopReason};

use super::disks::{is_up, nothing_bad};
use super::programs;
use super::scenario::{Scenario, Step, guest, linux};

/// What the guests do: from a disk that both read.
pub const SCRIPT: &str = include_str!("networks/script");
/// The services: two of the disk with the script, and the switch.
const SWITCH: u8 = 2;

/// Those of all architectures.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    scenarios.extend(between("networks/linux").on_all());
    for (name, kills) in [("networks/killed", 30), ("networks/killed-long", 2000)] {
        let all = killed(name, kills).on_all();
        scenarios.extend(all.map(|scenario| if kills > 30 { scenario.long() } else { scenario }));
    }
    scenarios.extend(isolated().on_all().map(Scenario::long));
    scenarios
        .push(between("networks/kvmtool").with_config(config(1, "machine = \"kvmtool\"", &PORTS)).long());
    let gicv2 = format!("[machine]\ngic = 2\n\n{}", config(1, "", &PORTS));
    scenarios.push(between("networks/gicv2").with_config(gicv2).long());
    scenarios.push(between("networks/mmio").with_config(config(2, "virtio = \"mmio\"", &PORTS)).long());
    scenarios.push(paused());
    scenarios.push(bare(Isa::Arm64, "networks/bare", "", ""));
    scenarios.push(bare(Isa::Arm64, "networks/bare-kvmtool", "", "machine = \"kvmtool\""));
    let gicv2 = bare(Isa::Arm64, "networks/bare-gicv2", "", "");
    let config = format!("[machine]\ngic = 2\n\n{}", gicv2.config);
    scenarios.push(gicv2.with_config(config));
    scenarios.push(bare(Isa::X86_64, "networks/bare", "", ""));
    scenarios.push(bare(Isa::X86_64, "networks/bare-xapic", "pci=ports pv-eoi=off", "apic = \"xapic\""));
    scenarios.push(bare(Isa::Power64, "networks/bare", "", ""));
    scenarios.push(bare(Isa::Power64, "networks/bare-xics", "", "interrupts = \"xics\""));
    scenarios.push(own_cpu(Isa::Arm64));
    scenarios.push(own_cpu(Isa::Power64).long());
    scenarios.push(own_cpu(Isa::X86_64));
    scenarios
}

/// What each VM has to say of its port.
const PORTS: [&str; 2] = ["", ""];

/// Two VMs with so many vCPUs and a port of the same network each, of which this is said, too. An emulator that others keep from running is not to be
/// taken for a service that loops.
fn config(vcpus: u32, more: &str, ports: &[&str; 2]) -> String {
    let vm = |name, number, port: &str| {
        let networks = format!("networks = [{{ network = \"lan\"{port} }}]");
        let more = format!("disks = [\"script\"]\n{networks}\n{more}");
        linux(name, vcpus, &format!("quiet turnstile.ip=10.0.0.{number}/24"), &more)
    };
    vm("left", 1, ports[0])
        + &vm("right", 2, ports[1])
        + "[[disk]]\nname = \"script\"\nimage = \"script\"\nsize = \"1MiB\"\nread-only = true\ntime-limit = \"1s\"\n\
           [[network]]\nname = \"lan\"\ntime-limit = \"1s\"\n"
}

fn scenario(name: &str, config: String, steps: Vec<Step>) -> Scenario {
    Scenario::new(name, config, steps).file("script", SCRIPT.as_bytes().to_vec())
}

/// The end of a VM.
pub fn ends(vm: u8) -> [Step; 2] {
    [Step::Type(vm, "poweroff -f\r"), Step::Stopped(vm, StopReason::PowerOff)]
}

/// Each fetches what the other one has, by each of its CPUs; one of them starts anew, and fetches once more.
fn between(name: &str) -> Scenario {
    let steps = [
        &is_up(0)[..],
        &is_up(1),
        &[
            Step::Type(1, "sh /dev/vda serve 2 1\r"),
            Step::Expect(1, "serve ends"),
            Step::Type(0, "sh /dev/vda fetch 1 2\r"),
            Step::Expect(0, "fetch ends"),
            Step::Type(0, "sh /dev/vda serve 1 2\r"),
            Step::Expect(0, "serve ends"),
            Step::Type(1, "sh /dev/vda fetch 2 1\r"),
            Step::Expect(1, "fetch ends"),
            Step::Type(0, "reboot -f\r"),
            Step::Started(0, 2),
        ],
        &is_up(0),
        &[
            Step::Type(0, "sh /dev/vda fetch 1 2\r"),
            Step::Expect(0, "fetch ends"),
            Step::Type(0, "sh /dev/vda spoof 1 2\r"),
            Step::Expect(0, "spoof ends"),
        ],
        &ends(0),
        &ends(1),
    ];
    scenario(name, config(2, "", &PORTS), steps.concat()).limit(300).judge(nothing_bad)
}

/// A guest without a system exchanges packets with another one, and attacks its device; in its second life nothing is left of that.
/// `options` are for both guests.
fn bare(isa: Isa, name: &str, options: &str, more: &str) -> Scenario {
    let vm = |name, role| {
        let cmdline = format!("{role} {options}");
        let lines = format!("cmdline = \"{}\"\nnetworks = [\"lan\"]\n{more}", cmdline.trim());
        guest(name, "network", "16MiB", &lines)
    };
    let config = vm("bare", "") + &vm("other", "peer") + "[[network]]\nname = \"lan\"\ntime-limit = \"1s\"\n";
    let steps = vec![
        Step::Expect(0, "@network first life ends"),
        Step::Started(0, 2),
        Step::Expect(0, "@done network failed=0"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::at(isa, name, config, steps).limit(180).judge(programs::no_failures)
}

/// The same, with a CPU that runs the network, which may be the first that touches memory of the VMs.
fn own_cpu(isa: Isa) -> Scenario {
    let scenario = bare(isa, "networks/own-cpu", "", "mapping = \"on-demand\"");
    let config = scenario.config.clone() + "cpus = [2]\n";
    scenario.with_config(config)
}

/// Two ports that are isolated from each other.
fn isolated() -> Scenario {
    let ports = [", isolated = true", ", isolated = true"];
    let steps = [
        &is_up(0)[..],
        &is_up(1),
        &[Step::Type(0, "sh /dev/vda alone 1 2\r"), Step::Expect(0, "alone ends")],
        &ends(0),
        &ends(1),
    ];
    scenario("networks/isolated", config(1, "", &ports), steps.concat()).limit(300).judge(nothing_bad)
}

/// First the VM that fetches is paused in the middle of that, then the one that sends. The other one goes on, and so does what is
/// fetched. At its rate that takes two seconds.
fn paused() -> Scenario {
    let ports = ["", ", rate = \"16Mbit/s\""];
    let mut steps = [is_up(0), is_up(1)].concat();
    steps.extend([Step::Type(1, "sh /dev/vda serve 2 1\r"), Step::Expect(1, "serve ends")]);
    for (vm, other) in [(0, 1), (1, 0)] {
        steps.extend([
            Step::Type(0, "sh /dev/vda once 1 2 &\r"),
            Step::Expect(0, "once begins"),
            Step::Wait(700),
            Step::Tell(Command::Pause { vm }),
            Step::Paused(vm),
            Step::Type(other, "echo alive-$((1+1))\r"),
            Step::Expect(other, "alive-2"),
            Step::Wait(1500),
            Step::Tell(Command::Resume { vm }),
            Step::Resumed(vm),
            Step::Expect(0, "once ends"),
        ]);
    }
    steps.extend([ends(0), ends(1)].concat());
    scenario("networks/paused", config(1, "", &ports), steps).limit(300).judge(nothing_bad)
}

/// The switch is killed again and again while one VM fetches what the other one has. It is the first that touches some of their memory.
fn killed(name: &str, kills: usize) -> Scenario {
    let mut steps = [is_up(0), is_up(1)].concat();
    steps.extend([
        Step::Type(1, "sh /dev/vda serve 2 1\r"),
        Step::Expect(1, "serve ends"),
        Step::Type(0, "sh /dev/vda rounds 1 2\r"),
    ]);
    for kill in 0..kills {
        if kill % 5 == 0 {
            steps.push(Step::Expect(0, "round "));
        }
        steps.extend([Step::Wait(kill as u64 % 5 * 7), Step::Tell(Command::KillService { service: SWITCH })]);
    }
    // A character that the script reads ends it.
    steps.extend([Step::Type(0, "\r"), Step::Expect(0, "rounds ends")]);
    steps.extend([ends(0), ends(1)].concat());
    let limit = if kills > 30 { 3600 } else { 300 };
    scenario(name, config(2, "mapping = \"on-demand\"", &PORTS), steps).limit(limit).judge(|record| {
        match record.text.contains("service lan was killed") {
            true => nothing_bad(record),
            false => Err("no kill was reported".to_owned()),
        }
    })
}
