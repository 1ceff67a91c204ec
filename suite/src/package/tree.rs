// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of the package: the program, the images of all architectures, guests, services, the meter, documentation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::CommandFactory;
use clap_complete::Shell;
use turnstile::failure::{Context, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::setup::{images, run, rust};

/// Where all files are, below the folder that is `/` or wherever the archive is unpacked.
const PREFIX: &str = "usr";
/// Where the images are.
const IMAGES: &str = "share/turnstile/images";
/// Where documentation is.
const DOCUMENTATION: &str = "share/doc/turnstile";

/// Builds what has to be built, and copies everything, with this program of the tool, to where it is installed below `root`.
pub fn build(layout: &Layout, root: &Path, program: &Path) -> Result<()> {
    let to = Tree { prefix: root.join(PREFIX) };
    to.copy(program, "bin/turnstile")?;
    for isa in Isa::ALL {
        to.images(layout, isa)?;
    }
    to.copy(&images::meter(layout)?, "lib/turnstile/libturnstile_meter.so")?;
    for file in ["budgets.toml", "recorded.toml"] {
        to.copy(&layout.root().join("bench").join(file), &format!("share/turnstile/bench/{file}"))?;
    }
    to.documentation(layout.root())?;
    to.shells()
}

/// Where the files go.
struct Tree {
    prefix: PathBuf,
}

impl Tree {
    /// Returns where a file goes, and makes its folder.
    fn place(&self, name: &str) -> Result<PathBuf> {
        let place = self.prefix.join(name);
        let folder = place.parent().unwrap_or(&self.prefix);
        fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()))?;
        Ok(place)
    }

    fn copy(&self, file: &Path, name: &str) -> Result<()> {
        let place = self.place(name)?;
        fs::copy(file, place).context(|| format!("cannot copy {}", file.display()))?;
        Ok(())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let place = self.place(name)?;
        fs::write(&place, bytes).context(|| format!("cannot write {}", place.display()))
    }

    /// The hypervisor of an architecture, with its symbols beside it, the guests, and the programs of services.
    fn images(&self, layout: &Layout, isa: Isa) -> Result<()> {
        let shared = |file: &Path| {
            let name = file.strip_prefix(layout.images()).unwrap_or(file).display().to_string();
            self.copy(file, &format!("{IMAGES}/{name}"))
        };
        shared(&images::hypervisor(layout, isa)?)?;
        shared(&images::work(layout, isa)?)?;
        images::guests(layout, isa)?;
        for name in layout.guest_names(isa) {
            shared(&layout.guest(isa, &name))?;
        }
        for name in layout.service_names() {
            shared(&images::service(layout, isa, &name)?)?;
        }
        let symbols = layout.packaged_program(isa, &[]);
        let symbols = symbols.strip_prefix(layout.images()).unwrap_or(&symbols).display().to_string();
        let symbols = self.place(&format!("{IMAGES}/{symbols}"))?;
        let mut objcopy = Command::new(rust::objcopy(layout)?);
        objcopy.arg("--strip-debug").arg(images::program(layout, isa)).arg(symbols);
        run(&mut objcopy).map(drop)
    }

    fn documentation(&self, root: &Path) -> Result<()> {
        for name in ["README.md", "CHANGELOG.md", "CAVEATS.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            self.copy(&root.join(name), &format!("{DOCUMENTATION}/{name}"))?;
        }
        for (from, to) in [("docs/src", "book"), ("examples", "examples")] {
            let folder = root.join(from);
            for entry in walkdir::WalkDir::new(&folder).sort_by_file_name().into_iter().flatten() {
                if let (true, Ok(name)) = (entry.file_type().is_file(), entry.path().strip_prefix(&folder)) {
                    self.copy(entry.path(), &format!("{DOCUMENTATION}/{to}/{}", name.display()))?;
                }
            }
        }
        Ok(())
    }

    /// Manual pages and completions, from the command line itself.
    fn shells(&self) -> Result<()> {
        let command = turnstile::cli::Cli::command();
        let pages = self.place("share/man/man1/turnstile.1")?;
        let folder = pages.parent().unwrap_or(&self.prefix);
        clap_mangen::generate_to(command.clone(), folder).context(|| "cannot write the manual".into())?;
        for (shell, name) in [
            (Shell::Bash, "share/bash-completion/completions/turnstile"),
            (Shell::Zsh, "share/zsh/vendor-completions/_turnstile"),
            (Shell::Fish, "share/fish/vendor_completions.d/turnstile.fish"),
        ] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command.clone(), "turnstile", &mut script);
            self.write(name, &script)?;
        }
        Ok(())
    }
}
