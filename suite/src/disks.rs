// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks of Debian's kernel: what it finds, what it writes and finds again, and services that are killed meanwhile.

use std::fmt::Write;

use sha2::{Digest, Sha256};
use turnstile::isa::Isa;
use turnstile_link::{Command, StopReason};

use super::programs;
use super::scenario::{Record, Scenario, Step, guest, linux};

/// What the guests do. It is a disk of theirs itself: its first one's name is not its own.
pub const SCRIPT: &str = include_str!("disks/script");
/// Bytes of the image of the disk that is written.
const IMAGE: usize = 1 << 20;

/// Those of all architectures.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (name, kills) in [("disks/killed", 30), ("disks/killed-long", 2500)] {
        let all = killed(name, kills).on_all();
        scenarios.extend(all.map(|scenario| if kills > 30 { scenario.long() } else { scenario }));
    }
    scenarios.extend(kept("disks/linux", "").on_all());
    scenarios.extend(shared().on_all().map(Scenario::long));
    scenarios.extend(shared_image().on_all());
    scenarios.push(kept("disks/kvmtool", "machine = \"kvmtool\"").long());
    let gicv2 = kept("disks/gicv2", "");
    let config = format!("[machine]\ngic = 2\n\n{}", gicv2.config);
    scenarios.push(gicv2.with_config(config).long());
    scenarios.push(bare(Isa::Arm64, "disks/bare", ""));
    scenarios.push(bare(Isa::Arm64, "disks/bare-kvmtool", "machine = \"kvmtool\""));
    let gicv2 = bare(Isa::Arm64, "disks/bare-gicv2", "");
    let config = format!("[machine]\ngic = 2\n\n{}", gicv2.config);
    scenarios.push(gicv2.with_config(config));
    scenarios.push(bare(Isa::X86_64, "disks/bare", ""));
    scenarios.push(bare(
        Isa::X86_64,
        "disks/bare-xapic",
        "apic = \"xapic\"\ncmdline = \"pci=ports pv-eoi=off\"",
    ));
    scenarios.push(bare(Isa::Power64, "disks/bare", ""));
    scenarios.extend(Isa::ALL.map(|isa| bare(isa, "disks/on-demand", "mapping = \"on-demand\"")));
    scenarios.push(bare(Isa::Power64, "disks/bare-xics", "interrupts = \"xics\""));
    scenarios.extend(Isa::ALL.map(|isa| match isa {
        Isa::Arm64 => own_cpu(isa),
        _ => own_cpu(isa).long(),
    }));
    scenarios
}

/// A Linux with these disks and further lines.
fn vm(name: &str, disks: &str, more: &str) -> String {
    linux(name, 1, "quiet", &format!("disks = [{disks}]\n{more}"))
}

/// A disk of 16 MiB that begins with an image, and the script. An emulator that others keep from running is not to be taken for a
/// service that loops.
const DISKS: &str = "[[disk]]\nname = \"data\"\nimage = \"image\"\nsize = \"16MiB\"\ntime-limit = \"1s\"\n\
                     [[disk]]\nname = \"script\"\nimage = \"script\"\nsize = \"1MiB\"\nread-only = true\ntime-limit = \"1s\"\n";

/// Gives a scenario the files of its disks. Behind the script the disk has zeros, which the shell does not read.
fn with_files(scenario: Scenario) -> Scenario {
    scenario.file("image", image()).file("script", SCRIPT.as_bytes().to_vec())
}

/// Bytes that a disk begins with, and that look like none of its other ones: Marsaglia's xorshift64.
pub fn image() -> Vec<u8> {
    let mut state = 0x6469_736b_2121_2121_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(IMAGE).collect()
}

/// What is awaited of a Linux before something is typed.
pub fn is_up(vm: u8) -> [Step; 2] {
    [Step::Expect(vm, "turnstile: shell ready"), Step::Expect(vm, "# ")]
}

/// A guest without a system drives a disk and attacks it, beside another one; in its second life nothing is left of that but what was
/// written.
pub fn bare(isa: Isa, name: &str, more: &str) -> Scenario {
    let config = guest("disk", "block", "16MiB", &format!("disks = [\"one\", \"other\"]\n{more}"))
        + "[[disk]]\nname = \"one\"\nsize = \"4MiB\"\n[[disk]]\nname = \"other\"\nsize = \"4MiB\"\n";
    let steps = vec![
        Step::Expect(0, "@disk first life ends"),
        Step::Started(0, 2),
        Step::Expect(0, "@done disk failed=0"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::at(isa, name, config, steps).limit(120).judge(programs::no_failures)
}

/// The same, with one CPU that runs both disks.
fn own_cpu(isa: Isa) -> Scenario {
    let scenario = bare(isa, "disks/own-cpu", "");
    let config =
        scenario.config.replace("size = \"4MiB\"\n", "size = \"4MiB\"\ncpus = [1]\ntime-limit = \"1s\"\n");
    scenario.with_config(config)
}

/// Two disks, one of which is written; what was written is there in the VM's second life.
fn kept(name: &str, more: &str) -> Scenario {
    let config = vm("linux", "\"data\", \"script\"", more) + DISKS;
    let steps = [
        &is_up(0)[..],
        &[
            Step::Type(0, "sh /dev/vdb first\r"),
            Step::Expect(0, "first ends"),
            Step::Type(0, "reboot -f\r"),
            Step::Started(0, 2),
        ],
        &is_up(0),
        &[
            Step::Type(0, "sh /dev/vdb again\r"),
            Step::Expect(0, "again ends"),
            Step::Type(0, "poweroff -f\r"),
            Step::Stopped(0, StopReason::PowerOff),
        ],
    ];
    with_files(Scenario::new(name, config, steps.concat())).limit(300).judge(has_image)
}

/// Says whether the disk began with its image, and nothing was wrong.
pub fn has_image(record: &Record) -> Result<(), String> {
    match record.console(0).contains(&image_sum()) {
        true => nothing_bad(record),
        false => Err("the disk does not begin with its image".to_owned()),
    }
}

/// What the script says of the image.
fn image_sum() -> String {
    Sha256::digest(image()).iter().fold("image: ".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// So many kills of the services of both disks, while the script does its rounds.
pub fn kills(kills: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    for kill in 0..kills {
        if kill % 3 == 0 {
            steps.push(Step::Expect(0, "round "));
        }
        // Not only where a round has just begun; one of eight is the script's.
        let service = u8::from(kill % 8 == 7);
        steps.extend([Step::Wait(kill as u64 % 5 * 7), Step::Tell(Command::KillService { service })]);
    }
    steps
}

/// The services of both disks are killed again and again while the guest writes, and reads what it has written. They are the first that
/// touch some of its memory.
fn killed(name: &str, kills: usize) -> Scenario {
    let config = vm("linux", "\"data\", \"script\"", "mapping = \"on-demand\"") + DISKS;
    let mut steps = is_up(0).to_vec();
    steps.push(Step::Type(0, "sh /dev/vdb rounds\r"));
    steps.extend(self::kills(kills));
    steps.extend([
        // A character that the script reads ends it.
        Step::Type(0, "\r"),
        Step::Expect(0, "rounds ends"),
        Step::Type(0, "poweroff -f\r"),
        Step::Stopped(0, StopReason::PowerOff),
    ]);
    let limit = if kills > 30 { 3600 } else { 300 };
    with_files(Scenario::new(name, config, steps)).limit(limit).judge(|record| {
        match record.text.contains("service data was killed") {
            true => nothing_bad(record),
            false => Err("no kill was reported".to_owned()),
        }
    })
}

/// Two VMs with a disk that both can only read, and one of their own each.
fn shared() -> Scenario {
    let config = [
        vm("one", "\"data\", \"script\"", ""),
        vm("two", "\"more\", \"script\"", ""),
        DISKS.to_owned(),
        DISKS.split_inclusive("1s\"\n").next().unwrap_or_default().replace("\"data\"", "\"more\""),
    ];
    let mut steps = [is_up(0), is_up(1)].concat();
    for vm in 0..2 {
        steps.push(Step::Type(vm, "sh /dev/vdb shared\r"));
    }
    for vm in 0..2 {
        steps.extend([
            Step::Expect(vm, "shared ends"),
            Step::Type(vm, "poweroff -f\r"),
            Step::Stopped(vm, StopReason::PowerOff),
        ]);
    }
    with_files(Scenario::new("disks/shared", config.concat(), steps)).limit(300).judge(nothing_bad)
}

/// Two VMs whose disks are over one image, which a third disk is, too, in the same memory. What each writes is its own, over kills and a new
/// life. One writes more than there is room for.
fn shared_image() -> Scenario {
    let over = |name| {
        format!(
            "[[disk]]\nname = \"{name}\"\nimage = \"image\"\nsize = \"16MiB\"\nwrites = \"8MiB\"\ntime-limit = \"1s\"\n"
        )
    };
    let script = DISKS.split_inclusive("1s\"\n").nth(1).unwrap_or_default();
    let config = [
        vm("one", "\"over-one\", \"script\", \"still\"", ""),
        vm("two", "\"over-two\", \"script\", \"still\"", ""),
        over("over-one"),
        over("over-two"),
        script.to_owned(),
        script.replace("\"script\"\nimage = \"script\"\nsize = \"1MiB\"", "\"still\"\nimage = \"image\""),
    ];
    // Of each VM: what it writes, the script, the image.
    let kill = |service| Step::Tell(Command::KillService { service });
    let ask = |vm, text, end| [Step::Type(vm, text), Step::Expect(vm, end)];
    let kept = |vm| ask(vm, "sh /dev/vdb kept\r", "kept ends");
    let off = |vm| [Step::Type(vm, "poweroff -f\r"), Step::Stopped(vm, StopReason::PowerOff)];
    let steps = [
        &is_up(0)[..],
        &is_up(1),
        &ask(0, "sh /dev/vdb over\r", "over ends"),
        &ask(1, "sh /dev/vdb over\r", "over ends"),
        &[kill(0), kill(3)],
        &kept(1),
        &[Step::Type(0, "reboot -f\r"), Step::Started(0, 2)],
        &is_up(0),
        &kept(0),
        &ask(0, "sh /dev/vdb full\r", "full ends"),
        &[kill(0)],
        &kept(0),
        &kept(1),
        &off(0),
        &off(1),
    ];
    with_files(Scenario::new("disks/shared-image", config.concat(), steps.concat())).limit(300).judge(
        |record| {
            let said = record.text.matches("has no room left").count();
            let images = record
                .consoles
                .iter()
                .flat_map(|console| console.lines())
                .filter(|line| line.contains("image: "));
            let sum = image_sum();
            match images.clone().all(|line| line.contains(&sum)) {
                _ if said != 1 => Err(format!("that there is no room was said {said} times")),
                true if images.count() == 4 => nothing_bad(record),
                _ => Err("the image has changed".to_owned()),
            }
        },
    )
}

/// What Linux says of every partition: it has no nonvolatile memory for logs of errors, and no virtual functions. And what it says
/// where an emulator was kept from running.
const OF_OTHERS: [&str; 4] = [
    "nvram: Failed to",
    "No hypervisor support for SR-IOV",
    "hrtimer: interrupt took",
    "clocksource: Long readout interval",
];

/// What the script found wrong, or Linux complained of.
pub fn nothing_bad(record: &Record) -> Result<(), String> {
    let mut lines = record.consoles.iter().flat_map(|console| console.lines());
    let is_bad =
        |line: &str| line.contains("complaint: ") && !OF_OTHERS.iter().any(|known| line.contains(known));
    match lines.find(|line| line.contains("bad: ") || is_bad(line)) {
        None => Ok(()),
        Some(line) => Err(line.to_owned()),
    }
}
