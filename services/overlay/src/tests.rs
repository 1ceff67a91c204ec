// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program's own part; the model is that of disks, and the disk `turnstile_block`'s, with tests of theirs.

use core::sync::atomic::AtomicU32;

use turnstile_block::disk::{Disk as _, DiskFor, Failure};
use turnstile_rig::{Fuse, Ram};
use turnstile_virtio::device::Span;

use super::*;

fn words(count: usize) -> &'static [AtomicU32] {
    Vec::leak((0..count).map(|_| AtomicU32::new(0)).collect())
}

/// Layers of a disk of three clusters, of which one can be written.
fn layers(owners: &'static [AtomicU32], map: &'static [AtomicU32]) -> Layers {
    let (image, store) = (vec![7; 700].leak(), vec![0; 4096].leak());
    Layers { name: *b"over\0\0\0\0\0\0\0\0\0\0\0\0", size: 512 * 17, image, store, owners, map }
}

#[test]
fn layers_are_a_disk() {
    let (mut disk, name) = disk(Some(layers(words(1), words(3))));
    assert_eq!((disk.sectors(), &name[..5]), (17, &b"over\0"[..]));
    let ram = Ram::new(0x1000, Fuse::default());
    let span = |length| Span { address: Ram::BASE, length };
    disk.read(699, &ram, span(2)).unwrap();
    assert_eq!(ram.get(Ram::BASE, 2), [7, 0]);
    disk.write(700, &ram, span(1)).unwrap();
    assert_eq!(disk.write(8192, &ram, span(1)), Err(Failure::Io));
    disk.read(699, &ram, span(2)).unwrap();
    assert_eq!((ram.get(Ram::BASE, 2), disk.has_lacked()), (vec![7, 7], true));
}

#[test]
fn layers_that_do_not_fit_are_no_disk() {
    for layers in [None, Some(layers(words(1), words(2))), Some(layers(words(2), words(3)))] {
        assert_eq!(disk(layers).0.sectors(), 0);
    }
}

#[test]
fn without_anything_it_is_an_empty_disk() {
    let mut function = Function::NEW;
    assert_eq!(function.attach(Attach::default()), Answer::default());
    let mut read = |device, offset, size| function.event(Event::Read { device, offset, size }).value;
    assert_eq!((read(0, 0, 4), read(5, 0x2000, 8)), (0x1042_1af4, 0));
    assert!(!function.has_said);
}

/// It is said once.
#[test]
fn no_room_is_said_once() {
    let mut function = Function::NEW;
    let (mut over, name) = disk(Some(layers(&[], words(3))));
    let ram = Ram::new(0x1000, Fuse::default());
    assert_eq!(over.write(0, &ram, Span { address: Ram::BASE, length: 1 }), Err(Failure::Io));
    function.virtio.model.insert(over, name, true);
    function.event(Event::Unknown);
    assert!(function.has_said);
}
