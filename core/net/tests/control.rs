// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands.

use proptest::prelude::*;
use turnstile_net::control::{Control, Limits};
use turnstile_rig::{Fuse, Guest, Ram, Random, Request};
use turnstile_virtio::device::Queue;
use turnstile_virtio::ring::Options;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const LIMITS: Limits = Limits { may_change: true, pairs: 4 };

/// Does a command; returns its status.
fn command(control: &mut Control, limits: &Limits, bytes: &[u8]) -> u8 {
    let ram = Ram::new(0x2_0000, Fuse::default());
    let options = Options::default();
    let mut guest = Guest::new(&ram, Ram::BASE, 4, options, 0x2000);
    let readable_cuts = Random(bytes.len() as u64 + 1).cut(bytes.len() as u32, 3);
    let request = Request { readable: bytes.to_vec(), readable_cuts, writable: vec![1], indirect: false };
    guest.ask(&ram, &request).unwrap();
    let mut queue = Queue::new(guest.ring.layout, options, 16);
    let (before, mut kept) = (control.pairs, None);
    assert_eq!(control.serve(&mut queue, &ram, limits, |pairs| kept = Some(pairs)), Ok((true, false)));
    assert_eq!(kept, (control.pairs != before).then_some(control.pairs), "a new number of pairs is kept");
    let reply = guest.take(&ram).remove(0);
    assert_eq!(reply.written, 1);
    reply.bytes[0]
}

fn to(address: [u8; 6]) -> Vec<u8> {
    [&address[..], &MAC, &[8, 0, 0, 0]].concat()
}

#[test]
fn what_is_received_is_what_was_asked_for() {
    let mut control = Control::new(MAC);
    let other = to([2, 0, 0, 0, 0, 9]);
    let group = to([0x33, 0x33, 0, 0, 0, 1]);
    let all = to([0xff; 6]);
    assert!(control.wants(&other), "everything before the first command");
    let mut ask = |bytes: &[u8]| {
        assert_eq!(command(&mut control, &LIMITS, bytes), 0, "{bytes:?}");
        [&to(MAC), &other, &group, &all].map(|head| control.wants(head))
    };
    assert_eq!(ask(&[0, 0, 0]), [true, false, false, true]);
    assert_eq!(ask(&[0, 1, 1]), [true, false, true, true]);
    assert_eq!(ask(&[0, 3, 1]), [true, false, false, true]);
    assert_eq!(ask(&[0, 3, 0]), [true, false, true, true]);
    assert_eq!(ask(&[0, 1, 0]), [true, false, false, true]);
    assert_eq!(ask(&[0, 2, 1]), [true, true, false, true]);
    assert_eq!(ask(&[0, 4, 1]), [true, false, false, true]);
    assert_eq!(ask(&[0, 2, 0]), [true, false, false, true]);
    assert_eq!(ask(&[0, 4, 0]), [true, false, false, true]);
    assert_eq!(ask(&[0, 5, 1]), [true, false, false, false]);
    assert_eq!(ask(&[0, 5, 0]), [true, false, false, true]);
    let table =
        [&[1, 0, 1, 0, 0, 0][..], &[2, 0, 0, 0, 0, 9], &[1, 0, 0, 0], &[0x33, 0x33, 0, 0, 0, 1]].concat();
    assert_eq!(ask(&table), [true, true, true, true]);
    let empty = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(ask(&empty), [true, false, false, true]);
    let mut long = vec![1, 0, 17, 0, 0, 0];
    long.extend([2; 6 * 17]);
    long.extend([0; 4]);
    assert_eq!(ask(&long), [true, true, false, true], "more than have room: all of the kind");
    assert_eq!(ask(&empty), [true, false, false, true]);
    assert_eq!(ask(&[1, 1, 2, 0, 0, 0, 0, 9]), [false, true, false, true], "the device's own address");
    assert_eq!(ask(&[3, 0]), [false, true, false, true]);
    assert!(control.announced);
}

#[test]
fn vlans_are_filtered() {
    let mut control = Control::new(MAC);
    let tagged = |id: u8| [&MAC[..], &MAC, &[0x81, 0, 0, id]].concat();
    command(&mut control, &LIMITS, &[0, 0, 0]);
    assert!(control.wants(&tagged(5)));
    assert_eq!(command(&mut control, &LIMITS, &[2, 0, 5, 0]), 0);
    assert!(control.wants(&tagged(5)) && !control.wants(&tagged(6)) && control.wants(&to(MAC)));
    assert_eq!(command(&mut control, &LIMITS, &[2, 1, 5, 0]), 0);
    assert!(!control.wants(&tagged(5)));
    assert_eq!(command(&mut control, &LIMITS, &[2, 0, 0, 0x10]), 1, "there is no VLAN 4096");
}

#[test]
fn commands_that_cannot_be_done_change_nothing() {
    let mut control = Control::new(MAC);
    assert_eq!((command(&mut control, &LIMITS, &[4, 0, 4, 0]), control.pairs), (0, 4));
    let before = control;
    for bytes in [
        &[][..],
        &[0],
        &[0, 0],
        &[0, 6, 1],
        &[1, 0, 1, 0, 0],
        &[1, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5],
        &[1, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
        &[1, 1, 1, 0, 0, 0, 0, 0],
        &[1, 1, 2, 0, 0, 0, 0],
        &[1, 2],
        &[2, 2, 0, 0],
        &[3, 1],
        &[4, 0, 0, 0],
        &[4, 0, 5, 0],
        &[4, 1, 1, 0],
        &[9, 9, 9],
    ] {
        assert_eq!(command(&mut control, &LIMITS, bytes), 1, "{bytes:?}");
        assert_eq!(control, before, "{bytes:?}");
    }
    let limits = Limits { may_change: false, ..LIMITS };
    assert_eq!(command(&mut control, &limits, &[1, 1, 2, 0, 0, 0, 0, 9]), 1);
    assert_eq!(control, before);
}

proptest! {
    #[test]
    fn any_command_is_answered(bytes in prop::collection::vec(prop_oneof![0u8..6, any::<u8>()], 0..60)) {
        let mut control = Control::new(MAC);
        prop_assert!(command(&mut control, &LIMITS, &bytes) <= 1);
        prop_assert!((1..=4).contains(&control.pairs));
    }
}
