// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lines and pages that operations touch, as text.

use super::document::{Document, Footprint, SubjectInfo};
use super::table::{count, heading, unknown};
use crate::sheet::{Column, Sheet};

/// What the table of lines and pages is.
pub const TITLE: &str = "Memory touched by one operation: 64-byte lines of code + of data, pages of 4 KiB (not of page-table walks)";

/// Lines and pages, if they were counted: rows down, subjects across.
pub fn sheet(document: &Document) -> Option<Sheet> {
    document.rows.iter().find(|figure| figure.footprint.is_some())?;
    let known = |info: &&SubjectInfo| {
        document.rows.iter().any(|figure| figure.subject == info.subject && figure.footprint.is_some())
    };
    let subjects: Vec<&SubjectInfo> = document.subjects.iter().filter(known).collect();
    let names = subjects.iter().map(|info| Column::number(heading(document, info)));
    let mut sheet = Sheet::new([Column::key("row")].into_iter().chain(names));
    for (row, _) in document.row_names() {
        let cells = subjects.iter().map(|info| {
            let figure = document.figure(&info.subject, row);
            figure.and_then(|figure| figure.footprint).map_or_else(unknown, |it| cell(&it))
        });
        sheet.add([row.to_owned()].into_iter().chain(cells));
    }
    Some(sheet)
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
    use crate::sheet::assert_fits;

    #[test]
    fn lines_and_pages_are_shown_where_they_were_counted() {
        let mut document = samples::document();
        assert!(sheet(&document).is_none());
        document.rows[0].footprint = Some(Footprint { code_lines: 6.0, data_lines: 4.5, pages: 3.0 });
        let text = sheet(&document).unwrap().show(None);
        assert!(text.contains("6 + 4.50, 3") && !text.contains("KVM"), "{text}");
        document.rows[2].footprint = document.rows[0].footprint;
        let text = sheet(&document).unwrap().show(None);
        assert!(text.contains("KVM VHE *") && !text.contains("Xen"), "{text}");
        assert_fits(
            |width| sheet(&document).unwrap().show(width),
            &["KVM VHE *", "6 + 4.50, 3", "null-hypercall"],
        );
        let other_row = text.lines().find(|line| line.contains("id-register")).unwrap();
        assert_eq!(other_row.matches('–').count(), 2, "{text}");
    }
}
