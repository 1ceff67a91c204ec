// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Partitions: what their device trees say, and how kernels are placed.

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};
use proptest::prelude::*;
use turnstile_machine::image::FileKind;
use turnstile_machine::pseries::boot::{self, BootError, Plan, Source};
use turnstile_machine::pseries::{Interrupts, TERMINAL_SOURCE, TIMA, check_memory, esb};
use turnstile_papr::rtas::Function;

const MIB: u64 = 1 << 20;

fn source(kernel: &[u8]) -> Source<'_> {
    Source {
        kernel,
        initrd: None,
        cmdline: "console=hvc0",
        memory: 64 * MIB,
        vcpus: 2,
        interrupts: Interrupts::Xive,
        timebase: 512_000_000,
    }
}

/// An ELF file with one segment of these bytes.
fn elf(paddr: u64, vaddr: u64, entry: u64, bytes: &[u8], size: u64) -> Vec<u8> {
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let half = |file: &mut Vec<u8>, value: u16| file.extend(value.to_le_bytes());
    let word = |file: &mut Vec<u8>, value: u32| file.extend(value.to_le_bytes());
    let long = |file: &mut Vec<u8>, value: u64| file.extend(value.to_le_bytes());
    half(&mut file, 2);
    half(&mut file, 21);
    word(&mut file, 1);
    long(&mut file, entry);
    long(&mut file, 64);
    long(&mut file, 0);
    word(&mut file, 2);
    for value in [64, 56, 1, 0, 0, 0] {
        half(&mut file, value);
    }
    word(&mut file, 1);
    word(&mut file, 7);
    for value in [120, vaddr, paddr, bytes.len() as u64, size, 0x1_0000] {
        long(&mut file, value);
    }
    file.extend(bytes);
    file
}

/// Where the bytes of a plan that begin so are.
fn find<'a>(plan: &'a Plan<'_>, start: &[u8]) -> (u64, &'a [u8]) {
    let load = plan.loads.iter().find(|load| load.bytes.starts_with(start)).unwrap();
    (load.address, &load.bytes)
}

fn tree<'a>(plan: &'a Plan<'_>) -> Fdt<'a> {
    let (address, blob) = find(plan, &[0xd0, 0x0d, 0xfe, 0xed]);
    assert_eq!(address, plan.start.tree);
    Fdt::new_unchecked(blob)
}

fn words(node: &FdtNode<'_>, name: &str) -> Vec<u32> {
    let value = node.property(name).unwrap_or_else(|| panic!("no {name}")).value().to_vec();
    value.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn a_linux_kernel_is_entered_where_its_entry_lies() {
    // As vmlinux is linked: far up, loaded at zero.
    let kernel = elf(0, 0xc000_0000_0000_0000, 0xc000_0000_0000_0100, b"kernel", 0x2_0000);
    let source = Source { initrd: Some(b"070701 disk"), ..source(&kernel) };
    let plan = boot::plan(&source).unwrap();
    assert_eq!((plan.start.entry, plan.start.little_endian), (0x100, true));
    assert_eq!(find(&plan, b"kernel").0, 0);
    // Behind the kernel's own memory: firmware, RAM disk, tree.
    assert_eq!(find(&plan, &[0x7c, 0x64, 0x1b, 0x78]).0, 0x2_0000);
    assert_eq!(find(&plan, b"070701").0, 0x3_0000);
    assert_eq!(plan.start.tree, 0x4_0000);
}

#[test]
fn the_tree_says_what_there_is() {
    let plan = boot::plan(&source(b"flat")).unwrap();
    let fdt = tree(&plan);
    let node = |path: &str| fdt.find_node(path).unwrap_or_else(|| panic!("no {path}"));
    assert_eq!(fdt.root().property("device_type").unwrap().value(), b"chrp\0");
    assert_eq!(words(&fdt.root(), "ibm,plat-res-int-priorities"), [7, 0xf8]);
    assert_eq!(words(&node("/memory@0"), "reg"), [0, 0, 0, 64 << 20]);
    let cpu = node("/cpus/PowerPC,POWER9@1");
    assert_eq!(words(&cpu, "ibm,ppc-interrupt-server#s"), [1]);
    assert_eq!(words(&cpu, "timebase-frequency"), [512_000_000]);
    // A name of 32 characters, which the writer does not take as a whole.
    let pages = words(&cpu, "ibm,processor-radix-AP-encodings");
    assert_eq!(pages, [0xc, 0xa000_0010, 0x2000_0015, 0x4000_001e]);
    let options = node("/chosen").property("ibm,architecture-vec-5").unwrap().value().to_vec();
    assert_eq!((options[23], options[24], options[26]), (0x40, 0x40, 0x40), "XIVE, radix trees, GTSE");
    assert_eq!(words(&node("/vdevice/vty@71000000"), "interrupts"), [TERMINAL_SOURCE, 0]);
    assert_eq!(words(&node("/rtas"), "start-cpu"), [Function::StartCpu.token()]);
    assert!(node("/rtas").property("ibm,set-xive").is_none(), "XICS only");
}

#[test]
fn the_controller_is_the_one_that_was_chosen() {
    let xics = Source { interrupts: Interrupts::Xics, ..source(b"flat") };
    let plan = boot::plan(&xics).unwrap();
    let fdt = tree(&plan);
    assert!(fdt.find_node("/interrupt-controller").is_some());
    let options =
        fdt.find_node("/chosen").unwrap().property("ibm,architecture-vec-5").unwrap().value().to_vec();
    assert_eq!(options[23], 0);
    assert_eq!(words(&fdt.find_node("/rtas").unwrap(), "ibm,set-xive"), [Function::SetXive.token()]);
    assert_eq!(esb(1) - esb(0), 0x2_0000);
    assert!(!TIMA.contains(esb(0)));
}

#[test]
fn what_cannot_start_is_refused() {
    let refused = |kernel: &[u8]| boot::plan(&source(kernel)).unwrap_err();
    assert_eq!(refused(b""), BootError::Empty);
    assert_eq!(refused(&[0x1f, 0x8b, 8]), BootError::Kind(FileKind::Gzip));
    let large = elf(0, 0, 0, b"x", 65 * MIB);
    assert_eq!(refused(&large), BootError::NotRam { start: 0, end: 65 * MIB, memory: 64 * MIB });
    assert_eq!(refused(&elf(0, 0, 0x8000, b"x", 16)), BootError::NoEntry);
    assert!(matches!(refused(&elf(0, 0, 0, b"x", 64 * MIB)), BootError::TooSmall { .. }));
    let mut foreign = elf(0, 0, 0, b"x", 16);
    foreign[18] = 62;
    assert_eq!(refused(&foreign), BootError::Processor(62));
    assert!(check_memory(64 * MIB).is_ok() && check_memory(3 << 40).is_err() && check_memory(MIB).is_err());
}

proptest! {
    /// Nothing that a file says makes the plan leave RAM, overlap or panic.
    #[test]
    fn every_plan_stays_in_memory(
        paddr in prop_oneof![0..1u64 << 28, any::<u64>()],
        entry in any::<u64>(),
        size in prop_oneof![0..1u64 << 27, any::<u64>()],
        cut in 0usize..200,
    ) {
        let mut file = elf(paddr, paddr, entry, b"some bytes", size);
        file.truncate(file.len().saturating_sub(cut));
        if let Ok(plan) = boot::plan(&source(&file)) {
            let mut ranges: Vec<_> =
                plan.loads.iter().map(|load| (load.address, load.address + load.bytes.len() as u64)).collect();
            ranges.sort_unstable();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            prop_assert!(ranges.iter().all(|(_, end)| *end <= 64 * MIB));
        }
    }
}
