// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files that QEMU has behind the disk controllers of a machine: what guests write reaches them. On a real machine there are none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use turnstile_bundle::DriveKind;

use crate::config::disk_file::{self, Format};
use crate::config::{Config, Device, Disk, DiskSource, show_size};
use crate::failure::{Context, Failure, Result};
use crate::layout::Layout;
use crate::qemu::{Behind, Drive};
use crate::{setup, ui};

/// So many zeros in a row are not written when a file is copied.
const PIECE: usize = 64 << 10;

/// Returns the controllers of a machine, with the files behind them, which need not be there yet. One that no disk has comes before one that
/// a disk has: it counts.
pub fn all(config: &Config) -> Vec<Drive> {
    let devices = || config.disks.iter().filter_map(|disk| disk.device.as_ref()).map(|device| &device.value);
    let of = |kind, number| {
        let mut device =
            devices().filter(|device| (device.drive.kind, device.drive.number) == (kind, number));
        Drive { kind, number, behind: device.next().and_then(|device| behind(config, device)) }
    };
    let numbers = |kind| (0..config.controllers(kind)).map(move |number| (kind, number));
    DriveKind::ALL.iter().flat_map(|kind| numbers(*kind)).map(|(kind, number)| of(kind, number)).collect()
}

/// Returns what is behind a controller.
fn behind(config: &Config, device: &Device) -> Option<Behind> {
    let (disk, read_only) = config.behind(device)?;
    let file = device.file.clone();
    // What cannot be used has been told.
    let format = disk_file::judge(disk, &file).ok().flatten().unwrap_or(Format::Raw);
    let is_qcow2 = format == Format::Qcow2;
    Some(Behind::File { file, is_qcow2, read_only, serial: disk.name.value.clone() })
}

/// Makes the files that are not there, and has those grow that are smaller than their disks.
///
/// # Errors
/// When a disk has neither a file nor what one can be made of.
pub fn ensure(layout: &Layout, config: &Config) -> Result<()> {
    for disk in &config.disks {
        let Some(device) = &disk.device else { continue };
        let speaks = config.behind(&device.value).is_some_and(|(speaker, _)| speaker.name == disk.name);
        let file = &device.value.file;
        let size = disk.size.as_ref().map(|size| size.value);
        match (disk_file::judge(disk, file), &disk.image, size) {
            _ if !speaks => {}
            (Ok(Some(Format::Raw)), ..) => grow(file, size.unwrap_or(0))?,
            (Ok(None), Some(image), _) if image.value == DiskSource::Server => {
                let server = setup::server::ensure(layout, config.machine.board.isa())?;
                ui::note(&format!("copying debian:server to {}, once", Layout::shown(file)));
                make(file, |new| copy(&server, new, size.unwrap_or(0)))?;
            }
            (Ok(None), _, Some(size)) => {
                let shown = Layout::shown(file);
                ui::note(&format!(
                    "making {shown}, of zeros: {} for the disk `{}`",
                    show_size(size),
                    disk.name.value
                ));
                make(file, |new| new.set_len(size))?;
            }
            (Ok(None), ..) => return Err(nothing(disk, file)),
            _ => {}
        }
    }
    Ok(())
}

/// Says that QEMU has nothing to put behind the controller of a disk.
fn nothing(disk: &Disk, file: &Path) -> Failure {
    let what =
        format!("the disk `{}` has no file for QEMU: there is no {}", disk.name.value, Layout::shown(file));
    Failure::usage(what).help("give the disk a `size` or an `image`; on a real machine it needs none")
}

/// Has a raw file grow to a size. It never shrinks.
fn grow(file: &Path, size: u64) -> Result<()> {
    let context = || format!("cannot have {} grow", Layout::shown(file));
    let length = fs::metadata(file).context(context)?.len();
    if length > size && size != 0 {
        let (shown, length) = (Layout::shown(file), show_size(length));
        ui::note(&format!("{shown} has {length}, and stays so: a disk is as large as its file"));
    }
    if length < size {
        OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(size)).context(context)?;
        let (shown, length, size) = (Layout::shown(file), show_size(length), show_size(size));
        ui::note(&format!("{shown} grows from {length} to {size}"));
    }
    Ok(())
}

/// Makes a file, whole or not at all. Who comes while another run makes it waits for that, and takes what is there then.
fn make(file: &Path, fill: impl FnOnce(&File) -> io::Result<()>) -> Result<()> {
    let context = || format!("cannot make {}", Layout::shown(file));
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // Not truncated before it is locked: what is there may be another run's.
    let made = OpenOptions::new().write(true).create(true).truncate(false).open(&new).context(context)?;
    made.lock().context(context)?;
    // Then the locked file may be that very file.
    if file.exists() {
        return Ok(());
    }
    let linked = made
        .set_len(0)
        .and_then(|()| fill(&made))
        .and_then(|()| made.sync_all())
        .and_then(|()| fs::hard_link(&new, file));
    linked.and(fs::remove_file(&new)).context(context)
}

/// Copies a file into an empty one of at least this size, without its zeros.
fn copy(from: &Path, to: &File, size: u64) -> io::Result<()> {
    let (mut from, mut at) = (File::open(from)?, 0);
    let mut piece = vec![0; PIECE];
    loop {
        let length = read_whole(&mut from, &mut piece)?;
        let read = &piece[..length];
        if read.iter().any(|byte| *byte != 0) {
            to.write_all_at(read, at)?;
        }
        at += length as u64;
        if length < PIECE {
            return to.set_len(at.max(size));
        }
    }
}

/// Reads a piece; less only at the end.
fn read_whole(from: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < piece.len() {
        match from.read(&mut piece[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::config::{self, Surroundings};

    /// A machine in this folder, with disks that have these lines.
    fn machine(folder: &Path, disks: &[(&str, &str)]) -> Config {
        let names: Vec<&str> = disks.iter().map(|(name, _)| *name).collect();
        let table =
            |(name, lines): &(&str, &str)| format!("[[disk]]\nname = \"{name}\"\ntrusted = true\n{lines}\n");
        let tables: String = disks.iter().map(table).collect();
        let text =
            format!("[[vm]]\nname = \"a\"\nkernel = \"k\"\nmemory = \"16MiB\"\ndisks = {names:?}\n{tables}");
        let surroundings = Surroundings { folder, guests: &|_| Vec::new(), services: &[], board: None };
        config::parse(&text, &surroundings).unwrap()
    }

    #[test]
    fn each_disk_has_its_file_behind_its_controller() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("own"), [7; 512]).unwrap();
        let config = machine(
            folder.path(),
            &[
                ("made", "device = \"nvme1\"\nsize = \"1MiB\""),
                ("own", "device = \"virtio0\"\nimage = \"own\"\nsize = \"1KiB\"\nread-only = true"),
            ],
        );
        let layout = Layout::find().unwrap();
        // The second time they are there.
        for _ in 0..2 {
            ensure(&layout, &config).unwrap();
            let length = |name| fs::metadata(folder.path().join(name)).unwrap().len();
            assert_eq!((length("made.img"), length("own")), (1 << 20, 1024));
        }
        let behind = |name: &str, serial: &str, read_only| {
            let file = folder.path().join(name);
            Some(Behind::File { file, is_qcow2: false, read_only, serial: serial.to_owned() })
        };
        let [nvme, virtio] = [DriveKind::Nvme, DriveKind::Virtio];
        assert_eq!(
            all(&config),
            [
                Drive { kind: nvme, number: 0, behind: None },
                Drive { kind: nvme, number: 1, behind: behind("made.img", "made", false) },
                Drive { kind: virtio, number: 0, behind: behind("own", "own", true) },
            ]
        );
    }

    #[test]
    fn disks_of_one_controller_have_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let disk = |number, more: &str| format!("device = \"nvme0\"\npartition = {number}\n{more}");
        let [first, second] = [disk(1, "read-only = true"), disk(2, "size = \"1MiB\"")];
        let config = machine(folder.path(), &[("first", &first), ("second", &second)]);
        ensure(&Layout::find().unwrap(), &config).unwrap();
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(names, ["second.img"]);
        let file = folder.path().join("second.img");
        let behind = Behind::File { file, is_qcow2: false, read_only: false, serial: "second".to_owned() };
        assert_eq!(all(&config), [Drive { kind: DriveKind::Nvme, number: 0, behind: Some(behind) }]);
    }

    #[test]
    fn who_has_no_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let config = machine(folder.path(), &[("root", "device = \"nvme0\"")]);
        let layout = Layout::find().unwrap();
        let failure = ensure(&layout, &config).unwrap_err().to_string();
        assert!(failure.contains("the disk `root` has no file for QEMU: there is no "), "{failure}");
        fs::write(folder.path().join("root.img"), [7; 512]).unwrap();
        ensure(&layout, &config).unwrap();
    }

    #[test]
    fn a_copy_has_all_but_the_room_of_zeros() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let mut bytes = vec![0; 5 << 20];
        for at in [0, 70_000, (5 << 20) - 1] {
            bytes[at] = 7;
        }
        fs::write(&from, &bytes).unwrap();
        make(&to, |new| copy(&from, new, 0)).unwrap();
        assert_eq!(fs::read(&to).unwrap(), bytes);
        assert!(fs::metadata(&to).unwrap().blocks() * 512 < 1 << 20, "it has holes");
        let larger = folder.path().join("larger");
        make(&larger, |new| copy(&from, new, 6 << 20)).unwrap();
        bytes.resize(6 << 20, 0);
        assert_eq!(fs::read(&larger).unwrap(), bytes);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing is left beside them");
    }

    #[test]
    fn two_runs_make_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk.img");
        let (begun, has_begun) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                make(&file, |new| {
                    begun.send(()).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    new.write_all_at(b"first", 0)
                })
            });
            has_begun.recv().unwrap();
            make(&file, |_| panic!("it is there")).unwrap();
            first.join().unwrap().unwrap();
        });
        assert_eq!(fs::read(&file).unwrap(), b"first");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn what_was_half_done_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("disk.img.new"), b"of a run that was killed").unwrap();
        let file = folder.path().join("disk.img");
        make(&file, |new| new.write_all_at(b"whole", 0)).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"whole");
        let failed = folder.path().join("failed.img");
        assert!(make(&failed, |_| Err(io::Error::other("full"))).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left of it");
    }

    #[test]
    fn a_file_grows_and_never_shrinks() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk.img");
        fs::write(&file, b"mine").unwrap();
        for (size, length) in [(0, 4), (3, 4), (4096, 4096), (512, 4096)] {
            grow(&file, size).unwrap();
            assert_eq!(fs::metadata(&file).unwrap().len(), length, "{size}");
        }
        assert!(fs::read(&file).unwrap().starts_with(b"mine\0"));
    }
}
