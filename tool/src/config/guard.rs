// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether something keeps devices that services drive to their own memory.

use std::ops::Range;

use super::disk::Disk;
use super::problem::Problem;
use super::{Board, Network};

/// Returns the devices that nobody is trusted with, and what each is called.
fn untrusted<'a>(
    networks: &'a [Network],
    disks: &'a [Disk],
) -> impl Iterator<Item = (&'a Range<usize>, &'static str)> {
    let uplinks = networks.iter().filter_map(|network| network.uplink.as_ref());
    let uplinks = uplinks.filter(|uplink| !uplink.value.trusted);
    let devices = disks.iter().filter_map(|disk| disk.device.as_ref());
    let devices = devices.filter(|device| !device.value.drive.trusted);
    let uplinks = uplinks.map(|uplink| (&uplink.span, "network card"));
    uplinks.chain(devices.map(|device| (&device.span, "disk controller")))
}

/// Says what nothing guards on a board on which the hypervisor drives no IOMMU.
pub fn unguarded(networks: &[Network], disks: &[Disk], board: Board) -> Vec<Problem> {
    // What a board without functions says comes first.
    if board.functions() == 0 || board.has_iommu() {
        return Vec::new();
    }
    let problem = |(span, what): (&Range<usize>, &str)| {
        let what =
            format!("a {what} reaches all memory of the machine, and so does the program that drives it");
        let help = format!(
            "write trusted = true if you accept that: on the board `{}` no IOMMU is used",
            board.name()
        );
        Problem::new(span.clone(), what, help)
    };
    untrusted(networks, disks).map(problem).collect()
}
