// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lines and pages that operations touch, as text.

use comfy_table::{Cell, Table};

use super::document::{Document, Footprint, SubjectInfo};
use super::table::{count, heading, right, unknown};
use crate::ui;

/// What the table of lines and pages is.
pub const TITLE: &str = "Memory touched by one operation: 64-byte lines of code + of data, pages of 4 KiB (not of page-table walks)";

/// Lines and pages, if they were counted: rows down, subjects across.
pub fn table(document: &Document, width: Option<u16>) -> Option<Table> {
    document.rows.iter().find(|figure| figure.footprint.is_some())?;
    let known = |info: &&SubjectInfo| {
        document.rows.iter().any(|figure| figure.subject == info.subject && figure.footprint.is_some())
    };
    let subjects: Vec<&SubjectInfo> = document.subjects.iter().filter(known).collect();
    let mut table = ui::table(width);
    let names = subjects.iter().map(|info| right(&heading(document, info)));
    table.set_header([Cell::new("row")].into_iter().chain(names));
    for (row, _) in document.row_names() {
        let cells = subjects.iter().map(|info| {
            let figure = document.figure(&info.subject, row);
            right(&figure.and_then(|figure| figure.footprint).map_or_else(unknown, |it| cell(&it)))
        });
        table.add_row([Cell::new(row)].into_iter().chain(cells));
    }
    Some(table)
}

/// Lines and pages in a cell.
pub fn cell(footprint: &Footprint) -> String {
    let Footprint { code_lines, data_lines, pages } = footprint;
    format!("{} + {}, {}", count(*code_lines), count(*data_lines), count(*pages))
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn lines_and_pages_are_shown_where_they_were_counted() {
        let mut document = samples::document();
        assert!(table(&document, None).is_none());
        document.rows[0].footprint = Some(Footprint { code_lines: 6.0, data_lines: 4.5, pages: 3.0 });
        let text = table(&document, None).unwrap().to_string();
        assert!(text.contains("6 + 4.50, 3") && !text.contains("KVM"), "{text}");
        document.rows[2].footprint = document.rows[0].footprint;
        let text = table(&document, None).unwrap().to_string();
        assert!(text.contains("KVM VHE *") && !text.contains("Xen"), "{text}");
        let other_row = text.lines().find(|line| line.contains("id-register")).unwrap();
        assert_eq!(other_row.matches('–').count(), 2, "{text}");
    }
}
