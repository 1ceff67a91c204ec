// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `host/layers`: the files of a crate do not use each other in circles, and in the crates of the machines arrows go downwards alone.
//!
//! An arrow is a name of another file of the same crate: in a `use`, or in a path in code. A name that a file only passes on (`pub use`)
//! counts as its definer's. The layers are those of the table in `ARCHITECTURE.md`. Tests are exempt.
//!
//! | file | what |
//! |---|---|
//! | `circles` | circles among arrows |
//! | `table` | the layers |

mod circles;
pub mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use table::Layers;

use super::sources::cfg::Compiled;
use super::sources::krate::{self, Arrow, Crate};
use super::sources::workspace::{entries, packages, roots};

/// Packages whose files have layers.
const LAYERED: [&str; 3] = ["arch/arm64", "arch/power64", "arch/x86_64"];

/// Packages in which modules and those below them still use each other. `CAVEATS.md` names them.
const FAMILIES: &[&str] = &[
    "arch/threads",
    "core/bundle",
    "core/devices",
    "core/firmware",
    "core/link",
    "core/machine",
    "core/mitigation",
    "core/papr",
    "core/pvclock",
    "core/sched",
    "core/vapic",
    "core/vgic",
    "guests/arm64",
    "guests/power64",
    "guests/x86_64",
    "meter",
    "peers",
    "tool",
];

/// Checks all packages of the checkout; the error has a line for each thing that is wrong.
pub fn check(root: &Path) -> Result<(), String> {
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).map_err(|error| error.to_string())?;
    let layers = Layers::read(&text)?;
    let packages = packages(root)?;
    let strange = FAMILIES.iter().find(|name| !packages.iter().any(|package| package == Path::new(name)));
    if let Some(name) = strange {
        return Err(format!("the list of exemptions names {name}, which is no package"));
    }
    let mut wrong = Vec::new();
    for package in packages {
        let name = package.to_string_lossy();
        let layers = LAYERED.contains(&&*name).then_some(&layers);
        let found = check_package(&root.join(&package), layers, !FAMILIES.contains(&&*name))?;
        wrong.extend(found.iter().map(|what| format!("{name}/{what}")));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Says what is wrong in a package; paths are relative to it. Arrows of a file to the modules below it count if `down_too`.
fn check_package(package: &Path, layers: Option<&Layers>, down_too: bool) -> Result<Vec<String>, String> {
    let sources = package.join("src");
    let mut wrong = Vec::new();
    for root in roots(&sources) {
        let arrows: BTreeSet<Arrow> = Crate::read(package, &root, Compiled::Anyhow)?.arrows(down_too);
        wrong.extend(circles::circles(&arrows).iter().map(|circle| show(circle)));
        wrong.extend(layers.into_iter().flat_map(|layers| upwards(layers, &arrows)));
    }
    if let Some(layers) = layers {
        // git knows no empty folder, and leaves one behind where files have moved.
        let names = entries(&sources).into_iter();
        let names = names.filter(|name| {
            let path = sources.join(name);
            path.is_file() || !entries(&path).is_empty()
        });
        let files = names.map(|name| Path::new("src").join(name));
        let unnamed = files.filter(|file| !krate::is_test(file) && layers.of(file).is_none());
        let say = |file: PathBuf| format!("{}: no layer of ARCHITECTURE.md names it", file.display());
        wrong.extend(unnamed.map(say));
    }
    Ok(wrong)
}

/// The files of a circle in order, each with the line of its arrow to the next.
fn show(circle: &[&Arrow]) -> String {
    let files: Vec<String> =
        circle.iter().map(|arrow| format!("{}:{}", arrow.from.display(), arrow.line)).collect();
    let first = circle.first().map(|arrow| arrow.from.display().to_string()).unwrap_or_default();
    format!("{} → {first}: a circle", files.join(" → "))
}

/// The arrows that lead to a higher layer.
fn upwards(layers: &Layers, arrows: &BTreeSet<Arrow>) -> Vec<String> {
    let upwards = arrows.iter().filter_map(|arrow| {
        let (lower, upper) = (layers.of(&arrow.from)?, layers.of(&arrow.to)?);
        let (from, to) = (arrow.from.display(), arrow.to.display());
        let names = (layers.name(lower), layers.name(upper));
        (lower < upper)
            .then(|| format!("{from}:{}: {} is below {}, and uses {to}", arrow.line, names.0, names.1))
    });
    upwards.collect()
}
