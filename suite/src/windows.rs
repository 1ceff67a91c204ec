// SPDX-License-Identifier: Apache-2.0 OR MIT
//! virtio devices behind MMIO, as Debian's kernel finds and uses them: disks, a network and an entropy device, over kills of the services.

use turnstile_link::Command;

use super::disks::{self, is_up, nothing_bad};
use super::entropy::LOOK;
use super::networks;
use super::scenario::{Scenario, Step, linux};

/// The services, behind those of four disks.
const LAN: u8 = 4;
const ENTROPY: u8 = 5;

/// With both interrupt controllers, and the other map.
pub fn scenarios() -> [Scenario; 3] {
    let plain = found("mmio/linux", "");
    let gicv2 = found("mmio/gicv2", "");
    let config = format!("[machine]\ngic = 2\n\n{}", gicv2.config);
    [plain, gicv2.with_config(config).long(), found("mmio/kvmtool", "machine = \"kvmtool\"").long()]
}

/// One VM has all devices behind MMIO, the other one is behind PCI on the same network. An emulator that others keep from running is not to
/// be taken for a service that loops.
fn config(more: &str) -> String {
    let vm = |name, number, more: &str| {
        let cmdline = format!("quiet turnstile.ip=10.0.0.{number}/24");
        linux(name, 1, &cmdline, &format!("networks = [\"lan\"]\n{more}"))
    };
    let disk = |name, more| format!("[[disk]]\nname = \"{name}\"\nimage = \"{more}\ntime-limit = \"1s\"\n");
    let own = "disks = [\"data\", \"script\", \"net\"]\nvirtio = \"mmio\"\nentropy = true\n";
    vm("window", 1, &format!("{own}{more}"))
        + &vm("function", 2, "disks = [\"net\"]")
        + &disk("data", "image\"\nsize = \"16MiB\"")
        + &disk("script", "script\"\nsize = \"1MiB\"\nread-only = true")
        + &disk("net", "net\"\nsize = \"1MiB\"\nread-only = true")
        + "[[network]]\nname = \"lan\"\ntime-limit = \"1s\"\n"
}

/// The words that a VM is asked, and what it says then.
const fn ask(vm: u8, words: &'static str, answer: &'static str) -> [Step; 2] {
    [Step::Type(vm, words), Step::Expect(vm, answer)]
}

/// What the first VM has is behind MMIO; its disks, its network and its numbers are right, over kills and in a second life.
fn found(name: &str, more: &str) -> Scenario {
    let kill = |service| Step::Tell(Command::KillService { service });
    let steps = [
        &is_up(0)[..],
        &is_up(1),
        &ask(
            0,
            "echo $(ls -d /sys/devices/platform/*.virtio_mmio/virtio* | wc -l) windows $(ls /sys/bus/pci/devices | wc -l)\r",
            "5 windows 0",
        ),
        &ask(0, "sh /dev/vdb first\r", "first ends"),
        &[Step::Type(0, "sh /dev/vdb rounds\r")],
        &disks::kills(9),
        &ask(0, "\r", "rounds ends"),
        &ask(0, "sh /dev/vdc serve 1 2\r", "serve ends"),
        &ask(1, "sh /dev/vda serve 2 1\r", "serve ends"),
        &ask(0, "sh /dev/vdc rounds 1 2\r", "round 1"),
        &[kill(LAN), Step::Expect(0, "round "), Step::Wait(7), kill(LAN), Step::Expect(0, "round ")],
        &ask(0, "\r", "rounds ends"),
        &ask(1, "sh /dev/vda fetch 2 1\r", "fetch ends"),
        &ask(0, LOOK, "# "),
        &ask(0, "look first\r", "first virtio_rng.0 8192 other random"),
        &[kill(ENTROPY)],
        &ask(0, "look again\r", "again virtio_rng.0 8192 other random"),
        &[Step::Type(0, "reboot -f\r"), Step::Started(0, 2)],
        &is_up(0),
        &ask(0, "sh /dev/vdc fetch 1 2\r", "fetch ends"),
        &networks::ends(0),
        &networks::ends(1),
    ];
    let scenario = Scenario::new(name, config(more), steps.concat()).limit(300);
    let scenario = scenario.file("image", disks::image()).file("script", disks::SCRIPT.as_bytes().to_vec());
    scenario.file("net", networks::SCRIPT.as_bytes().to_vec()).judge(|record| {
        for name in ["data", "lan", "entropy-window"] {
            if !record.text.contains(&format!("service {name} was killed")) {
                return Err(format!("no kill of {name} was reported"));
            }
        }
        nothing_bad(record)
    })
}
