// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The budgets of the exit paths: counts are exact, so the tolerance is zero.

use std::fs;
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Table, value};

use super::measure::Measured;
use crate::failure::{Context, Failure, Result};
use crate::layout::{Layout, write_atomically};

/// The section of the only platform that is measured.
const SECTION: [&str; 2] = ["arm64", "vhe-gicv3"];

/// The file `bench/budgets.toml`.
#[derive(Debug)]
pub struct Budgets {
    path: PathBuf,
    document: DocumentMut,
}

/// What an update did.
#[derive(Debug, PartialEq)]
pub struct Change {
    row: String,
    before: Option<f64>,
    after: f64,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.before {
            Some(before) => write!(f, "{}: {before} → {}", self.row, self.after),
            None => write!(f, "{}: {}", self.row, self.after),
        }
    }
}

impl Budgets {
    /// Reads the budgets of the checkout.
    pub fn load(layout: &Layout) -> Result<Self> {
        let path = layout.root().join("bench/budgets.toml");
        let text = fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let document = text.parse().context(|| format!("cannot read {}", path.display()))?;
        Ok(Budgets { path: path.to_path_buf(), document })
    }

    /// The budget of a row.
    pub fn of(&self, row: &str) -> Option<f64> {
        let [isa, platform] = SECTION;
        let item = self.document.get(isa)?.get(platform)?.get(row)?;
        item.as_float().or_else(|| item.as_integer().map(|number| number as f64))
    }

    /// Fails if a row is above its budget or has none.
    pub fn check<'a>(&self, measured: impl IntoIterator<Item = (&'a str, f64)>) -> Result<()> {
        let mut wrong = Vec::new();
        for (row, instructions) in measured {
            match self.of(row) {
                None => wrong.push(format!("{row}: measured {instructions:.2}, and it has no budget")),
                Some(budget) if instructions > budget => {
                    wrong.push(format!("{row}: measured {instructions:.2}, the budget is {budget}"));
                }
                Some(_) => {}
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        Err(Failure::failed("an exit path costs more than its budget").details(wrong.join("\n")).help(
            "make it cheaper; if the rise is worth it, `./x bench --update-budgets --allow-raise` records it",
        ))
    }

    /// Lowers budgets to what was measured; raises them only if `allow_raise`. Nothing is changed on failure.
    pub fn update<'a>(
        &mut self,
        measured: impl IntoIterator<Item = (&'a str, f64)>,
        allow_raise: bool,
    ) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for (row, after) in measured {
            let before = self.of(row);
            if before != Some(after) {
                changes.push(Change { row: row.to_owned(), before, after });
            }
        }
        let rises = |change: &&Change| change.before.is_some_and(|before| change.after > before);
        if let Some(rise) = changes.iter().find(rises).filter(|_| !allow_raise) {
            return Err(Failure::failed(format!("a budget would rise: {rise}"))
                .help("make the path cheaper, or add --allow-raise and say in the commit why"));
        }
        let [isa, platform] = SECTION;
        let table = |item: &mut Item| -> Option<()> {
            if item.is_none() {
                let mut table = Table::new();
                table.set_implicit(true);
                *item = Item::Table(table);
            }
            item.is_table_like().then_some(())
        };
        let not_a_table =
            || Failure::failed(format!("{}: [{isa}.{platform}] is no table", self.path.display()));
        let isa_item = &mut self.document[isa];
        table(isa_item).ok_or_else(not_a_table)?;
        let section = &mut isa_item[platform];
        table(section).ok_or_else(not_a_table)?;
        for change in &changes {
            // Assigning the value alone keeps the comments around it.
            match section.get_mut(&change.row).and_then(Item::as_value_mut) {
                Some(present) => {
                    let decor = present.decor().clone();
                    *present = number(change.after);
                    *present.decor_mut() = decor;
                }
                None => section[&change.row] = value(number(change.after)),
            }
        }
        Ok(changes)
    }

    /// Writes the budgets back.
    pub fn save(&self) -> Result<()> {
        write_atomically(&self.path, self.document.to_string().as_bytes())
    }
}

fn number(instructions: f64) -> toml_edit::Value {
    match instructions.fract() == 0.0 {
        true => (instructions as i64).into(),
        false => instructions.into(),
    }
}

/// The rows as budgets see them.
pub fn figures(measured: &[Measured]) -> Vec<(&'static str, f64)> {
    measured.iter().map(|measured| (measured.row.name, measured.report.instructions())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# why\n[arm64.vhe-gicv3]\n# the hypercall\nnull-hypercall = 45 # floor\nself-sgi = 150.5\n";

    fn budgets() -> Budgets {
        Budgets::parse(Path::new("budgets.toml"), TEXT).unwrap()
    }

    #[test]
    fn tolerance_is_zero() {
        assert!(budgets().check([("null-hypercall", 45.0), ("self-sgi", 150.5)]).is_ok());
        assert!(budgets().check([("null-hypercall", 45.01)]).is_err());
        assert!(budgets().check([("io-kernel", 1.0)]).is_err(), "a row without a budget");
    }

    #[test]
    fn lowering_keeps_comments() {
        let mut budgets = budgets();
        let changes = budgets.update([("null-hypercall", 44.0), ("self-sgi", 150.5)], false).unwrap();
        assert_eq!(changes.len(), 1);
        assert_eq!(budgets.document.to_string(), TEXT.replace("45", "44"));
    }

    #[test]
    fn raising_must_be_allowed() {
        let mut budgets = budgets();
        assert!(budgets.update([("null-hypercall", 46.25), ("self-sgi", 1.0)], false).is_err());
        assert_eq!(budgets.document.to_string(), TEXT);
        budgets.update([("null-hypercall", 46.25)], true).unwrap();
        assert_eq!(budgets.of("null-hypercall"), Some(46.25));
    }

    #[test]
    fn new_rows_and_new_files() {
        let mut budgets = Budgets::parse(Path::new("b"), "").unwrap();
        budgets.update([("io-kernel", 90.0)], false).unwrap();
        assert_eq!(budgets.document.to_string(), "[arm64.vhe-gicv3]\nio-kernel = 90\n");
    }
}
