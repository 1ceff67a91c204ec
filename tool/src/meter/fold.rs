// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The instructions of a visit by function, and as a list.

use serde::{Deserialize, Serialize};

use super::reading::Step;
use super::symbols::Symbols;
use crate::style::{BOLD, CYAN, DIM};
use crate::{prose, ui};

/// A function, and how many instructions of a visit are in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folded {
    /// Its name, or where the code is if it has none: the address of its first executed instruction.
    pub function: String,
    /// The instructions.
    pub instructions: u64,
}

/// Counts instructions by function, in the order in which they are first entered. Code without a name is one function
/// for as long as it runs in a row.
pub fn fold(steps: &[Step], symbols: &Symbols) -> Vec<Folded> {
    let mut folded: Vec<Folded> = Vec::new();
    let mut unnamed: Option<usize> = None;
    for step in steps {
        let at = match symbols.name(step.pc) {
            Some((name, _)) => {
                unnamed = None;
                folded.iter().position(|known| known.function == name).ok_or_else(|| name.to_owned())
            }
            None => unnamed.ok_or_else(|| format!("{:#x}", step.pc)),
        };
        let at = at.unwrap_or_else(|function| {
            if symbols.name(step.pc).is_none() {
                unnamed = Some(folded.len());
            }
            folded.push(Folded { function, instructions: 0 });
            folded.len() - 1
        });
        if let Some(function) = folded.get_mut(at) {
            function.instructions += 1;
        }
    }
    folded
}

/// One executed instruction, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedStep {
    /// Its address, hexadecimal.
    pub pc: String,
    /// The function it is in; empty if unknown.
    pub function: String,
    /// Its text, as QEMU disassembles it.
    pub text: String,
}

/// Finds the instructions' functions, and makes their texts one like the other.
pub fn named(steps: &[Step], symbols: &Symbols) -> Vec<NamedStep> {
    let named = |step: &Step| NamedStep {
        pc: format!("{:#x}", step.pc),
        function: symbols.name(step.pc).map_or_else(String::new, |(name, _)| name.to_owned()),
        text: step.text.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    steps.iter().map(named).collect()
}

/// Prints the instructions of a visit, by function and one by one.
pub fn print(what: &str, folded: &[Folded], steps: &[NamedStep]) {
    let heading = format!("{what}: {} instructions", steps.len());
    let heading = prose::wrap(&heading, prose::within(ui::terminal_width()));
    anstream::println!("\n{BOLD}{heading}{BOLD:#}");
    for Folded { function, instructions } in folded {
        anstream::println!("{instructions:>7}  {CYAN}{function}{CYAN:#}");
    }
    println!("");
    let mut last = None;
    for (number, step) in steps.iter().enumerate() {
        if last != Some(&step.function) {
            let function = if step.function.is_empty() { "?" } else { &step.function };
            anstream::println!("         {CYAN}{function}{CYAN:#}");
            last = Some(&step.function);
        }
        anstream::println!("{:>7}  {DIM}{}{DIM:#}  {}", number + 1, step.pc, step.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_in_the_order_of_first_entry() {
        let symbols = Symbols::from_table("1000 T vector\n2000 T handler\n").unwrap();
        let pcs = [0x1000, 0x1004, 0x2000, 0x2004, 0x2008, 0x1008, 0x90_0000, 0x90_0004, 0x1010, 0xa0_0000];
        let steps: Vec<Step> = pcs.iter().map(|&pc| Step { pc, ..Step::default() }).collect();
        let folded = fold(&steps, &symbols);
        let pairs: Vec<_> = folded.iter().map(|it| (it.function.as_str(), it.instructions)).collect();
        // What is far behind the last symbol has no name.
        assert_eq!(pairs, [("vector", 4), ("handler", 3), ("0x900000", 2), ("0xa00000", 1)]);
    }
}
