// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The documentation has the figures of the budgets, and no page that explains paths has figures that no command makes.

use super::*;

/// Pages that say what paths cost, and how many marks they have at least: without marks there would be nothing to test.
const PAGES: [(&str, usize); 6] = [
    ("README.md", 6),
    ("SPECIFICATION.md", 10),
    ("docs/src/life-of-an-exit.md", 5),
    ("docs/src/measuring.md", 3),
    ("docs/src/top.md", 4),
    ("docs/src/scheduling.md", 2),
];
/// The page that walks through the paths.
const WALK: &str = "docs/src/life-of-an-exit.md";

fn read(layout: &Layout, name: &str) -> String {
    fs::read_to_string(layout.root().join(name)).unwrap()
}

#[test]
fn the_documents_have_the_figures_of_the_budgets() {
    let layout = Layout::find().unwrap();
    let known = Known::load(&layout).unwrap();
    let mut stale = Vec::new();
    for file in documents(&layout).unwrap() {
        let text = fs::read_to_string(&file).unwrap();
        let filled = marks::fill(&text, |what| figure(&known, what)).unwrap();
        let differences = differences(&text, &filled).unwrap();
        stale.extend(differences.into_iter().map(|what| format!("{}: {what}", shown(&layout, &file))));
    }
    assert!(stale.is_empty(), "{HELP}\n{}", stale.join("\n"));
}

#[test]
fn pages_that_say_what_paths_cost_have_marks() {
    let layout = Layout::find().unwrap();
    for (name, least) in PAGES {
        let text = read(&layout, name);
        let marks = marks::find(&text).unwrap().len();
        assert!(marks >= least, "{name}: {marks} marks, at least {least}");
    }
}

/// Counts of instructions in a text: a number in digits, and the word.
fn counts(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_count = |pair: &&[&str]| {
        pair[0].chars().all(|c| c.is_ascii_digit() || c == ',') && pair[1].starts_with("instruction")
    };
    words.windows(2).filter(is_count).map(|pair| pair.join(" ")).collect()
}

#[test]
fn the_walk_through_the_paths_has_no_count_that_no_command_makes() {
    assert_eq!(counts("makes 48 instructions, two instructions, a 9 of"), ["48 instructions,"]);
    let text = marks::fill(&read(&Layout::find().unwrap(), WALK), |_| Ok(String::new())).unwrap();
    let left = counts(&text);
    assert!(
        left.is_empty(),
        "{WALK}: mark them, as in `{}arm64 null-hypercall -->48{}`: {left:?}",
        marks::BEGIN,
        marks::END
    );
}

#[test]
fn what_a_mark_asks_for_is_found_or_refused() {
    let known = Known::load(&Layout::find().unwrap()).unwrap();
    let number = |what: &str| figure(&known, what).unwrap().parse::<f64>().unwrap();
    assert!(number("arm64 null-hypercall") > 0.0);
    assert_eq!(number("arm64 self-sgi - arm64 self-sgi"), 0.0);
    assert_eq!(number("77 + arm64 self-sgi - arm64 self-sgi - 7 + 10"), 80.0);
    assert_eq!(number("kvm-6.1-vhe null-hypercall"), 1046.0);
    assert!(number("arm64 vcpu-switch.register_reads") > 1.0);
    assert!(figure(&known, "table power64").unwrap().contains("null-hypercall"));
    for wrong in ["arm64", "arm64 nothing", "nobody null-hypercall", "table riscv", ""] {
        assert!(figure(&known, wrong).is_err(), "{wrong}");
    }
}

#[test]
fn differences_name_the_place_and_both_figures() {
    let text = "It takes <!--= a b -->48<!-- / -->.";
    assert_eq!(differences(text, &text.replace("48", "50")), Ok(vec!["a b: 48 is 50".to_owned()]));
    assert_eq!(differences(text, text), Ok(Vec::new()));
}
