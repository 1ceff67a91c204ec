// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The 16550A as its data sheet describes it, and as drivers use it.

use proptest::prelude::*;
use turnstile_devices::{BACKLOG, Full, Uart16550};

const DATA: u64 = 0;
const IER: u64 = 1;
const IIR: u64 = 2;
const FCR: u64 = 2;
const LCR: u64 = 3;
const MCR: u64 = 4;
const LSR: u64 = 5;
const MSR: u64 = 6;
const SCR: u64 = 7;

fn read(uart: &mut Uart16550, offset: u64) -> u64 {
    uart.read(offset, 1)
}

fn write(uart: &mut Uart16550, offset: u64, value: u64) {
    assert_eq!(uart.write(offset, 1, value), None);
}

#[test]
fn reset_values() {
    let mut uart = Uart16550::new();
    for (offset, value) in
        [(0, 0), (IER, 0), (IIR, 1), (LCR, 0), (MCR, 0), (LSR, 0x60), (MSR, 0xb0), (SCR, 0), (8, 0)]
    {
        assert_eq!(read(&mut uart, offset), value, "{offset}");
    }
    assert!(!uart.interrupt());
}

#[test]
fn registers_keep_the_bits_they_have() {
    for (offset, mask) in [(IER, 0x0f), (LCR, 0xff), (MCR, 0x1f), (SCR, 0xff)] {
        let mut uart = Uart16550::new();
        write(&mut uart, offset, 0xff);
        assert_eq!(read(&mut uart, offset), mask, "{offset}");
        write(&mut uart, offset, 0);
        assert_eq!(read(&mut uart, offset), 0);
    }
    let mut uart = Uart16550::new();
    for read_only in [LSR, MSR, 8, 100] {
        let before = read(&mut uart, read_only);
        write(&mut uart, read_only, 0xff);
        assert_eq!(read(&mut uart, read_only), before);
    }
}

#[test]
fn the_divisor_latch_hides_data_and_interrupt_enable() {
    let mut uart = Uart16550::new();
    uart.receive(b'x').unwrap();
    write(&mut uart, LCR, 0x83);
    write(&mut uart, 0, 0x34);
    write(&mut uart, 1, 0xf2);
    assert_eq!((read(&mut uart, 0), read(&mut uart, 1)), (0x34, 0xf2));
    write(&mut uart, LCR, 0x03);
    assert_eq!((read(&mut uart, IER), read(&mut uart, DATA)), (0, b'x'.into()));
    write(&mut uart, IER, 5);
    write(&mut uart, LCR, 0x83);
    assert_eq!((read(&mut uart, 0), read(&mut uart, 1)), (0x34, 0xf2));
}

#[test]
fn the_transmitter_interrupt_comes_with_each_byte_and_with_being_enabled() {
    let mut uart = Uart16550::new();
    assert_eq!(uart.write(DATA, 1, 0x141), Some(0x41));
    assert!(!uart.interrupt());
    write(&mut uart, IER, 2);
    assert!(uart.interrupt());
    assert_eq!((read(&mut uart, IIR), read(&mut uart, IIR)), (2, 1), "reading acknowledges");
    write(&mut uart, IER, 2);
    assert!(!uart.interrupt(), "it was enabled already");
    write(&mut uart, IER, 0);
    write(&mut uart, IER, 2);
    assert_eq!((read(&mut uart, IIR), read(&mut uart, IIR)), (2, 1), "enabled again");
    assert_eq!(uart.write(DATA, 1, 0x42), Some(0x42));
    assert!(uart.interrupt());
    assert_eq!(read(&mut uart, LSR), 0x60);
    assert_eq!(read(&mut uart, IIR), 2);
}

#[test]
fn received_data_without_fifos() {
    let mut uart = Uart16550::new();
    write(&mut uart, IER, 1);
    uart.receive(b'a').unwrap();
    uart.receive(b'b').unwrap();
    for byte in *b"ab" {
        assert_eq!((uart.interrupt(), read(&mut uart, IIR), read(&mut uart, LSR)), (true, 4, 0x61));
        assert_eq!(read(&mut uart, IIR), 4, "reading IIR does not acknowledge it");
        assert_eq!(read(&mut uart, DATA), byte.into());
    }
    assert_eq!((uart.interrupt(), read(&mut uart, IIR), read(&mut uart, LSR)), (false, 1, 0x60));
    assert_eq!(read(&mut uart, DATA), 0);
}

#[test]
fn received_data_with_fifos_follows_the_trigger_and_times_out_below_it() {
    for (select, trigger) in [(0x00, 1), (0x40, 4), (0x80, 8), (0xc0, 14)] {
        let mut uart = Uart16550::new();
        write(&mut uart, FCR, 1 | select);
        write(&mut uart, IER, 1);
        assert_eq!(read(&mut uart, IIR), 0xc1);
        for count in 1..=20 {
            uart.receive(count).unwrap();
            let expected = if count >= trigger { 0xc4 } else { 0xcc };
            assert_eq!((read(&mut uart, IIR), uart.interrupt()), (expected, true), "{count} of {trigger}");
        }
        assert_eq!((1..=20).map(|_| read(&mut uart, DATA)).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
        assert_eq!((read(&mut uart, IIR), uart.interrupt()), (0xc1, false));
    }
}

#[test]
fn interrupts_have_priorities() {
    let mut uart = Uart16550::new();
    write(&mut uart, MCR, 0x10);
    write(&mut uart, IER, 0x0f);
    uart.receive(1).unwrap();
    assert_eq!(read(&mut uart, IIR), 4);
    read(&mut uart, DATA);
    assert_eq!(read(&mut uart, IIR), 2);
    assert_eq!(read(&mut uart, IIR), 0);
    assert_eq!(read(&mut uart, MSR), 0x0b, "CTS, DSR and DCD fell");
    assert_eq!((read(&mut uart, IIR), read(&mut uart, MSR)), (1, 0));
}

#[test]
fn clearing_the_fifo_takes_what_is_in_it_and_leaves_what_is_on_the_wire() {
    let mut uart = Uart16550::new();
    write(&mut uart, FCR, 1);
    (0..20).for_each(|byte| uart.receive(byte).unwrap());
    write(&mut uart, FCR, 3);
    assert_eq!(read(&mut uart, DATA), 16);
    assert_eq!(read(&mut uart, IIR) & 0xc0, 0xc0);
    write(&mut uart, FCR, 0xc0);
    assert_eq!((read(&mut uart, IIR), read(&mut uart, LSR)), (1, 0x60));
}

#[test]
fn loopback_as_drivers_probe_it() {
    let mut uart = Uart16550::new();
    write(&mut uart, MCR, 0x1a);
    assert_eq!(read(&mut uart, MSR) & 0xf0, 0x90, "RTS and OUT2 come back as CTS and DCD");
    assert_eq!(uart.write(DATA, 1, 0x5a), None);
    assert_eq!((read(&mut uart, LSR), read(&mut uart, DATA)), (0x61, 0x5a));
    for (output, input) in [(0, 5), (1, 4), (2, 6), (3, 7)] {
        write(&mut uart, MCR, 0x10 | 1 << output);
        assert_eq!(read(&mut uart, MSR) & 0xf0, 1 << input);
    }
    // The ring indicator reports its trailing edge only.
    write(&mut uart, MCR, 0x14);
    assert_eq!(read(&mut uart, MSR) & 4, 0);
    write(&mut uart, MCR, 0x10);
    assert_eq!(read(&mut uart, MSR) & 4, 4);
    write(&mut uart, MCR, 0);
    assert_eq!(read(&mut uart, MSR) & 0xf0, 0xb0);
    assert_eq!(uart.write(DATA, 1, 0x5a), Some(0x5a));
}

#[test]
fn a_full_line_refuses_and_loses_nothing() {
    let mut uart = Uart16550::new();
    (0..BACKLOG).for_each(|i| uart.receive(i as u8).unwrap());
    assert_eq!(uart.receive(99), Err(Full));
    assert_eq!(
        (0..BACKLOG).map(|_| read(&mut uart, DATA)).collect::<Vec<_>>(),
        (0..BACKLOG as u64).map(|i| i & 0xff).collect::<Vec<_>>()
    );
}

proptest! {
    /// A driver that sends from its transmit interrupt and reads from its receive interrupt, and never polls.
    #[test]
    fn an_interrupt_driven_driver_moves_everything_in_order(
        input in prop::collection::vec(any::<u8>(), 0..200),
        output in prop::collection::vec(any::<u8>(), 0..200),
        trigger in 0..4u64,
    ) {
        let mut uart = Uart16550::new();
        write(&mut uart, FCR, 7 | trigger << 6);
        write(&mut uart, LCR, 3);
        let mut to_send = output.iter();
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        write(&mut uart, IER, 3);
        let mut arriving = input.chunks(7);
        loop {
            for &byte in arriving.next().unwrap_or(&[]) {
                uart.receive(byte).unwrap();
            }
            if !uart.interrupt() {
                break;
            }
            match read(&mut uart, IIR) & 0xf {
                4 | 12 => while read(&mut uart, LSR) & 1 != 0 {
                    received.push(read(&mut uart, DATA) as u8);
                },
                2 => for &byte in to_send.by_ref().take(16) {
                    sent.extend(uart.write(DATA, 1, byte.into()));
                },
                other => prop_assert!(false, "nothing pending: {}", other),
            }
        }
        prop_assert_eq!(sent, output);
        prop_assert_eq!(received, input);
    }

    #[test]
    fn any_access_is_answered(accesses in prop::collection::vec(
        (any::<bool>(), prop_oneof![0..10u64, any::<u64>()], any::<u8>(), any::<u64>()), 1..200,
    )) {
        let mut uart = Uart16550::new();
        for (is_write, offset, size, value) in accesses {
            let _ = uart.receive(value as u8);
            if is_write {
                let sent = uart.write(offset, size, value);
                prop_assert!(sent.is_none() || offset == DATA && sent == Some(value as u8));
            } else {
                let found = uart.read(offset, size);
                prop_assert!(found < 0x100 && (found == 0 || offset < 8));
            }
            let up = uart.interrupt();
            prop_assert_eq!(up, read(&mut uart, IIR) & 1 == 0);
        }
    }
}
