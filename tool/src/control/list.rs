// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile ls`: the machines that run, what their VMs do, and the services that serve those.

use serde::Serialize;
use turnstile_link::{Memory, Pool};

use super::find::{self, Found};
use super::protocol::Request;
use super::state::{Machine, Service};
use crate::cli;
use crate::config::show_size;
use crate::failure::{Context, Result};
use crate::layout::Layout;
use crate::memory::memory_text;
use crate::sheet::{Column, Sheet};
use crate::ui;

/// What `ls --json` writes.
#[derive(Serialize)]
struct Report {
    schema: u32,
    machines: Vec<Listed>,
}

/// A machine, or why nothing is known of it.
#[derive(Serialize)]
#[serde(untagged)]
enum Listed {
    Machine(Machine),
    Silent { name: String, error: String },
}

/// `ls`
pub fn list(layout: &Layout, options: &cli::List) -> Result<()> {
    let machines: Vec<Listed> = find::running(&find::folder(layout)).iter().filter_map(look).collect();
    if options.json {
        let report = Report { schema: 1, machines };
        println!("{}", serde_json::to_string_pretty(&report).context(|| "cannot write the list".into())?);
        return Ok(());
    }
    if machines.is_empty() {
        ui::note("no machine is running");
        return Ok(());
    }
    println!("{}", sheet(&machines).show(ui::terminal_width()));
    Ok(())
}

/// Asks a machine; `None` if it has just ended.
fn look(found: &Found) -> Option<Listed> {
    let answer = found.connect().and_then(|mut client| client.ask(&Request::List { memory: true }));
    match answer {
        Ok(machine) => machine.map(Listed::Machine),
        Err(failure) => Some(Listed::Silent { name: found.name.clone(), error: failure.what().to_owned() }),
    }
}

fn sheet(machines: &[Listed]) -> Sheet {
    let [up, memory, vcpus, starts, served] =
        ["up", "memory", "vCPUs", "starts", "services"].map(Column::extra);
    let state = Column::text("state");
    let columns = [Column::key("machine"), up, Column::key("VM"), state, memory, vcpus, starts, served];
    let mut sheet = Sheet::new(columns);
    for machine in machines {
        match machine {
            Listed::Silent { name, error } => {
                sheet.add([name, "", "", error]);
            }
            Listed::Machine(machine) => {
                let mut head = [machine.name.clone(), duration(machine.seconds)];
                for vm in &machine.vms {
                    let memory = vm.memory.map(memory_text).unwrap_or_default();
                    let numbers = [memory, vm.vcpus.to_string(), vm.starts.to_string()];
                    let failed = vm.failure.as_ref().map(|why| format!(": it does not start: {why}"));
                    let own = [vm.name.clone(), format!("{}{}", vm.state.name(), failed.unwrap_or_default())];
                    let row = std::mem::take(&mut head).into_iter().chain(own).chain(numbers);
                    sheet.add(row.chain([services(machine, &vm.name)]));
                }
                if let Some(pool) = machine.pool {
                    sheet.add(pool_row(pool));
                }
            }
        }
    }
    sheet
}

/// The row of a pool, below those of the VMs: no VM has such a name.
fn pool_row(pool: Pool) -> [String; 5] {
    let taken = Memory { bytes: pool.bytes.saturating_sub(pool.free), limit: pool.bytes, waits: false };
    let free = format!("{} free", show_size(pool.free));
    [String::new(), String::new(), "(pool)".to_owned(), free, memory_text(taken)]
}

/// The names of the services of a VM, and how often they have crashed.
fn services(machine: &Machine, vm: &str) -> String {
    let own = machine.services.iter().filter(|service| service.vm == vm);
    let text = |service: &Service| match service.crashes {
        0 => service.name.clone(),
        times => format!("{} (crashed {times}×)", service.name),
    };
    own.map(text).collect::<Vec<_>>().join(" ")
}

/// A time in its largest unit.
fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::{State, Vm};
    use super::*;
    use crate::sheet::assert_fits;

    #[test]
    fn the_list_fits() {
        let memory = Some(Memory { bytes: 6 << 20, limit: 512 << 20, waits: false });
        let vm = |name: &str, state| Vm {
            name: name.to_owned(),
            vcpus: 4,
            state,
            starts: 12,
            failure: None,
            memory,
        };
        let vms = vec![vm("left", State::Running), vm("right", State::PoweredOff)];
        let (name, process) = ("two-linux-4711".to_owned(), 4711);
        let services = vec![Service { name: "console".to_owned(), vm: "right".to_owned(), crashes: 3 }];
        let machine = Listed::Machine(Machine {
            name,
            process,
            detached: true,
            seconds: 7300,
            vms,
            services,
            ports: Vec::new(),
            pool: Some(Pool { bytes: 1 << 30, free: 98 << 20 }),
        });
        let silent = Listed::Silent {
            name: "other-1".to_owned(),
            error: "it speaks version 3, this is version 1".to_owned(),
        };
        let parts = ["two-linux-4711", "right", "powered off"];
        assert_fits(|width| sheet(std::slice::from_ref(&machine)).show(width), &parts);
        let both = [machine, silent];
        assert_fits(|width| sheet(&both).show(width), &parts);
        let text = sheet(&both[..1]).show(Some(80));
        for part in ["starts", "2 h", "98MiB free", "6MiB of 512MiB", "926MiB of 1GiB"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let text = sheet(&both).show(None);
        assert!(text.contains("console (crashed 3×)") && text.contains("(pool)"), "{text}");
    }
}
