// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Budgets: nothing is tolerated, and what a person wrote is kept.

use super::super::platform::{PLATFORMS, Platform};
use super::super::rows::ROWS;
use super::super::samples::turnstile;
use super::*;

const TEXT: &str = "# why\n[arm64.max-gicv3.null-hypercall]\n# the floor\ninstructions = 45 # so far\n\
                    register_reads = 2\nisb = 1\n\n[arm64.max-gicv3.id-register]\ninstructions = 150.5\n";

fn budgets() -> Budgets {
    Budgets::parse(Path::new("budgets.toml"), TEXT, Isa::Arm64, "max-gicv3").unwrap()
}

fn null_hypercall(instructions: f64, reads: f64, isb: f64) -> Figure {
    turnstile(0, &[("instructions", instructions), ("register_reads", reads), ("isb", isb), ("loads", 9.0)])
}

#[test]
fn tolerance_is_zero() {
    assert_eq!(budgets().exceeded([&null_hypercall(45.0, 2.0, 1.0)]), []);
    assert_eq!(budgets().exceeded([&null_hypercall(40.0, 1.0, 0.0)]), []);
    let excess = &budgets().exceeded([&null_hypercall(45.01, 3.0, 1.0)])[0];
    assert_eq!(excess.classes, ["45.01 instructions, the budget is 45", "3 register reads, the budget is 2"]);
}

#[test]
fn a_row_without_a_budget_fails_on_the_usual_platform_alone() {
    let figures = [&turnstile(3, &[("instructions", 1.0)]), &null_hypercall(46.0, 0.0, 0.0)];
    let rows = |platform: &Platform| {
        budgets().check(platform, &figures).into_iter().map(|excess| excess.row).collect::<Vec<_>>()
    };
    assert_eq!(rows(Platform::usual()), ["null-hypercall", &figures[0].row]);
    assert_eq!(rows(&PLATFORMS[1]), ["null-hypercall"]);
}

#[test]
fn a_class_without_a_budget_may_not_occur() {
    let figure = turnstile(1, &[("instructions", 150.5), ("dsb", 1.0), ("lines", 7.0)]);
    assert_eq!(budgets().exceeded([&figure])[0].classes, ["1 dsb, the budget is 0"]);
}

#[test]
fn platforms_have_their_own() {
    let other = Budgets::parse(Path::new("b"), TEXT, Isa::Arm64, "max-gicv3-statistics").unwrap();
    assert_eq!(other.missing([&null_hypercall(1.0, 0.0, 0.0)]).len(), 1);
}

#[test]
fn lowering_keeps_comments() {
    let mut budgets = budgets();
    let figures = [null_hypercall(44.0, 2.0, 0.0), turnstile(1, &[("instructions", 150.5)])];
    let changes = budgets.update(&figures, false).unwrap();
    assert_eq!(changes.len(), 2);
    let expected = TEXT.replace("= 45", "= 44").replace("isb = 1\n", "");
    assert_eq!(budgets.document.to_string(), expected);
}

#[test]
fn raising_must_be_allowed() {
    let mut budgets = budgets();
    let rise = null_hypercall(44.0, 2.5, 1.0);
    let failure = budgets.update([&rise], false).unwrap_err().full();
    assert!(failure.contains("null-hypercall, register_reads: 2 → 2.50"), "{failure}");
    assert_eq!(budgets.document.to_string(), TEXT);
    budgets.update([&rise], true).unwrap();
    assert_eq!(budgets.of("null-hypercall").unwrap()["register_reads"], 2.5);
    let new = turnstile(1, &[("instructions", 150.5), ("isb", 1.0)]);
    assert!(budgets.update([&new], false).is_err(), "a class that did not occur before");
}

#[test]
fn new_rows_and_new_files() {
    let mut budgets = Budgets::parse(Path::new("b"), "", Isa::Arm64, "max-gicv3").unwrap();
    budgets.update([&turnstile(3, &[("dsb", 2.0), ("instructions", 90.0)])], false).unwrap();
    let expected = "[arm64.max-gicv3]\nio-kernel = { instructions = 90, dsb = 2 }\n";
    assert_eq!(budgets.document.to_string(), expected);
    budgets.update([&turnstile(3, &[("instructions", 89.0)])], false).unwrap();
    assert_eq!(budgets.document.to_string(), expected.replace("90, dsb = 2", "89"));
}

#[test]
fn the_readmes_table_is_what_the_budgets_say() {
    let layout = Layout::find().unwrap();
    let readme = std::fs::read_to_string(layout.root().join("README.md")).unwrap();
    let table = readme.split("<!-- results -->").nth(1).unwrap().split("<!-- /results -->").next().unwrap();
    let budgets = Budgets::load(&layout, Isa::Arm64, &Platform::usual().budgeted(false)).unwrap();
    for row in &ROWS {
        let line = table.lines().find(|line| line.split_whitespace().next() == Some(row.name));
        let line = line.unwrap_or_else(|| panic!("{} is not in the README", row.name));
        let figure = count(budgets.of(row.name).unwrap()[INSTRUCTIONS]);
        assert!(line.split_whitespace().any(|word| word == figure), "{}: {figure} in {line}", row.name);
    }
}

/// No light exit depends on the mode or on the processor, and the full exits of the rows do not either, but for what is
/// switched between vCPUs.
#[test]
fn budgets_depend_on_the_interrupt_controller_alone() {
    let layout = Layout::find().unwrap();
    let budgets =
        |platform: &Platform| Budgets::load(&layout, Isa::Arm64, &platform.budgeted(false)).unwrap();
    for platform in &PLATFORMS {
        let alike = PLATFORMS.iter().find(|first| first.gic == platform.gic).unwrap();
        let (ours, theirs) = (budgets(platform), budgets(alike));
        for row in ROWS.iter().filter(|row| row.is_on(platform)) {
            let name = format!("{} on {}", row.name, platform.name);
            let of = |budgets: &Budgets| budgets.of(row.name).unwrap_or_else(|| panic!("{name} has none"));
            let (mut ours, mut theirs) = (of(&ours), of(&theirs));
            let (here, there) = (ours.remove(INSTRUCTIONS).unwrap(), theirs.remove(INSTRUCTIONS).unwrap());
            // What goes with a vCPU from one to the next is what the processor has.
            let switches = ["vcpu-switch", "vcpu-switch-fp", "sgi-to-parked"].contains(&row.name);
            let apart = match row.name {
                // Keys of pointer authentication, and the exit in which a vCPU gets them.
                "vcpu-switch-fp" => 256.0,
                _ if switches => 16.0,
                _ => 4.0,
            };
            assert!((here - there).abs() <= apart, "{name}: {here}, and {there} on {}", alike.name);
            assert!(switches || ours == theirs, "{name}: {ours:?}, and {theirs:?} on {}", alike.name);
        }
    }
}
