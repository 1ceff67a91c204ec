// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every mistake that a configuration can have: where it is reported, and what is suggested.

mod console;
mod cpus;
mod disks;
mod drives;
mod entropy;
mod machines;
mod networks;
mod pool;
mod services;

use std::path::Path;

use super::*;

use turnstile_bundle::{
    Apic, Arm64, Class, Feature, Flat, Format, Gic, GicVersion, GuestMachine, Machine as Kind, Paravirt, Pc,
    Pmu, Pseries, Transport, TripleFault,
};

const MINIMAL: &str = "[[vm]]\nname = \"a\"\nkernel = \"k\"\n";

fn parse_text(text: &str) -> std::result::Result<Config, Vec<Problem>> {
    let guests = |_| vec!["echo".to_owned(), "null-hypercall".to_owned()];
    let services = ["entropy", "uart"].map(str::to_owned);
    parse(text, &Surroundings { folder: Path::new("dir"), guests: &guests, services: &services, board: None })
}

/// Asserts that `text` has exactly these problems, each as (words it underlines, message, help).
fn expect(text: &str, wanted: &[(&str, &str, &str)]) {
    let problems = parse_text(text).expect_err("the text should be refused");
    let found: Vec<(&str, &str, &str)> = problems
        .iter()
        .map(|problem| (&text[problem.span.clone()], problem.what.as_str(), problem.help.as_str()))
        .collect();
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    for (found, wanted) in found.iter().zip(wanted) {
        assert_eq!(found.0, wanted.0, "{found:?}");
        assert!(found.1.contains(wanted.1), "{found:?} should say {:?}", wanted.1);
        assert!(found.2.contains(wanted.2), "{found:?} should advise {:?}", wanted.2);
    }
}

/// Several VMs named a, b, …, each with these lines.
fn vms(lines: &[&str]) -> String {
    let vm = |(index, lines): (usize, &&str)| {
        let name = char::from(b'a' + index as u8);
        format!("[[vm]]\nname = \"{name}\"\nkernel = \"k\"\n{lines}\n")
    };
    lines.iter().enumerate().map(vm).collect()
}

const SHARED: &str = "schedule = \"shared\"\n";

#[test]
fn minimal_file_has_defaults() {
    let config = parse_text(MINIMAL).unwrap();
    let (board, gic) = (Board::Virt, GicVersion::V3);
    let machine = Machine { board, memory: None, cpus: 1, cpu: "max".into(), gic, apic: None };
    assert_eq!(config.machine, machine);
    let vm = &config.vms[0];
    assert_eq!((vm.vcpus, vm.cpus.as_slice(), vm.schedule), (1, [0].as_slice(), Schedule::Pinned));
    assert_eq!(vm.memory.value, 256 << 20);
    assert_eq!((vm.machine, vm.on_crash), (turnstile_bundle::Machine::default(), OnCrash::Stop));
    assert_eq!(vm.mapping, Mapping::AtStart);
    assert_eq!(vm.kernel.value, Source::File("dir/k".into()));
}

#[test]
fn everything_can_be_said() {
    let config = parse_text(
        r#"
        [machine]
        memory = "2GiB"
        cpus = 8
        cpu = "neoverse-n2"
        gic = 3

        [[vm]]
        name = "linux-1"
        kernel = "debian:linux"
        initrd = "debian:busybox"
        cmdline = "quiet"
        cpus = [1, 0]
        memory = "512MiB"
        machine = "kvmtool"
        gic = "v3"
        pmu = "trapped"
        sve = true
        virtio = "mmio"
        mapping = "on-demand"
        on-crash = "restart"
        statistics = true

        [[vm]]
        name = "small"
        kernel = "guest:echo"
        vcpus = 2

        [[vm]]
        name = "shared"
        kernel = "guest:echo"
        schedule = "shared"
        vcpus = 9
        cpus = [5, 4]
        realtime = 99
        pmu = "owned"
        "#,
    )
    .unwrap();
    assert_eq!(config.machine.memory.as_ref().map(|memory| memory.value), Some(2 << 30));
    assert_eq!((config.machine.cpus, config.machine.cpu.as_str()), (8, "neoverse-n2"));
    let [linux, small, shared] = config.vms.as_slice() else { panic!("{config:?}") };
    assert_eq!(linux.cpus, [1, 0]);
    assert_eq!(linux.initrd.as_ref().unwrap().value, Source::Debian(DebianPart::Busybox));
    let expected = Arm64 {
        map: GuestMachine::Kvmtool,
        gic: Gic::V3,
        pmu: Pmu::Trapped,
        sve: true,
        format: Format::Image,
        flash: 0,
        virtio: Transport::Mmio,
    };
    assert_eq!(linux.machine.arm64(), Some(&expected));
    assert_eq!((linux.on_crash, linux.mapping), (OnCrash::Restart, Mapping::OnDemand));
    assert_eq!((linux.statistics, small.statistics), (true, false));
    assert_eq!(small.kernel.value, Source::Guest("echo".into()));
    assert_eq!(small.cpus, [2, 3], "the free CPUs, in order");
    assert_eq!((shared.vcpus, shared.cpus.as_slice()), (9, [5, 4].as_slice()));
    assert_eq!(shared.machine.arm64().map(|arm64| arm64.pmu), Some(Pmu::Owned));
    assert_eq!(shared.schedule, Schedule::Shared(Class::RealTime { priority: 99 }));
}

#[test]
fn flat_images_and_flash() {
    let arm64 = |text: &str| {
        let config = parse_text(&format!("{MINIMAL}{text}\n")).unwrap();
        *config.vms[0].machine.arm64().unwrap()
    };
    let flat = |load, entry| Format::Flat(Flat { load, entry });
    assert_eq!(arm64("format = \"image\"").format, Format::Image);
    assert_eq!(arm64("format = \"flat\"").format, flat(0x4020_0000, 0x4020_0000));
    let kvmtool = arm64("format = \"flat\"\nmachine = \"kvmtool\"");
    assert_eq!(kvmtool.format, flat(0x8020_0000, 0x8020_0000));
    let placed =
        arm64("format = \"flat\"\nload-address = 0x4400_0000\nentry = 0x4400_0040\nflash = \"8MiB\"");
    assert_eq!((placed.format, placed.flash), (flat(0x4400_0000, 0x4400_0040), 8 << 20));
    assert_eq!(arm64("format = \"flat\"\nload-address = 0").format, flat(0, 0));

    expect(
        &format!("{MINIMAL}load-address = 0x4020_0000\nentry = 4\n"),
        &[
            ("0x4020_0000", "`load-address` is for flat images", "format = \"flat\", or leave it out"),
            ("4", "`entry` is for flat images", "format = \"flat\", or leave it out"),
        ],
    );
    expect(&format!("{MINIMAL}format = \"elf\"\n"), &[("\"elf\"", "`format` cannot be", "`flat`")]);
    for size in ["1MiB", "6MiB", "128MiB"] {
        let problem = (format!("\"{size}\""), format!("cannot have {size}"));
        let help = "a power of two from 2MiB to 64MiB";
        expect(&format!("{MINIMAL}flash = \"{size}\"\n"), &[(&problem.0, &problem.1, help)]);
    }
    let small = "machine = \"kvmtool\"\nflash = \"32MiB\"\n";
    expect(&format!("{MINIMAL}{small}"), &[("\"32MiB\"", "cannot have 32MiB", "from 2MiB to 16MiB")]);
    expect(&format!("{MINIMAL}flash = \"0MiB\"\n"), &[("\"0MiB\"", "", "")]);
    let pc = "[machine]\nisa = \"x86_64\"\n[[vm]]\nname = \"a\"\nkernel = \"k\"\nformat = \"flat\"\n";
    expect(pc, &[("format", "`format` is for arm64, and this machine is a PC", "leave it out")]);
}

#[test]
fn unknown_keys_get_a_suggestion() {
    expect(
        "[machin]\ncpus = 1\n[[vm]]\nname = \"a\"\nkernel = \"k\"\nvcpu = 4\non_crash = \"stop\"\n",
        &[
            ("machin", "unknown key `machin`", "did you mean `machine`?"),
            ("vcpu", "unknown key `vcpu`", "did you mean `vcpus`?"),
            ("on_crash", "unknown key `on_crash`", "did you mean `on-crash`?"),
        ],
    );
    expect(
        &format!("{MINIMAL}zebra = 1\n"),
        &[("zebra", "unknown key `zebra`", "known are `name`, `kernel`, `initrd`")],
    );
}

#[test]
fn sizes_of_memory() {
    expect(&format!("{MINIMAL}memory = 512\n"), &[("512", "a size in quotes, not an integer", "\"512MiB\"")]);
    expect(&format!("{MINIMAL}memory = -5\n"), &[("-5", "in quotes, not a negative number", "\"512MiB\"")]);
    expect(&format!("{MINIMAL}memory = \"0.5GiB\"\n"), &[("\"0.5GiB\"", "is not a size", "\"512MiB\"")]);
    expect(&format!("{MINIMAL}memory = \"0MiB\"\n"), &[("\"0MiB\"", "too small", "at least 4MiB")]);
    let machine = parse_text(&format!("[machine]\nmemory = \"1TiB\"\n{MINIMAL}")).unwrap().machine;
    assert_eq!(machine.memory.map(|memory| memory.value), Some(1 << 40));
    let digits = format!("\"{}MiB\"", "9".repeat(30));
    expect(&format!("{MINIMAL}memory = {digits}\n"), &[(&digits, "is too large", "below 2^64")]);
    expect(&format!("{MINIMAL}memory = \"512M\"\n"), &[("\"512M\"", "is not a size", "\"512MiB\"")]);
    expect(&format!("{MINIMAL}memory = \"3MiB\"\n"), &[("\"3MiB\"", "too small", "at least 4MiB")]);
    expect(&format!("{MINIMAL}memory = \"5MiB\"\n"), &[("\"5MiB\"", "not a multiple", "4MiB or 6MiB")]);
    expect(&format!("{MINIMAL}memory = \"2048GiB\"\n"), &[("\"2048GiB\"", "do not fit", "at most")]);
}

#[test]
fn names() {
    expect(
        "[[vm]]\nname = \"My VM\"\nkernel = \"k\"\n",
        &[("\"My VM\"", "cannot be a VM's name", "a-z, 0-9")],
    );
    expect("[[vm]]\nkernel = \"k\"\n", &[("[[vm]]", "`name` is missing", "such as")]);
    expect(&format!("{MINIMAL}{MINIMAL}"), &[("\"a\"", "two VMs with the name `a`", "")]);
}

#[test]
fn sources() {
    let kernel = |text: &str| format!("[[vm]]\nname = \"a\"\nkernel = \"{text}\"\n");
    expect(
        &kernel("guest:null-hypercal"),
        &[(
            "\"guest:null-hypercal\"",
            "no guest `null-hypercal` for arm64",
            "did you mean `null-hypercall`?",
        )],
    );
    expect(
        &kernel("debian:busybox"),
        &[("\"debian:busybox\"", "no kernel `debian:busybox`", "debian:linux")],
    );
    let power = format!("[machine]\nisa = \"power64\"\n{}", kernel("debian:linux-standard"));
    let (place, what) = ("\"debian:linux-standard\"", "no kernel `debian:linux-standard` for power64");
    expect(&power, &[(place, what, "\"debian:linux\", \"debian:linux-4k\" or a path")]);
    expect("[[vm]]\nname = \"a\"\n", &[("[[vm]]", "`kernel` is missing", "debian:linux")]);
    expect(&format!("{MINIMAL}initrd = \"\"\n"), &[("\"\"", "`initrd` is empty", "")]);
}

#[test]
fn choices() {
    expect(&format!("{MINIMAL}machine = \"vir\"\n"), &[("\"vir\"", "`machine` cannot be", "`virt`?")]);
    expect(&format!("{MINIMAL}pmu = \"yes\"\n"), &[("\"yes\"", "`pmu` cannot be", "`off`")]);
    expect(
        &format!("{MINIMAL}mapping = \"demand\"\n"),
        &[("\"demand\"", "`mapping` cannot be", "`on-demand`")],
    );
    expect(&format!("{MINIMAL}on-crash = true\n"), &[("true", "must be a string, not a boolean", "")]);
    expect(
        &format!("{MINIMAL}statistics = \"on\"\n"),
        &[("\"on\"", "must be true or false, not a string", "")],
    );
}

#[test]
fn wrong_shapes() {
    expect("[vm]\nname = \"a\"\n", &[("vm", "`vm` is a list of tables", "[[vm]], with two brackets")]);
    expect("", &[("", "there is no VM", "examples/one-linux.toml")]);
    let many: String = (0..33).map(|n| format!("[[vm]]\nname = \"v{n}\"\nkernel = \"k\"\n")).collect();
    expect(&many, &[("\"v32\"", "33 VMs are more than 32", "")]);
    let long = format!("{MINIMAL}cmdline = \"{}\"\n", "x".repeat(2048));
    let problems = parse_text(&long).unwrap_err();
    assert!(problems[0].what.contains("2048 bytes"), "{problems:?}");
    let syntax = parse_text("[[vm]\nname = 1").unwrap_err();
    assert_eq!(syntax.len(), 1, "{syntax:?}");
}

#[test]
fn all_problems_come_in_the_order_of_the_file() {
    let problems =
        parse_text("[[vm]]\nvcpus = 513\nname = \"A\"\nmemory = \"1MiB\"\nkernel = \"guest:no\"\n");
    let spans: Vec<usize> = problems.unwrap_err().iter().map(|problem| problem.span.start).collect();
    assert_eq!(spans.len(), 4);
    assert!(spans.is_sorted());
}

#[test]
fn a_forgotten_header_is_one_problem() {
    let what = "is a key of a VM, and no [[vm]] stands above it";
    expect("name = \"a\"\nkernel = \"k\"\nvcpus = 900\n", &[("name", what, "[[vm]] on a line of its own")]);
    expect("[machine]\ncpus = 1\n", &[("", "there is no VM", "")]);
    // Where there is one, the others are not VM keys.
    expect(&format!("vcpus = 2\n{MINIMAL}"), &[("vcpus", "unknown key", "")]);
}

#[test]
fn a_command_line_is_one_line() {
    let text = format!("{MINIMAL}cmdline = \"\"\"a\nb\"\"\"\n");
    expect(&text, &[("\"\"\"a\nb\"\"\"", "line break", "on one line")]);
    assert_eq!(
        parse_text(&format!("{MINIMAL}cmdline = \"\"\"\na \\\n b\"\"\"\n")).unwrap().vms[0].cmdline,
        "a b"
    );
}
