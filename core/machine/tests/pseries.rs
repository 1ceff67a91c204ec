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
