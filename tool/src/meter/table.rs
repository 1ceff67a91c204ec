// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reading as a table for people, and traces as lists.

use std::collections::BTreeMap;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

use super::fold::{self, fold};
use super::reading::{Group, Reading};
use super::symbols::Symbols;
use crate::style::{BOLD, CYAN};

/// Prints the `top` most frequent groups, and what the most frequent one does; with `trace`, its instructions.
pub fn print(reading: &Reading, symbols: &Symbols, top: usize, trace: bool) {
    let total = &reading.total;
    println!("{} visits outside the guest, {} instructions", total.visits, total.outside);
    println!("{} instructions in the guest\n", total.guest);
    println!("{}", groups(&reading.groups, top));
    let left = reading.groups.len().saturating_sub(top);
    if left > 0 {
        println!("and {left} more groups (--top)");
    }
    if let Some(group) = reading.groups.first() {
        details(group);
        if trace {
            let what = format!("what runs in one {}", group.reason);
            fold::print(&what, &fold(&group.trace, symbols), &fold::named(&group.trace, symbols));
        }
    }
    for note in &reading.notes {
        println!("note: {note}");
    }
}

fn groups(groups: &[Group], top: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["CPU", "reason", "guest pc", "visits", "modal", "min", "max", "sum"]);
    for group in groups.iter().take(top) {
        let number = |number: u64| Cell::new(number).set_alignment(CellAlignment::Right);
        table.add_row([
            Cell::new(group.cpu),
            Cell::new(&group.reason),
            Cell::new(format!("{:#x}", group.pc)),
            number(group.visits),
            number(group.modal),
            number(group.min),
            number(group.max),
            number(group.sum),
        ]);
    }
    table
}

/// What the modal visit of a group does.
fn details(group: &Group) {
    let heading = format!("{} at {:#x} on CPU {}, modal visit:", group.reason, group.pc, group.cpu);
    anstream::println!("\n{BOLD}{heading}{BOLD:#}");
    let lists = [("classes", &group.classes), ("registers", &group.registers), ("devices", &group.devices)];
    for (title, counts) in lists.into_iter().filter(|(_, counts)| !counts.is_empty()) {
        anstream::println!("  {CYAN}{title:<9}{CYAN:#} {}", list(counts));
    }
}

fn list(counts: &BTreeMap<String, u64>) -> String {
    let all: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_first_groups() {
        let group = |pc, visits| Group { reason: "hvc64".into(), pc, visits, modal: 48, ..Group::default() };
        let text = groups(&[group(0x1010, 70), group(0x1020, 60), group(0x1030, 50)], 2).to_string();
        assert!(text.contains("0x1010") && text.contains("0x1020") && !text.contains("0x1030"), "{text}");
        assert!(text.contains("guest pc") && text.contains("48"), "{text}");
    }

    #[test]
    fn counts_are_listed() {
        let counts = BTreeMap::from([("loads".to_owned(), 17), ("isb".to_owned(), 1)]);
        assert_eq!(list(&counts), "1 isb, 17 loads");
    }
}
