// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks of Linux KVM: QEMU's virtio-blk device has a thread of its own over a RAM disk of the host, and the guest's program makes the
//! requests of a row, past its kernel's cache.

use super::Run;
use super::plan::{Guest, Plan};
use crate::bench::rows::{Disk, Row};
use crate::setup::peers::Peer;

/// How many requests `disk-batch` makes at once.
const DEPTH: u64 = 16;

/// Whether it is a row of such disks.
pub fn has(row: &Row) -> bool {
    let is_usual = row.lines.is_empty() && !row.touches;
    row.disk == Some(Disk::Ram) && is_usual
}

/// A guest with a disk. The second boot does twice as much.
pub fn plan(run: &Run<'_>, host: &Peer) -> Plan {
    let operations = operations(run.row, run.iterations);
    let guest =
        Guest { append: String::new(), serial: "stdio", device: device(), told: both(run.row, operations) };
    Plan {
        cpus: 2,
        modules: vec![host.ram_disks()],
        programs: Vec::new(),
        guests: vec![guest],
        emulator: Vec::new(),
        operations,
    }
}

/// How many operations are measured: a request of a batch takes as long as any.
pub(super) fn operations(row: &Row, usual: u64) -> u64 {
    row.iterations(usual) / if is_batch(row) { DEPTH } else { 1 }
}

/// Whether the row makes several requests at once.
fn is_batch(row: &Row) -> bool {
    row.options.contains("depth=16")
}

/// What the guest's program is told in both boots.
pub(super) fn both(row: &Row, operations: u64) -> [String; 2] {
    [told(row, operations), told(row, 2 * operations)]
}

/// What it is told in one, in as many bytes whatever the number is.
fn told(row: &Row, operations: u64) -> String {
    format!("{} {operations:010}\n", row.name)
}

/// The disk. Its I/O thread does not poll: that would take the time of a CPU that nobody else has here.
fn device() -> Vec<String> {
    let words = [
        &["-object", "iothread,id=io,poll-max-ns=0"][..],
        &["-drive", "if=none,id=data,file=/dev/ram0,format=raw,cache=none,aio=native"],
        &["-device", "virtio-blk-pci,drive=data,iothread=io"],
    ];
    words.concat().into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows;
    use crate::isa::Isa;

    fn row(name: &str) -> &'static Row {
        rows::select(Isa::Arm64, &[name.to_owned()]).unwrap()[0]
    }

    #[test]
    fn two_boots_differ_in_a_number_alone() {
        let row = row("disk-read");
        assert_eq!(
            (told(row, 256), told(row, 512)),
            ("disk-read 0000000256\n".into(), "disk-read 0000000512\n".into())
        );
        assert!(!is_batch(row) && is_batch(self::row("disk-batch")));
    }
}
