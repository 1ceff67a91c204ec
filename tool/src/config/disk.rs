// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads one `[[disk]]`, and makes a service of each disk of each VM.

use std::ops::Range;
use std::path::PathBuf;

use toml::de::DeTable;
use turnstile_bundle::{DiskSpec, MAX_DISK_NAME, MAX_DISKS, MAX_NAME};

use super::device::{self, Device};
use super::problem::{Problem, did_you_mean};
use super::read::{At, Reader};
use super::service::{Draft, Runs};
use super::size::show_size;
use super::{Surroundings, Vm, vm};

const KEYS: [&str; 11] = [
    "name",
    "image",
    "size",
    "read-only",
    "writes",
    "device",
    "partition",
    "trusted",
    "time-limit",
    "cpus",
    "beside-realtime",
];
/// The most bytes of a file that QEMU has behind a disk controller.
const MAX_FILE: u64 = 8 << 40;
/// How long a disk or a network may take for an event if nothing is said, in nanoseconds: under an emulator, which others keep from
/// running, more than on a CPU.
pub const LIMIT: u64 = 100_000_000;

/// A disk, which VMs have by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its name, with the letters of a VM's, which guests see as its ID.
    pub name: At<String>,
    /// What it contains at first; of one that the machine has, what it is in QEMU.
    pub image: Option<At<DiskSource>>,
    /// Its size in bytes, if it is not that of the image; of one that the machine has, what it has in QEMU at least.
    pub size: Option<At<u64>>,
    /// Whether it cannot be written.
    pub read_only: bool,
    /// How much room there is for what is written over the image, which stays as it is.
    pub writes: Option<At<u64>>,
    /// The controller that it is behind, if the machine has it.
    pub device: Option<At<Device>>,
    /// How its services run.
    pub runs: Runs,
}

/// Where what a disk contains at first comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskSource {
    /// A file.
    File(PathBuf),
    /// `debian:server`, from the cache.
    Server,
}

/// Reads a disk; `None` if something that it cannot do without is missing or wrong.
pub fn read(
    table: &DeTable<'_>,
    span: Range<usize>,
    surroundings: &Surroundings<'_>,
    problems: &mut Vec<Problem>,
) -> Option<Disk> {
    let header = span.start..span.end.min(span.start + "[[disk]]".len());
    let mut reader = Reader::new(table, header.clone(), &KEYS, &[], problems);
    let name = vm::read_name(&mut reader, "disk", "root", MAX_DISK_NAME);
    let image = reader.string("image");
    let has = |keys: &[&str]| table.keys().any(|key| keys.contains(&key.get_ref().as_ref()));
    let size = read_size(&mut reader, has(&["device"]));
    if !has(&["image", "size", "device"]) {
        let help = "give one, such as \"1GiB\", or an `image`";
        reader.problem(header, "`size` is missing: the disk has no image", help);
    }
    let image = image.and_then(|text| read_image(&mut reader, text, surroundings));
    let file = file(image.as_ref(), name.as_ref().map_or("", |name| &name.value), surroundings);
    let device = device::read(&mut reader, file);
    let read_only = reader.boolean("read-only").is_some_and(|at| at.value);
    let writes = read_writes(&mut reader, has(&["device"]), read_only);
    let runs = Runs::read(&mut reader, LIMIT);
    if let (Some(Some(device)), Some(runs)) = (&device, &runs)
        && runs.limit < LIMIT
    {
        let what = "a disk controller that begins may take up to 50 ms for an event";
        reader.problem(device.span.clone(), what, "leave `time-limit` out, or give \"100ms\" or more");
    }
    Some(Disk { name: name?, image, size, read_only, writes, device: device?, runs: runs? })
}

/// Returns the file that QEMU has behind the controller of a disk: that of its image, or one beside the configuration.
fn file(image: Option<&At<DiskSource>>, name: &str, surroundings: &Surroundings<'_>) -> PathBuf {
    match image {
        Some(At { value: DiskSource::File(path), .. }) => path.clone(),
        _ => surroundings.folder.join(format!("{name}.img")),
    }
}

/// Reads where the image comes from; `None` if that is nowhere.
fn read_image(
    reader: &mut Reader<'_, '_>,
    text: At<String>,
    surroundings: &Surroundings<'_>,
) -> Option<At<DiskSource>> {
    let source = match text.value.split_once(':') {
        Some(("debian", "server")) => DiskSource::Server,
        Some(("debian", name)) => {
            let what = format!("there is no disk image `debian:{name}`");
            reader.problem(text.span, what, "use \"debian:server\" or a path");
            return None;
        }
        _ if text.value.is_empty() => {
            let help = "give a path, or leave `image` out: then the disk is all zeros";
            reader.problem(text.span, "`image` is empty", help);
            return None;
        }
        _ => DiskSource::File(surroundings.folder.join(vm::from_home(&text.value))),
    };
    Some(At::new(source, text.span))
}

/// Reads the size of a disk in memory or in a file; `None` if there is none, or one that no such disk can have.
fn read_size(reader: &mut Reader<'_, '_>, is_file: bool) -> Option<At<u64>> {
    let (place, most) = if is_file { ("a file", MAX_FILE) } else { ("memory", DiskSpec::MAX_SIZE) };
    let size = reader.size("size")?;
    if (1..=most).contains(&size.value) {
        return Some(size);
    }
    let what = match size.value {
        0 => "a disk cannot be empty".to_owned(),
        bytes => format!("{} are too large for a disk in {place}", show_size(bytes)),
    };
    reader.problem(size.span, what, format!("give 1KiB to {}", show_size(most)));
    None
}

/// Reads how much room there is for what is written; `None` if nothing is said, or a disk like this has no such room.
fn read_writes(reader: &mut Reader<'_, '_>, is_driven: bool, read_only: bool) -> Option<At<u64>> {
    let writes = reader.size("writes")?;
    let (what, help) = if is_driven {
        ("what is written to a disk of the machine is in that disk", "take `writes` out")
    } else if read_only {
        ("nothing is written to a disk that is read-only", "take `writes` or `read-only` out")
    } else if writes.value == 0 || !writes.value.is_multiple_of(DiskSpec::CLUSTER) {
        ("what is written takes whole clusters of 4KiB", "give a multiple of 4KiB, such as \"256MiB\"")
    } else {
        return Some(writes);
    };
    reader.problem(writes.span, what, help);
    None
}

/// Returns the disks behind the same controller as this device.
pub fn beside<'a>(disks: &'a [Disk], device: &Device) -> impl Iterator<Item = &'a Disk> + Clone + use<'a> {
    let drive = device.drive;
    let is_same = move |other: &At<Device>| other.value.drive.is_same_controller(&drive);
    disks.iter().filter(move |disk| disk.device.as_ref().is_some_and(is_same))
}

/// Returns how many functions the program of this controller has: one for each disk of each VM.
pub fn functions(disks: &[Disk], vms: &[Vm], device: &Device) -> usize {
    let users = |disk: &Disk| {
        let name = disk.name.value.clone();
        vms.iter().flat_map(|vm| &vm.disks).filter(move |wanted| wanted.value == name).count()
    };
    beside(disks, device).map(users).sum()
}

/// Makes a service of each disk of each VM, in their order, and finds what does not fit together.
pub fn services(disks: &[Disk], vms: &[Vm], problems: &mut Vec<Problem>) -> Vec<Draft> {
    if let Some(beyond) = disks.get(MAX_DISKS) {
        let what = format!("{} disks are more than {MAX_DISKS}", disks.len());
        problems.push(Problem::new(beyond.name.span.clone(), what, "take the others out"));
    }
    for (index, disk) in disks.iter().enumerate() {
        let name = &disk.name.value;
        let users = || vms.iter().flat_map(|vm| &vm.disks).filter(|wanted| wanted.value == *name);
        let (what, help) = if disks.iter().take(index).any(|earlier| earlier.name.value == *name) {
            (format!("there are two disks with the name `{name}`"), "give each its own")
        } else if users().next().is_none() {
            (format!("no VM has the disk `{name}`"), "name it in the `disks` of a VM, or take it out")
        } else {
            continue;
        };
        problems.push(Problem::new(disk.name.span.clone(), what, help));
    }
    let (mut drafts, mut firsts) = (Vec::new(), Vec::new());
    for (index, vm) in vms.iter().enumerate() {
        for (place, wanted) in vm.disks.iter().enumerate() {
            match find(disks, vms, index, place) {
                Ok(found) => {
                    drafts.extend(found.map(|found| join(found, disks, vms, &mut firsts, drafts.len())))
                }
                Err((what, help)) => problems.push(Problem::new(wanted.span.clone(), what, help)),
            }
        }
    }
    drafts
}

/// A disk of a VM.
struct Found<'a> {
    /// The disk, and its number.
    disk: &'a Disk,
    number: usize,
    vm: &'a Vm,
    /// The name of its service.
    service: At<String>,
}

/// Makes the service of a disk of a VM, which is the one with this number. If its controller has more of them, this is the controller's, with the
/// name of that, or joins it. `firsts` are the controllers that have one, with its number.
fn join(
    Found { disk, number, vm, service }: Found<'_>,
    disks: &[Disk],
    vms: &[Vm],
    firsts: &mut Vec<(String, usize)>,
    index: usize,
) -> Draft {
    let vm = &vm.name.value;
    let draft = |name, program| Draft::of_disk(name, number, program, disk.runs.clone(), vm);
    let device = match &disk.device {
        Some(device) if functions(disks, vms, &device.value) > 1 => device.value.name(),
        Some(_) => return draft(service, "drive"),
        None => return draft(service, if disk.writes.is_some() { "overlay" } else { "disk" }),
    };
    if let Some((_, first)) = firsts.iter().find(|(other, _)| *other == device) {
        return draft(service, "drive").joining(Some(*first));
    }
    firsts.push((device.clone(), index));
    draft(At::new(device, service.span), "drive")
}

/// Finds the disk at this place of this VM's list; or says why the VM cannot have it, and what helps.
fn find<'a>(
    disks: &'a [Disk],
    vms: &'a [Vm],
    index: usize,
    place: usize,
) -> Result<Option<Found<'a>>, (String, String)> {
    let Some((vm, wanted)) = vms.get(index).and_then(|vm| Some((vm, vm.disks.get(place)?))) else {
        return Ok(None);
    };
    let name = &wanted.value;
    let Some(number) = disks.iter().position(|disk| disk.name.value == *name) else {
        let names: Vec<&str> = disks.iter().map(|disk| disk.name.value.as_str()).collect();
        let help = match names.as_slice() {
            [] => format!("describe it: [[disk]] with name = \"{name}\" and a size or an image"),
            names => did_you_mean(name, names),
        };
        return Err((format!("there is no disk `{name}`"), help));
    };
    if vm.disks.iter().take(place).any(|earlier| earlier.value == *name) {
        return Err((format!("the disk `{name}` is named twice"), "name it once".to_owned()));
    }
    let disk = &disks[number];
    let has = |vm: &&Vm| vm.disks.iter().any(|other| other.value == *name);
    if let Some(other) = vms.iter().take(index).find(has) {
        let why = match disk.read_only {
            true => None,
            false => Some(("writes it", "give each its own [[disk]], or write read-only = true in this one")),
        };
        if let Some((why, help)) = why {
            let what = format!("the VM `{}` has the disk `{name}` already, and {why}", other.name.value);
            return Err((what, help.to_owned()));
        }
    }
    let service = match vms.iter().filter(has).count() {
        1 => name.clone(),
        _ => format!("{name}-{}", vm.name.value),
    };
    if service.len() > MAX_NAME {
        let what = format!("the name of its service, `{service}`, is longer than {MAX_NAME} characters");
        return Err((what, "give the disk or the VM a shorter name".to_owned()));
    }
    let service = At::new(service, wanted.span.clone());
    Ok(Some(Found { disk, number, vm, service }))
}
