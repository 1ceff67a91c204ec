// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges the controllers of disks together, and finds what QEMU has behind them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use turnstile_bundle::{DriveKind, MAX_MEMBERS};

use super::device::Device;
use super::disk::{Disk, DiskSource, beside, functions};
use super::problem::Problem;
use super::{At, Board, Network, Vm};

/// Returns the disk that says what QEMU has behind this controller: the first one with an `image` or a `size`, or the first one.
pub fn speaker<'a>(disks: &'a [Disk], device: &Device) -> Option<&'a Disk> {
    let mut all = beside(disks, device);
    all.clone().find(|disk| says(disk).is_some()).or_else(|| all.next())
}

/// Gives all disks of a controller the file of the one that says what it is.
pub fn share_files(disks: &mut [Disk]) {
    let files: Vec<_> = disks
        .iter()
        .map(|disk| Some(speaker(disks, &disk.device.as_ref()?.value)?.device.as_ref()?.value.file.clone()))
        .collect();
    for (disk, file) in disks.iter_mut().zip(files) {
        if let (Some(device), Some(file)) = (&mut disk.device, file) {
            device.value.file = file;
        }
    }
}

/// What a disk says of the file in QEMU, if it says anything.
fn says(disk: &Disk) -> Option<(Option<&DiskSource>, Option<u64>)> {
    let (image, size) = (disk.image.as_ref(), disk.size.as_ref());
    let said = (image.map(|image| &image.value), size.map(|size| size.value));
    (said != (None, None)).then_some(said)
}

/// Says why the disk with this index cannot be behind its controller beside the earlier ones.
pub fn misfit(disks: &[Disk], vms: &[Vm], index: usize) -> Option<Problem> {
    let disk = disks.get(index)?;
    let device = disk.device.as_ref()?;
    let span = &device.span;
    let earlier = beside(disks.get(..index)?, &device.value);
    if let Some(problem) = earlier.clone().find_map(|other| conflict(disk, other, device)) {
        return Some(problem);
    }
    if let Some(problem) = same_file(disks, index, device, |own, other| own == other) {
        return Some(problem);
    }
    let own = |disks: &[Disk]| functions(disks, vms, &device.value);
    let (before, all) = (own(disks.get(..index)?), own(disks.get(..=index)?));
    (before <= MAX_MEMBERS && all > MAX_MEMBERS).then(|| {
        let what = format!("the VMs have more than {MAX_MEMBERS} disks behind `{}`", device.value.name());
        Problem::new(span.clone(), what, "a disk counts once for each VM that has it: take the others out")
    })
}

/// Says which disks have one file in QEMU by different names, such as links, if somebody writes it.
pub fn linked(disks: &[Disk]) -> Vec<Problem> {
    let file = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let is_same = |own: &Path, other: &Path| own != other && file(own).is_some() && file(own) == file(other);
    let problem = |(index, disk): (usize, &Disk)| same_file(disks, index, disk.device.as_ref()?, is_same);
    disks.iter().enumerate().filter_map(problem).collect()
}

/// Says which earlier disk has the same file in QEMU behind another controller, if somebody writes it.
fn same_file(
    disks: &[Disk],
    index: usize,
    own: &At<Device>,
    is_same: impl Fn(&Path, &Path) -> bool,
) -> Option<Problem> {
    let writes = |device: &Device| beside(disks, device).any(|disk| !disk.read_only);
    let device = |disk: &Disk| disk.device.as_ref().map(|device| device.value.clone());
    let mut earlier = disks.iter().take(index).filter_map(|disk| Some((&disk.name.value, device(disk)?)));
    let (name, theirs) = earlier.find(|(_, theirs)| {
        !theirs.drive.is_same_controller(&own.value.drive)
            && is_same(&own.value.file, &theirs.file)
            && (writes(theirs) || writes(&own.value))
    })?;
    let what =
        format!("the disk `{name}` has the same file behind `{}`, and somebody writes it", theirs.name());
    let help = "give each its own `image`, or write read-only = true in both; partitions of one file are behind one `device`";
    Some(Problem::new(own.span.clone(), what, help))
}

/// Says what a disk and an earlier one of the same controller cannot both say.
fn conflict(disk: &Disk, other: &Disk, device: &At<Device>) -> Option<Problem> {
    let name = &other.name.value;
    let problem = |what, help: &str| Some(Problem::new(device.span.clone(), what, help));
    let theirs = &other.device.as_ref()?.value.drive;
    let own = &device.value.drive;
    match (own.partition, theirs.partition) {
        (None, Some(_)) => {
            let what = format!("the disk `{name}` is a partition of this disk, which is whole here");
            return problem(what, "give each a `partition`");
        }
        (Some(_), None) => {
            let what = format!("the disk `{name}` is the whole of this disk");
            return problem(what, "give each a `partition`");
        }
        (own, theirs) if own == theirs && !(disk.read_only && other.read_only) => {
            let part = own.map_or_else(|| "disk".to_owned(), |number| format!("partition {number}"));
            let what = format!("the disk `{name}` is the same {part}, and somebody writes it");
            return problem(what, "give each its own `partition`, or write read-only = true in both");
        }
        _ => {}
    }
    let cpu = |disk: &Disk| disk.runs.cpu.as_ref().map(|cpu| cpu.value);
    let differs = [
        ("trusted", own.trusted != theirs.trusted),
        ("time-limit", disk.runs.limit != other.runs.limit),
        ("cpus", cpu(disk) != cpu(other)),
        ("beside-realtime", disk.runs.beside_realtime != other.runs.beside_realtime),
    ];
    if let Some((key, _)) = differs.into_iter().find(|(_, differs)| *differs) {
        let what =
            format!("the disk `{name}` is behind the same controller, and says something else by `{key}`");
        return problem(what, "one program drives the controller: write the same in both");
    }
    let (own, theirs) = (says(disk)?, says(other)?);
    if own == theirs {
        return None;
    }
    let what = format!("the disk `{name}` says something else of the file behind this controller");
    problem(what, "write `image` and `size` in one of them: they are those of the whole disk")
}

/// Returns how many controllers of a kind a machine needs for its disks.
pub fn controllers(disks: &[Disk], kind: DriveKind) -> usize {
    let drives = disks.iter().filter_map(|disk| disk.device.as_ref()).map(|device| device.value.drive);
    drives.filter(|drive| drive.kind == kind).map(|drive| drive.number + 1).max().unwrap_or(0)
}

/// Says that a board does not have a controller, where a disk wants it beside the cards of these networks.
pub fn no_controller(disks: &[Disk], networks: &[Network], board: Board) -> Option<Problem> {
    let most = board.functions();
    let cards = networks.iter().filter_map(|network| network.uplink.as_ref());
    let cards = cards.map(|uplink| uplink.value.card + 1).max().unwrap_or(0);
    for (at, disk) in disks.iter().enumerate() {
        let needed = DriveKind::ALL.iter().map(|kind| controllers(&disks[..=at], *kind)).sum::<usize>();
        let Some(device) = disk.device.as_ref().filter(|_| cards + needed > most) else { continue };
        let (what, help) = match most {
            0 => (
                format!("no disk controller of the board `{}` can be used", board.name()),
                "take the device out, or choose another board",
            ),
            _ => (
                format!("the board `{}` has {most} network cards and disk controllers", board.name()),
                "take the others out, or give this one a smaller number",
            ),
        };
        return Some(Problem::new(device.span.clone(), what, help));
    }
    None
}
