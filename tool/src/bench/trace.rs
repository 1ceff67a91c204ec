// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exactly runs in one operation: its instructions, flat and folded by function; and the recorded ones, with
//! which a rise of a budget is explained.

use std::fs;
use std::path::PathBuf;

use similar::TextDiff;

use super::document::Trace;
use super::measure::Kind;
use crate::failure::Result;
use crate::layout::{Layout, write_atomically};
use crate::meter::fold::{NamedStep, fold, named};
use crate::meter::reading::Step;
use crate::meter::symbols::Symbols;

/// Hexadecimal numbers of so many digits are addresses, which differ between builds.
const ADDRESS_DIGITS: usize = 5;
/// Lines of the recorded trace around each difference.
const AROUND: usize = 3;

/// The trace of an operation: its kinds of visits one after the other, with the functions' names.
pub fn trace(subject: &str, row: &str, kinds: &[Kind<'_>], symbols: &Symbols) -> Trace {
    let steps: Vec<Step> = kinds.iter().flat_map(|kind| kind.typical.trace.iter().cloned()).collect();
    Trace {
        subject: subject.to_owned(),
        row: row.to_owned(),
        folded: fold(&steps, symbols),
        steps: named(&steps, symbols),
    }
}

/// The trace as it is recorded: functions and instructions without addresses.
fn text(trace: &Trace) -> String {
    let line = |step: &NamedStep| format!("{}: {}\n", step.function, without_addresses(&step.text));
    trace.steps.iter().map(line).collect()
}

/// An instruction without what depends on where the code lies.
fn without_addresses(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(digits);
        result.push_str(if digits >= ADDRESS_DIGITS { "…" } else { "0x" });
        result.push_str(if digits >= ADDRESS_DIGITS { "" } else { number });
        result.push_str(rest);
    }
    result
}

/// Where the trace of a row on a platform is recorded.
fn file(layout: &Layout, platform: &str, row: &str) -> PathBuf {
    layout.root().join("bench/traces").join(platform).join(format!("{row}.txt"))
}

/// Records a trace.
pub fn record(layout: &Layout, platform: &str, trace: &Trace) -> Result<()> {
    write_atomically(&file(layout, platform, &trace.row), text(trace).as_bytes())
}

/// What is different from the recorded trace, as lines with `+` and `-`; `None` if nothing is recorded.
pub fn difference(layout: &Layout, platform: &str, trace: &Trace) -> Option<String> {
    let recorded = fs::read_to_string(file(layout, platform, &trace.row)).ok()?;
    Some(compare(&recorded, &text(trace)))
}

fn compare(recorded: &str, present: &str) -> String {
    let diff = TextDiff::from_lines(recorded, present);
    let text = diff.unified_diff().context_radius(AROUND).header("recorded", "present").to_string();
    if text.is_empty() { "the same instructions as recorded".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::reading::Group;

    fn sample() -> Trace {
        let step = |pc, text: &str| Step { pc, text: text.into(), ..Step::default() };
        let steps = vec![
            step(0x4020_0800, "stp      x0, x1, [sp, #0x10]"),
            step(0x4020_0804, "b        #0x40201000"),
            step(0x4020_1000, "mov      w0, #0x10000"),
            step(0x4020_0808, "eret"),
        ];
        let group = Group { trace: steps, ..Group::default() };
        let symbols = Symbols::from_table("40200800 T vectors\n40201000 T light\n").unwrap();
        trace("turnstile", "null-hypercall", &[Kind::new(&[&group], 1.0).unwrap()], &symbols)
    }

    #[test]
    fn steps_have_functions_and_are_folded() {
        let trace = sample();
        assert_eq!(trace.steps[1].text, "b #0x40201000");
        assert_eq!(trace.steps[2].function, "light");
        let folded: Vec<_> =
            trace.folded.iter().map(|folded| (&*folded.function, folded.instructions)).collect();
        assert_eq!(folded, [("vectors", 3), ("light", 1)]);
    }

    #[test]
    fn what_is_recorded_does_not_depend_on_addresses() {
        assert_eq!(
            text(&sample()),
            "vectors: stp x0, x1, [sp, #0x10]\nvectors: b #…\nlight: mov w0, #…\nvectors: eret\n"
        );
        assert_eq!(without_addresses("ldr x1, [x2, #0x1000]"), "ldr x1, [x2, #0x1000]");
        assert_eq!(without_addresses("tbz w0, #3, #0x40201abc ; 0x1"), "tbz w0, #3, #… ; 0x1");
    }

    #[test]
    fn differences_are_shown_as_lines() {
        let text = text(&sample());
        assert_eq!(compare(&text, &text), "the same instructions as recorded");
        let longer = text.replace("vectors: eret", "vectors: isb\nvectors: eret");
        assert!(compare(&text, &longer).contains("\n+vectors: isb\n"), "{}", compare(&text, &longer));
    }
}
