// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table, in the seed's order of lines.

use super::counts::LINES;
use super::{Counts, Pair};
use crate::sheet::{Column, Sheet};
use crate::{prose, ui};

/// Prints all pairs, a table for each guest with as many vCPUs.
pub fn print(pairs: &[Pair]) {
    ui::say("What happened in one second of interrupt load, without and with paravirtual EOI.");
    for pairs in pairs.chunk_by(|one, other| (one.guest, one.vcpus) == (other.guest, other.vcpus)) {
        let width = ui::terminal_width();
        println!("\n{}\n{}", heading(pairs), sheet(pairs).show(width));
        for pair in pairs {
            println!("");
            ui::say(&sentence(pair));
            for (label, counts) in [("  exits without: ", &pair.without), ("  exits with:    ", &pair.with)] {
                println!("{}", prose::behind(label, &reasons(counts), prose::within(width)));
            }
        }
    }
}

/// Which guest it is.
fn heading(pairs: &[Pair]) -> String {
    pairs.first().map_or_else(String::new, |pair| match pair.vcpus {
        1 => format!("{}, 1 vCPU", pair.guest.title()),
        vcpus => format!("{}, {vcpus} vCPUs", pair.guest.title()),
    })
}

fn sheet(pairs: &[Pair]) -> Sheet {
    let titles =
        pairs.iter().flat_map(|pair| ["without", "with"].map(|how| format!("{}\n{how}", pair.title)));
    let mut sheet = Sheet::new([Column::key("event")].into_iter().chain(titles.map(Column::number)));
    let mut add = |name: &str, count: &dyn Fn(&Counts) -> u64| {
        let counts = pairs.iter().flat_map(|pair| [count(&pair.without), count(&pair.with)]);
        sheet.add(std::iter::once(name.to_owned()).chain(counts.map(|count| count.to_string())));
    };
    for line in LINES {
        add(line.name, &|counts| counts.line(line.name));
    }
    if pairs.iter().any(|pair| pair.without.doubled + pair.with.doubled > 0) {
        add("doubled by QEMU", &|counts| counts.doubled);
    }
    add("taken by the guest", &|counts| counts.load.interrupts);
    sheet
}

fn sentence(pair: &Pair) -> String {
    let Pair { version, without, with, .. } = pair;
    let (before, after) = (without.exits(), with.exits());
    format!("{version}: {before} exits become {after}, {:.2} of them.", pair.left())
}

/// The reasons with their counts, the most frequent first.
fn reasons(counts: &Counts) -> String {
    let mut all: Vec<(&String, &u64)> = counts.reasons.iter().collect();
    all.sort_by_key(|&(name, count)| (std::cmp::Reverse(*count), name));
    all.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::{Guest, Load};
    use super::*;
    use crate::sheet::assert_fits;

    #[test]
    fn a_pair_is_two_columns_and_a_sentence() {
        let load = Load { interrupts: 100, spared: Some(0) };
        let without = Counts::of_kvm(load, "@event kvm_exit 200\n@exit 0x7c 150\n@exit 0x60 50\n");
        let with = Counts::of_kvm(
            load,
            "@event kvm_exit 110\n@exit 0x7c 60\n@exit 0x60 50\n@eoi 0xffffffffffffffff 3\n",
        );
        let pair = Pair {
            subject: "kvm-svm",
            title: "KVM SVM",
            version: "Linux 1 KVM".to_owned(),
            guest: Guest::Load,
            vcpus: 1,
            without,
            with,
        };
        let shown = sheet(std::slice::from_ref(&pair)).show(None);
        assert!(shown.contains("KVM SVM") && shown.contains("doubled by QEMU"), "{shown}");
        assert_fits(
            |width| sheet(std::slice::from_ref(&pair)).show(width),
            &["doubled by QEMU", "KVM SVM", "with"],
        );
        assert_eq!(heading(std::slice::from_ref(&pair)), "The guest `load`, 1 vCPU");
        assert_eq!(sentence(&pair), "Linux 1 KVM: 200 exits become 110, 0.55 of them.");
        assert_eq!(reasons(&pair.without), "msr 150, intr 50");
    }
}
