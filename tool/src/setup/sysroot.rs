// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C library that programs for Linux are linked with statically, where Rust has none of its own: Debian's, in the
//! cache.

use std::path::{Path, PathBuf};

use super::fetch::{self, Fetch};
use super::{Lock, debian};
use crate::failure::Result;
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};

/// The packages: the C library, and what gcc adds to a program.
const PACKAGES: [&str; 2] = ["libc6-dev", "libgcc-12-dev"];
/// What of them is linked first, and last.
const FIRST: [&str; 3] = ["crt1.o", "crti.o", "crtbeginT.o"];
const LAST: [&str; 2] = ["crtend.o", "crtn.o"];
/// Files of the C library's package and of gcc's.
const LIBRARY: [&str; 9] =
    ["crt1.o", "crti.o", "crtn.o", "libc.a", "libdl.a", "libm.a", "libpthread.a", "librt.a", "libutil.a"];
const COMPILER: [&str; 4] = ["crtbeginT.o", "crtend.o", "libgcc.a", "libgcc_eh.a"];
/// Written last: what is there is complete.
const COMPLETE: &str = "complete";

/// A folder with a C library.
pub struct Sysroot {
    folder: PathBuf,
}

impl Sysroot {
    /// rustc's flags that link a program with it, and with nothing else, as `CARGO_ENCODED_RUSTFLAGS` takes them.
    pub fn flags(&self) -> String {
        let object = |name: &&str| format!("-Clink-arg={}", self.folder.join(name).display());
        let mut flags = vec![
            "-Clinker=rust-lld".to_owned(),
            "-Clinker-flavor=ld.lld".to_owned(),
            "-Ctarget-feature=+crt-static".to_owned(),
            "-Crelocation-model=static".to_owned(),
            format!("-Lnative={}", self.folder.display()),
        ];
        flags.extend(FIRST.iter().map(object));
        flags.extend(LAST.iter().map(object));
        flags.join("\x1f")
    }
}

/// Debian's name of the folders for an architecture in its packages.
fn triplet(isa: Isa) -> &'static str {
    match isa {
        Isa::Arm64 => "aarch64-linux-gnu",
        Isa::X86_64 => "x86_64-linux-gnu",
        Isa::Power64 => "powerpc64le-linux-gnu",
    }
}

/// Returns the C library, downloading it if it is not in the cache.
pub fn ensure(layout: &Layout, isa: Isa) -> Result<Sysroot> {
    let folder = layout.cache().join("debian").join(isa.debian()).join("sysroot");
    let _lock = Lock::take(&folder, "lock")?;
    if !folder.join(COMPLETE).is_file() {
        fetch(&folder, isa)
            .map_err(|failure| failure.context_line("the C library of the monitor cannot be fetched"))?;
    }
    Ok(Sysroot { folder })
}

fn fetch(folder: &Path, isa: Isa) -> Result<()> {
    let title = format!("fetching Debian's C library for {isa}");
    let fetch = Fetch::begin(folder, title, isa, debian::RELEASE)?;
    let files = fetch.download("downloading".into(), &PACKAGES)?;
    let triplet = triplet(isa);
    let places = [format!("usr/lib/{triplet}"), format!("usr/lib/gcc/{triplet}/*")];
    for ((package, place), names) in PACKAGES.iter().zip(places).zip([&LIBRARY[..], &COMPILER]) {
        let paths: Vec<String> = names.iter().map(|name| format!("{place}/{name}")).collect();
        let wanted: Vec<(&str, &str)> =
            paths.iter().zip(names).map(|(path, name)| (path.as_str(), *name)).collect();
        debian::unpack_all(fetch::find(&files, package)?, &wanted, folder)?;
    }
    write_atomically(&folder.join(COMPLETE), b"")?;
    fetch.done();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_linked_with_nothing_of_this_machine() {
        let flags = Sysroot { folder: "/cache".into() }.flags();
        assert!(flags.contains("+crt-static") && flags.contains("-Lnative=/cache"), "{flags}");
        assert!(flags.contains("-Clink-arg=/cache/crt1.o") && flags.ends_with("-Clink-arg=/cache/crtn.o"));
        assert!(FIRST.iter().chain(&LAST).all(|name| LIBRARY.contains(name) || COMPILER.contains(name)));
    }
}
