// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a board, a processor or an architecture has.

use super::*;

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
        &[("2", "the VMs need 10 CPUs", "at most 8 CPUs: give it `gic = 3`")],
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
fn virtio_devices_are_behind_mmio_on_arm64_alone() {
    let transport = |text: &str| parse_text(text).unwrap().vms[0].machine.arm64().map(|arm64| arm64.virtio);
    assert_eq!(transport(MINIMAL), Some(Transport::Pci));
    assert_eq!(transport(&format!("{MINIMAL}virtio = \"pci\"\n")), Some(Transport::Pci));
    assert_eq!(transport(&format!("{MINIMAL}virtio = \"mmio\"\n")), Some(Transport::Mmio));
    let wrong = format!("{MINIMAL}virtio = \"isa\"\n");
    expect(&wrong, &[("\"isa\"", "`virtio` cannot be `isa`", "`mmio`")]);
    for (isa, what, why) in [
        ("x86_64", "whose guests find devices without PCI in their device tree", "a PC has PCI"),
        ("power64", "has virtio devices behind PCI alone", "leave it out"),
    ] {
        let text = format!("[machine]\nisa = \"{isa}\"\n{MINIMAL}virtio = \"mmio\"\n");
        expect(&text, &[("virtio", what, why)]);
    }
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
