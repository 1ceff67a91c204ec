// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile ls`: the machines that run, and what their VMs do.

use serde::Serialize;

use super::find::{self, Found};
use super::protocol::Request;
use super::state::Machine;
use crate::cli;
use crate::failure::{Context, Result};
use crate::layout::Layout;
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
    println!("{}", table(&machines));
    Ok(())
}

/// Asks a machine; `None` if it has just ended.
fn look(found: &Found) -> Option<Listed> {
    let answer = found.connect().and_then(|mut client| client.ask(&Request::List));
    match answer {
        Ok(machine) => machine.map(Listed::Machine),
        Err(failure) => Some(Listed::Silent { name: found.name.clone(), error: failure.what().to_owned() }),
    }
}

fn table(machines: &[Listed]) -> comfy_table::Table {
    let mut table = ui::table(ui::terminal_width());
    table.set_header(["machine", "up", "VM", "state", "vCPUs", "starts"]);
    for machine in machines {
        match machine {
            Listed::Silent { name, error } => {
                table.add_row([name, "", "", error]);
            }
            Listed::Machine(machine) => {
                let mut head = [machine.name.clone(), duration(machine.seconds)];
                for vm in &machine.vms {
                    let numbers = [vm.vcpus.to_string(), vm.starts.to_string()];
                    let own = [vm.name.clone(), vm.state.name().to_owned()];
                    table.add_row(std::mem::take(&mut head).into_iter().chain(own).chain(numbers));
                }
            }
        }
    }
    table
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
