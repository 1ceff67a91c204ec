// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packages of the workspace, by their folders.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders of the workspace's members.
pub fn packages(root: &Path) -> Result<Vec<PathBuf>, String> {
    let text = fs::read_to_string(root.join("Cargo.toml")).map_err(|error| error.to_string())?;
    let manifest: toml::Table = text.parse().map_err(|error| format!("Cargo.toml: {error}"))?;
    let members = manifest.get("workspace").and_then(|workspace| workspace.get("members")?.as_array());
    let mut packages = Vec::new();
    for member in members.into_iter().flatten().filter_map(toml::Value::as_str) {
        match member.strip_suffix("/*") {
            Some(folder) => {
                packages.extend(entries(&root.join(folder)).iter().map(|name| Path::new(folder).join(name)))
            }
            None => packages.push(PathBuf::from(member)),
        }
    }
    packages.retain(|package| root.join(package).join("Cargo.toml").is_file());
    packages.sort();
    match packages.is_empty() {
        true => Err("Cargo.toml names no members".to_owned()),
        false => Ok(packages),
    }
}

/// The names in a folder.
pub fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The root files of a package's crates.
pub fn roots(sources: &Path) -> Vec<PathBuf> {
    let programs = sources.join("bin");
    let programs = entries(&programs).into_iter().map(|name| match name.ends_with(".rs") {
        true => programs.join(name),
        false => programs.join(name).join("main.rs"),
    });
    let own = ["lib.rs", "main.rs"].map(|name| sources.join(name));
    own.into_iter().chain(programs).filter(|root| root.is_file()).collect()
}
