// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines with POWER of all kinds, and what the hypervisor refuses there, in a sentence.

use turnstile::isa::Isa;

use super::programs;
use super::refused::{RESET, damaged, fault, panic, refuse, too_few_cpus};
use super::scenario::Scenario;

/// The architecture of this topic.
const ISA: Isa = Isa::Power64;

/// A guest of its own on the CPU of this number, on a machine with these lines.
fn on(name: &str, machine: &str, cpu: u16) -> Scenario {
    programs::echo_on_board(ISA, name, machine, "pseries", cpu)
}

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for board in ["powernv9", "powernv10"] {
        scenarios.push(on(&format!("{board}-one-cpu"), &format!("board = \"{board}\"\ncpus = 1"), 0));
        scenarios.push(on(&format!("{board}-four-cpus"), &format!("board = \"{board}\"\ncpus = 4"), 3));
        // Threads of a core are CPUs, too.
        scenarios.push(
            on(&format!("{board}-threads"), &format!("board = \"{board}\"\ncpus = 8"), 7).prepare(
                |boot, _| {
                    boot.extra.extend(["-smp".into(), "8,cores=2,threads=4".into()]);
                    Ok(())
                },
            ),
        );
    }
    scenarios.extend(refusals());
    scenarios
}

fn refusals() -> Vec<Scenario> {
    let mut scenarios: Vec<Scenario> = damaged(ISA).into();
    scenarios.push(refuse(ISA, "no-radix-trees", "do not translate by radix trees", |boot, _| {
        boot.extra.extend(["-machine".into(), "powernv8".into()]);
        Ok(())
    }));
    let run_data = ["hypervisor emulation assistance", "in the hypervisor", "backtrace", RESET];
    scenarios.extend([too_few_cpus(ISA), fault(ISA, "run-data", &run_data), panic(ISA)]);
    scenarios
}
