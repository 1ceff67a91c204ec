// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One reading, as a table or as JSON.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};

use super::cells::{COLUMNS, cells};
use super::reading::Reading;
use super::rows::{self, Group, View};
use super::source::{Source, Update, refuse_empty};
use super::{Event, find_vm};
use crate::cli;
use crate::failure::{Context, Failure, Result};

/// How often it is looked whether the machine is there and the time has come.
const TICK: Duration = Duration::from_millis(20);

/// Takes one reading and prints it.
pub fn once(mut source: Source, events: &Receiver<Event>, options: &cli::Top, mut view: View) -> Result<()> {
    let mut reading = wait(&mut source, events, options.after.unwrap_or_default())?;
    refuse_empty(&reading)?;
    view.only = find_vm(&reading, options.vm.as_ref())?;
    if options.json {
        if let Some(only) = view.only {
            reading.vms = reading.vms.into_iter().skip(only).take(1).collect();
        }
        let text = serde_json::to_string_pretty(&reading).context(|| "cannot write the reading".into())?;
        println!("{text}");
        return Ok(());
    }
    view.whole_life = true;
    println!("{}", table(&rows::groups(&reading, None, &view)));
    Ok(())
}

/// Waits until the machine is there and for as long as is wanted, and reads.
fn wait(source: &mut Source, events: &Receiver<Event>, after: Duration) -> Result<Reading> {
    let mut since = None;
    let mut asked = false;
    loop {
        if source.is_there() && !asked && since.get_or_insert_with(Instant::now).elapsed() >= after {
            source.ask();
            asked = true;
        }
        let update = match events.recv_timeout(TICK) {
            Ok(Event::Machine(notice)) => source.notice(&notice),
            Ok(Event::Update(update)) => Some(update),
            Ok(Event::Signal(signal)) => return Err(Failure::signal(signal)),
            Ok(Event::Terminal(_)) | Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Update::Ended(None)),
        };
        match update {
            Some(Update::Reading(reading)) => return Ok(reading),
            Some(Update::Ended(Some(failure))) => return Err(failure),
            Some(Update::Ended(None)) => {
                return Err(Failure::failed("the machine ended before its statistics were read")
                    .help("use a shorter --after, or a guest that runs longer"));
            }
            Some(Update::News(_)) | None => {}
        }
    }
}

/// The table of a reading: no rates and shares, which need two.
fn table(groups: &[Group]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let [first, _, rest @ .., _] = COLUMNS;
    let header = ["vm", "vcpu", first].into_iter().chain(rest);
    table.set_header(header);
    for group in groups {
        let vcpu = group.vcpu.map_or_else(String::new, |vcpu| vcpu.to_string());
        for (name, figures) in group.lines() {
            let [_, rest @ .., _] = cells(figures);
            let head = [group.vm.clone(), vcpu.clone(), name];
            table.add_row(head.into_iter().chain(rest));
        }
    }
    table.column_iter_mut().skip(3).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}
