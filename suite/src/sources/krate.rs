// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of a crate and the arrows between them: who uses names of whom.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::cfg::Compiled;
use super::source::{self, Lines, Module};

/// How often a name may be another's name before it is given up.
const RENAMES: usize = 16;

/// An arrow: a file uses a name of another one, in this line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrow {
    /// Who uses it.
    pub from: PathBuf,
    /// Whose name it is.
    pub to: PathBuf,
    /// The first line that does.
    pub line: usize,
}

/// A module of a crate.
#[derive(Debug)]
struct Known {
    /// Its file.
    file: PathBuf,
    /// The path of the module that the file is.
    of_file: Vec<String>,
    module: Module,
}

/// A crate.
#[derive(Debug)]
pub struct Crate {
    /// The folder of its package.
    package: PathBuf,
    compiled: Compiled,
    /// The modules by their paths; the root's is empty.
    modules: BTreeMap<Vec<String>, Known>,
    /// The macros that are known by `crate::`, and who defines them.
    macros: BTreeMap<String, Vec<String>>,
    /// The lines of each file.
    pub lines: BTreeMap<PathBuf, Lines>,
}

impl Crate {
    /// Reads what is compiled of the crate whose root is this file of a package.
    pub fn read(package: &Path, root: &Path, compiled: Compiled) -> Result<Self, String> {
        let mut all = Crate {
            package: package.to_path_buf(),
            compiled,
            modules: BTreeMap::new(),
            macros: BTreeMap::new(),
            lines: BTreeMap::new(),
        };
        let folder = root.parent().unwrap_or(package);
        all.add(&[], root, folder)?;
        Ok(all)
    }

    /// Adds a file, whose own modules are in `folder`, and what is below it.
    fn add(&mut self, name: &[String], file: &Path, folder: &Path) -> Result<(), String> {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let shown = self.shown(file);
        let source = source::read(&text, self.compiled);
        self.lines.insert(shown.clone(), source.lines);
        for module in source.modules {
            let path: Vec<String> = name.iter().chain(&module.name).cloned().collect();
            let folder = folder.join(module.name.iter().collect::<PathBuf>());
            for (child, place) in &module.files {
                let inner: Vec<String> = path.iter().chain([child]).cloned().collect();
                let beside = folder.join(format!("{child}.rs"));
                let inside = folder.join(child).join("mod.rs");
                let place = match place {
                    Some(place) => file.with_file_name(place),
                    None if beside.is_file() => beside,
                    None => inside,
                };
                if !is_test(&self.shown(&place)) {
                    self.add(&inner, &place, &folder.join(child))?;
                }
            }
            for exported in &module.exported {
                self.macros.insert(exported.clone(), path.clone());
            }
            self.modules.insert(path, Known { file: shown.clone(), of_file: name.to_vec(), module });
        }
        Ok(())
    }

    /// A file as its package sees it.
    fn shown(&self, file: &Path) -> PathBuf {
        file.strip_prefix(&self.package).unwrap_or(file).to_path_buf()
    }

    /// The arrows between different files, one for each pair; those of a file to the modules below it if `down_too`.
    pub fn arrows(&self, down_too: bool) -> BTreeSet<Arrow> {
        let mut first: BTreeMap<(PathBuf, PathBuf), usize> = BTreeMap::new();
        for (name, known) in &self.modules {
            for (path, line) in &known.module.uses {
                let Some(end) = self.end_of(name, path) else { continue };
                let is_below = end.of_file.starts_with(&known.of_file);
                if end.file == known.file || (is_below && !down_too) {
                    continue;
                }
                let seen = first.entry((known.file.clone(), end.file.clone())).or_insert(*line);
                *seen = (*seen).min(*line);
            }
        }
        first.into_iter().map(|((from, to), line)| Arrow { from, to, line }).collect()
    }

    /// The module to which a path leads when `module` says it; none if it leads out of the crate.
    fn end_of(&self, module: &[String], path: &[String]) -> Option<&Known> {
        let path = path.strip_suffix(&["*".to_owned()]).unwrap_or(path);
        self.modules.get(&self.follow(module, path, 0)?)
    }

    /// The module where a path ends: the one that defines its last name, or that is it.
    fn follow(&self, module: &[String], path: &[String], renames: usize) -> Option<Vec<String>> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module.split_last()?.1.to_vec(),
            _ => {
                // Only what the module itself knows; anything else is another crate's, or no module's at all.
                let known = &self.modules.get(module)?.module;
                let is_child = self.modules.contains_key(&[module, std::slice::from_ref(first)].concat());
                if !is_child && !known.imports.contains_key(first) {
                    return None;
                }
                rest = path;
                module.to_vec()
            }
        };
        while let Some((name, behind)) = rest.split_first() {
            if name == "super" {
                at.pop()?;
                rest = behind;
                continue;
            }
            let child = [at.as_slice(), std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&child) {
                (at, rest) = (child, behind);
                continue;
            }
            return self.definition(&at, name, behind, renames);
        }
        Some(at)
    }

    /// Where a module has a name from that is no module of its own, and what is behind that name.
    fn definition(
        &self,
        at: &[String],
        name: &String,
        behind: &[String],
        renames: usize,
    ) -> Option<Vec<String>> {
        let module = &self.modules.get(at)?.module;
        if let Some(definer) = self.macros.get(name).filter(|_| at.is_empty()) {
            return Some(definer.clone());
        }
        if module.items.contains(name) || renames > RENAMES {
            return Some(at.to_vec());
        }
        if let Some(other) = module.imports.get(name) {
            // `use a::a` would lead here again.
            let full = [other.as_slice(), behind].concat();
            return self.follow(at, &full, renames + 1);
        }
        let from_globs = module.globs.iter().find_map(|glob| {
            let full = [glob.split_last()?.1, std::slice::from_ref(name), behind].concat();
            let end = self.follow(at, &full, renames + 1)?;
            let other = &self.modules.get(&end)?.module;
            (other.items.contains(name) || end.last() == Some(name)).then_some(end)
        });
        Some(from_globs.unwrap_or_else(|| at.to_vec()))
    }
}

/// Whether a file of a package has tests only, by its name.
pub fn is_test(file: &Path) -> bool {
    file.components().any(|part| ["tests", "tests.rs"].iter().any(|name| part.as_os_str() == *name))
}
