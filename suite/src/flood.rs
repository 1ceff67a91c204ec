// SPDX-License-Identifier: Apache-2.0 OR MIT
//! More is typed at once than a guest's console has room for: 25,200 bytes, as somebody pastes them.

use std::sync::LazyLock;

use turnstile::isa::Isa;
use turnstile_link::{Command, StopReason};

use super::scenario::{Record, Scenario, Step, guest};

/// Lines of text.
const LINES: usize = 252;
/// Bytes of a line, with its end.
const LINE: usize = 100;
/// What a line looks like behind its number.
const FILLING: &str =
    "the quick brown fox jumps over the lazy dog; pack my box with five dozen liquor jugs; -----";

/// The scenarios on an architecture, with a guest of so much memory.
pub fn scenarios(isa: Isa, memory: &str) -> [Scenario; 2] {
    let config = || guest("echo", "echo", memory, "");
    let ready = || [Step::Expect(0, "echo> ")];
    let end = [Step::Type(0, "quit\r"), Step::Stopped(0, StopReason::PowerOff)];
    let all = ready().into_iter().chain([Step::Type(0, &PASTE)]).chain(end.clone());
    let flood = Scenario::at(isa, "console/flood", config(), all.collect());
    // The guest stops reading; what waits is for its next life.
    let restart = ready().into_iter().chain([
        Step::Type(0, "spin\r"),
        Step::Type(0, &PASTE),
        Step::Tell(Command::Restart { vm: 0 }),
        Step::Started(0, 2),
    ]);
    let restarted = Scenario::at(isa, "console/flood-restart", config(), restart.chain(end).collect());
    [flood.judge(everything), restarted.judge(the_rest)]
}

/// The lines that are typed.
static PASTE: LazyLock<String> =
    LazyLock::new(|| (0..LINES).map(|number| format!("{number:03} {FILLING:.<95}\r")).collect());

/// The numbers of the lines that the guest has read whole.
fn read(console: &str) -> Vec<usize> {
    let lines = console.lines().filter_map(|line| line.trim_end().strip_prefix("@echo "));
    lines.filter(|line| line.len() == LINE - 1).filter_map(|line| line.get(..3)?.parse().ok()).collect()
}

fn everything(record: &Record) -> Result<(), String> {
    let read = read(record.console(0));
    if read == (0..LINES).collect::<Vec<_>>() {
        Ok(())
    } else {
        Err(format!("the guest has read the lines {read:?}"))
    }
}

/// At most what the first life had room for is missing: 1024 bytes in its backlog, and as many in the guest.
fn the_rest(record: &Record) -> Result<(), String> {
    let read = read(record.console(0));
    let from = read.first().copied().unwrap_or(LINES);
    let fits = from <= 2 * 1024 / LINE + 2 && read == (from..LINES).collect::<Vec<_>>();
    if fits { Ok(()) } else { Err(format!("the second life has read the lines {read:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(lines: impl Iterator<Item = usize>) -> Record {
        let typed: Vec<&str> = PASTE.split_inclusive('\r').collect();
        let console = lines.map(|number| format!("echo> \r\n@echo {}\n", typed[number])).collect();
        Record { consoles: vec![console], ..Record::default() }
    }

    #[test]
    fn paste_is_of_that_length_and_each_missing_line_is_noticed() {
        assert_eq!(PASTE.len(), 25_200);
        assert!(everything(&record(0..LINES)).is_ok() && the_rest(&record(9..LINES)).is_ok());
        assert!(everything(&record((0..LINES).filter(|&number| number != 77))).is_err());
        assert!(the_rest(&record((9..LINES).filter(|&number| number != 77))).is_err());
        assert!(the_rest(&record(30..LINES)).is_err() && the_rest(&record(0..0)).is_err());
    }
}
