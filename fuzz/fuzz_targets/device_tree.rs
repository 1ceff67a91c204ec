// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device trees: the generator gives one that reads back for whatever platform it accepts, and walking
//! any bytes that the parser accepts, as the hypervisor walks its machine's, does not panic.
#![no_main]

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};
use libfuzzer_sys::fuzz_target;
use turnstile_machine::{GicVersion, GuestMachine, Platform, fdt::build};

/// Deeper than any device tree; the parser itself does not limit the depth.
const MAX_DEPTH: usize = 64;

fn walk(node: &FdtNode<'_>, depth: usize) -> usize {
    let bytes: usize = node.properties().map(|property| property.name().len() + property.value().len()).sum();
    let below: usize = match depth < MAX_DEPTH {
        true => node.children().map(|child| walk(&child, depth + 1)).sum(),
        false => 0,
    };
    node.name().len() + bytes + below
}

fuzz_target!(|input: (u16, u16, [bool; 5], &str, &[u8])| {
    let (vcpus, units, [kvmtool, v2, pmu, service, pci], bootargs, data) = input;
    let machine = if kvmtool { GuestMachine::Kvmtool } else { GuestMachine::Virt };
    let gic = if v2 { GicVersion::V2 } else { GicVersion::V3 };
    let (vcpus, memory) = (usize::from(vcpus), u64::from(units) << 21);
    let platform =
        Platform { machine, gic, vcpus, memory, bootargs, initrd: None, pmu, flash: 0, service, pci, virtio: 0 };
    if let Ok(blob) = build(&platform) {
        let fdt = Fdt::new(&blob).expect("the generated tree is valid");
        assert_eq!(fdt.find_node("/cpus").expect("it has CPUs").children().count(), vcpus);
        let chosen = fdt.find_node("/chosen").expect("it has a command line");
        let value = chosen.property("bootargs").expect("it has a command line").value_as::<&str>();
        assert_eq!(value.expect("it is text"), bootargs);
    }
    if let Ok(fdt) = Fdt::new(data) {
        walk(&fdt.root(), 0);
    }
});
