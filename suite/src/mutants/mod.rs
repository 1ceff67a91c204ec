// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mutants`: changes the code in small ways and says which changes no test notices.
//!
//! Two kinds: `cargo-mutants` replaces bodies and operators of the crates that are tested on the host, and is told to try one
//! mutant in so many; the orderings of the protocols between CPUs are weakened one by one, and the model checker must find each.

mod orderings;
mod sweep;
mod tried;

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets};
use tried::{Fate, Tried};
use turnstile::failure::{Failure, Kind, Result};
use turnstile::layout::Layout;

use crate::cli;

/// Tries mutants, and prints how many there were and which survived.
pub fn mutants(layout: &Layout, options: &cli::Mutants) -> Result<()> {
    if options.list {
        let names = match options.orderings {
            true => orderings::list(layout, options)?,
            false => sweep::list(layout, options)?,
        };
        names.iter().for_each(|name| println!("{name}"));
        return Ok(());
    }
    let tried = match options.orderings {
        true => orderings::attempt(layout, options)?,
        false => sweep::attempt(layout, options)?,
    };
    if tried.is_empty() {
        return Err(Failure::usage("there are no mutants there")
            .help("--package takes a package of core/ or arch/ that is tested on the host"));
    }
    println!("{}", table(&tried));
    let survivors: Vec<&Tried> = tried.iter().filter(|mutant| mutant.fate == Fate::Survived).collect();
    survivors.iter().for_each(|mutant| println!("survived: {}", mutant.what));
    if survivors.is_empty() { Ok(()) } else { Err(Failure::reported(Kind::Failed)) }
}

/// How many of each package were tried, and what became of them.
fn table(tried: &[Tried]) -> Table {
    let mut packages: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for mutant in tried {
        packages.entry(&mutant.package).or_default()[mutant.fate as usize] += 1;
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["package", "mutants", "caught", "survived", "unviable"]);
    for (package, [caught, survived, unviable]) in packages {
        let numbers = [caught + survived + unviable, caught, survived, unviable];
        table.add_row(std::iter::once(package.to_owned()).chain(numbers.map(|number| number.to_string())));
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_counts_by_package() {
        let tried = |package: &str, fate| Tried { package: package.to_owned(), what: String::new(), fate };
        let all = [tried("b", Fate::Caught), tried("a", Fate::Survived), tried("b", Fate::Unviable)];
        let table = table(&all).to_string();
        let lines: Vec<Vec<&str>> =
            table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines, [["a", "1", "0", "1", "0"], ["b", "2", "1", "0", "1"]]);
    }
}
