// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::collections::BTreeMap;

use super::*;
use crate::sheet::assert_fits;

fn row(row: &str, off: &str, instructions: f64, reads: f64) -> AblationRow {
    let classes = BTreeMap::from([
        ("instructions".to_owned(), instructions),
        ("register_reads".to_owned(), reads),
        ("hardware_reads".to_owned(), reads),
    ]);
    AblationRow { row: row.to_owned(), off: off.to_owned(), instructions, classes }
}

pub(super) fn sample() -> Ablation {
    let techniques = [Technique::FpResident, Technique::SgiRoutes].map(described).to_vec();
    let rows = vec![
        row("null-hypercall", "none", 56.0, 3.0),
        row("null-hypercall", "fp-resident", 114.0, 7.0),
        row("null-hypercall", "sgi-routes", 56.0, 3.0),
        row("null-hypercall", "all", 1120.0, 100.0),
    ];
    Ablation { techniques, rows, seed: Vec::new() }
}

#[test]
fn names_on_the_command_line_are_checked() {
    assert_eq!(select("all").unwrap(), Set::ALL);
    let failure = select("fp-residen").unwrap_err().full();
    assert!(failure.contains("did you mean `fp-resident`?"), "{failure}");
}

#[test]
fn all_are_measured_only_if_all_are_chosen() {
    let names = |set| plan(set, Isa::Arm64).iter().map(|off| off.set.to_string()).collect::<Vec<_>>();
    assert_eq!(names(Set::of(Technique::FpResident)), ["none", "fp-resident"]);
    let all = names(Set::ALL);
    assert_eq!(all.len(), 1 + Set::ALL.on(Isa::Arm64.techniques()).iter().count() + 1 + 2);
    assert!(all.contains(&"all".to_owned()));
    assert!(plan(Set::ALL, Isa::Arm64).iter().filter(|off| !off.shown).all(|off| off.set != Set::NONE));
}

#[test]
fn the_difference_is_to_the_same_image() {
    let ablation = sample();
    assert_eq!(added(&ablation.rows, "null-hypercall", "fp-resident"), Some((58.0, 4.0)));
    assert_eq!(added(&ablation.rows, "self-sgi", "fp-resident"), None);
}

#[test]
fn what_saves_nothing_is_named() {
    assert_eq!(idle(&sample()), ["sgi-routes"]);
    assert!(notes(&sample()).contains("without sgi-routes"), "{}", notes(&sample()));
}

#[test]
fn table_shows_differences_and_both_ends() {
    let text = sheet(&sample()).show(None);
    for shown in ["56 (3)", "fp-resident [design]", "+58 (+4)", "·", "1120 (100)"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    assert_fits(|width| sheet(&sample()).show(width), &["fp-resident [design]", "+58 (+4)", "1120 (100)"]);
}

#[test]
fn the_books_table_has_the_same() {
    let expected = "| without | null-hypercall |\n|---|---:|\n| `none` | 56 (3) |\n\
                    | [`fp-resident`](#fp-resident) | +58 (+4) |\n| [`sgi-routes`](#sgi-routes) | · |\n| `all` | 1120 (100) |\n";
    assert_eq!(markdown(&sample()), expected);
}

#[test]
fn seeds_are_compared_with_their_own_and_with_all() {
    let mut rows = sample().rows;
    rows.push(row("null-hypercall", &seeds::sets()[0].to_string(), 112.0, 9.0));
    let compared = seeds::compare(&rows);
    let percent = |here: &str| {
        let row = compared.iter().find(|row| row.source.contains("seed 000") && row.source.ends_with(here));
        row.map(|row| (row.here_percent, row.seed_percent.len()))
    };
    assert_eq!(percent("its techniques"), Some((-50.0, 4)));
    assert_eq!(percent("all techniques"), Some((-95.0, 4)));
    let ablation = Ablation { seed: compared, ..sample() };
    let text = seed_sheet(&ablation).unwrap().show(None);
    assert!(text.contains("−38 %, −39 %, −21 %, −20 %") && text.contains("−95 %"), "{text}");
    let markdown = seeds_markdown(&ablation);
    assert!(
        markdown.ends_with("| null-hypercall (seed 000) | −38 %, −39 %, −21 %, −20 % | −50 % | −95 % |\n"),
        "{markdown}"
    );
    assert_fits(|width| seed_sheet(&ablation).unwrap().show(width), &["−38 %, −39 %, −21 %, −20 %", "−95 %"]);
    assert!(seed_sheet(&sample()).is_none());
}

#[test]
fn the_book_has_every_technique() {
    let layout = crate::layout::Layout::find().unwrap();
    let page = std::fs::read_to_string(layout.root().join("docs/src/techniques.md")).unwrap();
    for technique in Technique::ALL {
        assert!(page.contains(&format!("\n### {technique}\n")), "{technique} has no section");
        assert!(
            page.contains(&format!("- Saves: {}.\n", technique.saves())),
            "{technique}: the book says otherwise"
        );
        assert!(page.contains(&format!("| [`{technique}`](#{technique}) |")), "{technique} has no figures");
    }
}
