// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes the package's two files.

use std::path::Path;

use turnstile::failure::{Context, Result};
use turnstile::layout::Layout;

use super::archives::{self, Made};
use super::tree;

/// Makes both files in a folder, with this program of the tool.
pub fn make(layout: &Layout, folder: &Path, program: &Path) -> Result<Made> {
    std::fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()))?;
    let root = folder.join("root");
    if root.exists() {
        std::fs::remove_dir_all(&root).context(|| format!("cannot remove {}", root.display()))?;
    }
    tree::build(layout, &root, program)?;
    let made = archives::write(layout, &root, folder);
    let _ = std::fs::remove_dir_all(&root);
    made
}
