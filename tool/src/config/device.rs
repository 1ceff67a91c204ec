// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads behind which controller of the machine a disk is.

use std::path::PathBuf;

use turnstile_bundle::{Drive, DriveKind};

use super::read::{At, Reader};

/// The controller of a disk that the machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Which it is, and what of its disk is meant.
    pub drive: Drive,
    /// The file that QEMU has behind it.
    pub file: PathBuf,
}

impl Device {
    /// What a file calls it.
    pub fn name(&self) -> String {
        name(self.drive.kind, self.drive.number)
    }
}

fn name(kind: DriveKind, number: usize) -> String {
    format!("{kind}{number}")
}

/// Reads where the disk is that the machine has, whose file in QEMU is this one; `None` if that is wrong.
pub fn read(reader: &mut Reader<'_, '_>, file: PathBuf) -> Option<Option<At<Device>>> {
    let (device, trusted) = (reader.string("device"), reader.boolean("trusted"));
    let partition = reader.number("partition");
    let Some(device) = device else {
        let without = |what: &str| format!("a disk without a device {what}");
        if let Some(trusted) = trusted.filter(|trusted| trusted.value) {
            let help = "take `trusted` out, or write device = \"nvme0\"";
            reader.problem(trusted.span, without("is trusted with nothing"), help);
        }
        if let Some(partition) = partition {
            let help = "take `partition` out, or write device = \"nvme0\"";
            reader.problem(partition.span, without("is in memory, and is one piece"), help);
        }
        return Some(None);
    };
    let all = DriveKind::ALL.iter().flat_map(|kind| (0..Drive::CONTROLLERS).map(|number| (*kind, number)));
    let Some((kind, number)) = all.into_iter().find(|(kind, number)| name(*kind, *number) == device.value)
    else {
        let what = format!("`{}` is no disk controller of a machine", device.value);
        let help = format!(
            "write \"nvme0\" or \"virtio0\" for the first one, in the order of PCI addresses, up to \"nvme{0}\" \
             or \"virtio{0}\"",
            Drive::CONTROLLERS - 1
        );
        reader.problem(device.span, what, help);
        return None;
    };
    let partition = match partition {
        None => None,
        Some(partition) => Some(known_partition(reader, &partition)?),
    };
    let trusted = trusted.is_some_and(|trusted| trusted.value);
    let drive = Drive { kind, number, partition, trusted };
    Some(Some(At::new(Device { drive, file }, device.span)))
}

/// Returns the number of a partition; `None` if there can be none with it.
fn known_partition(reader: &mut Reader<'_, '_>, partition: &At<u64>) -> Option<u32> {
    let number = u32::try_from(partition.value).ok().filter(|number| Drive::PARTITIONS.contains(number));
    if number.is_none() {
        let (first, last) = Drive::PARTITIONS.into_inner();
        let what = format!("there is no partition {}", partition.value);
        let help = format!("give one of {first} to {last}, or leave `partition` out for the whole disk");
        reader.problem(partition.span.clone(), what, help);
    }
    number
}
