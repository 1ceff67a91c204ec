// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which registers there are: the toolchain's disassembler says, and the table of names in `core/trapmap`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::string::String;
use std::{format, fs};

use turnstile_trapmap::SysReg;

use super::*;

/// Calls `f` with each encoding of a register that EL1 can name and that is no one's business but EL1's and EL0's.
fn each_encoding(mut f: impl FnMut([u8; 5])) {
    for (op0, op1) in (2..4).flat_map(|op0| (0..4).map(move |op1| (op0, op1))) {
        for (crn, crm, op2) in (0..2048u32).map(|n| (n >> 7, n >> 3 & 15, n & 7)) {
            f([op0, op1, crn as u8, crm as u8, op2 as u8]);
        }
    }
}

/// Finds a tool of the toolchain's component llvm-tools.
fn toolchain(tool: &str) -> PathBuf {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc runs");
    let root = String::from_utf8(output.stdout).expect("a path");
    let hosts = fs::read_dir(Path::new(root.trim()).join("lib/rustlib")).expect("a toolchain");
    let mut paths = hosts.flatten().map(|host| host.path().join("bin").join(tool));
    paths.find(|path| path.exists()).expect("the component llvm-tools is in rust-toolchain.toml")
}

/// Returns the names of all registers that the toolchain's disassembler knows, read or written.
fn known_to_the_toolchain() -> BTreeSet<String> {
    let mut code = Vec::new();
    each_encoding(|[op0, op1, crn, crm, op2]| {
        for read in [1u32, 0] {
            let [op0, op1, crn, crm, op2] = [op0, op1, crn, crm, op2].map(u32::from);
            let instruction =
                0xd500_0000 | read << 21 | op0 << 19 | op1 << 16 | crn << 12 | crm << 8 | op2 << 5;
            code.extend(instruction.to_le_bytes());
        }
    });
    let directory = std::env::temp_dir().join(format!("turnstile-registers-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let (binary, object) = (directory.join("code.bin"), directory.join("code.o"));
    fs::write(&binary, code).expect("a file");
    let form = ["-I", "binary", "-O", "elf64-littleaarch64", "--rename-section=.data=.text,code"];
    let made = Command::new(toolchain("llvm-objcopy")).args(form).args([&binary, &object]).status();
    assert!(made.expect("it runs").success());
    let options = ["--disassemble", "--mattr=+all", "--no-show-raw-insn"];
    let output =
        Command::new(toolchain("llvm-objdump")).args(options).arg(&object).output().expect("it runs");
    fs::remove_dir_all(&directory).expect("it is removed");
    let text = String::from_utf8(output.stdout).expect("text");
    let operands = |line: &str| {
        let (_, instruction) = line.split_once(':')?;
        let mut words = instruction.split([' ', '\t', ',']).filter(|word| !word.is_empty());
        let [mnemonic, first, second] = [words.next()?, words.next()?, words.next()?];
        match mnemonic {
            "mrs" => Some(second.to_string()),
            "msr" => Some(first.to_string()),
            _ => None,
        }
    };
    // Those that it does not know are S3_0_C0_C0_0 and the like.
    let known = text.lines().filter_map(operands);
    known.filter(|name| !name.starts_with("S2_") && !name.starts_with("S3_")).collect()
}

#[test]
fn every_register_has_a_fate() {
    let mut names = known_to_the_toolchain();
    assert!(names.len() > 1000, "{}", names.len());
    let mut named = 0;
    each_encoding(|[op0, op1, crn, crm, op2]| {
        if let Some(name) = name(SysReg::new(op0, op1, crn, crm, op2)) {
            named += 1;
            names.insert(name.to_uppercase());
        }
    });
    assert!(named > 250, "{named}");
    let unknown: Vec<_> = names.iter().filter(|name| fate(name).is_none()).collect();
    assert!(unknown.is_empty(), "what becomes of them in a guest is to be said in the list: {unknown:?}");
    for pattern in list::LIST.iter().flat_map(|(patterns, _)| patterns.split(' ')) {
        assert!(names.iter().any(|name| matches(pattern, name)), "nobody knows {pattern}");
    }
}
