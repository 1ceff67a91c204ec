// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unpacks packages into the folder of a new system.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use tar::{Archive, Entry, EntryType};
use walkdir::WalkDir;

use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;

/// What is left out, as dpkg is told in the new system, too: documentation but for the terms of use, and translations.
pub const EXCLUDED: &str = "path-exclude=/usr/share/doc/*\npath-include=/usr/share/doc/*/copyright\n\
                            path-exclude=/usr/share/locale/*\n";

/// Folders that are one with those of their names in `usr`.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];
/// Rights that an owner's program has, and a folder's: a change of owner takes them away.
const SPECIAL: u32 = 0o7000;
/// The longest that a block of a file system is, in bytes: what a file may take beyond its length.
const BLOCK: u64 = 4096;

/// A folder of a new system.
pub struct Tree {
    root: PathBuf,
    owners: String,
}

impl Tree {
    /// Creates it, with the folders that are merged.
    pub fn create(root: &Path, isa: Isa) -> Result<Self> {
        let failed = || format!("cannot create {}", root.display());
        for name in MERGED.into_iter().filter(|name| *name != "lib64" || isa != Isa::Arm64) {
            let inside = Path::new("usr").join(name);
            create(&root.join(&inside))?;
            symlink(inside, root.join(name)).context(failed)?;
        }
        Ok(Tree { root: root.canonicalize().context(failed)?, owners: String::new() })
    }

    /// Unpacks a package. Returns the paths that it says it has, as dpkg writes them.
    pub fn unpack(&mut self, package: &Path) -> Result<Vec<String>> {
        let failed = || format!("cannot unpack {}", package.display());
        let mut command = Command::new("dpkg-deb");
        command.arg("--fsys-tarfile").arg(package).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context(|| "cannot start dpkg-deb".into())?;
        let mut paths = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            let mut archive = Archive::new(stdout);
            for entry in archive.entries().context(failed)? {
                let mut entry = entry.context(failed)?;
                let path = entry.path().context(failed)?.into_owned();
                paths.push(shown(&path));
                self.put(&mut entry, &path).context(failed)?;
            }
            // dpkg-deb fails if nobody reads what is behind the end.
            std::io::copy(&mut archive.into_inner(), &mut std::io::sink()).context(failed)?;
        }
        let status = child.wait().context(failed)?;
        if status.success() { Ok(paths) } else { Err(Failure::failed(failed())) }
    }

    /// Puts a file of a package where it belongs.
    fn put(&mut self, entry: &mut Entry<'_, impl Read>, path: &Path) -> std::io::Result<()> {
        let Some(inside) = merged(path)? else { return Ok(()) };
        let to = self.inside(&inside)?;
        let mode = entry.header().mode()?;
        match entry.header().entry_type() {
            EntryType::Directory => match fs::create_dir(&to) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => created?,
            },
            // Its folder remains, and what dpkg would not install either.
            _ if is_excluded(&inside) => return Ok(()),
            EntryType::Symlink => return symlink(link(entry)?, &to),
            EntryType::Link => {
                let other = merged(&link(entry)?)?.unwrap_or_default();
                return fs::hard_link(self.inside(&other)?, &to);
            }
            EntryType::Regular | EntryType::Continuous => {
                let mut file = File::create_new(&to)?;
                std::io::copy(entry, &mut file)?;
                let modified = Duration::from_secs(entry.header().mtime()?);
                SystemTime::UNIX_EPOCH
                    .checked_add(modified)
                    .map_or(Ok(()), |time| file.set_modified(time))?;
            }
            kind => {
                return Err(std::io::Error::other(format!("{} is of the kind {kind:?}", path.display())));
            }
        }
        // Who makes the file system has to read all of it.
        let readable = if to.is_dir() { 0o700 } else { 0o400 };
        fs::set_permissions(&to, Permissions::from_mode(mode & !SPECIAL | readable))?;
        let (user, group) = (entry.header().uid()?, entry.header().gid()?);
        if user != 0 || group != 0 || mode & SPECIAL != 0 || mode & readable != readable {
            let _ = writeln!(self.owners, "{mode:04o} {user} {group} {}", inside.display());
        }
        Ok(())
    }

    /// Where a file goes. Its folder may be one behind a link, but not one outside.
    fn inside(&self, path: &Path) -> std::io::Result<PathBuf> {
        let to = self.root.join(path);
        let folder = to.parent().unwrap_or(&self.root).canonicalize()?;
        // What is created there must not go through a link itself.
        let is_link = fs::symlink_metadata(&to).is_ok_and(|file| file.is_symlink());
        let is_inside = !is_link || to.canonicalize().is_ok_and(|file| file.starts_with(&self.root));
        if folder.starts_with(&self.root) && is_inside {
            return Ok(to);
        }
        Err(std::io::Error::other(format!("{} leads out of the new system", path.display())))
    }

    /// A line for each file that is not root's or has special rights: mode, user, group, path.
    pub fn owners(self) -> String {
        self.owners
    }
}

/// Where a path of a package is in the new system; `None` is the folder of all.
fn merged(path: &Path) -> std::io::Result<Option<PathBuf>> {
    let mut inside = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => {
                if inside.as_os_str().is_empty() && MERGED.iter().any(|merged| name == *merged) {
                    inside.push("usr");
                }
                inside.push(name);
            }
            _ => return Err(std::io::Error::other(format!("{} leads out of the package", path.display()))),
        }
    }
    Ok((!inside.as_os_str().is_empty()).then_some(inside))
}

fn link(entry: &Entry<'_, impl Read>) -> std::io::Result<PathBuf> {
    let link = entry.link_name()?.map(std::borrow::Cow::into_owned);
    link.ok_or_else(|| std::io::Error::other("a link leads nowhere"))
}

/// Whether [`EXCLUDED`] says so of a file.
fn is_excluded(path: &Path) -> bool {
    let is_document = path.starts_with("usr/share/doc") && !path.ends_with("copyright");
    is_document || path.starts_with("usr/share/locale")
}

/// A path as dpkg's lists of files have it.
fn shown(path: &Path) -> String {
    let path = path.to_string_lossy();
    match path.trim_start_matches('.').trim_end_matches('/') {
        "" => "/.".to_owned(),
        inside => inside.to_owned(),
    }
}

/// Writes a file into a folder that may have to be made.
pub fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    let failed = || format!("cannot write {}", file.display());
    if let Some(folder) = file.parent() {
        create(folder)?;
    }
    fs::write(file, bytes).context(failed)?;
    // Whoever makes the image may have another umask.
    fs::set_permissions(file, Permissions::from_mode(0o644)).context(failed)
}

/// Creates a folder and those above it, which all may read.
pub fn create(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    folder.parent().map_or(Ok(()), create)?;
    let failed = || format!("cannot create {}", folder.display());
    fs::create_dir(folder).context(failed)?;
    fs::set_permissions(folder, Permissions::from_mode(0o755)).context(failed)
}

/// What the files of a folder take in a file system, in bytes, roughly.
pub fn in_file_system(folder: &Path) -> u64 {
    let files = WalkDir::new(folder).into_iter().flatten().filter_map(|entry| entry.metadata().ok());
    files.map(|file| file.size().next_multiple_of(BLOCK) + BLOCK / 4).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_where_they_belong() {
        let inside =
            |path: &str| merged(Path::new(path)).map(|path| path.map(|path| path.display().to_string()));
        assert_eq!(inside("./").unwrap(), None);
        assert_eq!(inside("./bin/mount").unwrap().as_deref(), Some("usr/bin/mount"));
        assert_eq!(inside("./usr/bin/bin").unwrap().as_deref(), Some("usr/bin/bin"));
        assert_eq!(inside("./etc/lib").unwrap().as_deref(), Some("etc/lib"));
        assert!(inside("./usr/../../etc/passwd").is_err() && inside("/etc/passwd").is_err());
        assert_eq!(
            ["./", "./etc/", "./etc/x.conf"].map(|path| shown(Path::new(path))),
            ["/.", "/etc", "/etc/x.conf"]
        );
    }

    #[test]
    fn terms_of_use_are_kept_and_documents_are_not() {
        let excluded = |path: &str| is_excluded(Path::new(path));
        assert!(excluded("usr/share/doc/tar/README") && excluded("usr/share/locale/de/LC_MESSAGES/tar.mo"));
        assert!(!excluded("usr/share/doc/tar/copyright") && !excluded("usr/share/man/man1/tar.1.gz"));
    }

    #[test]
    fn what_the_tool_writes_can_be_read_by_all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("srv/mirror/Packages");
        write(&file, b"Package: hello\n").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o644, 0o755));
    }

    #[test]
    fn links_of_a_package_lead_nowhere_outside() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::create(&folder.path().join("root"), Isa::Arm64).unwrap();
        symlink(folder.path(), tree.root.join("etc")).unwrap();
        symlink("usr/bin", tree.root.join("opt")).unwrap();
        let said = tree.inside(Path::new("etc/passwd")).unwrap_err().to_string();
        assert!(said.contains("etc/passwd leads out of the new system"), "{said}");
        assert!(tree.inside(Path::new("etc")).is_err() && tree.inside(Path::new("opt/su")).is_ok());
    }

    #[test]
    fn files_of_a_package_get_their_rights() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        let mut tree = Tree::create(&root, Isa::Arm64).unwrap();
        let mut packed = tar::Builder::new(Vec::new());
        let mut add = |path: &str, kind, mode, group, content: &[u8], link: &str| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_uid(0);
            header.set_gid(group);
            header.set_mtime(1_000_000_000);
            header.set_size(content.len() as u64);
            if !link.is_empty() {
                header.set_link_name(link).unwrap();
            }
            packed.append_data(&mut header, path, content).unwrap();
        };
        add("./bin/", EntryType::Directory, 0o755, 0, b"", "");
        add("./bin/su", EntryType::Regular, 0o4755, 0, b"su", "");
        add("./bin/again", EntryType::Link, 0o4755, 0, b"", "./bin/su");
        add("./bin/other", EntryType::Symlink, 0o777, 0, b"", "su");
        add("./bin/chage", EntryType::Regular, 0o2755, 42, b"chage", "");
        add("./usr/share/", EntryType::Directory, 0o755, 0, b"", "");
        add("./usr/share/doc/", EntryType::Directory, 0o755, 0, b"", "");
        add("./usr/share/doc/README", EntryType::Regular, 0o644, 0, b"text", "");
        add("./root/", EntryType::Directory, 0o600, 0, b"", "");
        let bytes = packed.into_inner().unwrap();
        for entry in Archive::new(&bytes[..]).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().into_owned();
            tree.put(&mut entry, &path).unwrap();
        }
        let mode = |file: &str| fs::metadata(root.join(file)).unwrap().mode() & 0o7777;
        assert_eq!((mode("usr/bin/su"), mode("usr/bin/chage"), mode("root")), (0o755, 0o755, 0o700));
        assert_eq!(fs::read(root.join("bin/again")).unwrap(), b"su");
        assert_eq!(fs::read(root.join("bin/other")).unwrap(), b"su");
        assert!(root.join("usr/share/doc").is_dir() && !root.join("usr/share/doc/README").exists());
        assert_eq!(fs::metadata(root.join("bin/su")).unwrap().mtime(), 1_000_000_000);
        assert_eq!(tree.owners(), "4755 0 0 usr/bin/su\n2755 0 42 usr/bin/chage\n0600 0 0 root\n");
    }
}
