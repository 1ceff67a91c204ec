// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turnstile's figures by platform: rows down, platforms across.

use comfy_table::{Cell, Table};

use super::document::{Document, Figure};
use super::subjects::Subject;
use super::table::{count, empty, right};

/// Turnstile's figures, wherever they were measured.
pub fn figures(document: &Document) -> impl Iterator<Item = &Figure> {
    let own = |figure: &&Figure| figure.subject == Subject::Turnstile.name();
    document.rows.iter().chain(&document.elsewhere).filter(own)
}

/// The platforms' names, in the order in which they were measured.
pub fn platforms(document: &Document) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for figure in figures(document) {
        if !names.contains(&figure.platform.as_str()) {
            names.push(&figure.platform);
        }
    }
    names
}

/// What a figure is in a cell.
pub fn cell(figure: Option<&Figure>) -> String {
    match figure {
        Some(Figure { instructions: Some(number), .. }) => count(*number),
        Some(Figure { error: Some(_), .. }) => "failed".to_owned(),
        _ => "–".to_owned(),
    }
}

/// The matrix. It is as wide as it has to be: with its columns broken nobody could compare.
pub fn table(document: &Document) -> Table {
    let platforms = platforms(document);
    let mut table = empty(None);
    table
        .set_header([Cell::new("row")].into_iter().chain(platforms.iter().map(|name| right(&heading(name)))));
    for (row, _) in document.row_names() {
        let cells = platforms.iter().map(|platform| {
            let mut figures = figures(document);
            right(&cell(figures.find(|figure| figure.row == row && figure.platform == *platform)))
        });
        table.add_row([Cell::new(row)].into_iter().chain(cells));
    }
    table
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

    #[test]
    fn platforms_are_columns_and_what_is_missing_is_said() {
        let mut document = samples::document();
        let other = |row: usize, instructions: Option<f64>, error: Option<&str>| Figure {
            platform: PLATFORMS[2].name.to_owned(),
            instructions,
            error: error.map(str::to_owned),
            ..document.rows[row].clone()
        };
        document.elsewhere = vec![other(0, Some(51.0), None), other(1, None, Some("it does not boot"))];
        assert_eq!(platforms(&document), ["max-gicv3", "max-gicv2"]);
        let text = table(&document).to_string();
        let words = |row: &str| {
            let line = text.lines().find(|line| line.contains(row)).unwrap_or_default();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(words("null-hypercall"), ["null-hypercall", "48", "51"]);
        assert_eq!(words("id-register"), ["id-register", "60", "failed"]);
        assert_eq!(words("gicv3"), ["gicv3", "gicv2"], "{text}");
    }
}
