// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of layers in `ARCHITECTURE.md`: a row for each, from the ground up, with its folder or its file first.

use std::path::Path;

/// The heading above the table.
const HEADING: &str = "## Layers";

/// The layers' names, from the ground up: `cpu/`, `time.rs`.
#[derive(Debug, PartialEq, Eq)]
pub struct Layers(pub Vec<String>);

impl Layers {
    /// Reads them from the document.
    pub fn read(document: &str) -> Result<Self, String> {
        let section = document.lines().skip_while(|line| *line != HEADING).skip(1);
        let section = section.take_while(|line| !line.starts_with('#'));
        let names = section.filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let names: Vec<String> = names.map(|(name, _)| name.to_owned()).collect();
        match names.is_empty() {
            true => Err(format!("ARCHITECTURE.md has no table below `{HEADING}`")),
            false => Ok(Layers(names)),
        }
    }

    /// The layer of a file of a package, `src/…`: the higher the number, the higher the layer.
    pub fn of(&self, file: &Path) -> Option<usize> {
        let first = file.components().nth(1)?.as_os_str().to_str()?;
        self.0.iter().position(|name| name.trim_end_matches('/') == first)
    }

    /// The name of a layer.
    pub fn name(&self, layer: usize) -> &str {
        self.0.get(layer).map_or("", String::as_str)
    }
}
