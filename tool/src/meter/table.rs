// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reading as a table for people, and traces as lists.

use std::collections::BTreeMap;

use super::fold::{self, fold};
use super::reading::{Group, Reading};
use super::symbols::Symbols;
use crate::sheet::{Column, Sheet};
use crate::style::{BOLD, CYAN};
use crate::{prose, ui};

/// Prints the `top` most frequent groups, and what the most frequent one does; with `trace`, its instructions.
pub fn print(reading: &Reading, symbols: &Symbols, top: usize, trace: bool) {
    let total = &reading.total;
    println!("{} visits outside the guest, {} instructions", total.visits, total.outside);
    println!("{} instructions in the guest\n", total.guest);
    println!("{}", groups(&reading.groups, top).show(ui::terminal_width()));
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
        ui::say(&format!("note: {note}"));
    }
}

fn groups(groups: &[Group], top: usize) -> Sheet {
    let mut columns = Vec::from(["CPU", "reason", "guest pc"].map(Column::key));
    columns.extend(["visits", "modal", "min", "max", "sum"].map(Column::number));
    if groups.iter().any(|group| group.footprint.is_some()) {
        columns.extend(["code lines", "data lines", "pages"].map(Column::number));
    }
    let mut sheet = Sheet::new(columns);
    for group in groups.iter().take(top) {
        let names = [group.cpu.to_string(), group.reason.clone(), format!("{:#x}", group.pc)];
        let numbers = [group.visits, group.modal, group.min, group.max, group.sum];
        let touched = group.footprint.map(|it| [it.code_lines, it.data_lines, it.pages]);
        let numbers = numbers.into_iter().chain(touched.into_iter().flatten());
        sheet.add(names.into_iter().chain(numbers.map(|number| number.to_string())));
    }
    sheet
}

/// What the modal visit of a group does.
fn details(group: &Group) {
    let heading = format!("{} at {:#x} on CPU {}, modal visit:", group.reason, group.pc, group.cpu);
    anstream::println!("\n{BOLD}{heading}{BOLD:#}");
    let lists = [("classes", &group.classes), ("registers", &group.registers), ("devices", &group.devices)];
    for (title, counts) in lists.into_iter().filter(|(_, counts)| !counts.is_empty()) {
        let (label, width) = (format!("  {title:<9} "), prose::within(ui::terminal_width()));
        let text = prose::behind(&label, &list(counts), width);
        anstream::println!("{CYAN}{label}{CYAN:#}{}", text.strip_prefix(&label).unwrap_or(&text));
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
    use crate::sheet::assert_fits;

    #[test]
    fn a_table_has_the_first_groups() {
        let group = |pc, visits| Group { reason: "hvc64".into(), pc, visits, modal: 48, ..Group::default() };
        let text = groups(&[group(0x1010, 70), group(0x1020, 60), group(0x1030, 50)], 2).show(None);
        assert!(text.contains("0x1010") && text.contains("0x1020") && !text.contains("0x1030"), "{text}");
        assert!(text.contains("guest pc") && text.contains("48"), "{text}");
    }

    #[test]
    fn lines_and_pages_have_columns_where_they_were_counted() {
        let mut group = Group { modal: 48, ..Group::default() };
        assert!(!groups(&[group.clone()], 1).show(None).contains("pages"));
        group.footprint = Some(Footprint { code_lines: 61, data_lines: 72, pages: 83 });
        let text = groups(&[group.clone()], 1).show(None);
        let places =
            ["code lines", "data lines", "pages", "61", "72", "83"].map(|part| text.find(part).unwrap());
        assert!(places.is_sorted(), "{text}");
        (group.reason, group.pc, group.sum) = ("data-abort".to_owned(), 0xffff_8000_8082_c4d8, 1 << 50);
        let parts = ["0xffff80008082c4d8", "data-abort", "1125899906842624", "code lines", "83"];
        assert_fits(|width| groups(std::slice::from_ref(&group), 1).show(width), &parts);
    }

    #[test]
    fn counts_are_listed() {
        let counts = BTreeMap::from([("loads".to_owned(), 17), ("isb".to_owned(), 1)]);
        assert_eq!(list(&counts), "1 isb, 17 loads");
    }
}
