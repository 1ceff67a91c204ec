// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The 8259 pair against the data sheet's rules, and against a model that keeps priorities as a list.

use proptest::prelude::*;
use turnstile_devices::I8259;

/// As PCs are set up: vectors 0x20 and 0x28, the second on line 2, 8086 mode.
fn pc(icw4: u8) -> I8259 {
    let mut pic = I8259::new();
    for (command, data, base, cascade) in [(0x20, 0x21, 0x20, 4), (0xa0, 0xa1, 0x28, 2)] {
        pic.write(command, 0x11);
        pic.write(data, base);
        pic.write(data, cascade);
        pic.write(data, icw4);
        pic.write(data, 0);
    }
    pic
}

fn status(pic: &mut I8259, port: u16) -> [u8; 2] {
    [0x0a, 0x0b].map(|command| {
        pic.write(port, command);
        pic.read(port)
    })
}

#[test]
fn an_edge_is_one_interrupt() {
    let mut pic = pc(1);
    assert_eq!(pic.vector(), None);
    pic.set_line(4, true);
    assert_eq!((pic.vector(), status(&mut pic, 0x20)), (Some(0x24), [0x10, 0]));
    assert_eq!(pic.acknowledge(), 0x24);
    assert_eq!((pic.vector(), status(&mut pic, 0x20)), (None, [0, 0x10]));
    pic.write(0x20, 0x20);
    assert_eq!(pic.vector(), None, "the line is up still, but there is no further edge");
    pic.set_line(4, false);
    pic.set_line(4, true);
    assert_eq!(pic.vector(), Some(0x24));
}

#[test]
fn a_level_interrupts_until_it_falls() {
    let mut pic = pc(1);
    pic.write(0x4d1, 0xff);
    assert_eq!(pic.read(0x4d1), 0xde, "lines 8 and 13 are edges");
    pic.set_line(9, true);
    for _ in 0..2 {
        assert_eq!(pic.acknowledge(), 0x29);
        assert_eq!(pic.vector(), None);
        pic.write(0xa0, 0x20);
        pic.write(0x20, 0x20);
    }
    pic.set_line(9, false);
    assert_eq!(pic.vector(), None);
}

#[test]
fn the_second_goes_through_line_two() {
    let mut pic = pc(1);
    pic.set_line(14, true);
    pic.set_line(8, true);
    assert_eq!(pic.acknowledge(), 0x28);
    assert_eq!(status(&mut pic, 0x20)[1], 4);
    assert_eq!(status(&mut pic, 0xa0), [0x40, 1]);
    pic.set_line(1, true);
    assert_eq!(pic.acknowledge(), 0x21, "line 1 is above the cascade");
    pic.write(0x20, 0x61);
    pic.write(0xa0, 0x20);
    pic.write(0x20, 0x62);
    assert_eq!(pic.acknowledge(), 0x2e);
    pic.write(0x21, 4);
    pic.write(0xa0, 0x20);
    pic.write(0x20, 0x20);
    pic.set_line(12, true);
    assert_eq!(pic.vector(), None, "the cascade is masked");
}

#[test]
fn what_goes_away_is_spurious() {
    let mut pic = pc(1);
    pic.set_line(3, true);
    pic.set_line(3, false);
    assert_eq!((pic.vector(), pic.acknowledge()), (None, 0x27));
    assert_eq!(status(&mut pic, 0x20)[1], 0, "a spurious interrupt is not in service");
}

#[test]
fn automatic_ends_and_rotation() {
    let mut pic = pc(3);
    pic.write(0x20, 0x80);
    for line in [0, 1, 3] {
        pic.set_line(line, true);
    }
    assert_eq!([pic.acknowledge(), pic.acknowledge(), pic.acknowledge()], [0x20, 0x21, 0x23]);
    assert_eq!(status(&mut pic, 0x20), [0, 0]);
    pic.set_line(1, false);
    pic.set_line(1, true);
    pic.set_line(5, true);
    assert_eq!(pic.acknowledge(), 0x25, "3 is the lowest now, 4 the highest");
}

#[test]
fn polling_acknowledges() {
    let mut pic = pc(1);
    pic.write(0x20, 0x0c);
    assert_eq!(pic.read(0x20), 0);
    pic.set_line(6, true);
    pic.write(0x20, 0x0c);
    assert_eq!(pic.read(0x20), 0x86);
    assert_eq!((pic.vector(), status(&mut pic, 0x20)[1]), (None, 0x40));
}

#[test]
fn special_mask_lets_lower_lines_in() {
    let mut pic = pc(1);
    pic.set_line(1, true);
    assert_eq!(pic.acknowledge(), 0x21);
    pic.set_line(5, true);
    assert_eq!(pic.vector(), None);
    pic.write(0x21, 2);
    pic.write(0x20, 0x68);
    assert_eq!(pic.vector(), Some(0x25));
}

#[test]
fn initialization_forgets_masks_and_edges() {
    let mut pic = pc(1);
    pic.write(0x21, 0xff);
    pic.set_line(4, true);
    pic.write(0x20, 0x11);
    for value in [0x40, 4, 1] {
        pic.write(0x21, value);
    }
    assert_eq!((pic.read(0x21), pic.vector()), (0, None));
}

/// The lines of one controller that may interrupt, in the order of their priorities, in plain words: pending, not masked,
/// and before whatever is in service.
fn expected(pending: u8, mask: u8, service: u8) -> Option<u8> {
    (0..8).take_while(|line| service >> line & 1 == 0).find(|line| pending & !mask & 1 << line != 0)
}

proptest! {
    #[test]
    fn edges_against_plain_words(acts in proptest::collection::vec((0u8..4, 0u8..8, any::<u8>()), 0..64)) {
        let mut pic = pc(1);
        let (mut lines, mut pending, mut mask, mut service) = (0u8, 0u8, 0u8, 0u8);
        for (act, line, value) in acts {
            let line = if line == 2 { 3 } else { line };
            let bit = 1u8 << line;
            match act {
                0 => {
                    pic.set_line(line, true);
                    pending |= bit & !lines;
                    lines |= bit;
                }
                1 => {
                    pic.set_line(line, false);
                    pending &= !bit;
                    lines &= !bit;
                }
                2 => {
                    pic.write(0x21, value);
                    mask = value;
                }
                _ if value & 1 == 0 => {
                    let vector = pic.acknowledge();
                    match expected(pending, mask, service) {
                        Some(line) => {
                            prop_assert_eq!(vector, 0x20 | line);
                            pending &= !(1 << line);
                            service |= 1 << line;
                        }
                        None => prop_assert_eq!(vector, 0x27),
                    }
                }
                _ => {
                    pic.write(0x20, 0x20);
                    service &= service.wrapping_sub(1);
                }
            }
            prop_assert_eq!(pic.vector(), expected(pending, mask, service).map(|line| 0x20 | line));
            prop_assert_eq!(status(&mut pic, 0x20), [pending, service]);
        }
    }

    #[test]
    fn any_ports_and_values(acts in proptest::collection::vec((any::<u16>(), any::<u8>(), any::<u8>()), 0..200)) {
        const PORTS: [u16; 6] = [0x20, 0x21, 0xa0, 0xa1, 0x4d0, 0x4d1];
        let mut pic = I8259::new();
        for (port, value, line) in acts {
            let port = PORTS[usize::from(port) % 6];
            pic.write(port, value);
            pic.read(port);
            pic.set_line(line, value & 1 != 0);
            if let Some(vector) = pic.vector() {
                prop_assert_eq!(pic.acknowledge(), vector);
            }
        }
    }
}
