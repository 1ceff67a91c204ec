// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One reading, as a table or as JSON.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::cells::{COLUMNS, cells};
use super::reading::Reading;
use super::rows::{self, Group, View};
use super::source::{Source, Update, refuse_empty};
use super::{Event, find_vm};
use crate::cli;
use crate::failure::{Context, Failure, Result};
use crate::sheet::{Column, Sheet};
use crate::ui;

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
    println!("{}", sheet(&rows::groups(&reading, None, &view)).show(ui::terminal_width()));
    println!("{}", memory_sheet(&reading, view.only).show(ui::terminal_width()));
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
fn sheet(groups: &[Group]) -> Sheet {
    let [reason, _, exits, mean, p50, p99, _] = COLUMNS;
    let keys = ["vm", "vcpu", reason].map(Column::key);
    let numbers = [exits, mean].map(Column::number).into_iter().chain([p50, p99].map(Column::extra));
    let mut sheet = Sheet::new(keys.into_iter().chain(numbers));
    for group in groups {
        let vcpu = group.vcpu.map_or_else(String::new, |vcpu| vcpu.to_string());
        for (name, figures) in group.lines() {
            let [_, rest @ .., _] = cells(figures);
            let head = [group.vm.clone(), vcpu.clone(), name];
            sheet.add(head.into_iter().chain(rest));
        }
    }
    sheet
}

/// The table of how much memory the VMs have.
fn memory_sheet(reading: &Reading, only: Option<usize>) -> Sheet {
    let mut sheet = Sheet::new([Column::key("vm"), Column::number("memory")]);
    for (name, text) in reading.memory(only) {
        sheet.add([name.to_owned(), text]);
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::super::app::tests::app;
    use super::super::collector::tests::example;
    use super::*;
    use crate::sheet::assert_fits;

    #[test]
    fn a_reading_fits() {
        let groups = app().groups();
        assert_fits(|width| sheet(&groups).show(width), &["linux", "hypercall", "exits", "mean", "100 ns"]);
        assert!(sheet(&groups).show(Some(80)).contains("p99"));
        let parts = ["quiet", "6MiB of 512MiB, waits", "1018MiB of 1GiB free"];
        assert_fits(|width| memory_sheet(&example(), None).show(width), &parts);
        let text = memory_sheet(&example(), Some(1)).show(None);
        assert!(text.contains("quiet") && !text.contains("linux"), "{text}");
    }
}
