// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reading as a table for people, and traces as lists.

use std::collections::BTreeMap;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

use super::fold::fold;
use super::reading::{Group, Reading};
use super::symbols::Symbols;
use crate::ui::{BOLD, CYAN, DIM};

/// Groups whose classes are told below the table.
const DETAILED: usize = 3;

/// Prints the `top` most frequent groups; with `trace`, the instructions of the most frequent one.
pub fn print(reading: &Reading, symbols: &Symbols, top: usize, trace: bool) {
    let total = &reading.total;
    println!("{} visits outside the guest, {} instructions", total.visits, total.outside);
    println!("{} instructions in the guest\n", total.guest);
    println!("{}", groups(&reading.groups, symbols, top));
    let left = reading.groups.len().saturating_sub(top);
    if left > 0 {
        println!("and {left} more groups (--top)");
    }
    for group in reading.groups.iter().take(DETAILED.min(top)) {
        details(group, symbols);
    }
    if let Some(group) = reading.groups.first().filter(|_| trace) {
        steps(group, symbols);
    }
    for note in &reading.notes {
        println!("note: {note}");
    }
}

fn groups(groups: &[Group], symbols: &Symbols, top: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["CPU", "reason", "guest pc", "visits", "modal", "min", "max", "sum"]);
    for group in groups.iter().take(top) {
        let number = |number: u64| Cell::new(number).set_alignment(CellAlignment::Right);
        table.add_row([
            Cell::new(group.cpu),
            Cell::new(&group.reason),
            Cell::new(symbols.show(group.pc)),
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
fn details(group: &Group, symbols: &Symbols) {
    let at = symbols.show(group.pc);
    let heading = format!("{} at {at} on CPU {}, modal visit:", group.reason, group.cpu);
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

/// The instructions of a group's modal visit, by function and one by one.
fn steps(group: &Group, symbols: &Symbols) {
    let heading = format!("what runs in one {}: {} instructions", group.reason, group.trace.len());
    anstream::println!("\n{BOLD}{heading}{BOLD:#}");
    for folded in fold(&group.trace, symbols) {
        anstream::println!("{:>7}  {CYAN}{}{CYAN:#}", folded.instructions, folded.function);
    }
    println!("");
    let mut last = None;
    for (index, step) in group.trace.iter().enumerate() {
        let function = symbols.name(step.pc).map(|(name, _)| name);
        if function != last {
            anstream::println!("         {CYAN}{}{CYAN:#}", function.unwrap_or("?"));
            last = function;
        }
        anstream::println!("{:>7}  {DIM}{:#x}{DIM:#}  {}", index + 1, step.pc, step.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_first_groups() {
        let group = |pc, visits| Group { reason: "hvc64".into(), pc, visits, modal: 48, ..Group::default() };
        let symbols = Symbols::from_table("1000 T loop\n").unwrap();
        let text =
            groups(&[group(0x1010, 70), group(0x1020, 60), group(0x1030, 50)], &symbols, 2).to_string();
        assert!(
            text.contains("loop+0x10") && text.contains("loop+0x20") && !text.contains("loop+0x30"),
            "{text}"
        );
        assert!(text.contains("guest pc") && text.contains("48"), "{text}");
    }

    #[test]
    fn counts_are_listed() {
        let counts = BTreeMap::from([("loads".to_owned(), 17), ("isb".to_owned(), 1)]);
        assert_eq!(list(&counts), "1 isb, 17 loads");
    }
}
