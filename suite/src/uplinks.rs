// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Networks with a network card of the machine: Debian's kernel gets an address from outside, what it sends comes back whole, and the
//! VMs reach each other, also when the switch is killed meanwhile. A machine without the card is refused.

use std::path::Path;

use turnstile::failure::Result;
use turnstile::isa::Isa;
use turnstile::qemu::Boot;
use turnstile_link::{Command, StopReason};

use super::disks::{is_up, nothing_bad};
use super::scenario::{Ending, Scenario, Step, guest, linux};

/// What the guests do: from a disk that both read.
const SCRIPT: &str = include_str!("uplinks/script");
/// The services: two of the disk with the script, and the switch.
const SWITCH: u8 = 2;

/// Those of all architectures.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios: Vec<_> = outside("uplinks/linux").on_all().into();
    for (name, kills) in [("uplinks/killed", 10), ("uplinks/killed-long", 500)] {
        let all = killed(name, kills).on_all();
        scenarios.extend(all.map(|scenario| if kills > 10 { scenario.long() } else { scenario }));
    }
    // All cards have the way through the switch in common.
    let [arm64, others @ ..] = intel(outside("uplinks/e1000e")).on_all();
    scenarios.extend([arm64].into_iter().chain(others.map(Scenario::long)));
    scenarios.extend(intel(killed("uplinks/e1000e-killed", 100)).on_all().map(Scenario::long));
    scenarios.extend(own_cpu().on_all().map(Scenario::long));
    let gicv2 = outside("uplinks/gicv2").with_config(format!("[machine]\ngic = 2\n\n{}", config()));
    let nvhe = outside("uplinks/nvhe").prepare(|boot, folder| {
        boot.append.push_str(" mode=nvhe");
        echoes(boot, folder)
    });
    scenarios.extend([gicv2.long(), nvhe.long(), no_driver().long()]);
    scenarios.extend([Isa::Arm64, Isa::X86_64, Isa::Power64].map(no_card));
    scenarios.into_iter().map(guarded).collect()
}

/// The same with an IOMMU instead of trust; where the switch is killed on POWER it stays trusted.
fn guarded(scenario: Scenario) -> Scenario {
    if scenario.isa == Isa::Power64 && scenario.name.contains("killed") {
        return scenario;
    }
    let config = scenario.config.replace("trusted = true\n", "");
    scenario.with_config(config)
}

/// Two VMs with a port of the same network, which has an uplink. An emulator that others keep from running is not to be taken for a service
/// that loops.
fn config() -> String {
    let more = "disks = [\"script\"]\nnetworks = [\"lan\"]";
    let vm = |name, address| linux(name, 1, &format!("quiet turnstile.ip={address}"), more);
    vm("left", "dhcp")
        + &vm("right", "10.0.2.30/24")
        + "[[disk]]\nname = \"script\"\nimage = \"script\"\nsize = \"1MiB\"\nread-only = true\ntime-limit = \"1s\"\n"
        + LAN
}

const LAN: &str = "[[network]]\nname = \"lan\"\nuplink = \"net0\"\ntrusted = true\ntime-limit = \"1s\"\n";

/// The same with another card.
fn intel(scenario: Scenario) -> Scenario {
    scenario.with_config(config() + "card = \"e1000e\"\n")
}

/// The same on a network that has a CPU of its own, which the card interrupts.
fn own_cpu() -> Scenario {
    outside("uplinks/own-cpu").with_config(config() + "cpus = [2]\n")
}

/// Behind the card is what gives back what it gets, and nothing else.
fn echoes(boot: &mut Boot, _: &Path) -> Result<()> {
    // QEMU loses what a program has written when that ends: it waits until all has gone.
    let echo = "netdev.net0.guestfwd=tcp:10.0.2.100:7-cmd:sh -c 'cat; sleep 2'";
    boot.extra.extend(["-set", "netdev.net0.restrict=on", "-set", echo].map(Into::into));
    Ok(())
}

fn scenario(name: &str, steps: Vec<Step>) -> Scenario {
    let scenario = Scenario::new(name, config(), steps).file("script", SCRIPT.as_bytes().to_vec());
    scenario.prepare(echoes).limit(300).judge(nothing_bad)
}

/// The end of a VM.
fn ends(vm: u8) -> [Step; 2] {
    [Step::Type(vm, "poweroff -f\r"), Step::Stopped(vm, StopReason::PowerOff)]
}

/// Both reach the outside, and each other. One starts anew, and does it again while the other one is not there.
fn outside(name: &str) -> Scenario {
    let steps = [
        &is_up(0)[..],
        &[
            Step::Type(0, "sh /dev/vda serve\r"),
            Step::Expect(0, "server at 10.0.2.15"),
            Step::Expect(0, "serve ends"),
        ],
        &is_up(1),
        &[
            Step::Type(1, "sh /dev/vda out 10.0.2.15\r"),
            Step::Expect(1, "out ends"),
            Step::Type(0, "sh /dev/vda out 10.0.2.15\r"),
            Step::Expect(0, "out ends"),
        ],
        &ends(1),
        &[Step::Type(0, "reboot -f\r"), Step::Started(0, 2)],
        &is_up(0),
        &[
            Step::Type(0, "sh /dev/vda serve\r"),
            Step::Expect(0, "serve ends"),
            Step::Type(0, "sh /dev/vda out 10.0.2.15\r"),
            Step::Expect(0, "out ends"),
        ],
        &ends(0),
    ];
    scenario(name, steps.concat())
}

/// The switch, and with it the driver of the card, is killed again and again while bytes go out and come back.
fn killed(name: &str, kills: usize) -> Scenario {
    let mut steps = is_up(0).to_vec();
    steps.extend([Step::Type(0, "sh /dev/vda rounds\r"), Step::Expect(0, "round 2")]);
    for kill in 0..kills {
        if kill % 5 == 0 {
            steps.push(Step::Expect(0, "round "));
        }
        steps.extend([Step::Wait(kill as u64 % 5 * 7), Step::Tell(Command::KillService { service: SWITCH })]);
    }
    steps.push(Step::Expect(0, "round "));
    // A character that the script reads ends it.
    steps.extend([Step::Type(0, "\r"), Step::Expect(0, "rounds ends")]);
    steps.extend([&ends(0)[..], &is_up(1), &ends(1)].concat());
    let limit = if kills > 10 { 3600 } else { 300 };
    scenario(name, steps).limit(limit).judge(|record| match record.text.contains("service lan was killed") {
        true => nothing_bad(record),
        false => Err("no kill was reported".to_owned()),
    })
}

/// A card that nobody can drive is reported, and the network goes on without it.
fn no_driver() -> Scenario {
    let steps = [
        &is_up(0)[..],
        &is_up(1),
        &[
            Step::Text("service lan: "),
            Step::Type(0, "ip addr add 10.0.2.15/24 dev eth0\r"),
            Step::Type(0, "sh /dev/vda alone\r"),
            Step::Expect(0, "alone ends"),
            Step::Type(0, "ping -c 2 -q 10.0.2.30 | tr a-z A-Z\r"),
            Step::Expect(0, " 0% PACKET LOSS"),
        ],
        &ends(0),
        &ends(1),
    ];
    scenario("uplinks/no-driver", steps.concat()).prepare(|boot, _| {
        boot.cards.clear();
        let words = ["-netdev", "user,id=net0", "-device", "e1000,netdev=net0,romfile="];
        boot.extra.extend(words.map(Into::into));
        Ok(())
    })
}

/// A machine that does not have the card.
fn no_card(isa: Isa) -> Scenario {
    let config = guest("vm", "echo", "16MiB", "networks = [\"lan\"]") + LAN;
    let text =
        "service lan cannot be built: its network card cannot be used: the machine has no such PCI function";
    Scenario::at(isa, "refusal/no-card", config, vec![Step::Text(text)]).ending(Ending::Refused).prepare(
        |boot, _| {
            boot.cards.clear();
            Ok(())
        },
    )
}
