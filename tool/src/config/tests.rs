// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every mistake that a configuration can have: where it is reported, and what is suggested.

use std::path::Path;

use super::*;

use turnstile_bundle::{
    Apic, Arm64, Class, Feature, Flat, Format, Gic, GicVersion, GuestMachine, Machine as Kind, Paravirt, Pc,
    Pmu, Pseries, TripleFault,
};

const MINIMAL: &str = "[[vm]]\nname = \"a\"\nkernel = \"k\"\n";

fn parse_text(text: &str) -> std::result::Result<Config, Vec<Problem>> {
    let guests = |_| vec!["echo".to_owned(), "null-hypercall".to_owned()];
    parse(text, &Surroundings { folder: Path::new("dir"), guests: &guests, board: None })
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
fn numbers_of_vcpus() {
    expect(&format!("{MINIMAL}vcpus = 513\n"), &[("513", "cannot have 513 vCPUs", "1 to 512")]);
    expect(&format!("{MINIMAL}vcpus = 0\n"), &[("0", "cannot have 0 vCPUs", "1 to 512")]);
    expect(&format!("{MINIMAL}vcpus = -1\n"), &[("-1", "`vcpus` must not be negative", "1 or more")]);
    expect(&format!("{MINIMAL}vcpus = \"4\"\n"), &[("\"4\"", "must be a whole number, not a string", "")]);
    let huge = "9".repeat(50);
    expect(&format!("{MINIMAL}vcpus = {huge}\n"), &[(&huge, "too large", "below 2^64")]);
    expect(&format!("{MINIMAL}vcpus = -{huge}\n"), &[(&format!("-{huge}"), "must not be negative", "")]);
    assert_eq!(parse_text(&format!("{MINIMAL}vcpus = 512\n")).unwrap().machine.cpus, 512);
}

#[test]
fn physical_cpus() {
    let two = |first: &str, second: &str| {
        format!(
            "[[vm]]\nname = \"a\"\nkernel = \"k\"\n{first}\n[[vm]]\nname = \"b\"\nkernel = \"k\"\n{second}\n"
        )
    };
    expect(
        &two("cpus = [0, 1]", "cpus = [2, 1]"),
        &[("1", "CPU 1 belongs to the VM `a` already", "name another, or write schedule = \"shared\"")],
    );
    expect(&two("cpus = [3, 3]", ""), &[("3", "CPU 3 is named twice", "")]);
    expect(&two("vcpus = 2\ncpus = [3, \"a\"]", ""), &[("\"a\"", "`cpus` must be a list of whole", "")]);
    expect(&two("cpus = [-1]", ""), &[("-1", "`cpus` must not be negative", "0 or more")]);
    let last = u64::MAX.to_string();
    expect(&two(&format!("cpus = [{last}]"), ""), &[(&last, "there is no CPU", "counted from 0")]);
    expect(&two("vcpus = 2\ncpus = [3]", ""), &[("[3]", "2 vCPUs are pinned to 1 CPUs", "name 2 CPUs")]);
    let machine = |text: &str| format!("[machine]\ncpus = 2\n{text}");
    expect(&machine(&two("vcpus = 2", "")), &[("2", "need 3 CPUs, and the machine has 2", "give 3")]);
    expect(&machine(&two("cpus = [7]", "")), &[("7", "there is no CPU 7", "")]);
    expect(
        "[machine]\ncpus = 0\n[[vm]]\nname = \"a\"\nkernel = \"k\"\n",
        &[("0", "cannot have 0 CPUs", ""), ("0", "need 1 CPUs", "")],
    );
    let config = parse_text(&two("cpus = [1]", "")).unwrap();
    assert_eq!((config.vms[1].cpus.as_slice(), config.machine.cpus), ([0].as_slice(), 2));
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
fn shared_cpus() {
    let cpus = |text: &str| {
        let config = parse_text(text).unwrap();
        (config.machine.cpus, config.vms.into_iter().map(|vm| (vm.vcpus, vm.cpus)).collect::<Vec<_>>())
    };
    let shared = |lines: &str| format!("{SHARED}{lines}");
    // Several may name the same CPUs, and have more vCPUs than these.
    let text = vms(&[&shared("cpus = [0, 1]\nvcpus = 4"), &shared("cpus = [1, 2]"), "cpus = [3]"]);
    assert_eq!(cpus(&text), (4, vec![(4, vec![0, 1]), (2, vec![1, 2]), (1, vec![3])]));
    // Without a list: all that nobody is pinned to, whether the pins are written or found.
    let text = vms(&[&shared("vcpus = 3"), "vcpus = 2", "cpus = [1]"]);
    assert_eq!(cpus(&text), (4, vec![(3, vec![3]), (2, vec![0, 2]), (1, vec![1])]));
    let text = format!("[machine]\ncpus = 6\n{text}");
    assert_eq!(cpus(&text).1[0].1, [3, 4, 5]);
    let text = vms(&[&shared("vcpus = 64"), &shared("vcpus = 64")]);
    assert_eq!(cpus(&text), (1, vec![(64, vec![0]), (64, vec![0])]));
    assert_eq!(cpus(&vms(&[&shared("cpus = [2]"), SHARED])), (3, vec![(1, vec![2]), (1, vec![0, 1, 2])]));

    let pinned_to = "the VM `a` is pinned to CPU 1 and does not share it";
    expect(
        &vms(&["cpus = [0, 1]", &shared("cpus = [1, 2]")]),
        &[("1", pinned_to, "write schedule = \"shared\" in `a` too")],
    );
    expect(
        &vms(&[&shared("cpus = [1, 2]"), "cpus = [2]"]),
        &[("2", "CPU 2 is shared by the VM `a`", "write schedule = \"shared\" in `b` too")],
    );
    expect(&vms(&[&shared("cpus = [1, 1]")]), &[("1", "CPU 1 is named twice", "name it once")]);
    expect(&vms(&[&shared("cpus = []")]), &[("[]", "a VM needs physical CPUs", "name at least one")]);
    expect(
        &format!("[machine]\ncpus = 1\n{}", vms(&["", SHARED])),
        &[("1", "the VMs need 2 CPUs, and the machine has 1", "give 2 `cpus`, leave `cpus` out")],
    );
    expect(&vms(&["cpus = [3]\nvcpus = 2"]), &[("[3]", "2 vCPUs are pinned", "schedule = \"shared\"")]);
}

#[test]
fn weights_and_priorities() {
    let schedule = |lines: &str| parse_text(&vms(&[lines])).unwrap().vms[0].schedule;
    assert_eq!(schedule(SHARED), Schedule::Shared(Class::Fair { weight: 100 }));
    let weight = format!("{SHARED}weight = 10000");
    assert_eq!(schedule(&weight), Schedule::Shared(Class::Fair { weight: 10_000 }));
    assert_eq!(schedule("schedule = \"pinned\""), Schedule::Pinned);

    let bad =
        |lines: &str, wanted: (&str, &str, &str)| expect(&vms(&[&format!("{SHARED}{lines}")]), &[wanted]);
    bad("weight = 0", ("0", "`weight` cannot be 0", "give 1 to 10000"));
    bad("weight = 10001", ("10001", "`weight` cannot be", ""));
    bad("realtime = 0", ("0", "`realtime` cannot be 0", "give 1 to 99"));
    bad("realtime = 100", ("100", "`realtime` cannot be", ""));
    bad(
        "weight = 5\nrealtime = 1",
        ("5", "a real-time VM has no weight", "leave `weight` or `realtime` out"),
    );
    for key in ["weight", "realtime"] {
        let what = format!("`{key}` is for VMs that share");
        expect(&vms(&[&format!("{key} = 7")]), &[("7", &what, "write schedule = \"shared\"")]);
    }
    expect(&vms(&["schedule = \"fair\""]), &[("\"fair\"", "`schedule` cannot be", "`pinned` and `shared`")]);
}

#[test]
fn interrupt_controllers() {
    let v2 = |lines: &[&str]| format!("[machine]\ngic = 2\n{}", vms(lines));
    let machine = parse_text(&v2(&["vcpus = 8"])).unwrap().machine;
    assert_eq!((machine.gic, machine.cpus), (GicVersion::V2, 8));
    expect(
        "[machine]\ngic = 4\n[[vm]]\nname = \"a\"\nkernel = \"k\"\n",
        &[("4", "no machine with a GICv4", "2 or 3")],
    );
    expect(
        &format!("[machine]\ngic = 2\ncpus = 9\n{MINIMAL}"),
        &[("9", "a machine with a GICv2 cannot have 9 CPUs", "1 to 8")],
    );
    expect(&v2(&["gic = \"v3\""]), &[("\"v3\"", "a machine with a GICv2 has no GICv3", "gic = 3")]);
    expect(
        &v2(&[&format!("{SHARED}vcpus = 9")]),
        &[("9", "9 vCPUs are too many for a GICv2", "at most 8, or write gic = 3 in [machine]")],
    );
    expect(
        &vms(&["gic = \"v2\"\nvcpus = 9"]),
        &[("9", "9 vCPUs are too many for a GICv2", "leave this VM's `gic` out")],
    );
    expect(
        &v2(&["vcpus = 8", "vcpus = 2"]),
        &[("", "the VMs need 10 CPUs", "at most 8 CPUs: give it `gic = 3`")],
    );
}

#[test]
fn sve_needs_a_processor_that_has_it() {
    let text = format!("[machine]\ncpu = \"cortex-a76\"\n{MINIMAL}sve = true\n");
    expect(&text, &[("true", "`cortex-a76` has no SVE", "choose another `cpu`")]);
    let config = parse_text(&format!("{MINIMAL}sve = true\n")).unwrap();
    assert!(config.vms[0].machine.arm64().is_some_and(|arm64| arm64.sve));
}

#[test]
fn a_board_has_what_it_has() {
    let board =
        |machine: &str, lines: &[&str]| format!("[machine]\nboard = \"rpi4\"\n{machine}\n{}", vms(lines));
    let machine = parse_text(&board("", &["cpus = [0]"])).unwrap().machine;
    assert_eq!((machine.board, machine.cpus, machine.gic), (Board::Rpi4, 4, GicVersion::V2));
    assert_eq!((machine.cpu.as_str(), machine.memory.unwrap().value), ("cortex-a72", 960 << 20));
    let same = "cpu = \"cortex-a72\"\ncpus = 4\nmemory = \"4GiB\"\ngic = 2";
    let machine = parse_text(&board(same, &[""])).unwrap().machine;
    assert_eq!(machine.memory.unwrap().value, (4 << 30) - (76 << 20), "the VideoCore has its part");
    for (line, word, has) in [
        ("cpu = \"max\"", "\"max\"", "the processor `cortex-a72`"),
        ("cpus = 2", "2", "4 CPUs"),
        ("memory = \"3GiB\"", "\"3GiB\"", "1GiB, 2GiB, 4GiB, 8GiB of memory"),
        ("gic = 3", "3", "a GICv2"),
    ] {
        expect(&board(line, &[""]), &[(word, &format!("this board has {has}"), "out")]);
    }
    expect(
        &board("", &["vcpus = 5"]),
        &[("machine", "need 5 CPUs, and the machine has 4", "at most 4 CPUs: use fewer vCPUs")],
    );
    expect(&board("", &["cpus = [4]"]), &[("4", "there is no CPU 4: the machine has 4", "name another")]);
    expect(&board("", &["gic = \"v3\""]), &[("\"v3\"", "has no GICv3", "leave this `gic` out")]);
    expect(&format!("[machine]\nboard = \"pi4\"\n{MINIMAL}"), &[("\"pi4\"", "`board` cannot be", "`rpi4`?")]);
}

/// A machine with these lines, and a VM with those.
fn pc(machine: &str, vm: &str) -> String {
    format!("[machine]\nisa = \"x86_64\"\n{machine}\n{MINIMAL}{vm}\n")
}

#[test]
fn a_pc_has_keys_of_its_own() {
    let config = parse_text(&pc("", "")).unwrap();
    assert_eq!((config.machine.board, config.machine.model().as_str()), (Board::Q35, "max"));
    assert_eq!(config.vms[0].machine.pc(), Some(&Pc::default()));
    let config = parse_text(&pc(
        "board = \"microvm\"\ncpu = \"EPYC\"\napic = \"xapic\"",
        "machine = \"pc\"\napic = \"xapic\"\nparavirt = [\"eoi\", \"clock\"]\ntriple-fault = \"crash\"",
    ));
    let config = config.unwrap();
    assert_eq!((config.machine.board, config.machine.model().as_str()), (Board::Microvm, "EPYC,-x2apic"));
    let paravirt = Paravirt::NONE.with(Feature::Clock).with(Feature::Eoi);
    let expected = Pc { apic: Apic::Xapic, paravirt, triple_fault: TripleFault::Crash };
    assert_eq!(config.vms[0].machine.pc(), Some(&expected));
    let paravirt = |value: &str| {
        let text = pc("", &format!("paravirt = {value}"));
        parse_text(&text).unwrap().vms[0].machine.pc().unwrap().paravirt
    };
    assert_eq!((paravirt("\"all\""), paravirt("\"none\"")), (Paravirt::ALL, Paravirt::NONE));
    assert_eq!(paravirt("[]"), Paravirt::NONE);
    // A VM stands before its machine as well as behind it.
    let before = format!("{MINIMAL}apic = \"x2apic\"\n[machine]\nboard = \"pc\"\n");
    assert_eq!(parse_text(&before).unwrap().machine.board, Board::Pc);
}

#[test]
fn what_is_wrong_with_a_pc() {
    expect(
        &pc("gic = 3", "gic = \"v3\"\npmu = \"off\""),
        &[
            ("gic", "`gic` is for arm64, and this machine is a PC", "leave it out"),
            ("gic", "`gic` is for arm64, and this machine is a PC", "isa"),
            ("pmu", "`pmu` is for arm64", ""),
        ],
    );
    expect(
        &format!("[machine]\napic = \"xapic\"\n{MINIMAL}paravirt = \"all\"\n"),
        &[("apic", "`apic` is for PCs", "x86_64"), ("paravirt", "`paravirt` is for PCs", "x86_64")],
    );
    expect(
        &format!("[machine]\nboard = \"q35\"\nisa = \"arm64\"\n{MINIMAL}"),
        &[("\"arm64\"", "the board `q35` is x86_64, not arm64", "leave `isa` out")],
    );
    expect(&pc("cpu = \"neoverse-n1\"", ""), &[("\"neoverse-n1\"", "`cpu` cannot be", "`max`")]);
    expect(&pc("", "machine = \"virt\""), &[("\"virt\"", "`machine` cannot be", "`pc`")]);
    expect(&pc("", "apic = \"apic\""), &[("\"apic\"", "`apic` cannot be", "`xapic`")]);
    expect(&pc("", "paravirt = \"some\""), &[("\"some\"", "`paravirt` cannot be", "`clock`, `eoi`")]);
    expect(
        &pc("", "paravirt = [\"steel-time\"]"),
        &[("\"steel-time\"", "no paravirtual feature `steel-time`", "`steal-time`?")],
    );
    expect(&pc("", "paravirt = [\"eoi\", \"eoi\"]"), &[("\"eoi\"", "`eoi` is named twice", "once")]);
    expect(&pc("", "paravirt = 7"), &[("7", "must be a word, or a list of words, not an integer", "")]);
    let many = format!("{SHARED}apic = \"xapic\"\nvcpus = 256");
    expect(&pc("", &many), &[("256", "256 vCPUs are too many for a PC with an xapic", "at most 255")]);
    expect(&pc("board = \"pc\"\ncpus = 256", ""), &[("256", "a pc cannot have 256 CPUs", "1 to 255")]);
    expect(&pc("", "memory = \"2048GiB\""), &[("\"2048GiB\"", "do not fit", "at most")]);
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
fn machines_with_power_have_room_for_their_firmware() {
    let power = |line: &str| format!("[machine]\nboard = \"powernv10\"\n{line}\n{MINIMAL}");
    let machine = parse_text(&power("memory = \"1GiB\"")).unwrap().machine;
    assert_eq!((machine.board, machine.cpu.as_str()), (Board::Powernv10, "power10"));
    expect(
        &power("memory = \"512MiB\""),
        &[("\"512MiB\"", "a powernv10 cannot have 512MiB of memory", "give 1GiB or more")],
    );
}

#[test]
fn threads_make_whole_cores() {
    let power = |lines: &str| format!("[machine]\nisa = \"power64\"\n{MINIMAL}{lines}\n");
    let config = parse_text(&power("vcpus = 8\nthreads = 4")).unwrap();
    let expected = Kind::Pseries(Pseries { threads: 4, ..Pseries::default() });
    assert_eq!(config.vms[0].machine, expected);
    expect(&power("threads = 3"), &[("3", "a core cannot have 3 threads", "give 1, 2, 4 or 8")]);
    expect(
        &power("vcpus = 6\nthreads = 4"),
        &[("6", "6 vCPUs are no whole cores of 4 threads", "give 8, or other `threads`")],
    );
    expect(
        &format!("{MINIMAL}threads = 2\n"),
        &[(
            "threads",
            "`threads` is for POWER, and this machine is for arm64",
            "leave it out, or write isa = \"power64\" in [machine]",
        )],
    );
}
