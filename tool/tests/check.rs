// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile check` and the errors of bad input, as a user sees them.

mod common;

use common::{Folder, image};
use predicates::prelude::*;
use predicates::str::contains;

const VM: &str = "[[vm]]\nname = \"a\"\n";

#[test]
fn good_file_is_described() {
    Folder::with_vms(&["a", "b"])
        .turnstile()
        .args(["check", "m.toml"])
        .assert()
        .success()
        .stdout(contains("m.toml: ok").and(contains("b: 1 vCPU on physical CPU 1, 16MiB, machine virt")));
}

#[test]
fn errors_have_file_line_column_and_advice() {
    let folder = Folder::with_vms(&[]);
    folder
        .check(&format!("{VM}kernel = \"k\"\nmemroy = \"16MiB\"\nvcpus = 513\n"))
        .code(2)
        .stdout("")
        .stderr(contains("error: unknown key `memroy`"))
        .stderr(contains("m.toml:4:1"))
        .stderr(contains("did you mean `memory`?"))
        .stderr(contains("m.toml:5:9"))
        .stderr(contains("give 1 to 512 vCPUs"))
        .stderr(contains("m.toml: 2 problems"));
}

#[test]
fn kernels_that_are_none() {
    let folder = Folder::new();
    let kernel = |bytes: &[u8]| {
        folder.write("k", bytes);
        folder.check(&format!("{VM}kernel = \"k\"\nmemory = \"16MiB\"\n")).code(2)
    };
    kernel(b"\x1f\x8b\x08 compressed, surely longer than the header of an Image that it is not")
        .stderr(contains("gzip").and(contains("gunzip")).and(contains("m.toml:3:10")));
    kernel(b"\x7fELF and so on: a file of more than sixty-four bytes, which vmlinux is, too")
        .stderr(contains("an ELF file"));
    kernel(b"").stderr(contains("the kernel is empty"));
    kernel(&image(4096)[..32]).stderr(contains("truncated"));
    let missing = folder.check(&format!("{VM}kernel = \"nowhere/Image\"\n"));
    missing.code(2).stderr(contains("nowhere/Image cannot be read").and(contains("m.toml:3:10")));
}

#[test]
fn flat_images_must_have_a_place() {
    let folder = Folder::new();
    folder.write("k", &[0x1f, 0x20, 0x03, 0xd5].repeat(1 << 19));
    let check = |more: &str| {
        folder.check(&format!("{VM}kernel = \"k\"\nmemory = \"8MiB\"\nformat = \"flat\"\n{more}"))
    };
    check("").success();
    check("load-address = 0x4040_0000\nentry = 0x405f_fffc\n").success();
    check("load-address = 0\nflash = \"2MiB\"\n").success();
    let bad = |more: &str| check(more).code(2);
    bad("load-address = 0x3000_0000\n")
        .stderr(contains("there is no memory at 0x30000000").and(contains("m.toml:6:16")))
        .stderr(contains("RAM is free from 0x40020000 to 0x40800000"));
    bad("load-address = 0\n").stderr(contains("give the VM more `flash`"));
    bad("load-address = 0x4000_0000\n")
        .stderr(contains("the device tree lies at the start of RAM").and(contains("0x40020000 or behind")));
    bad("load-address = 0x4060_1000\n")
        .stderr(contains("8MiB are too small for this VM's images").and(contains("m.toml:4:10")))
        .stderr(contains("give at least 10MiB"));
    bad("load-address = 4\nflash = \"2MiB\"\n")
        .stderr(contains("left of the flash").and(contains("m.toml:7:9")).and(contains("larger banks")));
    for entry in ["0x4040_0000", "0x4020_0002"] {
        bad(&format!("entry = {entry}\n"))
            .stderr(contains("is not an instruction of the image").and(contains("m.toml:6:9")));
    }
    folder.write("k", b"\x7fELF and so on");
    bad("").stderr(contains("k: not a flat image but an ELF file").and(contains("objcopy")));
    folder.write("k", &[0xaa; 100]);
    let image = folder.check(&format!("{VM}kernel = \"k\"\n")).code(2);
    image.stderr(contains("or write format = \"flat\""));
}

#[test]
fn flash_takes_memory_of_the_machine() {
    let folder = Folder::with_vms(&[]);
    let check = |flash: &str| {
        let machine = "[machine]\nmemory = \"512MiB\"\n";
        folder.check(&format!("{machine}{VM}kernel = \"k\"\nmemory = \"320MiB\"\nflash = \"{flash}\"\n"))
    };
    check("16MiB").success();
    check("64MiB").code(2).stderr(contains("do not hold 448MiB for the VMs").and(contains("m.toml:2:10")));
}

#[test]
fn a_short_script_is_named() {
    let folder = Folder::new();
    folder.write("k", b"#!/bin/sh\n");
    folder
        .check(&format!("{VM}kernel = \"k\"\n"))
        .code(2)
        .stderr(contains("k: not an arm64 Image but a script"));
}

/// Makes a pipe that nobody writes to.
fn pipe(folder: &Folder) {
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap();
    assert!(made.success());
}

/// Makes a file that is long without taking any room.
fn sparse(folder: &Folder, name: &str, length: u64) {
    std::fs::File::create(folder.path().join(name)).unwrap().set_len(length).unwrap();
}

#[test]
fn images_that_are_no_files_or_too_long() {
    let folder = Folder::with_vms(&[]);
    pipe(&folder);
    sparse(&folder, "long", 20 << 30);
    let kernel = |name: &str| folder.check(&format!("{VM}kernel = \"{name}\"\n")).code(2);
    let initrd = |name: &str| folder.check(&format!("{VM}kernel = \"k\"\ninitrd = \"{name}\"\n")).code(2);
    kernel("pipe").stderr(contains("the kernel pipe is not a file but a pipe").and(contains("m.toml:3:10")));
    kernel("/dev/zero").stderr(contains("is not a file but a device").and(contains("m.toml:3:10")));
    kernel(".").stderr(contains("is not a file but a folder"));
    kernel("long").stderr(contains("long is too long: 20GiB").and(contains("m.toml:3:10")));
    initrd("pipe").stderr(contains("the initrd pipe is not a file").and(contains("m.toml:4:10")));
    initrd("long").stderr(contains("the initrd long is too long").and(contains("m.toml:4:10")));
    sparse(&folder, "long", 1 << 30);
    initrd("long")
        .stderr(contains("256MiB are too small for this VM's images: the initrd long is longer"))
        .stderr(contains("give at least 1026MiB"));
}

#[test]
fn disks_whose_files_are_no_files_or_one_file() {
    let folder = Folder::with_vms(&[]);
    pipe(&folder);
    sparse(&folder, "one.img", 4096);
    std::fs::hard_link(folder.path().join("one.img"), folder.path().join("hard.img")).unwrap();
    std::os::unix::fs::symlink("one.img", folder.path().join("soft.img")).unwrap();
    let vm = format!("{VM}kernel = \"k\"\ndisks = [\"d\", \"e\"]\n");
    let disk = |name: &str, lines: &str| format!("[[disk]]\nname = \"{name}\"\n{lines}");
    let memory = format!("{vm}{}{}", disk("d", "image = \"pipe\"\n"), disk("e", "size = \"4KiB\"\n"));
    folder
        .check(&memory)
        .code(2)
        .stderr(contains("pipe is not a file but a pipe").and(contains("m.toml:7:9")));
    let two = |other: &str, only: &str| {
        let first = disk("d", &format!("device = \"nvme0\"\nimage = \"one.img\"\n{only}"));
        let second = disk("e", &format!("device = \"nvme1\"\nimage = \"{other}\"\n{only}"));
        folder.check(&format!("{vm}{first}{second}"))
    };
    for other in ["hard.img", "soft.img", "./one.img"] {
        let what = "the disk `d` has the same file behind `nvme0`, and somebody writes it";
        two(other, "").code(2).stderr(contains(what).and(contains("m.toml:11:10")));
        two(other, "read-only = true\n").success();
    }
}

#[test]
fn configurations_that_are_no_files_or_too_long() {
    let folder = Folder::new();
    pipe(&folder);
    sparse(&folder, "long", 20 << 30);
    folder.write("binary", b"\xff\xfe");
    let check = |name: &str| folder.turnstile().args(["check", name]).assert().code(2);
    check("pipe").stderr(contains("pipe is not a file but a pipe").and(contains("examples/one-linux.toml")));
    check("/dev/zero").stderr(contains("is not a file but a device"));
    check("long").stderr(contains("long is too long: 20GiB, and at most 1MiB"));
    check("binary").stderr(contains("binary is not text in UTF-8"));
}

#[test]
fn hypervisors_that_are_none() {
    let folder = Folder::with_vms(&["a"]);
    pipe(&folder);
    sparse(&folder, "long", 20 << 30);
    folder.write("elf", b"\x7fELF and so on");
    folder.write("cut", &image(4096)[..32]);
    let image = |name: &str| {
        let arguments = ["build", "m.toml", "--image", name, "-o", "out"];
        let assert = folder.turnstile().args(arguments).assert().code(2);
        assert!(!folder.path().join("out").exists());
        assert.stderr(contains("leave --image out"))
    };
    image("none").stderr(contains("there is no image none"));
    image("pipe").stderr(contains("the image pipe is not a file but a pipe"));
    image("long").stderr(contains("the image long is too long: 20GiB"));
    image("elf").stderr(contains("the image elf is not an arm64 Image but an ELF file"));
    image("cut").stderr(contains("the image cut: the kernel is truncated"));
}

#[test]
fn a_kernel_cut_short_is_found_by_its_sections() {
    // A PE header at 64 with one section of 4096 bytes at 4096, as kernels with an EFI stub have.
    let mut bytes = image(8192);
    bytes[..2].copy_from_slice(b"MZ");
    bytes[60..64].copy_from_slice(&64_u32.to_le_bytes());
    bytes[64..68].copy_from_slice(b"PE\0\0");
    bytes[70..72].copy_from_slice(&1_u16.to_le_bytes());
    bytes[88 + 16..88 + 20].copy_from_slice(&4096_u32.to_le_bytes());
    bytes[88 + 20..88 + 24].copy_from_slice(&4096_u32.to_le_bytes());
    let folder = Folder::new();
    let text = format!("{VM}kernel = \"k\"\nmemory = \"16MiB\"\n");
    folder.write("k", &bytes);
    folder.check(&text).success();
    folder.write("k", &bytes[..8000]);
    folder
        .check(&text)
        .code(2)
        .stderr(contains("8000 bytes of at least 8192").and(contains("copy it again")));
}

#[test]
fn initrds() {
    let folder = Folder::with_vms(&[]);
    let initrd = |name: &str| folder.check(&format!("{VM}kernel = \"k\"\ninitrd = \"{name}\"\n"));
    initrd("none.cpio")
        .code(2)
        .stderr(contains("the initrd none.cpio cannot be read").and(contains("m.toml:4:10")));
    initrd("k").code(2).stderr(contains("the initrd is an arm64 kernel"));
    folder.write("i", b"");
    initrd("i").code(2).stderr(contains("the initrd is empty"));
    folder.write("i", b"070701 and so on");
    initrd("i").success();
}

#[test]
fn memory_must_hold_the_images() {
    let folder = Folder::new();
    folder.write("k", &image(12 << 20));
    folder
        .check(&format!("{VM}kernel = \"k\"\nmemory = \"8MiB\"\n"))
        .code(2)
        .stderr(contains("8MiB are too small for this VM's images").and(contains("give at least")));
    folder
        .check(&format!("[machine]\nmemory = \"256MiB\"\n{VM}kernel = \"k\"\nmemory = \"256MiB\"\n"))
        .code(2)
        .stderr(contains("m.toml:2:10").and(contains("do not hold 256MiB for the VMs")));
}

/// An image that several disks have is there once, with what each may write; so is what is only read.
#[test]
fn disks_with_one_image_share_it() {
    let folder = Folder::with_vms(&[]);
    folder.write("disk.img", &vec![7; 6 << 20]);
    folder.write("same.img", &vec![7; 6 << 20]);
    let disk = |name: &str, image: &str, more: &str| {
        format!("[[disk]]\nname = \"{name}\"\nimage = \"{image}.img\"\n{more}\n")
    };
    let vm = format!("{VM}kernel = \"k\"\nmemory = \"300MiB\"\n");
    let says = |names: &str, disks: &[String], needed: &str| {
        let text = format!("[machine]\nmemory = \"256MiB\"\n{vm}disks = [{names}]\n{}", disks.concat());
        folder
            .check(&text)
            .code(2)
            .stderr(contains(format!("do not hold {needed} for the VMs with their disks")));
    };
    let (one, two) = (disk("one", "disk", "writes = \"2MiB\""), disk("two", "same", "writes = \"4MiB\""));
    says("\"one\"", std::slice::from_ref(&one), "310MiB");
    // 2 and 4 MiB with their maps are 4 and 6.
    says("\"one\", \"two\"", &[one.clone(), two], "316MiB");
    let read = |name| disk(name, "disk", "read-only = true");
    says("\"one\", \"three\", \"four\"", &[one, read("three"), read("four")], "310MiB");
    says("\"whole\"", &[disk("whole", "disk", "")], "306MiB");
}

#[test]
fn physical_cpus_overlap() {
    let folder = Folder::with_vms(&[]);
    let text = "[[vm]]\nname = \"a\"\nkernel = \"k\"\ncpus = [0, 1]\n[[vm]]\nname = \"b\"\nkernel = \"k\"\ncpus = [1]\n";
    folder
        .check(text)
        .code(2)
        .stderr(contains("CPU 1 belongs to the VM `a` already").and(contains("m.toml:8:9")));
}

#[test]
fn json_is_complete() {
    let folder = Folder::with_vms(&[]);
    folder.write("m.toml", format!("{VM}kernel = \"k\"\nvcpus = 513\n").as_bytes());
    let output = folder.turnstile().args(["check", "--json", "m.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ok"], false);
    assert_eq!(report["problems"][0]["line"], 4);
    assert_eq!(report["problems"][0]["column"], 9);
    assert_eq!(report["problems"][0]["help"], "give 1 to 512 vCPUs");
}

#[test]
fn json_answers_also_where_there_is_no_file() {
    let output = Folder::new().turnstile().args(["check", "--json", "none.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stderr.is_empty());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ok"], false);
    assert!(report["problems"][0]["message"].as_str().unwrap().contains("cannot read none.toml"));
    assert!(report["problems"][0].get("line").is_none());
}

#[test]
fn a_description_may_come_through_a_pipe() {
    let folder = Folder::with_vms(&["a"]);
    let text = std::fs::read(folder.path().join("m.toml")).unwrap();
    let mut check = folder.turnstile();
    check
        .args(["check", "/dev/stdin"])
        .write_stdin(text)
        .assert()
        .success()
        .stdout(contains("/dev/stdin: ok"));
}

#[test]
fn a_home_folder_is_meant_by_a_tilde() {
    let folder = Folder::with_vms(&["a"]);
    let text = std::fs::read_to_string(folder.path().join("m.toml")).unwrap().replace("\"k\"", "\"~/k\"");
    assert!(text.contains("~/k"), "{text}");
    folder.write("m.toml", text.as_bytes());
    let check =
        |home: &std::path::Path| folder.turnstile().args(["check", "m.toml"]).env("HOME", home).assert();
    check(folder.path()).success();
    check(std::path::Path::new("/nowhere")).code(2).stderr(contains("/nowhere/k cannot be read"));
}

#[test]
fn files_that_cannot_be_read() {
    let folder = Folder::new();
    folder
        .turnstile()
        .args(["check", "none.toml"])
        .assert()
        .code(2)
        .stderr(contains("cannot read none.toml").and(contains("examples/one-linux.toml")));
    folder.check("[[vm]\nname =").code(2).stderr(contains("m.toml:1"));
}

#[test]
fn shipped_examples_are_good() {
    let folder = Folder::new();
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut count = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        folder.turnstile().arg("check").arg(&path).assert().success();
        count += 1;
    }
    assert!(count >= 3);
}

#[test]
fn command_line() {
    let folder = Folder::new();
    let output = |arguments: &[&str]| folder.turnstile().args(arguments).assert();
    output(&["--version"]).success().stdout(contains("turnstile 0."));
    output(&["--help"]).success().stdout(contains("Exit codes").and(contains("doctor")));
    output(&["--help"]).success().stdout(contains("./x test "));
    for command in ["demo", "run", "bench", "check", "build", "doctor"] {
        output(&[command, "--help"]).success().stdout(contains("Exit codes"));
    }
    output(&["chekc"]).code(2).stderr(contains("'check'"));
    output(&["bench", "--rows", "nul-hypercall"]).code(2).stderr(contains("did you mean `null-hypercall`?"));
    output(&["bench", "--check", "--iterations", "20000"]).code(2).stderr(contains("leave --iterations out"));
}

#[test]
fn outside_a_checkout() {
    let folder = Folder::new();
    folder
        .turnstile()
        .env("TURNSTILE_ROOT", "/nonexistent")
        .args(["check", "m.toml"])
        .assert()
        .code(3)
        .stderr(contains("not inside a Turnstile checkout"));
}

#[test]
fn of_what_is_no_configuration_the_first_problems_are_shown() {
    let folder = Folder::new();
    let assert = folder.check(&"this is prose\n".repeat(40)).code(2);
    let said = assert.stderr(contains("m.toml: 40 problems, of which the first 25 are shown"));
    let text = String::from_utf8(said.get_output().stderr.clone()).unwrap();
    assert_eq!(text.matches("error: ").count(), 25);
}
