// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks that the machine has, as Debian's kernel finds them: what it has written and flushed is there when the power was lost, and when the
//! program that drives the controller was killed. A machine without the controller is refused.

use turnstile::config::Board;
use turnstile::isa::Isa;
use turnstile_link::{Command, StopReason};

use super::disks::{SCRIPT, bare, has_image, image, is_up, kills, nothing_bad};
use super::gpt::{self, BLOCK};
use super::scenario::{Ending, Record, Scenario, Step, guest, linux};

/// Bytes of the partition that the guest has.
const PARTITION: usize = 16 << 20;

/// How often the machine loses its power in a long run, and how often the program is killed.
const CUTS: usize = 170;
const KILLS: usize = 2500;

/// Those of all architectures. In the usual run one has the other kind of controller.
pub fn scenarios() -> Vec<Scenario> {
    let [nvme, virtio] =
        [kept("drives/nvme", "nvme0"), kept("drives/virtio", "virtio0")].map(|all| all.on_all());
    let is_usual = |scenario: &Scenario| {
        scenario.isa == Isa::X86_64 && scenario.name.ends_with("virtio")
            || scenario.isa != Isa::X86_64 && scenario.name.ends_with("nvme")
    };
    let kept = nvme.into_iter().chain(virtio).map(|scenario| match is_usual(&scenario) {
        true => scenario,
        false => scenario.long(),
    });
    let long = [
        cuts("drives/cuts-nvme", "nvme0"),
        cuts("drives/cuts-virtio", "virtio0"),
        killed("drives/killed-nvme", "nvme0"),
        killed("drives/killed-virtio", "virtio0"),
    ];
    let long = long.iter().flat_map(Scenario::on_all).map(Scenario::long);
    let own_cpu = own_cpu().on_all().map(Scenario::long);
    let several =
        several("drives/several").on_all().into_iter().chain(several_own_cpu().on_all().map(Scenario::long));
    let refused =
        [no_controller(Isa::Arm64, "nvme0", NO_NVME), no_controller(Isa::X86_64, "virtio0", NO_VIRTIO)];
    let all = kept
        .chain(long)
        .chain(own_cpu)
        .chain(several)
        .map(|scenario| if is_trusted(&scenario) { scenario } else { guarded(scenario) });
    all.chain(refused)
        .chain(restarted().on_all())
        .chain(Isa::ALL.map(hostile))
        .chain([on_demand()])
        .chain([no_iommu()])
        .chain(bypassing().on_all())
        .chain([strays("drives/stray", "nvme0"), strays("drives/stray-virtio", "virtio0")])
        .chain([strays_unheard().on_pc(), strays_unheard().on_power()])
        .collect()
}

/// One kind on one architecture stays trusted.
fn is_trusted(scenario: &Scenario) -> bool {
    scenario.isa == Isa::Power64 && scenario.name.contains("virtio")
}

/// The same with an IOMMU, instead of trust.
fn guarded(scenario: Scenario) -> Scenario {
    let config = scenario.config.replace("trusted = true\n", "");
    scenario.with_config(config)
}

/// The controller is told addresses that are not its own: the IOMMU refuses them, and that is said once. Its guest goes on without the disk, and the
/// other one as if nothing were.
fn strays(name: &str, device: &str) -> Scenario {
    let disk =
        format!("[[disk]]\nname = \"data\"\ndevice = \"{device}\"\nsize = \"1MiB\"\ntime-limit = \"1s\"\n");
    let linux = linux("linux", 1, "quiet", "disks = [\"data\"]");
    let config = linux + &guest("other", "echo", "16MiB", "") + &disk;
    let steps = [
        &[Step::Text("PCI function 00:01.0 reached for 0x")],
        &is_up(0)[..],
        &[
            Step::Type(1, "two\r"),
            Step::Expect(1, "@echo two"),
            Step::Type(1, "quit\r"),
            Step::Stopped(1, StopReason::PowerOff),
            Step::Type(0, "poweroff -f\r"),
            Step::Stopped(0, StopReason::PowerOff),
        ],
    ];
    let scenario = Scenario::new(name, config, steps.concat()).limit(300).judge(is_told_once);
    scenario.prepare(|boot, _| {
        boot.append.push_str(" provoke=stray");
        Ok(())
    })
}

/// The same where the IOMMU tells nobody: QEMU's AMD-Vi, up to version 10.0, records no event, and its PHB4 freezes nobody.
fn strays_unheard() -> Scenario {
    let mut scenario = strays("drives/stray", "nvme0");
    // The line of the log.
    scenario.steps.remove(0);
    scenario.judge(is_not_told)
}

/// QEMU's controller stops when it cannot read its queue, and not when it reads what is none.
fn is_not_told(record: &Record) -> Result<(), String> {
    match (record.text.contains("it has stopped"), record.text.contains("reached for")) {
        (true, false) => Ok(()),
        (false, _) => Err("nothing kept the controller from what is not its own".to_owned()),
        (_, true) => Err("QEMU's IOMMU tells of faults: expect the line of the log".to_owned()),
    }
}

fn is_told_once(record: &Record) -> Result<(), String> {
    match record.text.matches("reached for").count() {
        1 => Ok(()),
        count => Err(format!("{count} faults of one function were reported")),
    }
}

/// How often a VM is restarted while its controller is at work.
const RESTARTS: u32 = 12;

/// A VM whose controller moves bytes in its memory is restarted again and again, beside one that begins anew all the time and looks at each word of the
/// memory that it gets. Both take what the other one has given back: whatever the controller still wrote there would be found.
fn restarted() -> Scenario {
    let disk = "[[disk]]\nname = \"data\"\ndevice = \"nvme0\"\nsize = \"1MiB\"\ntime-limit = \"1s\"\n";
    let load = "cmdline = \"row=load depth=16 iterations=100000000\"\ndisks = [\"data\"]";
    let config = guest("disk", "block", "16MiB", load) + &guest("memory", "restart", "16MiB", "") + disk;
    let mut steps = vec![Step::Started(0, 1), Step::Started(1, 2)];
    for restart in 0..RESTARTS {
        steps.extend([
            Step::Wait(300 + 7 * u64::from(restart)),
            Step::Tell(Command::Restart { vm: 0 }),
            Step::Started(0, restart + 2),
        ]);
    }
    let stops = [0, 1].map(|vm| [Step::Tell(Command::Stop { vm }), Step::Stopped(vm, StopReason::Killed)]);
    steps.extend(stops.concat());
    Scenario::new("drives/restarted", config, steps).limit(120).judge(has_found_zeros)
}

fn has_found_zeros(record: &Record) -> Result<(), String> {
    for trouble in ["its drive cannot be used", "bytes are copied"] {
        if record.text.contains(trouble) {
            return Err(format!("the log says `{trouble}`"));
        }
    }
    if let Some(error) = record.consoles.iter().find(|console| console.contains("@error")) {
        return Err(error.clone());
    }
    match record.consoles.iter().map(|console| console.matches("zero=yes").count()).sum() {
        0..=3 => Err("the other VM has hardly looked".to_owned()),
        _ => Ok(()),
    }
}

/// A machine that has no IOMMU, for a controller that is not trusted.
fn no_iommu() -> Scenario {
    let disk = "[[disk]]\nname = \"data\"\ndevice = \"nvme0\"\nsize = \"1MiB\"\n";
    let config = guest("vm", "echo", "16MiB", "disks = [\"data\"]") + disk;
    let text = "its NVMe controller cannot be used: nothing keeps its PCI function to its own memory";
    let scenario = Scenario::new("refusal/no-iommu", config, vec![Step::Text(text)]);
    scenario.ending(Ending::Refused).prepare(|boot, _| {
        boot.iommu = false;
        Ok(())
    })
}

/// A virtio disk that is not behind the machine's IOMMU, and is not trusted.
fn bypassing() -> Scenario {
    let disk = "[[disk]]\nname = \"data\"\ndevice = \"virtio0\"\nsize = \"1MiB\"\n";
    let config = guest("vm", "echo", "16MiB", "disks = [\"data\"]") + disk;
    let text =
        "its virtio disk cannot be used: its PCI function, a virtio device, bypasses the machine's IOMMU";
    let scenario = Scenario::new("refusal/bypasses-iommu", config, vec![Step::Text(text)]);
    scenario.ending(Ending::Refused).prepare(|boot, _| {
        boot.drives.clear();
        let mut words = vec!["-drive", "if=none,id=data,driver=null-co,size=1M", "-device"];
        // Behind a bridge of its own, as QEMU's powernv has none.
        let bridge = [
            "pnv-phb,id=phb0,chip-id=0,index=0",
            "-device",
            "pnv-phb-root-port,id=port0,bus=phb0",
            "-device",
        ];
        match boot.board {
            Board::Powernv9 | Board::Powernv10 => {
                words.extend(bridge);
                words.push("virtio-blk-pci,drive=data,disable-legacy=on,bus=port0");
            }
            _ => words.push("virtio-blk-pci,drive=data,disable-legacy=on"),
        }
        boot.extra = words.into_iter().map(Into::into).collect();
        Ok(())
    })
}

/// A Linux with a partition of a disk behind this controller, and the script that it runs. An emulator that others keep from running is not to
/// be taken for a service that loops.
fn config(device: &str) -> String {
    linux("linux", 1, "quiet", "disks = [\"data\", \"script\"]")
        + &format!(
            "[[disk]]\nname = \"data\"\ndevice = \"{device}\"\npartition = 2\ntrusted = true\nimage = \"machine\"\n\
             time-limit = \"1s\"\n\
             [[disk]]\nname = \"script\"\nimage = \"script\"\nsize = \"1MiB\"\nread-only = true\ntime-limit = \"1s\"\n"
        )
}

fn scenario(name: &str, device: &str, steps: Vec<Step>) -> Scenario {
    let mut partition = image();
    partition.resize(PARTITION, 0);
    let machine = gpt::disk(&[&[0x55; 8 * BLOCK], &partition, &[0xaa; 8 * BLOCK]]);
    Scenario::new(name, config(device), steps)
        .file("machine", machine)
        .file("script", SCRIPT.as_bytes().to_vec())
}

/// Runs a part of the script, to its end.
fn runs(part: [&'static str; 2]) -> [Step; 2] {
    let [typed, ends] = part;
    [Step::Type(0, typed), Step::Expect(0, ends)]
}

const FIRST: [&str; 2] = ["sh /dev/vdb first\r", "first ends"];
const AGAIN: [&str; 2] = ["sh /dev/vdb again\r", "again ends"];
const ROUNDS: &str = "sh /dev/vdb rounds\r";

/// The end of the script's rounds, which a character that it reads ends, and of the VM.
const ENDS: [Step; 4] = [
    Step::Type(0, "\r"),
    Step::Expect(0, "rounds ends"),
    Step::Type(0, "poweroff -f\r"),
    Step::Stopped(0, StopReason::PowerOff),
];

/// The power is lost while the guest writes: what it flushed before is there. Then the program is killed while it writes.
fn kept(name: &str, device: &str) -> Scenario {
    let steps = [
        &is_up(0)[..],
        &runs(FIRST),
        &[Step::Type(0, ROUNDS), Step::Expect(0, "round 3"), Step::PowerCut],
        &is_up(0),
        &runs(AGAIN),
        &[Step::Type(0, ROUNDS)],
        &kills(10),
        &ENDS,
    ];
    scenario(name, device, steps.concat()).limit(300).judge(|record| {
        has_image(record)?;
        was_killed(record)
    })
}

/// The same with one CPU that runs both disks, which the controller interrupts.
fn own_cpu() -> Scenario {
    let scenario = kept("drives/own-cpu", "nvme0");
    let config = scenario.config.replace("time-limit = \"1s\"\n", "time-limit = \"1s\"\ncpus = [1]\n");
    scenario.with_config(config)
}

/// Two Linux that have a partition each of one disk, and what lies between these, which nobody writes. One is stopped while both work, and
/// started again; the program is killed. The other one goes on, and nobody loses what was written.
fn several(name: &str) -> Scenario {
    let part = |name: &str, partition: u32, more: &str| {
        format!(
            "[[disk]]\nname = \"{name}\"\ndevice = \"nvme0\"\npartition = {partition}\ntrusted = true\n\
             time-limit = \"1s\"\n{more}"
        )
    };
    let config = [
        linux("one", 1, "quiet", "disks = [\"data\", \"script\", \"between\"]"),
        linux("two", 1, "quiet", "disks = [\"more\", \"script\", \"between\"]"),
        part("data", 2, "image = \"machine\"\n"),
        part("more", 4, ""),
        part("between", 3, "read-only = true\n"),
        "[[disk]]\nname = \"script\"\nimage = \"script\"\nsize = \"1MiB\"\nread-only = true\n\
         time-limit = \"1s\"\n"
            .to_owned(),
    ];
    let kill = Step::Tell(Command::KillService { service: 0 });
    let ask = |vm, text, end| [Step::Type(vm, text), Step::Expect(vm, end)];
    let off = |vm| [Step::Type(vm, "poweroff -f\r"), Step::Stopped(vm, StopReason::PowerOff)];
    let goes_on = |vm| [Step::Expect(vm, "round "), Step::Expect(vm, "round ")];
    let steps = [
        &is_up(0)[..],
        &is_up(1),
        &[Step::Type(0, "sh /dev/vdb shared\r")],
        &ask(1, "sh /dev/vdb shared\r", "shared ends"),
        &[Step::Expect(0, "shared ends"), Step::Type(1, ROUNDS)],
        &goes_on(1),
        &[Step::Type(0, ROUNDS)],
        &goes_on(0),
        std::slice::from_ref(&kill),
        &goes_on(0),
        &[Step::Tell(Command::Stop { vm: 0 }), Step::Stopped(0, StopReason::Killed)],
        &goes_on(1),
        &[kill.clone(), Step::Tell(Command::Restart { vm: 0 }), Step::Started(0, 2)],
        &is_up(0),
        &ask(0, "sh /dev/vdb between\r", "between ends"),
        &ask(0, "sh /dev/vdb shared\r", "shared ends"),
        &goes_on(1),
        &ask(1, "\r", "rounds ends"),
        &ask(1, "sh /dev/vdb between\r", "between ends"),
        &ask(0, "sh /dev/vdb again\r", "again ends"),
        &off(0),
        &off(1),
    ];
    let partition = vec![0; PARTITION];
    let machine =
        gpt::disk(&[&[0x55; 8 * BLOCK], &partition, &[0x11; 64 * BLOCK], &partition, &[0x55; 8 * BLOCK]]);
    let scenario = Scenario::new(name, config.concat(), steps.concat())
        .file("machine", machine)
        .file("script", SCRIPT.as_bytes().to_vec());
    scenario.limit(300).judge(|record| match record.text.contains("service nvme0 was killed") {
        true => nothing_bad(record),
        false => Err("no kill was reported".to_owned()),
    })
}

/// The same with one CPU that runs the program.
fn several_own_cpu() -> Scenario {
    let scenario = several("drives/several-own-cpu");
    let config = scenario.config.replace("trusted = true\n", "trusted = true\ncpus = [2]\n");
    scenario.with_config(config)
}

/// A guest that attacks its disks, which are partitions of one, beside another one of which it finds and changes nothing.
fn hostile(isa: Isa) -> Scenario {
    let scenario = bare(isa, "drives/hostile", "");
    let place = |partition: u32| {
        format!("device = \"nvme0\"\npartition = {partition}\ntrusted = true\ntime-limit = \"1s\"\n")
    };
    let config = scenario
        .config
        .replacen("size = \"4MiB\"\n", &(place(2) + "image = \"machine\"\n"), 1)
        .replacen("size = \"4MiB\"\n", &place(3), 1);
    let partition = vec![0; 4 << 20];
    let machine = gpt::disk(&[&[0x55; 8 * BLOCK], &partition, &partition, &[0xaa; 8 * BLOCK]]);
    scenario.with_config(config).file("machine", machine)
}

/// The controller is not lent memory that is mapped on demand: what it wrote there would be cleared when the guest touches it.
fn on_demand() -> Scenario {
    let scenario = bare(Isa::X86_64, "drives/on-demand", "mapping = \"on-demand\"");
    let disk = "device = \"nvme0\"\npartition = 1\ntime-limit = \"1s\"\nimage = \"machine\"\n";
    let config = scenario.config.replacen("size = \"4MiB\"\n", disk, 1);
    scenario.with_config(config).file("machine", gpt::disk(&[&vec![0; 4 << 20]]))
}

/// The power is lost again and again behind a flush.
fn cuts(name: &str, device: &str) -> Scenario {
    let mut steps = [&is_up(0)[..], &runs(FIRST)].concat();
    for _ in 0..CUTS {
        steps.push(Step::PowerCut);
        steps.extend([&is_up(0)[..], &runs(AGAIN), &runs(FIRST)].concat());
    }
    steps.extend([Step::Type(0, "poweroff -f\r"), Step::Stopped(0, StopReason::PowerOff)]);
    scenario(name, device, steps).limit(7200).judge(nothing_bad)
}

/// The program is killed very often while the guest writes.
fn killed(name: &str, device: &str) -> Scenario {
    let steps = [&is_up(0)[..], &[Step::Type(0, ROUNDS)], &kills(KILLS), &ENDS].concat();
    scenario(name, device, steps).limit(3600).judge(was_killed)
}

fn was_killed(record: &Record) -> Result<(), String> {
    match record.text.contains("service data was killed") {
        true => nothing_bad(record),
        false => Err("no kill was reported".to_owned()),
    }
}

const NO_NVME: &str =
    "service data cannot be built: its NVMe controller cannot be used: the machine has no such PCI function";
const NO_VIRTIO: &str =
    "service data cannot be built: its virtio disk cannot be used: the machine has no such PCI function";

/// A machine that does not have the controller.
fn no_controller(isa: Isa, device: &str, text: &'static str) -> Scenario {
    let disk = format!("[[disk]]\nname = \"data\"\ndevice = \"{device}\"\ntrusted = true\nsize = \"1MiB\"\n");
    let config = guest("vm", "echo", "16MiB", "disks = [\"data\"]") + &disk;
    let scenario = Scenario::at(isa, "refusal/no-controller", config, vec![Step::Text(text)]);
    scenario.ending(Ending::Refused).prepare(|boot, _| {
        boot.drives.clear();
        Ok(())
    })
}
