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
    let mut header = vec!["CPU", "reason", "guest pc", "visits", "modal", "min", "max", "sum"];
    if groups.iter().any(|group| group.footprint.is_some()) {
        header.extend(["code lines", "data lines", "pages"]);
    }
    table.set_header(header);
    for group in groups.iter().take(top) {
        let number = |number: u64| Cell::new(number).set_alignment(CellAlignment::Right);
        let mut cells = vec![
            Cell::new(group.cpu),
            Cell::new(&group.reason),
            Cell::new(format!("{:#x}", group.pc)),
            number(group.visits),
            number(group.modal),
            number(group.min),
            number(group.max),
            number(group.sum),
        ];
        let touched = group.footprint.map(|it| [it.code_lines, it.data_lines, it.pages]);
        cells.extend(touched.into_iter().flatten().map(number));
        table.add_row(cells);
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
    use super::super::reading::Footprint;
    use super::*;

    #[test]
    fn a_table_has_the_first_groups() {
        let group = |pc, visits| Group { reason: "hvc64".into(), pc, visits, modal: 48, ..Group::default() };
        let text = groups(&[group(0x1010, 70), group(0x1020, 60), group(0x1030, 50)], 2).to_string();
        assert!(text.contains("0x1010") && text.contains("0x1020") && !text.contains("0x1030"), "{text}");
        assert!(text.contains("guest pc") && text.contains("48"), "{text}");
    }

    #[test]
    fn lines_and_pages_have_columns_where_they_were_counted() {
        let mut group = Group { modal: 48, ..Group::default() };
        assert!(!groups(&[group.clone()], 1).to_string().contains("pages"));
        group.footprint = Some(Footprint { code_lines: 61, data_lines: 72, pages: 83 });
        let text = groups(&[group], 1).to_string();
        let places =
            ["code lines", "data lines", "pages", "61", "72", "83"].map(|part| text.find(part).unwrap());
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn counts_are_listed() {
        let counts = BTreeMap::from([("loads".to_owned(), 17), ("isb".to_owned(), 1)]);
        assert_eq!(list(&counts), "1 isb, 17 loads");
    }
}
