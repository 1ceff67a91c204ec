// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges the controllers of disks together.

use turnstile_bundle::DriveKind;

use super::disk::Disk;
use super::problem::Problem;
use super::{Board, Network};

/// Says that an earlier disk has the controller of the one with this index.
pub fn same_controller(disks: &[Disk], index: usize) -> Option<Problem> {
    let device = disks.get(index)?.device.as_ref()?;
    let has =
        |disk: &&Disk| disk.device.as_ref().is_some_and(|other| other.value.name() == device.value.name());
    let other = disks.iter().take(index).find(has)?;
    let what = format!("the disk `{}` has this controller", other.name.value);
    Some(Problem::new(device.span.clone(), what, "give each disk its own: one program drives it"))
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
