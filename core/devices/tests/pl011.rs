// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PL011 as its manual describes it, and as drivers use it.

use proptest::prelude::*;
use turnstile_devices::{BACKLOG, Full, Pl011};

const DR: u64 = 0x00;
const FR: u64 = 0x18;
const LCR_H: u64 = 0x2c;
const CR: u64 = 0x30;
const IFLS: u64 = 0x34;
const IMSC: u64 = 0x38;
const RIS: u64 = 0x3c;
const MIS: u64 = 0x40;
const ICR: u64 = 0x44;
const RX: u64 = 1 << 4;
const TX: u64 = 1 << 5;
const RT: u64 = 1 << 6;
const RXFE: u64 = 1 << 4;
const RXFF: u64 = 1 << 6;

fn read(uart: &mut Pl011, offset: u64) -> u64 {
    uart.read(offset, 4)
}

fn write(uart: &mut Pl011, offset: u64, value: u64) {
    assert_eq!(uart.write(offset, 4, value), None);
}

/// A driver in the style of an operating system: FIFOs on, receive and time-out interrupts on.
fn opened() -> Pl011 {
    let mut uart = Pl011::new();
    write(&mut uart, CR, 0);
    write(&mut uart, 0x24, 13);
    write(&mut uart, 0x28, 1);
    write(&mut uart, LCR_H, 0x70);
    write(&mut uart, CR, 0x301);
    write(&mut uart, IMSC, RX | RT);
    uart
}

#[test]
fn reset_values() {
    let mut uart = Pl011::new();
    let expected = [
        (0x04, 0),
        (FR, 0x97),
        (0x20, 0),
        (0x24, 0),
        (0x28, 0),
        (LCR_H, 0),
        (CR, 0x300),
        (IFLS, 0x12),
        (IMSC, 0),
    ];
    for (offset, value) in expected.into_iter().chain([(RIS, 0), (MIS, 0), (ICR, 0), (0x48, 0), (DR, 0)]) {
        assert_eq!(read(&mut uart, offset), value, "{offset:#x}");
    }
    assert!(!uart.interrupt());
}

#[test]
fn identification() {
    let mut uart = Pl011::new();
    let bytes: Vec<_> = (0..8).map(|i| read(&mut uart, 0xfe0 + 4 * i)).collect();
    let number = |bytes: &[u64]| bytes.iter().rev().fold(0, |number, byte| number << 8 | byte);
    assert_eq!(number(&bytes[..4]), 0x0014_1011);
    assert_eq!(number(&bytes[4..]), 0xb105_f00d);
    assert_eq!(read(&mut uart, 0xfe2), 0);
}

#[test]
fn registers_keep_the_bits_they_have() {
    let widths = [
        (0x20, 0xff),
        (0x24, 0xffff),
        (0x28, 0x3f),
        (LCR_H, 0xff),
        (CR, 0xff87),
        (IFLS, 0x3f),
        (IMSC, 0x7ff),
        (0x48, 7),
    ];
    for (offset, mask) in widths {
        let mut uart = Pl011::new();
        write(&mut uart, offset, u64::MAX);
        assert_eq!(read(&mut uart, offset), mask, "{offset:#x}");
        assert_eq!(uart.read(offset, 1), mask & 0xff);
        write(&mut uart, offset, 0);
        assert_eq!(read(&mut uart, offset), 0);
        // A narrow write does not see the rest of the value.
        assert_eq!(uart.write(offset, 1, 0xffff), None);
        assert_eq!(read(&mut uart, offset), mask & 0xff);
    }
    for read_only in [FR, RIS, MIS, 0xfe0, 0x04, 0x4c, 0x100] {
        let mut uart = Pl011::new();
        let before = read(&mut uart, read_only);
        write(&mut uart, read_only, u64::MAX);
        assert_eq!(read(&mut uart, read_only), before, "{read_only:#x}");
    }
}

#[test]
fn a_byte_written_is_transmitted_and_raises_the_transmit_interrupt_until_cleared() {
    let mut uart = opened();
    write(&mut uart, IMSC, TX);
    assert!(!uart.interrupt(), "an empty FIFO alone is no event");
    assert_eq!(uart.write(DR, 4, 0x141), Some(0x41));
    assert_eq!(uart.write(DR, 2, 0x42), Some(0x42));
    assert_eq!((read(&mut uart, RIS), uart.interrupt()), (TX, true));
    assert_eq!(read(&mut uart, FR) & 0xa8, 0x80, "empty, not full, not busy");
    write(&mut uart, ICR, TX);
    assert_eq!((read(&mut uart, MIS), uart.interrupt()), (0, false));
    write(&mut uart, IMSC, 0);
    uart.write(DR, 1, 0x43);
    assert_eq!((read(&mut uart, RIS), read(&mut uart, MIS), uart.interrupt()), (TX, 0, false));
    write(&mut uart, IMSC, TX);
    assert!(uart.interrupt());
}

#[test]
fn the_receive_interrupt_follows_the_trigger_level() {
    for (select, trigger) in [(0, 2), (1, 4), (2, 8), (3, 12), (4, 14), (7, 14)] {
        let mut uart = opened();
        write(&mut uart, IFLS, select << 3);
        for count in 1..=16 {
            uart.receive(count).unwrap();
            assert_eq!(read(&mut uart, RIS) & RX != 0, count >= trigger, "{count} of {trigger}");
            assert_ne!(read(&mut uart, RIS) & RT, 0);
        }
        assert_eq!(read(&mut uart, FR) & (RXFE | RXFF), RXFF);
        for count in (0..16).rev() {
            read(&mut uart, DR);
            assert_eq!(read(&mut uart, RIS) & RX != 0, count >= trigger, "{count} of {trigger}");
            assert_eq!(read(&mut uart, RIS) & RT != 0, count > 0);
        }
        assert_eq!(read(&mut uart, FR) & (RXFE | RXFF), RXFE);
    }
}

#[test]
fn without_fifos_there_is_one_holding_register() {
    let mut uart = Pl011::new();
    uart.receive(b'a').unwrap();
    uart.receive(b'b').unwrap();
    assert_eq!(read(&mut uart, FR) & (RXFE | RXFF), RXFF);
    assert_eq!(read(&mut uart, RIS), RX | RT);
    assert_eq!(read(&mut uart, DR), b'a'.into());
    assert_eq!(read(&mut uart, RIS), RX | RT, "the next one came in");
    assert_eq!(read(&mut uart, DR), b'b'.into());
    assert_eq!((read(&mut uart, RIS), read(&mut uart, FR) & RXFE), (0, RXFE));
}

#[test]
fn cleared_interrupts_need_a_new_byte() {
    let mut uart = opened();
    uart.receive(1).unwrap();
    write(&mut uart, ICR, 0x7ff);
    assert!(!uart.interrupt());
    uart.receive(2).unwrap();
    assert_eq!(read(&mut uart, MIS), RT);
    // With bytes waiting behind a full FIFO, each read lets one in.
    (3..40).for_each(|byte| uart.receive(byte).unwrap());
    write(&mut uart, ICR, 0x7ff);
    uart.receive(40).unwrap();
    assert!(!uart.interrupt(), "the FIFO is full: nothing came in");
    assert_eq!(read(&mut uart, DR), 1);
    assert_eq!(read(&mut uart, MIS), RX | RT);
}

#[test]
fn a_full_line_refuses_and_loses_nothing() {
    let mut uart = opened();
    (0..BACKLOG).for_each(|i| uart.receive(i as u8).unwrap());
    assert_eq!(uart.receive(99), Err(Full));
    assert_eq!(read(&mut uart, DR), 0);
    uart.receive(99).unwrap();
    for i in 1..BACKLOG {
        assert_eq!(read(&mut uart, DR), (i as u8).into());
    }
    assert_eq!((read(&mut uart, DR), read(&mut uart, FR) & RXFE), (99, RXFE));
}

#[test]
fn loopback() {
    let mut uart = opened();
    assert_eq!(read(&mut uart, FR) & 0x107, 7, "a peer is there and ready");
    write(&mut uart, CR, 0x381);
    assert_eq!((read(&mut uart, FR) & 0x107, read(&mut uart, RIS)), (0, 0b1110));
    write(&mut uart, ICR, 0xf);
    assert_eq!(uart.write(DR, 4, 0x55), None);
    assert_eq!(read(&mut uart, DR), 0x55);
    for (output, input, interrupt) in [(10, 1, 3), (11, 0, 1), (12, 2, 2), (13, 8, 0)] {
        write(&mut uart, CR, 0x381 | 1 << output);
        assert_eq!(read(&mut uart, FR) & 0x107, 1 << input);
        assert_eq!(read(&mut uart, RIS) & 0xf, 1 << interrupt);
        write(&mut uart, CR, 0x381);
        write(&mut uart, ICR, 0xf);
    }
}

/// Reads all that is there, as an interrupt handler does: only while the line is up.
fn handle(uart: &mut Pl011, read: &mut Vec<u8>) {
    while uart.interrupt() {
        let status = uart.read(MIS, 2);
        uart.write(ICR, 2, status & !(RX | RT));
        while status & (RX | RT) != 0 && uart.read(FR, 2) & RXFE == 0 {
            read.push(uart.read(DR, 2) as u8);
        }
    }
}

proptest! {
    #[test]
    fn an_interrupt_driven_driver_reads_everything_in_order(
        bursts in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..100), 0..8u64), 1..10),
    ) {
        let mut uart = opened();
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for (burst, select) in bursts {
            uart.write(IFLS, 2, select << 3);
            for byte in burst {
                uart.receive(byte).unwrap();
                sent.push(byte);
            }
            handle(&mut uart, &mut received);
            prop_assert_eq!(&received, &sent);
        }
    }

    #[test]
    fn any_access_is_answered(accesses in prop::collection::vec(
        (any::<bool>(), prop_oneof![0..0x50u64, 0xfd0..0x1010u64, any::<u64>()], any::<u8>(), any::<u64>()), 1..200,
    )) {
        let mut uart = Pl011::new();
        for (is_write, offset, size, value) in accesses {
            let _ = uart.receive(value as u8);
            if is_write {
                let sent = uart.write(offset, size, value);
                prop_assert!(sent.is_none() || offset == DR && sent == Some(value as u8));
            } else {
                let found = uart.read(offset, size);
                prop_assert!(size != 1 || found < 0x100);
                prop_assert!(found == 0 || offset % 4 == 0 && offset < 0x1000);
            }
            prop_assert_eq!(uart.interrupt(), uart.read(MIS, 4) != 0);
        }
    }
}
