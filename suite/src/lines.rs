// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lines`: how much code each architecture's image consists of, by layer, and how much of that is in `unsafe` blocks.
//!
//! What is counted is what is compiled for the bare machine, without features, of the workspace's packages that the hypervisor
//! depends on: lines that are not blank and no comment. Other crates, tests and fakes of registers are not.

use std::collections::BTreeMap;
use std::fs;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use turnstile::failure::{Context, Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::{Layout, write_atomically};
use turnstile::setup::rust;

use super::cli;
use super::layers::table::Layers;
use super::sources::cfg::Compiled;
use super::sources::krate::Crate;
use super::sources::source;
use super::sources::workspace::roots;

/// The package whose image is counted.
const IMAGE: &str = "turnstile-hypervisor";
/// The table in `ARCHITECTURE.md` begins with this line.
const HEAD: &str =
    "| part | arm64 | `unsafe` | assembly | x86_64 | `unsafe` | assembly | power64 | `unsafe` | assembly |";
/// What the files of a crate of a machine are called that no layer names.
const ELSEWHERE: &str = "elsewhere";

/// Lines of an architecture's image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    rust: source::Lines,
    assembly: usize,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.rust.code += other.rust.code;
        self.rust.in_unsafe += other.rust.in_unsafe;
        self.assembly += other.assembly;
    }
}

/// Rows in their order, with a count for each architecture.
type Rows = Vec<(String, [Count; 3])>;

/// Prints the table, or puts it into the document.
pub fn lines(layout: &Layout, options: &cli::Lines) -> Result<()> {
    let table = table(&count(layout)?);
    if !options.write {
        println!("{}", table.trim_end());
        return Ok(());
    }
    let file = layout.root().join("ARCHITECTURE.md");
    let text = fs::read_to_string(&file).context(|| "cannot read ARCHITECTURE.md".into())?;
    let old = find(&text).ok_or_else(|| Failure::failed("ARCHITECTURE.md has no table of lines"))?;
    write_atomically(&file, text.replace(old, &table).as_bytes())
}

/// The table in a document.
fn find(text: &str) -> Option<&str> {
    let begin = text.find(HEAD)?;
    let rest = text.get(begin..)?;
    let end = rest.find("\n\n").map_or(rest.len(), |end| end + 1);
    rest.get(..end)
}

fn table(rows: &Rows) -> String {
    let mut text = format!("{HEAD}\n|---|{}\n", "---:|".repeat(9));
    for (name, counts) in rows {
        let cells = counts
            .iter()
            .map(|count| format!(" {} | {} | {} |", count.rust.code, count.rust.in_unsafe, count.assembly));
        text.push_str(&format!("| {name} |{}\n", cells.collect::<String>()));
    }
    text
}

/// Counts everything.
fn count(layout: &Layout) -> Result<Rows> {
    let document = fs::read_to_string(layout.root().join("ARCHITECTURE.md"));
    let document = document.context(|| "cannot read ARCHITECTURE.md".into())?;
    let layers = Layers::read(&document).map_err(Failure::failed)?;
    let packages = Package::all(layout)?;
    let mut found: BTreeMap<String, [Count; 3]> = BTreeMap::new();
    for (index, isa) in Isa::ALL.into_iter().enumerate() {
        for package in linked(&packages, isa) {
            for (row, count) in count_package(layout, package, isa, &layers).map_err(Failure::failed)? {
                if let Some(sum) = found.entry(row).or_default().get_mut(index) {
                    *sum += count;
                }
            }
        }
    }
    Ok(arrange(found, &layers))
}

/// Brings the rows into the order from the ground up, and adds them up.
fn arrange(mut found: BTreeMap<String, [Count; 3]>, layers: &Layers) -> Rows {
    let mut all = [Count::default(); 3];
    for counts in found.values() {
        all.iter_mut().zip(counts).for_each(|(all, count)| *all += *count);
    }
    let own: Vec<String> = layers.0.iter().map(String::as_str).chain([ELSEWHERE]).map(of_machine).collect();
    let mut rows: Rows =
        own.iter().filter_map(|row| found.remove(row).map(|counts| (row.clone(), counts))).collect();
    let hypervisor = found.remove_entry("`hypervisor`");
    let mut below: Rows = found.into_iter().collect();
    below.sort_by_key(|(name, _)| !name.starts_with("`core/"));
    below.append(&mut rows);
    below.extend(hypervisor);
    below.push(("all".to_owned(), all));
    below
}

/// The row of a layer of the machines' own crates.
fn of_machine(layer: &str) -> String {
    if layer == ELSEWHERE { "`arch/ISA`, elsewhere".to_owned() } else { format!("`arch/ISA`, `{layer}`") }
}

/// Counts a package by rows.
fn count_package(
    layout: &Layout,
    package: &Package,
    isa: Isa,
    layers: &Layers,
) -> std::result::Result<Vec<(String, Count)>, String> {
    let folder = package.folder();
    let name = folder.strip_prefix(layout.root()).unwrap_or(folder).display().to_string();
    let row = |file: &Path| match name == format!("arch/{isa}") {
        true => of_machine(layers.of(file).map_or(ELSEWHERE, |layer| layers.name(layer))),
        false => format!("`{name}`"),
    };
    let mut counts = Vec::new();
    for root in roots(&folder.join("src")) {
        let files = Crate::read(folder, &root, Compiled::Bare(architecture(isa)))?.lines;
        counts.extend(files.iter().map(|(file, rust)| (row(file), Count { rust: *rust, assembly: 0 })));
    }
    for file in assembly(&folder.join("src")) {
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let shown = file.strip_prefix(folder).unwrap_or(&file);
        counts.push((row(shown), Count { assembly: count_assembly(&text), ..Count::default() }));
    }
    Ok(counts)
}

/// The sources in assembly; those in a folder `naive` are of images for ablation alone.
fn assembly(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries
        .flat_map(|path| match path.is_dir() {
            true if path.ends_with("naive") => Vec::new(),
            true => assembly(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "S"))
        .collect()
}

/// The lines of assembly that are not blank and no comment.
fn count_assembly(text: &str) -> usize {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//") && !line.starts_with('#')).count()
}

/// The name that the compiler has for an architecture.
fn architecture(isa: Isa) -> &'static str {
    match isa {
        Isa::Arm64 => "aarch64",
        Isa::X86_64 => "x86_64",
        Isa::Power64 => "powerpc64",
    }
}

/// A package, as cargo tells of it.
#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    /// `dev` or `build`, or none.
    kind: Option<String>,
    target: Option<String>,
    optional: bool,
}

impl Package {
    /// Those of the workspace.
    fn all(layout: &Layout) -> Result<Vec<Package>> {
        #[derive(Deserialize)]
        struct Metadata {
            packages: Vec<Package>,
        }
        let mut cargo = rust::cargo(layout);
        cargo.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]);
        let output = cargo.output().context(|| "cargo does not start".into())?;
        let metadata: Metadata =
            serde_json::from_slice(&output.stdout).context(|| "cannot read what cargo says".into())?;
        Ok(metadata.packages)
    }

    fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new(""))
    }
}

/// The packages that an architecture's image is linked from.
fn linked(packages: &[Package], isa: Isa) -> Vec<&Package> {
    let is_linked = |dependency: &&Dependency| {
        let target = dependency.target.as_deref();
        let fits = target.is_none_or(|target| target.contains(&format!("\"{}\"", architecture(isa))));
        dependency.kind.is_none() && !dependency.optional && fits
    };
    let mut names = vec![IMAGE];
    let mut linked: Vec<&Package> = Vec::new();
    while let Some(name) = names.pop() {
        if linked.iter().any(|package| package.name == name) {
            continue;
        }
        if let Some(package) = packages.iter().find(|package| package.name == name) {
            linked.push(package);
            names.extend(
                package.dependencies.iter().filter(is_linked).map(|dependency| dependency.name.as_str()),
            );
        }
    }
    linked
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of a table's row, by its name.
    fn rows(table: &str) -> BTreeMap<String, Vec<usize>> {
        let rows = table.lines().skip(2).filter_map(|line| line.trim_matches('|').split_once('|'));
        rows.map(|(name, cells)| {
            let numbers = cells.split('|').map(|cell| cell.trim().parse().unwrap()).collect();
            (name.trim().to_owned(), numbers)
        })
        .collect()
    }

    #[test]
    fn the_table_in_the_document_is_right() {
        let layout = Layout::find().unwrap();
        let document = fs::read_to_string(layout.root().join("ARCHITECTURE.md")).unwrap();
        let (written, counted) = (rows(find(&document).unwrap()), rows(&table(&count(&layout).unwrap())));
        let help = "./x lines --write";
        assert!(written.keys().eq(counted.keys()), "{help}: {:?}", counted.keys());
        for (name, counted) in counted {
            for (written, counted) in written[&name].iter().zip(counted) {
                assert!(written.abs_diff(counted) <= (counted / 50).max(5), "{help}: {name}: {counted}");
            }
        }
    }

    #[test]
    fn lines_are_counted() {
        let text = "//! A.\n\nuse x;\n\n/* b\n */\nfn f() {\n    // SAFETY: c.\n    unsafe {\n        g();\n    }\n}\n\
                    #[cfg(test)]\nmod tests {\n    unsafe { g() }\n}\n#[cfg(not(target_os = \"none\"))]\nfn h() {}\n";
        let lines = |compiled| source::read(text, compiled).lines;
        assert_eq!(lines(Compiled::Bare("x86_64")), source::Lines { code: 6, in_unsafe: 3 });
        assert_eq!(lines(Compiled::Anyhow), source::Lines { code: 8, in_unsafe: 3 });
        assert_eq!(count_assembly("// a\n\n    nop // b\n# c\nx:\n"), 2);
    }
}
