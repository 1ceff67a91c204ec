// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unpacks what was made into an empty folder and uses it there as a user would, without anything of the checkout.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use turnstile::failure::{Context, Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::setup::qemu::Qemu;
use turnstile::setup::{images, run};

use super::super::tool;

/// Runs an example of an architecture from an installed package, with the tool that is there already: to optimize one takes minutes.
///
/// # Errors
/// Says what of it does not work.
pub fn check(layout: &Layout, qemu: &Qemu, isa: Isa) -> Result<()> {
    works(&install(layout, &layout.bundles().join("package"), &tool::path()?)?, qemu, isa)
}

/// The same from the package that others get.
///
/// # Errors
/// As [`check`].
pub fn check_for_others(layout: &Layout, qemu: &Qemu, isa: Isa) -> Result<()> {
    works(&install(layout, &layout.bundles().join("package-for-others"), &images::tool(layout)?)?, qemu, isa)
}

fn works(home: &Path, qemu: &Qemu, isa: Isa) -> Result<()> {
    let example = match isa {
        Isa::Arm64 => "one-linux.toml",
        Isa::X86_64 => "x86-linux.toml",
        Isa::Power64 => "power-linux.toml",
    };
    let example = powering_off(home, example)?;
    expect(&said(turnstile(home).arg("check").arg(&example))?, "ok")?;
    let mut boot = turnstile(home);
    boot.args(["run", "--qemu"]).arg(&qemu.path).arg(&example);
    expect(&said(&mut boot)?, "turnstile: shell ready cpus=")?;
    let mut bench = turnstile(home);
    bench.args(["bench", "--rows", "null-hypercall", "--iterations", "16384", "--isa", isa.name()]);
    expect(&said(bench.arg("--qemu").arg(&qemu.path))?, "null-hypercall")?;
    for file in ["man/man1/turnstile-run.1", "bash-completion/completions/turnstile"] {
        let file = home.join("usr/share").join(file);
        let text = std::fs::read_to_string(&file).context(|| format!("cannot read {}", file.display()))?;
        expect(&text, "metrics")?;
    }
    Ok(())
}

/// Writes an example whose guest powers off when it has come to its shell, and which has a service; returns its path.
fn powering_off(home: &Path, example: &str) -> Result<PathBuf> {
    let example = home.join("usr/share/doc/turnstile/examples").join(example);
    let text = std::fs::read_to_string(&example).context(|| format!("cannot read {}", example.display()))?;
    let file = home.join(example.file_name().unwrap_or_default());
    let text = text.replace("cmdline = \"", "ports = [\"agent\"]\ncmdline = \"turnstile.run=poweroff ");
    std::fs::write(&file, text).context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// Packages and unpacks it in a folder, once for all architectures; returns the one that is also the user's home.
fn install(layout: &Layout, folder: &Path, program: &Path) -> Result<PathBuf> {
    static DONE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut done = DONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let home = folder.join("home");
    if done.contains(&home) {
        return Ok(home);
    }
    let made = super::make::make(layout, folder, program)?;
    std::fs::create_dir_all(&home).context(|| format!("cannot create {}", home.display()))?;
    let mut unpack = match &made.debian {
        Some(file) => {
            let mut dpkg = Command::new("dpkg-deb");
            dpkg.arg("--extract").arg(file).arg(&home);
            dpkg
        }
        None => {
            let to = home.join("usr");
            std::fs::create_dir_all(&to).context(|| format!("cannot create {}", to.display()))?;
            let mut tar = Command::new("tar");
            tar.args(["--extract", "--strip-components=1", "--file"]).arg(&made.archive);
            tar.arg("--directory").arg(to);
            tar
        }
    };
    run(&mut unpack)?;
    // What has been downloaded already.
    let cache = home.join(".cache");
    std::fs::create_dir_all(&cache).context(|| format!("cannot create {}", cache.display()))?;
    symlink(layout.cache(), cache.join("turnstile")).context(|| "cannot share the cache".into())?;
    done.push(home.clone());
    Ok(home)
}

/// The installed program in its user's home, which is all that it is told.
fn turnstile(home: &Path) -> Command {
    let mut command = Command::new(home.join("usr/bin/turnstile"));
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", home);
    command.current_dir(home).stdin(Stdio::null());
    command
}

/// What a program that succeeds writes.
fn said(command: &mut Command) -> Result<String> {
    let output = run(command)?;
    let [output, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    Ok(format!("{output}{errors}"))
}

fn expect(said: &str, wanted: &str) -> Result<()> {
    if said.contains(wanted) {
        return Ok(());
    }
    Err(Failure::failed(format!("the installed program does not say `{wanted}`")).details(said.to_owned()))
}
