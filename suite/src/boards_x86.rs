// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PCs of all kinds: the boards and processors that QEMU has, few CPUs and many, without what newer ones have.

use turnstile::isa::Isa;

use super::programs;
use super::scenario::Scenario;

/// A guest of its own on a CPU that is not the boot CPU, on a machine with these lines.
fn on(name: &str, machine: &str, cpu: u16) -> Scenario {
    programs::echo_on_board(Isa::X86_64, name, machine, "pc", cpu)
}

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for board in ["q35", "pc", "microvm"] {
        for cpu in ["max", "EPYC"] {
            let machine = format!("board = \"{board}\"\ncpu = \"{cpu}\"\ncpus = 2");
            scenarios.push(on(&format!("{board}-{cpu}"), &machine, 1));
        }
    }
    scenarios.push(on("one-cpu", "board = \"q35\"\ncpus = 1", 0));
    scenarios.push(on("sixteen-cpus", "board = \"q35\"\ncpus = 16", 15));
    // Identifications of local APICs beyond 255, which only an x2APIC has.
    scenarios.push(on("many-cpus", "board = \"q35\"\ncpus = 280", 279).limit(400));
    // STAC and CLAC are no instructions there.
    scenarios.push(on("without-smap", "board = \"q35\"\ncpus = 2", 1).prepare(|boot, _| {
        boot.cpu.push_str(",-smap");
        Ok(())
    }));
    // The local APICs' registers in memory.
    scenarios.push(on("xapic", "board = \"q35\"\ncpus = 2", 1).prepare(|boot, _| {
        boot.cpu.push_str(",-x2apic");
        Ok(())
    }));
    // CPUs by the MultiProcessor tables. Nothing there powers the machine off but the debug exit.
    scenarios.push(on("without-acpi", "board = \"microvm\"\ncpus = 2", 1).prepare(|boot, _| {
        boot.extra.extend([
            "-machine".into(),
            "acpi=off".into(),
            "-device".into(),
            "isa-debug-exit,iobase=0xf4".into(),
        ]);
        Ok(())
    }));
    scenarios
}
