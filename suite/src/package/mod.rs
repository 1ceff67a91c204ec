// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x package`: what runs without a checkout, as a Debian package and as an archive.
//!
//! | file | what |
//! |---|---|
//! | `tree` | the files of the package, in a folder as they are installed |
//! | `archives` | from that folder to the two files |
//! | `installed` | unpacks one, and runs an example of each architecture from there |

mod archives;
mod installed;
mod tree;

use std::path::{Path, PathBuf};

use turnstile::failure::{Context, Result};
use turnstile::layout::Layout;

use super::cli;
pub use installed::check;

/// The files that were made.
pub struct Made {
    /// The archive: it is unpacked anywhere.
    pub archive: PathBuf,
    /// The Debian package, where `dpkg-deb` is there to make it.
    pub debian: Option<PathBuf>,
}

/// Makes both and says where they are.
pub fn package(layout: &Layout, options: &cli::Package) -> Result<()> {
    let folder = options.out.clone().unwrap_or_else(|| layout.target().join("package-files"));
    let made = make(layout, &folder)?;
    println!("{}", Layout::shown(&made.archive));
    match &made.debian {
        Some(debian) => println!("{}", Layout::shown(debian)),
        None => turnstile::ui::note("no Debian package: dpkg-deb is not installed"),
    }
    Ok(())
}

/// Makes both files in a folder.
fn make(layout: &Layout, folder: &Path) -> Result<Made> {
    std::fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()))?;
    let root = folder.join("root");
    if root.exists() {
        std::fs::remove_dir_all(&root).context(|| format!("cannot remove {}", root.display()))?;
    }
    tree::build(layout, &root)?;
    let made = archives::write(layout, &root, folder);
    let _ = std::fs::remove_dir_all(&root);
    made
}
