// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The budgets of the exit paths: counts are exact, so the tolerance is zero.
//!
//! A row's budget names its instructions and each class of operations on the machine; a class that is not named may
//! not occur. On the usual platform of each architecture it also names the lines and pages that are touched; those are
//! held only to budgets that are there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, InlineTable, Item, Table, value};

use super::document::{Document, Figure, Footprint, Trace};
use super::platform::Platform;
use super::rows::{self, Row};
use super::table::{count, is_hardware};
use super::trace;
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};
use crate::ui;

/// The subject that has budgets.
const OWN: &str = "turnstile";
/// The class that is budgeted beside those of the machine.
pub const INSTRUCTIONS: &str = "instructions";
/// The most vCPUs of a row whose trace is recorded.
const TRACED: u16 = 4;
/// The most instructions of a trace that is recorded.
const LONGEST: usize = 2_000;

/// The budgets of one platform in the file `bench/budgets.toml`.
#[derive(Debug)]
pub struct Budgets {
    path: PathBuf,
    document: DocumentMut,
    isa: Isa,
    platform: String,
}

/// What an update did to one class of a row.
#[derive(Debug, PartialEq)]
pub struct Change {
    row: String,
    class: String,
    before: Option<f64>,
    after: f64,
    /// Whether the row had budgets before.
    known: bool,
}

impl Change {
    fn rises(&self) -> bool {
        // What was not counted before has not risen.
        let before = self.before.or((!is_footprint(&self.class)).then_some(0.0));
        self.known && before.is_some_and(|before| self.after > before)
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Change { row, class, before, after, .. } = self;
        match before {
            Some(before) => write!(f, "{row}, {class}: {} → {}", count(*before), count(*after)),
            None => write!(f, "{row}, {class}: {}", count(*after)),
        }
    }
}

/// A row that costs more than it may.
#[derive(Debug, PartialEq)]
pub struct Excess {
    /// The row.
    pub row: String,
    /// A sentence for each class.
    pub classes: Vec<String>,
}

impl Budgets {
    /// Where they are.
    pub fn file(layout: &Layout) -> PathBuf {
        layout.root().join("bench/budgets.toml")
    }

    /// Reads the budgets of a platform: `max-gicv3`.
    pub fn load(layout: &Layout, isa: Isa, platform: &str) -> Result<Self> {
        let path = Self::file(layout);
        let text = fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&path, &text, isa, platform)
    }

    fn parse(path: &Path, text: &str, isa: Isa, platform: &str) -> Result<Self> {
        let document = text.parse().context(|| format!("cannot read {}", path.display()))?;
        Ok(Budgets { path: path.to_path_buf(), document, isa, platform: platform.to_owned() })
    }

    /// The budgets of a row by class, if it has some.
    fn of(&self, row: &str) -> Option<BTreeMap<String, f64>> {
        let table = self.document.get(self.isa.name())?.get(&self.platform)?.get(row)?.as_table_like()?;
        let number = |item: &Item| item.as_float().or_else(|| item.as_integer().map(|number| number as f64));
        Some(table.iter().filter_map(|(class, item)| Some((class.to_owned(), number(item)?))).collect())
    }

    /// The rows that are above their budgets.
    fn exceeded<'a>(&self, figures: impl IntoIterator<Item = &'a Figure>) -> Vec<Excess> {
        let excess = |figure: &Figure| {
            let has_places = has_places(self.isa, &figure.row);
            let classes = |budget| exceeded(&budget, &budgeted(figure), has_places);
            Excess { row: figure.row.clone(), classes: self.of(&figure.row).map_or(Vec::new(), classes) }
        };
        figures.into_iter().map(excess).filter(|excess| !excess.classes.is_empty()).collect()
    }

    /// Whether lines and pages have budgets here: on one platform of each architecture, for they follow from the same code
    /// as its instructions.
    fn has_footprints(&self) -> bool {
        self.platform == Platform::usual_of(self.isa).name
    }

    /// The rows that have no budgets.
    fn missing<'a>(&self, figures: impl IntoIterator<Item = &'a Figure>) -> Vec<Excess> {
        let missing = figures.into_iter().filter(|figure| self.of(&figure.row).is_none());
        let classes = || vec!["it has no budget; --update-budgets gives it one".to_owned()];
        missing.map(|figure| Excess { row: figure.row.clone(), classes: classes() }).collect()
    }

    /// The rows that are above their budgets, and on the platform on which all is measured those without budgets; elsewhere they
    /// are only said.
    fn check(&self, platform: &Platform, figures: &[&Figure]) -> Vec<Excess> {
        let (mut excesses, missing) =
            (self.exceeded(figures.iter().copied()), self.missing(figures.iter().copied()));
        if platform == Platform::usual_of(platform.isa()) {
            excesses.extend(missing);
        } else if !missing.is_empty() {
            let rows: Vec<&str> = missing.iter().map(|missing| missing.row.as_str()).collect();
            ui::note(&format!("no budgets on {} for {}", self.platform, rows.join(", ")));
        }
        excesses
    }

    /// Lowers budgets to what was measured; raises them only if `allow_raise`. Nothing is changed on failure.
    pub fn update<'a>(
        &mut self,
        figures: impl IntoIterator<Item = &'a Figure>,
        allow_raise: bool,
    ) -> Result<Vec<Change>> {
        let changes: Vec<Change> = figures.into_iter().flat_map(|figure| self.changes(figure)).collect();
        let rises: Vec<String> =
            changes.iter().filter(|change| change.rises()).map(Change::to_string).collect();
        if !rises.is_empty() && !allow_raise {
            return Err(Failure::failed("a budget would rise")
                .details(rises.join("\n"))
                .help("make the path cheaper, or add --allow-raise and say in the commit why"));
        }
        for change in &changes {
            self.apply(change)?;
        }
        Ok(changes)
    }

    fn changes(&self, figure: &Figure) -> Vec<Change> {
        let budget = self.of(&figure.row);
        let known = budget.is_some();
        let (mut before, mut after) = (budget.unwrap_or_default(), budgeted(figure));
        if figure.footprint.is_none() {
            before.retain(|class, _| !is_footprint(class));
        } else if !self.has_footprints() {
            after.retain(|class, _| !is_footprint(class));
        }
        // Instructions come first, as in the table.
        let classes: BTreeSet<(bool, &String)> =
            before.keys().chain(after.keys()).map(|class| (class != INSTRUCTIONS, class)).collect();
        let change = |class: &String| Change {
            row: figure.row.clone(),
            class: class.clone(),
            before: before.get(class).copied(),
            after: after.get(class).copied().unwrap_or_default(),
            known,
        };
        let changed = |change: &Change| change.before != Some(change.after);
        classes.into_iter().map(|(_, class)| change(class)).filter(changed).collect()
    }

    fn apply(&mut self, change: &Change) -> Result<()> {
        let Change { row, class, after, .. } = change;
        let isa = self.isa.name();
        let not_a_table =
            || Failure::failed(format!("{}: no table [{isa}.{}.{row}]", self.path.display(), self.platform));
        let mut item = self.document.as_item_mut();
        for name in [isa, &self.platform, row] {
            let table = item.as_table_like_mut().ok_or_else(not_a_table)?;
            let mut section = Table::new();
            section.set_implicit(name == isa);
            // A line for each row.
            let new = if name == row { value(InlineTable::new()) } else { Item::Table(section) };
            item = table.entry(name).or_insert(new);
        }
        let table = item.as_table_like_mut().ok_or_else(not_a_table)?;
        if *after == 0.0 {
            table.remove(class);
        } else if let Some(present) = table.get_mut(class).and_then(Item::as_value_mut) {
            // Assigning the value alone keeps the comments around it.
            let decor = present.decor().clone();
            *present = number(*after);
            *present.decor_mut() = decor;
        } else {
            table.insert(class, value(number(*after)));
        }
        if let Some(inline) = item.as_inline_table_mut() {
            inline.fmt();
        }
        Ok(())
    }

    /// Writes the budgets back.
    pub fn save(&self) -> Result<()> {
        write_atomically(&self.path, self.document.to_string().as_bytes())
    }
}

/// Returns the rows that cost more on a platform than they may, or have no budget where they must.
///
/// # Errors
/// When the budgets cannot be read.
pub fn dearer(
    layout: &Layout,
    platform: &Platform,
    statistics: bool,
    document: &Document,
) -> Result<Vec<String>> {
    let excesses = excesses(layout, platform, statistics, document)?;
    Ok(excesses.into_iter().map(|excess| excess.row).collect())
}

fn excesses(
    layout: &Layout,
    platform: &Platform,
    statistics: bool,
    document: &Document,
) -> Result<Vec<Excess>> {
    let figures: Vec<&Figure> = own(document, platform).collect();
    let budgets = Budgets::load(layout, platform.isa(), &platform.budgeted(statistics))?;
    Ok(budgets.check(platform, &figures))
}

/// Fails if Turnstile's rows cost more on a platform than they may, and shows which instructions are new. Rows without budgets fail
/// on the platform on which all is measured.
pub fn check(layout: &Layout, platform: &Platform, statistics: bool, document: &Document) -> Result<()> {
    let section = &platform.budgeted(statistics);
    let excesses = excesses(layout, platform, statistics, document)?;
    if excesses.is_empty() {
        return Ok(());
    }
    let mut details = String::new();
    for Excess { row, classes } in &excesses {
        details.push_str(&format!("{row}: {}\n", classes.join("; ")));
        let trace = document.traces.iter().find(|trace| trace.row == *row && trace.subject == OWN);
        if let Some(difference) = trace.and_then(|trace| trace::difference(layout, section, trace)) {
            details.push_str(&format!("{difference}\n"));
        }
    }
    let record = format!("{} --update-budgets --allow-raise", document.command);
    let help = format!("make it cheaper; if the rise is worth it, `{record}` records it");
    let what = format!("an exit path costs more than its budget on {section}");
    Err(Failure::failed(what).details(details).help(help))
}

/// Makes the budgets what Turnstile's rows cost on a platform, and records the traces that belong to them.
pub fn update(
    layout: &Layout,
    platform: &Platform,
    statistics: bool,
    document: &Document,
    allow_raise: bool,
) -> Result<()> {
    let section = &platform.budgeted(statistics);
    let mut budgets = Budgets::load(layout, platform.isa(), section)?;
    let changes = budgets.update(own(document, platform), allow_raise)?;
    budgets.save()?;
    let here = document.rows.iter().any(|figure| figure.subject == OWN && figure.platform == platform.name);
    // A sender does the same in a larger VM, a first touch clears line after line, and many packets are one after the other.
    let small = |trace: &&Trace| {
        let is_small = |row: &Row| row.vcpus <= TRACED && !row.touches && trace.steps.len() <= LONGEST;
        rows::of(platform.isa()).iter().any(|row| row.name == trace.row && is_small(row))
    };
    for trace in document.traces.iter().filter(|trace| here && trace.subject == OWN).filter(small) {
        trace::record(layout, section, trace)?;
    }
    // A new row is one line, not one for each class.
    for change in changes.iter().filter(|change| change.known || change.class == INSTRUCTIONS) {
        ui::note(&format!("budget on {section} of {change}"));
    }
    if changes.is_empty() {
        ui::note(&format!("the budgets on {section} are what was measured already"));
    }
    Ok(())
}

fn own<'d>(document: &'d Document, platform: &Platform) -> impl Iterator<Item = &'d Figure> {
    let all = document.rows.iter().chain(&document.elsewhere);
    all.filter(|figure| figure.subject == OWN && figure.platform == platform.name && figure.error.is_none())
}

fn is_footprint(class: &str) -> bool {
    Footprint::NAMES.contains(&class)
}

/// What of a figure has a budget.
fn budgeted(figure: &Figure) -> BTreeMap<String, f64> {
    let hardware = figure.classes.iter().filter(|(class, count)| is_hardware(class) && **count != 0.0);
    let mut budgeted: BTreeMap<String, f64> =
        hardware.map(|(class, count)| (class.clone(), *count)).collect();
    budgeted.extend(figure.instructions.map(|number| (INSTRUCTIONS.to_owned(), number)));
    let footprint = figure.footprint.iter().flat_map(Footprint::counts);
    budgeted.extend(footprint.map(|(name, number)| (name.to_owned(), number)));
    budgeted
}

/// Whether operations of the row differ in where their data lie: those of a disk controller, which does commands in QEMU's own time, and those of a balloon, each of
/// whose blocks has its own entries in tables.
fn has_places(isa: Isa, row: &str) -> bool {
    let has = |known: &rows::Row| known.disk == Some(rows::Disk::Nvme) || known.balloon;
    rows::of(isa).iter().any(|known| known.name == row && has(known))
}

/// How far `class` may exceed a budget of `most`: a change elsewhere in the image moves functions, so that the same code lies on
/// another number of lines and pages. With a controller's own time it differs which operation is the first one of the usual length, and so where in
/// the rings its entries are: the guest's two, and the controller's two, each on one line or on two. A balloon's blocks are in tables of the VM, of its
/// services and of the pool.
fn luck(class: &str, most: f64, has_places: bool) -> f64 {
    match class {
        "code_lines" | "pages" => (most / 20.0).max(2.0),
        "data_lines" if has_places => 4.0,
        _ => 0.0,
    }
}

fn exceeded(
    budget: &BTreeMap<String, f64>,
    measured: &BTreeMap<String, f64>,
    has_places: bool,
) -> Vec<String> {
    let sentence = |(class, measured): (&String, &f64)| {
        // Lines and pages are held to a budget where there is one.
        let most = budget.get(class).copied().or((!is_footprint(class)).then_some(0.0))?;
        let name = match is_footprint(class) {
            true if class == "pages" => "pages touched".to_owned(),
            true => class.replace("_lines", " lines touched"),
            false => class.replace('_', " "),
        };
        (*measured > most + luck(class, most, has_places))
            .then(|| format!("{} {name}, the budget is {}", count(*measured), count(most)))
    };
    measured.iter().filter_map(sentence).collect()
}

fn number(count: f64) -> toml_edit::Value {
    match count.fract() == 0.0 {
        true => (count as i64).into(),
        false => count.into(),
    }
}

#[cfg(test)]
#[path = "budgets_tests.rs"]
mod tests;
