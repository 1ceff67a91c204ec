// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks that the machine has: what `device` and its companions say, and every mistake in them.

use super::*;

use turnstile_bundle::{Drive, DriveKind};

/// A disk with this name and these lines.
fn disk(name: &str, lines: &str) -> String {
    format!("[[disk]]\nname = \"{name}\"\n{lines}")
}

/// The lines of a disk behind this controller.
fn at(device: &str) -> String {
    format!("device = \"{device}\"\ntrusted = true\n")
}

/// The minimal VM with the disk `root`, which has these lines.
fn root(lines: &str) -> String {
    format!("{MINIMAL}disks = [\"root\"]\n{}", disk("root", lines))
}

#[test]
fn a_disk_is_one_of_the_machine() {
    let text = format!(
        "{MINIMAL}disks = [\"first\", \"part\", \"memory\"]\n{}{}{}",
        disk("first", &at("nvme2")),
        disk("part", &format!("{}partition = 128\nread-only = true\nimage = \"p.qcow2\"\n", at("virtio0"))),
        disk("memory", "size = \"1MiB\"\n"),
    );
    let config = parse_text(&text).unwrap();
    let devices: Vec<_> =
        config.disks.iter().map(|disk| disk.device.as_ref().map(|device| device.value.clone())).collect();
    let nvme = Drive { kind: DriveKind::Nvme, number: 2, partition: None, trusted: true };
    let virtio = Drive { kind: DriveKind::Virtio, number: 0, partition: Some(128), trusted: true };
    let of = |drive, file: &str| Some(Device { drive, file: file.into() });
    assert_eq!(devices, [of(nvme, "dir/first.img"), of(virtio, "dir/p.qcow2"), None]);
    assert_eq!(DriveKind::ALL.iter().map(|kind| config.controllers(*kind)).collect::<Vec<_>>(), [3, 1]);
    let programs: Vec<_> = config.services.iter().map(|service| service.program.value.clone()).collect();
    assert_eq!(programs, ["drive", "drive", "disk"].map(|name| Program::Ours(name.into())));
    assert!(config.disks[1].read_only);
    let server = parse_text(&root(&format!("{}image = \"debian:server\"\n", at("nvme3")))).unwrap();
    assert_eq!(server.disks[0].device.as_ref().unwrap().value.file, Path::new("dir/root.img"));
}

#[test]
fn who_is_not_trusted_is_behind_an_iommu() {
    let reach = "a disk controller reaches all memory of the machine";
    for lines in ["device = \"nvme0\"\n", "device = \"nvme0\"\ntrusted = false\n"] {
        let config = parse_text(&root(lines)).unwrap();
        assert!(config.iommu() && !config.disks[0].device.as_ref().unwrap().value.drive.trusted);
        let pc = format!("[machine]\nboard = \"pc\"\n{}", root(lines));
        expect(
            &pc,
            &[("\"nvme0\"", reach, "write trusted = true if you accept that: on the board `pc` no IOMMU")],
        );
    }
    assert!(!parse_text(&root(&at("nvme0"))).unwrap().iommu());
    for board in ["q35", "pc"] {
        let pc = format!("[machine]\nboard = \"{board}\"\n{}", root(&at("nvme0")));
        assert!(!parse_text(&pc).unwrap().iommu());
    }
    let pc = format!("[machine]\nboard = \"q35\"\n{}", root("device = \"nvme0\"\n"));
    assert!(parse_text(&pc).unwrap().iommu());
}

#[test]
fn mistakes_in_devices_are_shown() {
    for name in ["nvme", "nvme16", "nvme01", "nvme+1", "sda", "virtio-0", "net0", ""] {
        let what = format!("`{name}` is no disk controller of a machine");
        let help = "write \"nvme0\" or \"virtio0\" for the first one";
        expect(&root(&at(name)), &[(&format!("\"{name}\""), &what, help)]);
    }
    let hasty = format!("{}time-limit = \"99ms\"\n", at("nvme0"));
    expect(
        &root(&hasty),
        &[("\"nvme0\"", "a disk controller that begins may take up to 50 ms", "\"100ms\" or more")],
    );
    let memory = "size = \"1MiB\"\n";
    let what = "a disk without a device is trusted with nothing";
    expect(&root(&format!("{memory}trusted = true\n")), &[("true", what, "take `trusted` out")]);
    assert!(parse_text(&root(&format!("{memory}trusted = false\n"))).is_ok());
    let what = "a disk without a device is in memory, and is one piece";
    expect(&root(&format!("{memory}partition = 7\n")), &[("7", what, "take `partition` out")]);
    for number in ["129", "4294967297"] {
        let lines = format!("{}partition = {number}\n", at("nvme0"));
        expect(&root(&lines), &[(number, &format!("there is no partition {number}"), "one of 1 to 128")]);
    }
    let lines = format!("{}partition = 0\n", at("nvme0"));
    expect(&root(&lines), &[("0", "there is no partition 0", "one of 1 to 128")]);
    let huge = format!("{}size = \"9TiB\"\n", at("nvme0"));
    expect(&root(&huge), &[("\"9TiB\"", "too large for a disk in a file", "1KiB to 8TiB")]);
    assert!(parse_text(&root(&huge.replace('9', "8"))).is_ok(), "larger than any in memory");
    // What is wrong beside it is told at once.
    let both = format!("{}time-limit = \"2s\"\n", at("sda"));
    expect(&root(&both), &[("\"sda\"", "is no disk controller", ""), ("\"2s\"", "cannot have", "")]);
}

/// Two VMs, of which the first one has the disks `a` and `memory` and `b`, and the second one `c`, and what is said of `a`, `b` and `c`.
fn three(lines: [&str; 3]) -> String {
    let users = vms(&["disks = [\"a\", \"memory\", \"b\"]", "disks = [\"c\"]"]);
    let each = ["a", "b", "c"].iter().zip(lines);
    let disks: String = each.map(|(name, lines)| disk(name, lines)).collect();
    format!("{users}{disks}{}", disk("memory", "size = \"1MiB\"\n"))
}

/// The lines of a partition of the first NVMe disk, and more.
fn part(number: u32, more: &str) -> String {
    format!("{}partition = {number}\n{more}", at("nvme0"))
}

#[test]
fn a_controller_serves_several_disks_of_several_vms() {
    let text = three([&part(1, ""), &part(2, "image = \"machine.img\"\n"), &part(3, "read-only = true\n")]);
    let config = parse_text(&text).unwrap();
    let services: Vec<_> = config
        .services
        .iter()
        .map(|service| (service.name.value.as_str(), service.vm, service.disk, service.joins))
        .collect();
    assert_eq!(
        services,
        [
            ("nvme0", Some(0), Some(0), None),
            ("memory", Some(0), Some(3), None),
            ("b", Some(0), Some(1), Some(0)),
            ("c", Some(1), Some(2), Some(0))
        ]
    );
    let files: Vec<_> =
        config.disks.iter().filter_map(|disk| Some(&disk.device.as_ref()?.value.file)).collect();
    assert_eq!(files, [Path::new("dir/machine.img"); 3], "that of the one that says it");
    let behind = config.behind(&config.disks[2].device.as_ref().unwrap().value).unwrap();
    assert_eq!((behind.0.name.value.as_str(), behind.1), ("b", false));
    // One that is only read may be that of several VMs, whole or not.
    let users = vms(&["disks = [\"root\"]", "disks = [\"root\"]"]);
    for lines in [at("nvme0"), part(2, "")] {
        let text = format!("{users}{}", disk("root", &format!("{lines}read-only = true\n")));
        let config = parse_text(&text).unwrap();
        let services: Vec<_> =
            config.services.iter().map(|service| (service.name.value.as_str(), service.joins)).collect();
        assert_eq!(services, [("nvme0", None), ("root-b", Some(0))]);
        assert!(config.behind(&config.disks[0].device.as_ref().unwrap().value).unwrap().1, "only read");
        let what = "the VM `a` has the disk `root` already, and writes it";
        expect(
            &text.replace("read-only = true\n", ""),
            &[("\"root\"", what, "read-only = true in this one")],
        );
    }
    // Several that say the same of the file.
    let same = part(2, "image = \"i\"\nsize = \"2GiB\"\n");
    assert!(parse_text(&three([&same, &same.replace("= 2\n", "= 3\n"), &part(1, "")])).is_ok());
    // One alone is called as it is.
    let alone = parse_text(&root(&part(7, ""))).unwrap();
    assert_eq!((alone.services[0].name.value.as_str(), alone.services[0].joins), ("root", None));
}

#[test]
fn what_disks_of_a_controller_cannot_both_be_is_shown() {
    let refused = |second: &str, what: &str, help: &str| {
        let text = three([&part(1, ""), second, &at("nvme1")]);
        // The place is that of the later one, which has another spelling here.
        let problems = parse_text(&text).unwrap_err();
        let [problem] = problems.as_slice() else { panic!("{problems:?}") };
        assert!(problem.what.contains(what) && problem.help.contains(help), "{problem:?}");
        assert!(text[..problem.span.start].contains("[[disk]]\nname = \"b\""), "{problem:?}");
    };
    refused(&at("nvme0"), "the disk `a` is a partition of this disk, which is whole here", "a `partition`");
    refused(
        &part(1, ""),
        "the disk `a` is the same partition 1, and somebody writes it",
        "its own `partition`",
    );
    refused(&part(1, "read-only = true\n"), "is the same partition 1", "read-only = true in both");
    refused("device = \"nvme0\"\npartition = 2\n", "says something else by `trusted`", "the same in both");
    refused(&part(2, "time-limit = \"1s\"\n"), "says something else by `time-limit`", "the same in both");
    refused(&part(2, "cpus = [2]\n"), "says something else by `cpus`", "the same in both");
    refused(&part(2, "beside-realtime = true\n"), "by `beside-realtime`", "the same in both");
    let whole = three([&at("nvme0"), &part(2, ""), &at("nvme1")]);
    expect(&whole, &[("\"nvme0\"", "the disk `a` is the whole of this disk", "give each a `partition`")]);
    let files = three([&part(1, "size = \"1GiB\"\n"), &part(2, "image = \"i\"\n"), &at("nvme1")]);
    expect(
        &files,
        &[("\"nvme0\"", "says something else of the file behind this controller", "in one of them")],
    );
    let users: Vec<String> = (0..9).map(|number| format!("disks = [\"d{number}\"]")).collect();
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    let disks = |count: usize| {
        let disks = (0..count).map(|number| disk(&format!("d{number}"), &part(number as u32 + 1, "")));
        format!("{}{}", vms(&users[..count]), disks.collect::<String>())
    };
    assert!(parse_text(&disks(8)).is_ok());
    expect(&disks(9), &[("\"nvme0\"", "more than 8 disks behind `nvme0`", "once for each VM that has it")]);
}

#[test]
fn a_file_is_behind_one_controller_if_somebody_writes_it() {
    let with = |device: &str, more: &str| format!("{}image = \"i\"\n{more}", at(device));
    let parts = |[a, b, c]: [&str; 3]| {
        let (b, c) = (format!("partition = 1\n{b}"), format!("partition = 2\n{c}"));
        three([&with("nvme0", a), &with("virtio0", &b), &with("virtio0", &c)])
    };
    let only = "read-only = true\n";
    // Of each that is behind the second controller.
    let what = "the disk `a` has the same file behind `nvme0`, and somebody writes it";
    let shown = ("\"virtio0\"", what, "its own `image`, or write read-only = true in both");
    for writer in 0..3 {
        let mut lines = [only; 3];
        lines[writer] = "";
        expect(&parts(lines), &[shown; 2]);
    }
    assert!(parse_text(&parts([only; 3])).is_ok());
}

#[test]
fn a_board_has_the_controllers() {
    let on = |board: &str, lines: &str| format!("[machine]\nboard = \"{board}\"\n{}", root(lines));
    let what = "no disk controller of the board `rpi4` can be used";
    expect(&on("rpi4", &at("nvme0")), &[("\"nvme0\"", what, "choose another board")]);
    let what = "the board `virt` has 4 network cards and disk controllers";
    expect(&on("virt", &at("virtio4")), &[("\"virtio4\"", what, "a smaller number")]);
    let what = "the board `powernv9` has 6 network cards and disk controllers";
    expect(&on("powernv9", &at("nvme6")), &[("\"nvme6\"", what, "a smaller number")]);
    assert!(parse_text(&on("powernv9", &at("nvme5"))).is_ok());
    let lan = "[[network]]\nname = \"lan\"\nuplink = \"net1\"\ntrusted = true\n";
    let beside = |number| {
        let text = on("powernv9", &at(number)).replace("disks =", "networks = [\"lan\"]\ndisks =");
        format!("{text}{lan}")
    };
    assert!(parse_text(&beside("virtio3")).is_ok());
    expect(&beside("virtio4"), &[("\"virtio4\"", what, "take the others out")]);
    let many = |last: &str| {
        let (nvme, virtio) = (disk("a", &at("nvme11")), disk("b", &at(last)));
        format!("[machine]\nboard = \"q35\"\n{MINIMAL}disks = [\"a\", \"b\"]\n{nvme}{virtio}")
    };
    assert!(parse_text(&many("virtio11")).is_ok());
    let what = "the board `q35` has 24 network cards and disk controllers";
    expect(&many("virtio12"), &[("\"virtio12\"", what, "")]);
}
