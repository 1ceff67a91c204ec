// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every mistake that a configuration can have: where it is reported, and what is suggested.

use std::path::Path;

use super::*;

const MINIMAL: &str = "[[vm]]\nname = \"a\"\nkernel = \"k\"\n";

fn parse_text(text: &str) -> std::result::Result<Config, Vec<Problem>> {
    let guests = ["echo".to_owned(), "null-hypercall".to_owned()];
    parse(text, &Surroundings { folder: Path::new("dir"), guests: &guests })
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
    assert_eq!(config.machine, Machine { memory: None, cpus: 1, cpu: "max".into() });
    let vm = &config.vms[0];
    assert_eq!(vm.cpus, [0]);
    assert_eq!(vm.memory.value, 256 << 20);
    assert_eq!((vm.machine, vm.pmu, vm.on_crash), (GuestMachine::Virt, Pmu::Off, OnCrash::Stop));
    assert_eq!(vm.kernel.value, Source::File("dir/k".into()));
}

#[test]
fn everything_can_be_said() {
    let config = parse_text(
        r#"
        [machine]
        memory = "2GiB"
        cpus = 8
        cpu = "neoverse-n1"

        [[vm]]
        name = "linux-1"
        kernel = "debian:linux"
        initrd = "debian:busybox"
        cmdline = "quiet"
        cpus = [1, 0]
        memory = "512MiB"
        machine = "kvmtool"
        pmu = "trapped"
        on-crash = "restart"
        statistics = true

        [[vm]]
        name = "small"
        kernel = "guest:echo"
        vcpus = 2
        "#,
    )
    .unwrap();
    assert_eq!(config.machine.memory.as_ref().map(|memory| memory.value), Some(2 << 30));
    assert_eq!((config.machine.cpus, config.machine.cpu.as_str()), (8, "neoverse-n1"));
    let [linux, small] = config.vms.as_slice() else { panic!("{config:?}") };
    assert_eq!(linux.cpus, [1, 0]);
    assert_eq!(linux.initrd.as_ref().unwrap().value, Source::Debian(DebianPart::Busybox));
    assert_eq!(
        (linux.machine, linux.pmu, linux.on_crash),
        (GuestMachine::Kvmtool, Pmu::Trapped, OnCrash::Restart)
    );
    assert_eq!((linux.statistics, small.statistics), (true, false));
    assert_eq!(small.kernel.value, Source::Guest("echo".into()));
    assert_eq!(small.cpus, [2, 3], "the free CPUs, in order");
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
    expect(&format!("{MINIMAL}vcpus = 65\n"), &[("65", "65 vCPUs cannot be had", "1 to 64")]);
    expect(&format!("{MINIMAL}vcpus = 0\n"), &[("0", "0 vCPUs cannot be had", "1 to 64")]);
    expect(&format!("{MINIMAL}vcpus = -1\n"), &[("-1", "`vcpus` must not be negative", "1 or more")]);
    expect(&format!("{MINIMAL}vcpus = \"4\"\n"), &[("\"4\"", "must be a whole number, not a string", "")]);
    let huge = "9".repeat(50);
    expect(&format!("{MINIMAL}vcpus = {huge}\n"), &[(&huge, "too large", "below 2^64")]);
    expect(&format!("{MINIMAL}vcpus = -{huge}\n"), &[(&format!("-{huge}"), "must not be negative", "")]);
    assert_eq!(parse_text(&format!("{MINIMAL}vcpus = 64\n")).unwrap().machine.cpus, 64);
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
        &[("1", "CPU 1 belongs to the VM `a` already", "a physical CPU of its own")],
    );
    expect(&two("cpus = [3, 3]", ""), &[("3", "CPU 3 is named twice", "")]);
    expect(&two("vcpus = 2\ncpus = [3, \"a\"]", ""), &[("\"a\"", "`cpus` must be a list of whole", "")]);
    expect(&two("cpus = [-1]", ""), &[("-1", "`cpus` must not be negative", "0 or more")]);
    let last = u64::MAX.to_string();
    expect(&two(&format!("cpus = [{last}]"), ""), &[(&last, "there is no CPU", "counted from 0")]);
    expect(&two("vcpus = 2\ncpus = [3]", ""), &[("[3]", "2 vCPUs are pinned to 1 CPUs", "name 2 CPUs")]);
    let machine = |text: &str| format!("[machine]\ncpus = 2\n{text}");
    expect(&machine(&two("vcpus = 2", "")), &[("2", "3 vCPUs together", "give 3")]);
    expect(&machine(&two("cpus = [7]", "")), &[("7", "there is no CPU 7", "")]);
    expect(
        "[machine]\ncpus = 0\n[[vm]]\nname = \"a\"\nkernel = \"k\"\n",
        &[("0", "a machine with 0 CPUs", ""), ("0", "1 vCPUs together", "")],
    );
    let config = parse_text(&two("cpus = [1]", "")).unwrap();
    assert_eq!((config.vms[1].cpus.as_slice(), config.machine.cpus), ([0].as_slice(), 2));
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
        &[("\"guest:null-hypercal\"", "no guest `null-hypercal`", "did you mean `null-hypercall`?")],
    );
    expect(
        &kernel("debian:busybox"),
        &[("\"debian:busybox\"", "no kernel `debian:busybox`", "debian:linux")],
    );
    expect("[[vm]]\nname = \"a\"\n", &[("[[vm]]", "`kernel` is missing", "debian:linux")]);
    expect(&format!("{MINIMAL}initrd = \"\"\n"), &[("\"\"", "`initrd` is empty", "")]);
}

#[test]
fn choices() {
    expect(&format!("{MINIMAL}machine = \"vir\"\n"), &[("\"vir\"", "no value of `machine`", "`virt`?")]);
    expect(&format!("{MINIMAL}pmu = \"on\"\n"), &[("\"on\"", "no value of `pmu`", "`off`")]);
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
    let many: String = (0..17).map(|n| format!("[[vm]]\nname = \"v{n}\"\nkernel = \"k\"\n")).collect();
    expect(&many, &[("\"v16\"", "17 VMs are more than 16", "")]);
    let long = format!("{MINIMAL}cmdline = \"{}\"\n", "x".repeat(2048));
    let problems = parse_text(&long).unwrap_err();
    assert!(problems[0].what.contains("2048 bytes"), "{problems:?}");
    let syntax = parse_text("[[vm]\nname = 1").unwrap_err();
    assert_eq!(syntax.len(), 1, "{syntax:?}");
}

#[test]
fn all_problems_come_in_the_order_of_the_file() {
    let problems = parse_text("[[vm]]\nvcpus = 65\nname = \"A\"\nmemory = \"1MiB\"\nkernel = \"guest:no\"\n");
    let spans: Vec<usize> = problems.unwrap_err().iter().map(|problem| problem.span.start).collect();
    assert_eq!(spans.len(), 4);
    assert!(spans.is_sorted());
}
