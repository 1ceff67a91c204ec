// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Partitions: what their device trees say, and how kernels are placed.

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};
use proptest::prelude::*;
use turnstile_machine::FileKind;
use turnstile_machine::pseries::boot::{self, BootError, Partition, Plan};
use turnstile_machine::pseries::{
    ESB, Interrupts, MAX_FUNCTIONS, PCI, PCI_SOURCES, TERMINAL_SOURCE, TIMA, check_memory, esb, pci_bars,
    pci_source,
};
use turnstile_machine::{FileError, FunctionKind, Functions, Source};
use turnstile_papr::rtas::Function;

const MIB: u64 = 1 << 20;

const PARTITION: Partition = Partition { threads: 1, interrupts: Interrupts::Xive, timebase: 512_000_000 };

fn source(kernel: &[u8]) -> Source<'_> {
    Source {
        kernel,
        initrd: None,
        cmdline: "console=hvc0",
        memory: 64 * MIB,
        vcpus: 2,
        functions: Functions::default(),
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
    let plan = boot::plan(&source, &PARTITION).unwrap();
    assert_eq!((plan.start.entry, plan.start.little_endian), (0x100, true));
    assert_eq!(find(&plan, b"kernel").0, 0);
    // Behind the kernel's own memory: RAM disk, tree; the firmware is out of the way.
    assert_eq!(find(&plan, b"070701").0, 0x2_0000);
    assert_eq!(plan.start.tree, 0x3_0000);
    assert_eq!(find(&plan, RTAS).0, 64 * MIB - 0x1_0000);
    assert_eq!(plan.relocations.iter().next(), None);
}

/// The first bytes of the firmware.
const RTAS: &[u8] = &[0x7c, 0x64, 0x1b, 0x78];

/// Where firmware, RAM disk and tree are, and whether the tree says so, for a kernel and a RAM disk of these sizes.
fn places(memory: u64, kernel: u64, disk: u64) -> [u64; 3] {
    let kernel = elf(0, 0, 0, b"kernel", kernel);
    let disk = [b"070701".to_vec(), vec![0; disk as usize - 6]].concat();
    let plan = boot::plan(&Source { initrd: Some(&disk), memory, ..source(&kernel) }, &PARTITION).unwrap();
    let places = [find(&plan, RTAS).0, find(&plan, b"070701").0, plan.start.tree];
    let fdt = tree(&plan);
    assert_eq!(words(&fdt.find_node("/rtas").unwrap(), "linux,rtas-base"), [places[0] as u32]);
    let chosen = fdt.find_node("/chosen").unwrap();
    assert_eq!(words(&chosen, "linux,initrd-start"), [(places[1] >> 32) as u32, places[1] as u32]);
    places
}

#[test]
fn the_firmware_is_where_other_partitions_have_it() {
    const TOP: u64 = 256 * MIB - 0x1_0000;
    assert_eq!(places(512 * MIB, 2 * MIB, 8), [TOP, 2 * MIB, 2 * MIB + 0x1_0000]);
    // The tree goes behind the firmware when it would run into it, and so does the RAM disk.
    assert_eq!(places(512 * MIB, 2 * MIB, TOP - 2 * MIB), [TOP, 2 * MIB, 256 * MIB]);
    assert_eq!(places(512 * MIB, TOP, 8), [TOP, 256 * MIB, 256 * MIB + 0x1_0000]);
    // A kernel that is there, or no room beside it: directly behind the kernel.
    assert_eq!(places(512 * MIB, TOP + 4, 8), [256 * MIB, 256 * MIB + 0x1_0000, 256 * MIB + 0x2_0000]);
    let full = 300 * MIB - 2 * MIB - 0x2_0000;
    assert_eq!(places(300 * MIB, 2 * MIB, full), [2 * MIB, 2 * MIB + 0x1_0000, 300 * MIB - 0x1_0000]);
}

/// A position-independent file whose segment is linked at `linked` and loaded at `loaded`: 256 bytes, of which the last 88 are
/// the dynamic table and one relocation of this type, offset and addend.
fn movable(linked: u64, loaded: u64, [kind, offset, addend]: [u64; 3]) -> Vec<u8> {
    let longs = [7, linked + 0xe8, 8, 24, 9, 24, 0, 0, offset, kind, addend];
    let image = [vec![0; 256 - 88], longs.iter().flat_map(|long| long.to_le_bytes()).collect()].concat();
    let mut file = elf(loaded, linked, linked, &image, 256);
    file[16] = 3;
    // A second program header, for which the image moves.
    file[56] = 2;
    let mut dynamic = Vec::new();
    dynamic.extend(2u32.to_le_bytes());
    dynamic.extend(4u32.to_le_bytes());
    for value in [176 + 256 - 88, linked + 0xa8, loaded + 0xa8, 64, 64, 8] {
        dynamic.extend(u64::to_le_bytes(value));
    }
    file[72..80].copy_from_slice(&176u64.to_le_bytes());
    file.splice(120..120, dynamic);
    file
}

#[test]
fn a_position_independent_kernel_is_relocated() {
    let relocated = |file: &[u8]| {
        let plan = boot::plan(&source(file), &PARTITION)?;
        Ok::<Vec<_>, BootError>(
            plan.relocations.iter().map(|(at, bytes)| (at, u64::from_le_bytes(bytes))).collect(),
        )
    };
    // Loaded where it is linked; loaded elsewhere; and as Linux: what of its addresses real mode ignores stays.
    assert_eq!(relocated(&movable(0, 0, [22, 8, 0x40])), Ok(vec![(8, 0x40)]));
    assert_eq!(relocated(&movable(0, MIB, [22, 8, 0x40])), Ok(vec![(MIB + 8, MIB + 0x40)]));
    assert_eq!(relocated(&movable(MIB, 0, [22, MIB + 8, MIB + 0x40])), Ok(vec![(8, 0x40)]));
    let far = 0xc000_0000_0000_0000;
    assert_eq!(relocated(&movable(far, 0, [22, far + 8, far + 0x40])), Ok(vec![(8, far + 0x40)]));
    // What names a symbol is the kernel's own business.
    assert_eq!(relocated(&movable(0, 0, [38, 8, 0x40])), Ok(vec![]));
    // Nothing is written outside of the kernel.
    for wrong in [249, 256, 1 << 40, u64::MAX] {
        assert_eq!(
            relocated(&movable(0, 0, [22, wrong, 0])),
            Err(BootError::Relocation(wrong)),
            "{wrong:#x}"
        );
    }
    let mut cut = movable(0, 0, [22, 8, 0x40]);
    cut[176 + 256 - 88 + 24] = 25;
    assert_eq!(relocated(&cut), Err(FileError::Truncated.into()), "a table that is longer than the file's");
    let mut fixed = movable(0, 0, [22, 8, 0x40]);
    fixed[16] = 2;
    assert_eq!(relocated(&fixed), Ok(vec![]), "a file that is not position-independent");
}

#[test]
fn the_tree_says_what_there_is() {
    let plan = boot::plan(&source(b"flat"), &PARTITION).unwrap();
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
fn a_core_has_its_threads() {
    let plan =
        boot::plan(&Source { vcpus: 8, ..source(b"flat") }, &Partition { threads: 4, ..PARTITION }).unwrap();
    let fdt = tree(&plan);
    let cpus = fdt.find_node("/cpus").unwrap();
    assert_eq!(
        cpus.children().map(|cpu| cpu.name().to_string()).collect::<Vec<_>>(),
        ["PowerPC,POWER9@0", "PowerPC,POWER9@4"]
    );
    let second = fdt.find_node("/cpus/PowerPC,POWER9@4").unwrap();
    assert_eq!(words(&second, "reg"), [4]);
    assert_eq!(words(&second, "ibm,ppc-interrupt-server#s"), [4, 5, 6, 7]);
    assert_eq!(words(&second, "ibm,ppc-interrupt-gserver#s"), [4, 0, 5, 0, 6, 0, 7, 0]);
}

#[test]
fn functions_are_described_as_firmware_would_find_them() {
    let mut functions = Functions::default();
    use FunctionKind::{Balloon, Console, Disk, Entropy, Network};
    for kind in [Network, Disk, Entropy, Console, Balloon] {
        functions.push(kind);
    }
    let plan = boot::plan(&Source { functions, ..source(b"flat") }, &PARTITION).unwrap();
    let fdt = tree(&plan);
    let bridge = fdt.find_node("/pci@800000020000000").unwrap();
    assert_eq!(words(&bridge, "reg"), [0x0800_0000, 0x2000_0000, 0, 0]);
    assert_eq!(words(&bridge, "ranges"), [0x0200_0000, 0, 0x8000_0000, 0x104, 0x8000_0000, 0, 64 << 20]);
    let function = fdt.find_node("/pci@800000020000000/scsi@2").unwrap();
    assert_eq!(words(&function, "reg")[..6], [0x1000, 0, 0, 0, 0, 0x0200_1020]);
    let assigned = [0x8200_1020, 0, 0x8002_0000, 0, 0x4000, 0x8200_1014, 0, 0x8002_4000, 0, 0x1000];
    assert_eq!(words(&function, "assigned-addresses"), assigned);
    assert_eq!(pci_bars(2), 0x8002_0000);
    let kind = |path: &str| {
        let node = fdt.find_node(path).unwrap();
        [words(&node, "device-id")[0], words(&node, "class-code")[0]]
    };
    assert_eq!(kind("/pci@800000020000000/scsi@2"), [0x1042, 0x01_8000]);
    assert_eq!(kind("/pci@800000020000000/ethernet@1"), [0x1041, 0x02_0000]);
    assert_eq!(kind("/pci@800000020000000/pci1af4,1044@3"), [0x1044, 0xff_0000]);
    assert_eq!(kind("/pci@800000020000000/pci1af4,1045@5"), [0x1045, 0xff_0000]);
    let firmware = fdt.find_node("/rtas").unwrap();
    // Two names, of which one is longer than the writer takes.
    for function in [Function::ChangeMsi, Function::QueryInterruptSource] {
        assert_eq!(words(&firmware, function.name()), [function.token()]);
    }
    assert!(fdt.find_node("/chosen").unwrap().property("linux,iommu-off").is_some());
    let plan = boot::plan(&source(b"flat"), &PARTITION).unwrap();
    let fdt = tree(&plan);
    assert!(fdt.root().children().all(|node| !node.name().starts_with("pci")), "no functions, no bridge");
    let firmware = fdt.find_node("/rtas").unwrap();
    assert!(Function::ALL.iter().all(|call| !call.is_pci() || firmware.property(call.name()).is_none()));
    assert!(fdt.find_node("/chosen").unwrap().property("linux,iommu-off").is_none());
}

#[test]
fn sources_and_registers_do_not_meet() {
    assert_eq!(pci_source(1, 0), TERMINAL_SOURCE + 1);
    assert_eq!(pci_source(2, 0), pci_source(1, PCI_SOURCES - 1) + 1);
    let last = esb(pci_source(MAX_FUNCTIONS, PCI_SOURCES - 1));
    assert!(ESB.contains(last) && !ESB.contains(last + 0x2_0000));
    const { assert!(ESB.base + ESB.size <= PCI.base) };
    assert!(pci_bars(MAX_FUNCTIONS + 1) <= (PCI.base + PCI.size) & 0xffff_ffff);
}

#[test]
fn the_controller_is_the_one_that_was_chosen() {
    let xics = Partition { interrupts: Interrupts::Xics, ..PARTITION };
    let plan = boot::plan(&source(b"flat"), &xics).unwrap();
    let fdt = tree(&plan);
    let controller = fdt.find_node("/interrupt-controller").unwrap();
    assert!(controller.property("interrupt-controller").is_some());
    assert_eq!(words(&controller, "#interrupt-cells"), [2]);
    assert_eq!(words(&controller, "phandle"), words(&fdt.find_node("/").unwrap(), "interrupt-parent"));
    let options =
        fdt.find_node("/chosen").unwrap().property("ibm,architecture-vec-5").unwrap().value().to_vec();
    assert_eq!(options[23], 0);
    assert_eq!(words(&fdt.find_node("/rtas").unwrap(), "ibm,set-xive"), [Function::SetXive.token()]);
    assert_eq!(esb(1) - esb(0), 0x2_0000);
    assert!(!TIMA.contains(esb(0)));
}

#[test]
fn what_cannot_start_is_refused() {
    let refused = |kernel: &[u8]| boot::plan(&source(kernel), &PARTITION).unwrap_err();
    assert_eq!(refused(b""), FileError::Empty.into());
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
        if let Ok(plan) = boot::plan(&source(&file), &PARTITION) {
            let mut ranges: Vec<_> =
                plan.loads.iter().map(|load| (load.address, load.address + load.bytes.len() as u64)).collect();
            ranges.sort_unstable();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            prop_assert!(ranges.iter().all(|(_, end)| *end <= 64 * MIB));
        }
    }
}
