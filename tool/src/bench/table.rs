// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run as text: what the numbers are, the table, and the operations by class.

use std::collections::BTreeSet;

use comfy_table::{Cell, CellAlignment, ColumnConstraint, Table};

use super::document::{Document, Figure, SubjectInfo};
use super::rows;
use super::subjects::Subject;
use crate::{prose, ui};

/// Terminals narrower than this do without the column that says what an operation is.
const NARROW: u16 = 96;
/// The column that says what an operation is folds at words, but is not made narrower than this.
const OPERATION: usize = 24;
/// What a column takes beside its text.
const PADDING: usize = 3;
/// The classes that say how much code runs; all others are operations on the machine.
const ORDINARY: [&str; 7] = ["instructions", "in_services", "copy", "loads", "stores", "branches", "lines"];

/// Says whether operations of a class are on the machine: registers, interrupt controller, barriers and the like.
pub fn is_hardware(class: &str) -> bool {
    !ORDINARY.contains(&class)
}

/// Says what the numbers are, and what they are not.
pub fn preface(document: &Document, width: usize) -> String {
    let Document { isa, platform, qemu, command, .. } = document;
    let what = format!(
        "Instructions executed outside the guest for one operation, on {isa} ({platform}). They are exact counts, the \
         same in every run, by a plugin of QEMU {qemu} (TCG). They are not cycles: an emulator has none."
    );
    format!("{}\n{}", prose::wrap(&what, width), prose::command("To repeat: ", command, width))
}

/// Says what is in the columns.
pub fn legend(document: &Document) -> String {
    let of = |kind: fn(&Figure) -> bool| {
        let is = move |info: &&SubjectInfo| {
            document.rows.iter().any(|figure| figure.subject == info.subject && kind(figure))
        };
        document.subjects.iter().filter(is).filter(|info| !info.version.is_empty()).collect::<Vec<_>>()
    };
    let measured = of(|figure| !figure.recorded && figure.error.is_none());
    let recorded = of(|figure| figure.recorded);
    let mut lines = Vec::new();
    if !measured.is_empty() {
        lines.push(format!("Measured: {}.", versions(&measured, &recorded)));
    }
    if !recorded.is_empty() {
        let versions = versions(&recorded, &measured);
        lines.push(format!("* recorded some other time, not measured in this run: {versions}."));
    }
    let mitigations = mitigations(document);
    if !mitigations.is_empty() {
        lines.push(format!("Against speculation on this machine: {}.", mitigations.join(". ")));
    }
    lines.join("\n")
}

/// What the subjects do against speculation, as far as that is known; those that do the same together.
pub fn mitigations(document: &Document) -> Vec<String> {
    let mut known: Vec<(Vec<&str>, &str)> = Vec::new();
    for info in document.subjects.iter().filter(|info| !info.mitigations.is_empty()) {
        match known.iter_mut().find(|(_, mitigations)| *mitigations == info.mitigations) {
            Some((titles, _)) => titles.push(&info.title),
            None => known.push((vec![&info.title], &info.mitigations)),
        }
    }
    known.iter().map(|(titles, mitigations)| format!("{}: {mitigations}", titles.join(", "))).collect()
}

/// The versions of subjects, each once. One that is among the others, too, does not say which of its modes is meant.
fn versions(subjects: &[&SubjectInfo], others: &[&SubjectInfo]) -> String {
    let mut versions: Vec<String> = Vec::new();
    for SubjectInfo { title, version, .. } in subjects {
        let shown = match others.iter().any(|other| other.version == *version) {
            true => format!("{title} ({version})"),
            false => version.clone(),
        };
        if !versions.contains(&shown) {
            versions.push(shown);
        }
    }
    versions.join(", ")
}

/// Rows down, subjects across; a terminal of this width is filled, a pipe gets what it takes. Subjects that have no place are left
/// out as a whole, the last ones first: no number is folded.
pub fn table(document: &Document, width: Option<u16>) -> Table {
    let wide = width.is_none_or(|width| width >= NARROW);
    let subjects = shown(document, width);
    let mut table = ui::table(width);
    let mut header = vec!["row"];
    header.extend(wide.then_some("operation"));
    let mut header: Vec<Cell> = header.into_iter().map(Cell::new).collect();
    header.extend(subjects.iter().map(|info| right(&heading(document, info))));
    table.set_header(header);
    for (row, what) in document.row_names() {
        let mut cells = vec![Cell::new(row)];
        cells.extend(wide.then(|| Cell::new(what)));
        cells.extend(subjects.iter().map(|info| right(&compared(document, info, row))));
        table.add_row(cells);
    }
    for column in (0..).take(subjects.len() + 1 + usize::from(wide)).filter(|&column| !wide || column != 1) {
        if let Some(column) = table.column_mut(column) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table
}

/// The titles of the subjects that have no place in a table of this width.
pub fn left_out(document: &Document, width: Option<u16>) -> Vec<&str> {
    document.subjects.iter().skip(shown(document, width).len()).map(|info| info.title.as_str()).collect()
}

/// The subjects that have a place in a table of this width: the first in any case.
fn shown(document: &Document, width: Option<u16>) -> &[SubjectInfo] {
    let names = document.row_names();
    let longest = names.iter().map(|(row, what)| (row.chars().count(), what.chars().count()));
    let (name, what) = longest.fold((0, 0), |(a, b), (c, d)| (a.max(c), b.max(d)));
    let operation = if width.is_some_and(|width| width < NARROW) { 0 } else { what.min(OPERATION) + PADDING };
    let mut taken = name + PADDING + operation;
    let fits = |info: &&SubjectInfo| {
        let cells = names.iter().map(|(row, _)| compared(document, info, row).chars().count());
        taken += cells.chain([heading(document, info).chars().count()]).max().unwrap_or(0) + PADDING;
        width.is_none_or(|width| taken <= usize::from(width))
    };
    let count = document.subjects.iter().take_while(fits).count().max(1);
    document.subjects.get(..count).unwrap_or(&document.subjects)
}

/// The text of a cell: the figure of a subject, compared with Turnstile's.
fn compared(document: &Document, info: &SubjectInfo, row: &str) -> String {
    let own = document.figure(Subject::Turnstile.name(), row).and_then(|figure| figure.instructions);
    let own = own.filter(|_| info.subject != Subject::Turnstile.name() && rows::is_alike(row));
    cell(document.figure(&info.subject, row), own)
}

/// The operations of a subject by class: classes down, rows across, in as many tables as the width makes necessary.
/// There is none of a subject that was not measured.
pub fn classes(document: &Document, info: &SubjectInfo, width: Option<u16>) -> Vec<Table> {
    let own = |figure: &&Figure| {
        figure.subject == info.subject && (!figure.classes.is_empty() || figure.inside.is_some())
    };
    let figures: Vec<&Figure> = document.rows.iter().filter(own).collect();
    let names: BTreeSet<&str> =
        figures.iter().flat_map(|figure| figure.classes.keys().map(String::as_str)).collect();
    let hardware = names.iter().copied().filter(|name| is_hardware(name));
    let classes: Vec<&str> =
        ORDINARY.into_iter().filter(|class| names.contains(class)).chain(hardware).collect();
    let across = width.map_or(figures.len(), |width| fitting(&classes, &figures, width));
    figures.chunks(across.max(1)).map(|figures| class_table(&classes, figures)).collect()
}

fn class_table(classes: &[&str], figures: &[&Figure]) -> Table {
    let mut table = ui::table(None);
    let rows = figures.iter().map(|figure| right(&figure.row));
    table.set_header([Cell::new("operations")].into_iter().chain(rows));
    let exits = figures.iter().map(|figure| right(&figure.exits.map_or_else(unknown, count)));
    table.add_row([Cell::new("exits")].into_iter().chain(exits));
    if figures.iter().any(|figure| figure.inside.is_some()) {
        let of = |number: Option<f64>| right(&number.map_or_else(unknown, count));
        let outside = figures.iter().map(|figure| of(figure.instructions));
        table.add_row([Cell::new("outside the guests")].into_iter().chain(outside));
        let inside = figures.iter().map(|figure| of(figure.inside));
        table.add_row([Cell::new("in the guests")].into_iter().chain(inside));
    }
    for class in classes {
        let counts = figures.iter().map(|figure| match figure.classes.get(*class) {
            Some(&number) => right(&count(number)),
            None if figure.classes.is_empty() => right(&unknown()),
            None => right("·"),
        });
        table.add_row([Cell::new(class.replace('_', " "))].into_iter().chain(counts));
    }
    table
}

/// How many columns of the widest of these rows a table of classes has place for.
fn fitting(classes: &[&str], figures: &[&Figure], width: u16) -> usize {
    let widest = |names: &mut dyn Iterator<Item = &str>| names.map(str::len).max().unwrap_or_default();
    let first = widest(&mut classes.iter().copied()) + PADDING;
    let column = widest(&mut figures.iter().map(|figure| figure.row.as_str())) + PADDING;
    usize::from(width).saturating_sub(first) / column
}

/// A subject's heading: with a star if its figures are recorded ones.
pub fn heading(document: &Document, info: &SubjectInfo) -> String {
    let star = if is_recorded(document, info) { " *" } else { "" };
    format!("{}{star}", info.title)
}

/// Whether a subject's figures are recorded ones.
fn is_recorded(document: &Document, info: &SubjectInfo) -> bool {
    document.rows.iter().any(|figure| figure.subject == info.subject && figure.recorded)
}

/// A figure, and how many times `own` it is.
fn cell(figure: Option<&Figure>, own: Option<f64>) -> String {
    match (figure.map(|figure| (figure.instructions, figure.error.is_some())), own) {
        (Some((Some(number), _)), Some(own)) if own > 0.0 => {
            format!("{} ({:.1}×)", count(number), number / own)
        }
        (Some((Some(number), _)), _) => count(number),
        (Some((None, true)), _) => "failed".to_owned(),
        _ => unknown(),
    }
}

/// What is in the place of a number that is not known.
pub fn unknown() -> String {
    "–".to_owned()
}

/// A cell with a number.
pub fn right(text: &str) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// A number, without decimals where it has none.
pub fn count(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number:.0}") } else { format!("{number:.2}") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::samples;
    use super::*;
    use crate::sheet::assert_fits;

    #[test]
    fn table_marks_what_is_recorded() {
        let document = samples::document();
        let text = table(&document, None).to_string();
        assert!(text.contains("KVM VHE *"), "{text}");
        assert!(text.contains(" Turnstile "), "{text}");
        assert!(text.contains("1364 (28.4×)"), "{text}");
        assert!(text.contains("hvc PSCI_VERSION"), "{text}");
        let legend = legend(&document);
        assert!(legend.contains("Measured: Turnstile 0.0.0."), "{legend}");
        assert!(legend.contains("not measured in this run: Linux 6.12.95 KVM."), "{legend}");
    }

    #[test]
    fn the_caption_names_what_is_done_against_speculation() {
        let mut document = samples::document();
        assert!(!legend(&document).contains("speculation"));
        for (info, does) in document.subjects.iter_mut().zip(["nothing", "spectre_v2: BHB", "nothing"]) {
            info.mitigations = does.to_owned();
        }
        let legend = legend(&document);
        let expected =
            "Against speculation on this machine: Turnstile, Xen: nothing. KVM VHE: spectre_v2: BHB.";
        assert!(legend.contains(expected), "{legend}");
    }

    #[test]
    fn a_version_in_two_modes_is_told_apart() {
        let mut document = samples::document();
        let mut info = document.subjects[1].clone();
        (info.subject, info.title) = ("kvm-nvhe".to_owned(), "KVM nVHE".to_owned());
        document.subjects.push(info);
        let measured = samples::document().rows[0].clone();
        document.rows.push(Figure { subject: "kvm-nvhe".to_owned(), ..measured });
        let legend = legend(&document);
        assert!(legend.contains("Measured: Turnstile 0.0.0, KVM nVHE (Linux 6.12.95 KVM)."), "{legend}");
        assert!(legend.contains("not measured in this run: KVM VHE (Linux 6.12.95 KVM)."), "{legend}");
    }

    #[test]
    fn table_shows_what_failed_and_what_is_not_there() {
        let text = table(&samples::document(), None).to_string();
        let line = |row: &str| text.lines().find(|line| line.contains(row)).unwrap_or_default().to_owned();
        assert!(line("null-hypercall").trim_end().ends_with("failed"), "{text}");
        assert!(line("id-register").trim_end().ends_with('–'), "{text}");
    }

    #[test]
    fn narrow_terminals_are_kept() {
        for width in [40, 60, 95, 96, 200] {
            let text = table(&samples::document(), Some(width)).to_string();
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
            assert!(widest <= usize::from(width), "{width}\n{text}");
            assert_eq!(text.contains("PSCI_VERSION"), width >= 96, "{text}");
        }
    }

    #[test]
    fn columns_are_dropped_as_a_whole_and_numbers_never_folded() {
        let mut document = samples::document();
        let more = document.subjects[1].clone();
        document
            .subjects
            .extend((0..4).map(|n| SubjectInfo { title: format!("Subject {n}"), ..more.clone() }));
        let all = document.subjects.len();
        for width in [None, Some(40), Some(80), Some(200)] {
            let text = table(&document, width).to_string();
            let (shown, left_out) = (shown(&document, width), left_out(&document, width));
            assert_eq!(shown.len() + left_out.len(), all);
            let line = text.lines().find(|line| line.contains("null-hypercall")).unwrap();
            for info in shown {
                assert!(line.contains(&compared(&document, info, "null-hypercall")), "{width:?}\n{text}");
            }
            assert!(left_out.iter().all(|title| !text.contains(title) || *title == shown[0].title), "{text}");
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
            assert!(width.is_none_or(|width| widest <= usize::from(width)), "{width:?}\n{text}");
        }
        assert!(left_out(&document, None).is_empty() && !left_out(&document, Some(40)).is_empty());
    }

    #[test]
    fn classes_are_listed_with_the_machines_last() {
        let mut document = samples::document();
        document.rows[1].classes = BTreeMap::from([("instructions".to_owned(), 60.0)]);
        let text = classes(&document, &document.subjects[0], None)[0].to_string();
        let place = |word: &str| text.find(word).unwrap_or_else(|| panic!("no {word}: {text}"));
        assert!(place("exits") < place("instructions") && place("instructions") < place("register reads"));
        assert!(text.contains('·'), "{text}");
        assert!(classes(&document, &document.subjects[1], None).is_empty(), "recorded only");
    }

    #[test]
    fn of_a_difference_only_instructions_are_known() {
        let mut document = samples::document();
        document.rows[1].classes.clear();
        (document.rows[1].instructions, document.rows[1].inside) = (Some(60.0), Some(90.0));
        let text = classes(&document, &document.subjects[0], None)[0].to_string();
        let line = |word: &str| text.lines().find(|line| line.contains(word)).unwrap().to_owned();
        assert!(line("in the guests").contains("90") && line("outside the guests").contains("60"), "{text}");
        assert!(line("in the guests").contains('–') && line("register reads").contains('–'), "{text}");
    }

    #[test]
    fn classes_are_split_where_rows_do_not_fit() {
        let document = samples::document();
        for (width, tables) in [(30, 2), (40, 2), (60, 1), (200, 1)] {
            let tables_made = classes(&document, &document.subjects[0], Some(width));
            assert_eq!(tables_made.len(), tables, "{width}");
            let fits = |line: &str| line.chars().count() <= usize::from(width).max(40);
            assert!(tables_made.iter().all(|table| table.to_string().lines().all(fits)), "{width}");
        }
    }

    #[test]
    fn preface_says_what_it_is_not() {
        let shown = |width| {
            preface(&samples::document(), prose::within(width))
                + "\n"
                + &prose::wrap(&legend(&samples::document()), prose::within(width))
        };
        assert_fits(shown, &["exact", "--rows"]);
        let preface = preface(&samples::document(), 100);
        assert!(preface.contains("They are not cycles"), "{preface}");
        assert!(preface.contains("./x bench --rows null-hypercall"), "{preface}");
    }
}
