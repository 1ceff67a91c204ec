// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x package`: what runs without a checkout, as a Debian package and as an archive.
//!
//! | file | what |
//! |---|---|
//! | `tree` | the files of the package, in a folder as they are installed |
//! | `archives` | from that folder to the two files |
//! | `make` | both, one after the other |
//! | `installed` | unpacks one, and runs an example of each architecture from there |

mod archives;
mod installed;
mod make;
mod tree;

use turnstile::failure::Result;
use turnstile::layout::Layout;
use turnstile::setup::images;

use super::cli;
pub use installed::{check, check_for_others};

/// Makes both and says where they are.
pub fn package(layout: &Layout, options: &cli::Package) -> Result<()> {
    let folder = options.out.clone().unwrap_or_else(|| layout.target().join("package-files"));
    let made = make::make(layout, &folder, &images::tool(layout)?)?;
    println!("{}", Layout::shown(&made.archive));
    match &made.debian {
        Some(debian) => println!("{}", Layout::shown(debian)),
        None => turnstile::ui::note("no Debian package: dpkg-deb is not installed"),
    }
    Ok(())
}
