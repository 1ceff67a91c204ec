// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the tool finds and keeps things: the checkout, its cache and its build products.

use std::path::{Path, PathBuf};

use crate::failure::{Context, Failure, Result};

/// The folders of one checkout.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
    target: PathBuf,
}

impl Layout {
    /// Finds the checkout: `TURNSTILE_ROOT` (set by `./x`), or the nearest one above the current folder or
    /// above the program itself.
    pub fn find() -> Result<Self> {
        let root = match std::env::var_os("TURNSTILE_ROOT") {
            Some(root) => Some(PathBuf::from(root)).filter(|root| is_checkout(root)),
            None => {
                let places = [std::env::current_dir().ok(), std::env::current_exe().ok()];
                places.iter().flatten().find_map(|place| {
                    place.ancestors().find(|folder| is_checkout(folder)).map(Path::to_path_buf)
                })
            }
        };
        let root = root.ok_or_else(|| {
            Failure::missing("this is not inside a Turnstile checkout").help(
                "run `./x` from the checkout, or set TURNSTILE_ROOT to its path; the tool builds the hypervisor \
                 from the sources there",
            )
        })?;
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(target) => root.join(target),
            None => root.join("target"),
        };
        Ok(Layout { root, target })
    }

    /// The checkout.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's build products.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// What has been downloaded: kept when the build products are cleaned.
    pub fn cache(&self) -> PathBuf {
        self.root.join(".cache")
    }

    /// Flat binaries: the hypervisor's image and `guests/`.
    pub fn images(&self) -> PathBuf {
        self.target.join("images")
    }

    /// The hypervisor for arm64.
    pub fn hypervisor(&self) -> PathBuf {
        self.images().join("turnstile-arm64.image")
    }

    /// The image of a guest from `guests/`.
    pub fn guest(&self, name: &str) -> PathBuf {
        self.images().join("guests").join(format!("{name}.image"))
    }

    /// The names of the guests in the sources, sorted.
    pub fn guest_names(&self) -> Vec<String> {
        let sources = std::fs::read_dir(self.root.join("guests/src/bin"));
        let mut names: Vec<String> = sources
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let path = entry.path();
                let is_program = path.extension().is_some_and(|extension| extension == "rs") || path.is_dir();
                is_program.then(|| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()))?
            })
            .collect();
        names.sort();
        names
    }

    /// The bundles that the tool starts.
    pub fn bundles(&self) -> PathBuf {
        self.target.join("bundles")
    }

    /// A path as the user would write it: relative to the current folder where that is shorter.
    pub fn shown(path: &Path) -> String {
        let here = std::env::current_dir().unwrap_or_default();
        path.strip_prefix(&here).unwrap_or(path).display().to_string()
    }
}

fn is_checkout(folder: &Path) -> bool {
    folder.join("core/bundle/Cargo.toml").is_file() && folder.join("hypervisor/Cargo.toml").is_file()
}

/// Writes a file by way of a temporary one beside it: nobody ever sees half of it.
pub fn write_atomically(file: &Path, bytes: &[u8]) -> Result<()> {
    let doing = || format!("cannot write {}", file.display());
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).context(doing)?;
    }
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    std::fs::write(&temporary, bytes).context(doing)?;
    std::fs::rename(&temporary, file).context(doing)
}
