// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Budgets: nothing is tolerated, and what a person wrote is kept.

use super::super::platform::{PLATFORMS, Platform};
use super::super::rows::{Counted, ROWS, Row};
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
fn lines_and_pages_are_held_to_budgets_that_are_there() {
    let touching = |code_lines, pages| Figure {
        footprint: Some(Footprint { code_lines, data_lines: 3.0, pages }),
        ..null_hypercall(45.0, 2.0, 1.0)
    };
    let mut budgets = budgets();
    assert_eq!(budgets.exceeded([&touching(9.0, 9.0)]), [], "without budgets for them all is well");
    let changes = budgets.update([&touching(6.0, 4.0)], false).unwrap();
    assert_eq!(changes.len(), 3, "what was not counted before does not rise");
    let exceeded = |figure: &Figure| budgets.exceeded([figure]).pop().map(|excess| excess.classes);
    assert_eq!(exceeded(&touching(6.0, 4.0)), None);
    assert_eq!(exceeded(&null_hypercall(45.0, 2.0, 1.0)), None, "they were not counted");
    assert_eq!(
        exceeded(&touching(8.0, 6.0)),
        None,
        "where the linker puts functions is not held against them"
    );
    let expected = ["9 code lines touched, the budget is 6", "7 pages touched, the budget is 4"];
    assert_eq!(exceeded(&touching(9.0, 7.0)).unwrap(), expected);
    let more_data = Figure {
        footprint: Some(Footprint { code_lines: 6.0, data_lines: 4.0, pages: 4.0 }),
        ..null_hypercall(45.0, 2.0, 1.0)
    };
    assert_eq!(exceeded(&more_data).unwrap(), ["4 data lines touched, the budget is 3"]);
    let failure = budgets.update([&touching(7.0, 4.0)], false).unwrap_err().full();
    assert!(failure.contains("null-hypercall, code_lines: 6 → 7"), "{failure}");
    assert_eq!(budgets.update([&null_hypercall(45.0, 2.0, 1.0)], false).unwrap(), [], "they stay");
}

#[test]
fn lines_of_data_have_a_margin_where_a_controller_has_its_own_time() {
    let of = |row: &str, data_lines| Figure {
        row: row.to_owned(),
        footprint: Some(Footprint { code_lines: 6.0, data_lines, pages: 4.0 }),
        ..null_hypercall(45.0, 2.0, 1.0)
    };
    let mut budgets = budgets();
    budgets
        .update([&of("drive-read", 300.0), &of("give-back", 300.0), &of("disk-read", 300.0)], false)
        .unwrap();
    let within = [&of("drive-read", 304.0), &of("give-back", 304.0), &of("disk-read", 300.0)];
    assert_eq!(budgets.exceeded(within), []);
    assert_eq!(budgets.exceeded([&of("give-back", 305.0)]).len(), 1);
    let exceeded = budgets.exceeded([&of("drive-read", 305.0), &of("disk-read", 301.0)]);
    assert_eq!(exceeded.iter().map(|excess| &*excess.row).collect::<Vec<_>>(), ["drive-read", "disk-read"]);
}

#[test]
fn other_platforms_have_no_budgets_of_lines_and_pages() {
    let mut other = Budgets::parse(Path::new("b"), TEXT, Isa::Arm64, "max-gicv3-statistics").unwrap();
    let footprint = Some(Footprint { code_lines: 6.0, data_lines: 3.0, pages: 4.0 });
    other.update([&Figure { footprint, ..null_hypercall(45.0, 0.0, 0.0) }], false).unwrap();
    let rows: Vec<String> = other.of("null-hypercall").unwrap().into_keys().collect();
    assert_eq!(rows, ["instructions"]);
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

/// No light exit depends on the mode or on the processor, and the full exits of the rows do not either, but for what is
/// switched between vCPUs, and for what of the guest's a service must not find, which the mode decides. How memory is cleared, and what a start finds, does depend on the processor.
#[test]
fn budgets_depend_on_the_interrupt_controller_alone() {
    let layout = Layout::find().unwrap();
    let budgets =
        |platform: &Platform| Budgets::load(&layout, Isa::Arm64, &platform.budgeted(false)).unwrap();
    for platform in &PLATFORMS {
        let alike = PLATFORMS.iter().find(|first| first.gic == platform.gic).unwrap();
        let (ours, theirs) = (budgets(platform), budgets(alike));
        let is_alike = |row: &&Row| !row.touches && row.counted != Counted::Boot;
        for row in ROWS.iter().filter(|row| row.is_on(platform)).filter(is_alike) {
            let name = format!("{} on {}", row.name, platform.name);
            let of = |budgets: &Budgets| {
                let mut budget = budgets.of(row.name).unwrap_or_else(|| panic!("{name} has none"));
                // Lines and pages have budgets on the usual platform alone.
                budget.retain(|class, _| !is_footprint(class));
                budget
            };
            let (mut ours, mut theirs) = (of(&ours), of(&theirs));
            let (here, there) = (ours.remove(INSTRUCTIONS).unwrap(), theirs.remove(INSTRUCTIONS).unwrap());
            // What goes with a vCPU from one to the next is what the processor has.
            let switches = ["vcpu-switch", "vcpu-switch-fp", "sgi-to-parked"].contains(&row.name);
            let enters = ["io-user", "doorbell"].contains(&row.name) || row.peer || row.disk.is_some();
            let apart = match row.name {
                // Keys of pointer authentication, and the exit in which a vCPU gets them.
                "vcpu-switch-fp" => 256.0,
                // The service is entered again behind each of its calls.
                _ if row.peer || row.disk.is_some() => 64.0,
                _ if switches || enters => 16.0,
                _ => 4.0,
            };
            assert!((here - there).abs() <= apart, "{name}: {here}, and {there} on {}", alike.name);
            assert!(
                switches || enters || ours == theirs,
                "{name}: {ours:?}, and {theirs:?} on {}",
                alike.name
            );
        }
    }
}
