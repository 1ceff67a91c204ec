// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each measuring guest, alone on either machine, without counting: its rows themselves are the stage
//! `arm64/bench`.

use turnstile::bench::rows::{Counted, Disk, ROWS, Row};
use turnstile::bench::subjects::turnstile::services;
use turnstile::config::Board;

use super::scenario::{Scenario, Step};

/// The most vCPUs of a guest that is tried here.
const VCPUS: u16 = 4;

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    // The machine's own devices are as in a row only where the bench makes them.
    let is_there = |row: &Row| row.disk != Some(Disk::Nvme) && !row.wired;
    let is_one = |row: &Row| row.vcpus <= VCPUS && row.counted != Counted::Boot && is_there(row);
    for row in ROWS.iter().map(Row::own).filter(is_one) {
        // What touches memory or sleeps is measured as often as its least says, doorbells less often.
        let iterations = match row.iterations(1000) {
            250 => "iterations=250",
            512 => "iterations=512",
            1280 => "iterations=1280",
            2048 => "iterations=2048",
            4096 => "iterations=4096",
            _ => "iterations=1000",
        };
        let services = services(&row, Board::Virt, "measure");
        // Where that of a service is, a row says for kvmtool's machine.
        let machines = if services.is_empty() { &["virt", "kvmtool"][..] } else { &["kvmtool"] };
        for machine in machines {
            let config = format!(
                "[[vm]]\nname = \"measure\"\nkernel = \"guest:{}\"\nmachine = \"{machine}\"\n\
                 cmdline = \"{}\"\n{}{services}",
                row.guest,
                row.cmdline(1000),
                row.table("lan"),
            );
            let steps = vec![Step::Expect(0, "@bench row="), Step::Expect(0, iterations)];
            let name = format!("measuring/{}-{machine}", row.name);
            let scenario = Scenario::new(name, config, steps);
            // CPUs that wait for each other take a time slice of a busy host for each answer, unless they are one
            // thread, as in a counted run.
            scenarios.push(if row.vcpus > 1 || row.peer { scenario.counted() } else { scenario });
        }
    }
    scenarios
}
