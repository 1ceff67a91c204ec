// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[disk]]` and `disks`: what they say, and every mistake in them.

use super::*;

use turnstile_bundle::ServiceDevice;

use crate::config::disk::DiskSource;

const ROOT: &str = "[[disk]]\nname = \"root\"\nsize = \"1GiB\"\n";

/// The minimal VM with these disks, and these tables.
fn with(disks: &str, tables: &str) -> String {
    format!("{MINIMAL}disks = [{disks}]\n{tables}")
}

#[test]
fn each_disk_is_a_service_of_its_vm() {
    let text = format!(
        "{}[[disk]]\nname = \"tools\"\nimage = \"tools.img\"\nread-only = true\n{ROOT}\
         [[service]]\nname = \"own\"\nprogram = \"./own\"\nvm = \"a\"\ndevice = \"pci\"\n",
        vms(&["disks = [\"root\", \"tools\"]", "disks = [\"tools\"]"])
    );
    let config = parse_text(&text).unwrap();
    let [tools, root] = config.disks.as_slice() else { panic!("{config:?}") };
    assert_eq!(
        (&tools.image.as_ref().unwrap().value, tools.read_only),
        (&DiskSource::File("dir/tools.img".into()), true)
    );
    assert_eq!((root.size.as_ref().unwrap().value, root.read_only, &root.image), (1 << 30, false, &None));
    let of = |service: &Service| (service.name.value.clone(), service.vm, service.disk, service.memory);
    assert_eq!(
        config.services.iter().map(of).collect::<Vec<_>>(),
        [
            ("root".into(), Some(0), Some(1), true),
            ("tools-a".into(), Some(0), Some(0), true),
            ("tools-b".into(), Some(1), Some(0), true),
            ("own".into(), Some(0), None, false),
        ]
    );
    assert!(config.services.iter().all(|service| service.device == ServiceDevice::Pci));
    assert_eq!((config.services[0].limit, config.services[3].limit), (100_000_000, 2_000_000));
    assert_eq!(config.services[0].program.value, Program::Ours("disk".into()));
}

#[test]
fn a_disk_may_have_debians_image() {
    let disk = |image: &str| format!("[[disk]]\nname = \"root\"\nimage = \"{image}\"\n");
    let config = parse_text(&with("\"root\"", &disk("debian:server"))).unwrap();
    assert_eq!(config.disks[0].image.as_ref().unwrap().value, DiskSource::Server);
    let config = parse_text(&with("\"root\"", &disk("./debian:server"))).unwrap();
    assert_eq!(config.disks[0].image.as_ref().unwrap().value, DiskSource::File("dir/./debian:server".into()));
    let (place, what) = ("\"debian:desktop\"", "there is no disk image `debian:desktop`");
    expect(&with("\"root\"", &disk("debian:desktop")), &[(place, what, "\"debian:server\" or a path")]);
    expect(&with("\"root\"", &disk("")), &[("\"\"", "`image` is empty", "leave `image` out")]);
}

#[test]
fn disks_over_an_image_are_another_program() {
    let over = |more: &str| format!("[[disk]]\nname = \"root\"\nimage = \"root.img\"\n{more}");
    let config = parse_text(&with("\"root\"", &over("writes = \"64MiB\"\n"))).unwrap();
    assert_eq!(config.disks[0].writes.as_ref().unwrap().value, 64 << 20);
    assert_eq!(config.services[0].program.value, Program::Ours("overlay".into()));
    let config = parse_text(&with("\"root\"", &over(""))).unwrap();
    assert_eq!(
        (&config.disks[0].writes, &config.services[0].program.value),
        (&None, &Program::Ours("disk".into()))
    );
    for (writes, more, what, help) in [
        ("0MiB", "", "whole clusters of 4KiB", "a multiple of 4KiB"),
        ("6KiB", "", "whole clusters of 4KiB", "a multiple of 4KiB"),
        ("1MB", "", "is not a size", "1MiB"),
        ("1MiB", "read-only = true\n", "read-only", "take `writes` or `read-only` out"),
        (
            "1MiB",
            "device = \"nvme0\"\ntrusted = true\n",
            "of the machine is in that disk",
            "take `writes` out",
        ),
    ] {
        let place = format!("\"{writes}\"");
        expect(&with("\"root\"", &over(&format!("writes = {place}\n{more}"))), &[(&place, what, help)]);
    }
    // Two VMs that write have a disk each.
    let two =
        format!("{}{}", vms(&["disks = [\"root\"]", "disks = [\"root\"]"]), over("writes = \"1MiB\"\n"));
    expect(
        &two,
        &[("\"root\"", "the VM `a` has the disk `root` already, and writes it", "its own [[disk]]")],
    );
}

#[test]
fn disks_do_not_keep_realtime_vms_waiting() {
    let text =
        format!("{}{ROOT}", vms(&[&format!("{SHARED}disks = [\"root\"]"), &format!("{SHARED}realtime = 5")]));
    expect(
        &text,
        &[("\"root\"", "the disk `root` may keep the real-time VM `b` waiting", "beside-realtime")],
    );
    assert!(parse_text(&format!("{text}beside-realtime = true\n")).is_ok());
}

#[test]
fn mistakes_in_disks_are_shown() {
    let root = "\"root\"";
    expect(
        &with("", "[[disk]]\n"),
        &[
            ("[[disk]]", "`name` is missing", "\"root\""),
            ("[[disk]]", "`size` is missing: the disk has no image", "1GiB"),
        ],
    );
    expect(&with(root, &format!("{ROOT}readonly = true\n")), &[("readonly", "unknown key", "`read-only`")]);
    expect(&with(root, &ROOT.replace("1GiB", "1GB")), &[("\"1GB\"", "is not a size", "1GiB")]);
    expect(&with(root, &ROOT.replace("1GiB", "0MiB")), &[("\"0MiB\"", "cannot be empty", "256GiB")]);
    expect(&with(root, &ROOT.replace("1GiB", "1TiB")), &[("\"1TiB\"", "too large", "256GiB")]);
    expect(&with(root, &format!("{ROOT}time-limit = \"2s\"\n")), &[("\"2s\"", "cannot have", "100us to 1s")]);
    let long = "\"seventeen-letters\"";
    expect(
        &with(long, &ROOT.replace(root, long)),
        &[(long, "cannot be a disk's name", "use 1 to 16 characters")],
    );
    expect(&with("\"rot\"", ""), &[("\"rot\"", "there is no disk `rot`", "describe it: [[disk]]")]);
    expect(
        &with("\"root\", \"rot\"", ROOT),
        &[("\"rot\"", "there is no disk `rot`", "did you mean `root`?")],
    );
    expect(&with("\"root\", \"root\"", ROOT), &[(root, "named twice", "once")]);
    expect(&with("1", ""), &[("1", "must be a list of disks' names", "")]);
    expect(&format!("{MINIMAL}disks = \"root\"\n"), &[(root, "must be a list of disks' names", "")]);
    expect(&with("", ROOT), &[(root, "no VM has the disk `root`", "take it out")]);
    expect(&with(root, &format!("{ROOT}{ROOT}")), &[(root, "two disks with the name `root`", "its own")]);
    expect(&with(root, "[disk]\nname = \"root\"\n"), &[("disk", "is a list of tables", "[[disk]]")]);
    let on_demand = format!("{MINIMAL}mapping = \"on-demand\"\ndisks = [\"root\"]\n{ROOT}");
    assert!(parse_text(&on_demand).is_ok());
    let two = format!("{}{ROOT}", vms(&["disks = [\"root\"]", "disks = [\"root\"]"]));
    expect(&two, &[(root, "the VM `a` has the disk `root` already, and writes it", "read-only = true")]);
    let other = "[[service]]\nname = \"root\"\nprogram = \"uart\"\nvm = \"a\"\n";
    expect(&with(root, &format!("{ROOT}{other}")), &[(root, "two services with the name `root`", "its own")]);
    let many: Vec<String> = (0..17).map(|index| format!("d{index}")).collect();
    let names = many.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let tables: String = many.iter().map(|name| ROOT.replace("root", name)).collect();
    expect(&with(&names, &tables), &[("\"d16\"", "17 disks are more than 16", "take the others out")]);
}
