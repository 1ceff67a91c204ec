// SPDX-License-Identifier: Apache-2.0 OR MIT
//! UART and real-time clock: identification, the UART's interrupt as a level, the clock's step.

use turnstile_guests::mmio::{read8, read32, write8, write32};
use turnstile_guests::platform::{Uart, UartKind, platform};
use turnstile_guests::test::{Outcome, Test};
use turnstile_guests::{check, check_eq, console, gic, print, skip, timer};

use crate::gic_state::NONE;

pub const TESTS: &[Test] = &[
    Test { name: "uart-identity", run: identity },
    Test { name: "uart-interrupt", run: interrupt },
    Test { name: "rtc-read", run: clock },
    Test { name: "rtc-alarm", run: alarm },
];

fn uart() -> Option<(Uart, u64)> {
    platform().uart.map(|uart| (uart, uart.region.base))
}

fn identity() -> Outcome {
    let Some((uart, base)) = uart() else { skip!("no UART") };
    match uart.kind {
        UartKind::Pl011 => {
            for (offset, value) in (0..).step_by(4).zip([0x11, 0x10, 0x14, 0x00, 0x0d, 0xf0, 0x05, 0xb1]) {
                check_eq!(read32(base + 0xfe0 + offset), value, "identification at {:#x}", 0xfe0 + offset);
            }
            check!(read32(base + 0x18) & 1 << 4 != 0, "the receive FIFO is not empty");
        }
        UartKind::Uart16550 { shift } => {
            for value in [0x5a, 0xa5] {
                write8(base + (7 << shift), value);
                check_eq!(read8(base + (7 << shift)), value, "scratch register");
            }
            check!(read8(base + (5 << shift)) & 0x60 != 0, "the transmitter never empties");
        }
    }
    Ok(())
}

/// The transmit interrupt: pending while its condition and its mask are up, and again after its end.
fn interrupt() -> Outcome {
    let Some((uart, base)) = uart() else { skip!("no UART") };
    gic::enable(uart.intid);
    let set = |on: bool| match uart.kind {
        UartKind::Pl011 => {
            if !on {
                write32(base + 0x44, 0x7ff);
            }
            write32(base + 0x38, if on { 1 << 5 } else { 0 });
        }
        UartKind::Uart16550 { shift } => write8(base + (1 << shift), if on { 2 } else { 0 }),
    };
    for _ in 0..3 {
        check_eq!(gic::highest_pending(), NONE, "before");
        set(true);
        print!(".");
        for _ in 0..3 {
            let offered = timer::wait(500_000, || gic::highest_pending() == uart.intid);
            check!(offered, "INTID {} is not offered", uart.intid);
            check_eq!(gic::acknowledge(), uart.intid, "acknowledge");
            gic::end(uart.intid);
        }
        set(false);
        timer::delay(200);
        check_eq!(gic::highest_pending(), NONE, "after the condition is gone");
        check!(!gic::is_pending(uart.intid), "ISPENDR after the condition is gone");
    }
    console::init();
    Ok(())
}

/// The alarm: its interrupt comes at the second it is set to, without the guest's looking at the clock.
fn alarm() -> Outcome {
    let (Some(rtc), Some(intid)) = (platform().rtc, platform().rtc_intid) else {
        skip!("no PL031 interrupt")
    };
    gic::enable(intid);
    write32(rtc.base + 0x1c, 1);
    write32(rtc.base + 0x04, read32(rtc.base) + 1);
    write32(rtc.base + 0x10, 1);
    gic::enable(platform().virtual_timer);
    let offered = timer::wait_asleep(3_000_000, || gic::highest_pending() == intid);
    check!(offered, "INTID {intid} is not offered");
    check_eq!(gic::acknowledge(), intid, "acknowledge");
    write32(rtc.base + 0x1c, 1);
    gic::end(intid);
    write32(rtc.base + 0x10, 0);
    // The timer may have fired together with the alarm and wait behind it: which of two interrupts of one priority
    // is offered first is the interface's choice.
    gic::disable(platform().virtual_timer);
    timer::delay(200);
    check_eq!(gic::highest_pending(), NONE, "after the alarm was cleared");
    Ok(())
}

fn clock() -> Outcome {
    let Some(rtc) = platform().rtc else { skip!("no PL031") };
    check_eq!(read32(rtc.base + 0xfe0), 0x31, "identification");
    let first = read32(rtc.base);
    gic::enable(platform().virtual_timer);
    check!(timer::wait_asleep(3_000_000, || read32(rtc.base) != first), "it stands still");
    let second = read32(rtc.base);
    check!(second.wrapping_sub(first) <= 3, "from {first} to {second}");
    Ok(())
}
