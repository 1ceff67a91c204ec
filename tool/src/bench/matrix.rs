// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turnstile's figures by platform: rows down, platforms across.

use super::document::{Document, Figure};
use super::subjects::Subject;
use super::table::count;
use crate::sheet::{Column, Sheet};

/// The figures, as the text and the page show them.
pub struct Matrix<'d> {
    /// The platforms' names, in the order in which they were measured.
    pub platforms: Vec<&'d str>,
    /// The rows: for each platform what is in its cell.
    pub rows: Vec<(&'d str, Vec<(&'d str, String)>)>,
}

impl<'d> Matrix<'d> {
    /// Takes the document apart; `None` if it has one platform only.
    pub fn new(document: &'d Document) -> Option<Self> {
        if document.elsewhere.is_empty() {
            return None;
        }
        let own = |figure: &&Figure| figure.subject == Subject::Turnstile.name();
        let figures: Vec<&Figure> = document.rows.iter().chain(&document.elsewhere).filter(own).collect();
        let (mut platforms, mut names): (Vec<&str>, Vec<&str>) = Default::default();
        for figure in &figures {
            for (all, name) in [(&mut platforms, &figure.platform), (&mut names, &figure.row)] {
                if !all.contains(&name.as_str()) {
                    all.push(name);
                }
            }
        }
        let find = |row: &str, platform: &str| {
            figures.iter().find(|figure| figure.row == row && figure.platform == platform).copied()
        };
        let cells = |row| platforms.iter().map(|&platform| (platform, cell(find(row, platform)))).collect();
        let rows = names.iter().map(|&row| (row, cells(row))).collect();
        Some(Matrix { platforms, rows })
    }

    /// The matrix as text.
    pub fn sheet(&self) -> Sheet {
        let headings = self.platforms.iter().map(|name| Column::number(heading(name)));
        let mut sheet = Sheet::new([Column::key("row")].into_iter().chain(headings));
        for (row, cells) in &self.rows {
            let cells = cells.iter().map(|(_, text)| text.as_str());
            sheet.add([*row].into_iter().chain(cells));
        }
        sheet
    }
}

/// What a figure is in a cell.
fn cell(figure: Option<&Figure>) -> String {
    match figure {
        Some(Figure { instructions: Some(number), .. }) => count(*number),
        Some(Figure { error: Some(_), .. }) => "failed".to_owned(),
        _ => "–".to_owned(),
    }
}

/// A platform's name in lines: CPU, interrupt controller, mode.
fn heading(name: &str) -> String {
    name.replace("-gicv", "\ngicv").replace("-nvhe", "\nnvhe")
}

#[cfg(test)]
mod tests {
    use super::super::platform::PLATFORMS;
    use super::super::samples;
    use super::*;
    use crate::sheet::assert_fits;

    #[test]
    fn platforms_are_columns_and_what_is_missing_is_said() {
        let mut document = samples::document();
        assert!(Matrix::new(&document).is_none());
        let other = |row: usize, instructions: Option<f64>, error: Option<&str>| Figure {
            platform: PLATFORMS[2].name.to_owned(),
            instructions,
            error: error.map(str::to_owned),
            ..document.rows[row].clone()
        };
        document.elsewhere = vec![other(0, Some(51.0), None), other(1, None, Some("it does not boot"))];
        let matrix = Matrix::new(&document).unwrap();
        assert_eq!(matrix.platforms, ["max-gicv3", "max-gicv2"]);
        let text = matrix.sheet().show(None);
        let words = |row: &str| {
            let line = text.lines().find(|line| line.contains(row)).unwrap_or_default();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_fits(|width| matrix.sheet().show(width), &["null-hypercall", "gicv2", "51", "failed"]);
        assert_eq!(words("null-hypercall"), ["null-hypercall", "48", "51"]);
        assert_eq!(words("id-register"), ["id-register", "60", "failed"]);
        assert_eq!(words("gicv3"), ["gicv3", "gicv2"], "{text}");
    }
}
