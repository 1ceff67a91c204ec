// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole work as a table.

use crate::bench::document::{Document, WorkFigure};
use crate::prose;
use crate::sheet::{self, Column};

/// The figures, as the text and the page show them.
pub struct Sheet<'d> {
    /// The headings of the hypervisors' columns.
    pub headings: Vec<String>,
    /// The rows.
    pub rows: Vec<Line<'d>>,
}

/// A row.
pub struct Line<'d> {
    /// Its name.
    pub row: &'d str,
    /// What one operation is.
    pub what: &'d str,
    /// For each heading what is in its cell.
    pub cells: Vec<String>,
}

impl<'d> Sheet<'d> {
    /// Takes the document apart; `None` if no work was measured.
    pub fn new(document: &'d Document) -> Option<Self> {
        let figures = &document.work;
        let mut columns: Vec<(&str, &str)> = Vec::new();
        let mut rows: Vec<(&str, &str)> = Vec::new();
        for figure in figures {
            let pairs = [(&figure.under, &figure.title), (&figure.row, &figure.what)];
            for (all, (name, shown)) in [&mut columns, &mut rows].into_iter().zip(pairs) {
                if !all.iter().any(|(known, _)| known == name) {
                    all.push((name, shown));
                }
            }
        }
        let recorded = |under: &str| figures.iter().any(|figure| figure.under == under && figure.recorded);
        let heading =
            |(under, title): &(&str, &str)| format!("{title}{}", if recorded(under) { " *" } else { "" });
        let find =
            |row: &str, under: &str| figures.iter().find(|figure| figure.row == row && figure.under == under);
        let line = |(row, what): (&'d str, &'d str)| {
            let cells = columns.iter().map(|(under, _)| find(row, under).map_or_else(unknown, cell));
            Line { row, what, cells: cells.collect() }
        };
        let headings = columns.iter().map(heading).collect();
        (!rows.is_empty()).then(|| Sheet { headings, rows: rows.iter().copied().map(line).collect() })
    }
}

/// What the numbers are, and the table; nothing where no work was measured.
pub fn text(document: &Document, width: Option<u16>) -> Option<String> {
    let sheet = Sheet::new(document)?;
    let headings = sheet.headings.iter().map(Column::number);
    let columns = [Column::key("row"), Column::remark("operation")].into_iter().chain(headings);
    let mut table = sheet::Sheet::new(columns);
    for line in &sheet.rows {
        let cells = line.cells.iter().map(String::as_str);
        table.add([line.row, line.what].into_iter().chain(cells));
    }
    let what = format!(
        "Whole work in Debian's Linux on {} ({}): the instructions of all CPUs for one operation, in the guest and \
         outside, and their ratio to the same kernel without a hypervisor.",
        document.isa, document.platform
    );
    let prose = prose::within(width);
    let again = prose::command("To repeat: ", &document.command, prose);
    Some(format!("{}\n{again}\n\n{}", prose::wrap(&what, prose), table.show(width)))
}

/// A figure: instructions, their ratio, and what of them is outside the guest.
fn cell(figure: &WorkFigure) -> String {
    let outside = figure.outside.map_or_else(String::new, |outside| format!(", {outside:.0} outside"));
    match (figure.instructions, figure.ratio) {
        (Some(number), Some(ratio)) => format!("{number:.0} ({ratio:.3}{outside})"),
        (Some(number), None) => format!("{number:.0}"),
        (None, Some(ratio)) => format!("{ratio:.3}"),
        (None, None) if figure.error.is_some() => "failed".to_owned(),
        (None, None) => unknown(),
    }
}

fn unknown() -> String {
    "–".to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::super::samples;
    use super::*;
    use crate::sheet::assert_fits;

    #[test]
    fn work_has_a_table_of_its_own() {
        let mut document = samples::document();
        assert_eq!(text(&document, None), None);
        let figure = |under: &str, instructions, ratio| WorkFigure {
            row: "pipe-2cpus".to_owned(),
            what: "a byte".to_owned(),
            under: under.to_owned(),
            title: under.to_owned(),
            instructions,
            ratio,
            ..WorkFigure::default()
        };
        document.work = vec![
            figure("bare", Some(17_232.4), Some(1.0)),
            WorkFigure { outside: Some(350.2), ..figure("turnstile", Some(17_600.0), Some(1.0213)) },
            WorkFigure { recorded: true, ..figure("kvm-vhe", None, Some(1.5)) },
            WorkFigure { error: Some("no".to_owned()), ..figure("xen", None, None) },
        ];
        let parts = ["17232 (1.000)", "17600 (1.021, 350 outside)", "kvm-vhe *", " 1.500", "failed"];
        assert_fits(|width| text(&document, width).unwrap(), &parts);
    }
}
