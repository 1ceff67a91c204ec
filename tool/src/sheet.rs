// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables that fit their terminal. Numbers and names are never broken: what has no place moves as a whole.
//!
//! In a pipe a table is as wide as its texts. In a terminal texts are folded at words, then remarks and extras are left out, the last
//! ones first; then the columns of numbers continue in further tables below, each with the names of the rows. Where not even that
//! fits, each row becomes a paragraph.

use comfy_table::{Cell, CellAlignment};

use crate::{prose, ui};

/// What a column takes beside its text.
const PADDING: usize = 3;
/// Texts are not folded to fewer characters than this.
const LEAST: usize = 24;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// What names a row: repeated in each part of the table.
    Key,
    /// A number, aligned to the right.
    Number,
    /// Words that can be folded.
    Text,
    /// Words that can be left out, too.
    Remark,
    /// A number that can be left out.
    Extra,
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    title: String,
    kind: Kind,
}

impl Column {
    fn new(title: impl Into<String>, kind: Kind) -> Self {
        Column { title: title.into(), kind }
    }

    /// A column of what names the rows.
    pub fn key(title: impl Into<String>) -> Self {
        Self::new(title, Kind::Key)
    }

    /// A column of numbers, or of other words that must stay whole.
    pub fn number(title: impl Into<String>) -> Self {
        Self::new(title, Kind::Number)
    }

    /// A column of words.
    pub fn text(title: impl Into<String>) -> Self {
        Self::new(title, Kind::Text)
    }

    /// A column of words that nobody misses in a narrow terminal.
    pub fn remark(title: impl Into<String>) -> Self {
        Self::new(title, Kind::Remark)
    }

    /// A column of numbers that nobody misses in a narrow terminal.
    pub fn extra(title: impl Into<String>) -> Self {
        Self::new(title, Kind::Extra)
    }

    fn is_dispensable(&self) -> bool {
        matches!(self.kind, Kind::Remark | Kind::Extra)
    }

    fn folds(&self) -> bool {
        matches!(self.kind, Kind::Text | Kind::Remark)
    }
}

/// A table before it has a width.
#[derive(Clone, Debug)]
pub struct Sheet {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// Columns of a part of the table, by index, each with its width.
type Part = Vec<(usize, usize)>;

impl Sheet {
    /// Begins with the columns. If no column has a title, the table has neither head nor rules.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Sheet { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row: a text for each column; those that are missing are empty.
    pub fn add<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table for a terminal of this width, or for a pipe.
    pub fn show(&self, width: Option<u16>) -> String {
        match self.parts(width) {
            Some(parts) => parts.iter().map(|part| self.draw(part)).collect::<Vec<_>>().join("\n"),
            None => self.paragraphs(width.map_or(usize::MAX, usize::from)),
        }
    }

    /// The parts of the table that fit; `None` if there are none.
    fn parts(&self, width: Option<u16>) -> Option<Vec<Part>> {
        let all: Part = (0..self.columns.len()).map(|index| (index, self.widest(index))).collect();
        let Some(width) = width.map(usize::from) else { return Some(vec![all]) };
        let mut columns = all;
        loop {
            if let Some(part) = self.folded(&columns, width) {
                return Some(vec![part]);
            }
            let dispensable =
                |(index, _): &(usize, usize)| self.columns.get(*index).is_some_and(Column::is_dispensable);
            let Some(last) = columns.iter().rposition(dispensable) else { break };
            columns.remove(last);
        }
        if self.columns.iter().any(|column| column.kind == Kind::Text) {
            return None;
        }
        let (keys, numbers): (Part, Part) =
            columns.into_iter().partition(|(index, _)| self.is(*index, Kind::Key));
        let mut parts = vec![keys.clone()];
        for number in numbers {
            let last = parts.last_mut()?;
            if last.len() > keys.len() && taken(last) + number.1 + PADDING > width {
                parts.push(keys.clone());
            }
            parts.last_mut()?.push(number);
        }
        parts.iter().all(|part| taken(part) <= width).then_some(parts)
    }

    /// The columns with their texts folded so that all fit, if that is possible.
    fn folded(&self, columns: &Part, width: usize) -> Option<Part> {
        let mut left = taken(columns).saturating_sub(width);
        let mut part = columns.clone();
        // The widest text gives first.
        while left > 0 {
            let foldable = part.iter_mut().filter(|(index, taken)| {
                *taken > LEAST && self.columns.get(*index).is_some_and(Column::folds)
            });
            let (_, widest) = foldable.max_by_key(|(_, taken)| *taken)?;
            *widest -= 1;
            left -= 1;
        }
        Some(part)
    }

    fn is(&self, index: usize, kind: Kind) -> bool {
        self.columns.get(index).is_some_and(|column| column.kind == kind)
    }

    fn widest(&self, index: usize) -> usize {
        let title = self.columns.get(index).map_or("", |column| &column.title);
        let cells = self.rows.iter().map(|row| cell(row, index)).chain([title]);
        cells.flat_map(str::lines).map(|line| line.chars().count()).max().unwrap_or(0)
    }

    fn is_headed(&self) -> bool {
        self.columns.iter().any(|column| !column.title.is_empty())
    }

    fn draw(&self, part: &Part) -> String {
        let aligned =
            |index: usize, text: String| match self.is(index, Kind::Number) || self.is(index, Kind::Extra) {
                true => Cell::new(text).set_alignment(CellAlignment::Right),
                false => Cell::new(text),
            };
        let mut table = ui::table(None);
        if self.is_headed() {
            let title = |index: usize| self.columns.get(index).map_or("", |column| &column.title);
            table.set_header(part.iter().map(|(index, _)| aligned(*index, title(*index).to_owned())));
        } else {
            table.load_style(comfy_table::presets::NOTHING);
        }
        for row in &self.rows {
            let text =
                |(index, width): &(usize, usize)| match self.columns.get(*index).is_some_and(Column::folds) {
                    true => prose::wrap(cell(row, *index), *width),
                    false => cell(row, *index).to_owned(),
                };
            table.add_row(part.iter().map(|place| aligned(place.0, text(place))));
        }
        table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }

    /// Each row as a paragraph: its names, and below them everything else.
    fn paragraphs(&self, width: usize) -> String {
        let paragraph = |row: &Vec<String>| {
            let all = self.columns.iter().enumerate().map(|(index, column)| (column, cell(row, index)));
            let (keys, others): (Vec<_>, Vec<_>) =
                all.filter(|(_, text)| !text.is_empty()).partition(|(column, _)| column.kind == Kind::Key);
            let names: Vec<&str> = keys.iter().map(|(_, text)| *text).collect();
            let line = |(column, text): &(&Column, &str)| {
                let title = column.title.replace('\n', " ");
                let label = if title.is_empty() { "    ".to_owned() } else { format!("    {title}: ") };
                match column.folds() {
                    true => prose::behind(&label, text, width),
                    false if label.chars().count() + text.chars().count() > width => {
                        format!("{}\n      {text}", label.trim_end())
                    }
                    false => label + text,
                }
            };
            let head = prose::behind("", &names.join("  "), width);
            std::iter::once(head).chain(others.iter().map(line)).collect::<Vec<_>>().join("\n")
        };
        self.rows.iter().map(paragraph).collect::<Vec<_>>().join("\n")
    }
}

/// What columns take of a line.
fn taken(part: &Part) -> usize {
    part.iter().map(|(_, width)| width + PADDING).sum::<usize>().saturating_sub(1)
}

fn cell(row: &[String], index: usize) -> &str {
    row.get(index).map_or("", String::as_str)
}

/// Checks that what is shown fits every terminal and has these parts in one piece, wherever they are.
#[cfg(test)]
pub fn assert_fits(show: impl Fn(Option<u16>) -> String, parts: &[&str]) {
    for width in [None, Some(40), Some(80), Some(200)] {
        let text = show(width);
        let fits = |line: &&str| {
            line.chars().count() <= width.map_or(usize::MAX, usize::from) || !line.trim().contains(' ')
        };
        assert!(text.lines().all(|line| fits(&line)), "{width:?}\n{text}");
        parts.iter().for_each(|part| assert!(text.contains(part), "{width:?}, {part}\n{text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let columns =
            [Column::key("row"), Column::remark("what it is"), Column::number("one"), Column::number("two")];
        let mut sheet = Sheet::new(columns);
        sheet.add([
            "null-hypercall",
            "a call that does nothing at all, many times over",
            "1364 (28.4×)",
            "12",
        ]);
        sheet.add(["x", "", "7", "123456789012"]);
        sheet
    }

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn numbers_are_never_broken() {
        for width in [None, Some(20), Some(40), Some(48), Some(80), Some(200)] {
            let text = sheet().show(width);
            assert!(width.is_none_or(|width| widest(&text) <= width.into()), "{width:?}\n{text}");
            for number in ["1364 (28.4×)", "123456789012", "null-hypercall"] {
                assert!(text.contains(number), "{width:?}\n{text}");
            }
        }
    }

    #[test]
    fn what_has_no_place_moves_as_a_whole() {
        let text = sheet().show(None);
        assert_eq!(text.lines().count(), 6, "{text}");
        let text = sheet().show(Some(80));
        assert_eq!(text.lines().count(), 7, "the remark is folded\n{text}");
        let text = sheet().show(Some(60));
        assert!(!text.contains("nothing") && text.lines().count() == 6, "the remark is left out\n{text}");
        let text = sheet().show(Some(40));
        assert_eq!(text.matches("null-hypercall").count(), 2, "a part for each number\n{text}");
        let text = sheet().show(Some(20));
        assert!(text.starts_with("null-hypercall\n    what it is: a\n"), "paragraphs\n{text}");
    }

    #[test]
    fn words_that_are_needed_are_in_paragraphs_before_they_are_left_out() {
        let mut sheet = Sheet::new([Column::key(""), Column::key(""), Column::text("")]);
        sheet.add(["ok", "a name of some length", "what was found on this machine"]);
        assert_eq!(sheet.show(Some(80)).lines().count(), 1);
        assert_eq!(sheet.show(Some(56)).lines().count(), 2);
        let narrow = sheet.show(Some(30));
        assert_eq!(narrow, "ok  a name of some length\n    what was found on this\n    machine");
    }
}
