// SPDX-License-Identifier: Apache-2.0 OR MIT
//! 8259, 8254, clock, COM1, and what ACPI names.

use turnstile_guests_x86_64::apic::{self, register};
use turnstile_guests_x86_64::console::{COM1, SCR};
use turnstile_guests_x86_64::platform::platform;
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{check, check_eq, cpu, io_apic, irq, pic, pit, port, skip, timer};

use crate::log;

pub const TESTS: &[Test] = &[
    Test { name: "pic-masks", run: pic_masks },
    Test { name: "pic-interrupt", run: pic_interrupt },
    Test { name: "pic-registers", run: pic_registers },
    Test { name: "pic-priority", run: pic_priority },
    Test { name: "pit-count", run: pit_count },
    Test { name: "pit-channel2", run: pit_channel2 },
    Test { name: "pit-rate", run: pit_rate },
    Test { name: "rtc-time", run: rtc_time },
    Test { name: "rtc-memory", run: rtc_memory },
    Test { name: "rtc-update", run: rtc_update },
    Test { name: "com1-registers", run: com1_registers },
    Test { name: "acpi-tables", run: acpi_tables },
    Test { name: "acpi-timer", run: acpi_timer },
];

/// ExtINT: the 8259 gives the vector.
const EXTINT: u32 = 7 << 8;

fn pic_masks() -> Outcome {
    for value in [0xff, 0xa5, 0xfb] {
        port::write8(pic::MASK, value);
        port::write8(pic::MASK2, !value);
        check_eq!(port::read8(pic::MASK), value, "the first mask");
        check_eq!(port::read8(pic::MASK2), !value, "the second mask");
    }
    Ok(())
}

/// The 8254's interrupt through the 8259 and LINT0.
fn pic_interrupt() -> Outcome {
    log::begin();
    apic::write(register::LVT_LINT0, EXTINT);
    pic::unmask_only(0);
    pit::start_periodic((pit::FREQUENCY / 1000) as u16);
    log::wait(5500);
    pit::stop();
    pic::unmask_only(7);
    let came = log::count();
    check!((3..=7).contains(&came), "{came} interrupts in 5 periods");
    check_eq!(log::first(), pic::BASE, "the vector");
    check_eq!(irq::count(pic::BASE) as usize, came, "interrupts of this vector");
    Ok(())
}

/// What waits, and what is in service, by OCW3.
fn pic_registers() -> Outcome {
    fn handle(vector: u8) {
        port::write8(pic::COMMAND, 0x0b);
        if port::read8(pic::COMMAND) & 1 != 0 {
            log::enter(vector);
        }
    }
    log::begin();
    irq::set_handler(Some(handle));
    apic::write(register::LVT_LINT0, EXTINT);
    pic::unmask_only(0);
    pit::start_once(100);
    let pending = || {
        port::write8(pic::COMMAND, 0x0a);
        port::read8(pic::COMMAND) & 1 != 0
    };
    check!(timer::wait(10_000, pending), "the request register shows nothing");
    check!(log::wait_for(1), "the service register showed nothing in the handler");
    port::write8(pic::COMMAND, 0x0b);
    check_eq!(port::read8(pic::COMMAND) & 1, 0, "in service afterwards");
    Ok(())
}

/// Two requests at once: line 0 is before line 4, which is COM1's.
fn pic_priority() -> Outcome {
    fn handle(vector: u8) {
        port::write8(COM1 + 1, 0);
        port::read8(COM1 + 2);
        log::enter(vector);
    }
    log::begin();
    irq::set_handler(Some(handle));
    pic::unmask_only(0);
    port::write8(pic::MASK, !0x11);
    port::write8(COM1 + 1, 2);
    pit::start_once(100);
    timer::wait(1000, || false);
    apic::write(register::LVT_LINT0, EXTINT);
    log::wait(200);
    port::write8(COM1 + 1, 0);
    check!(
        log::count() >= 1 && log::first() == pic::BASE,
        "{} came, {:#x} first",
        log::count(),
        log::first()
    );
    Ok(())
}

fn pit_count() -> Outcome {
    pit::start_periodic(0xfff0);
    let first = pit::count();
    timer::wait(1000, || false);
    let second = pit::count();
    pit::stop();
    let gone = first.wrapping_sub(second);
    check!((1100..2500).contains(&gone), "{gone} ticks in a millisecond");
    // Both halves of a latched count belong together, whatever the counter does.
    Ok(())
}

fn pit_channel2() -> Outcome {
    let start = timer::now();
    check!(pit::measure(11_932, 10_000_000), "channel 2 does not end");
    let took = timer::microseconds(timer::now() - start);
    check!((9_900..12_000).contains(&took), "10 milliseconds took {took} microseconds");
    Ok(())
}

fn pit_rate() -> Outcome {
    log::begin();
    io_apic::route_isa(0, 0x71, apic::id());
    pit::start_periodic((pit::FREQUENCY / 2000) as u16);
    log::wait(20_250);
    pit::stop();
    let came = log::count();
    check!((36..=44).contains(&came), "{came} interrupts in 40 periods");
    Ok(())
}

fn cmos(register: u8) -> u8 {
    port::write8(0x70, register);
    port::read8(0x71)
}

fn rtc_time() -> Outcome {
    check!(cmos(0xd) & 0x80 != 0, "the clock says that it is not valid");
    let format = cmos(0xb);
    let number = |value: u8| if format & 4 != 0 { value } else { (value >> 4) * 10 + (value & 15) };
    check!(timer::wait(2_000_000, || cmos(0xa) & 0x80 == 0), "the update never ends");
    let [second, minute, hour] = [0, 2, 4].map(|register| number(cmos(register) & 0x7f));
    let [day, month, year] = [7, 8, 9].map(|register| number(cmos(register)));
    check!(second < 60 && minute < 60 && hour < 24, "it is {hour}:{minute}:{second}");
    check!((1..=31).contains(&day) && (1..=12).contains(&month), "the date is {day}.{month}.");
    check!((24..100).contains(&year), "the year is {year}");
    Ok(())
}

fn rtc_memory() -> Outcome {
    for value in [0x5a, 0xa5] {
        port::write8(0x70, 0x50);
        port::write8(0x71, value);
        check_eq!(cmos(0x50), value, "a byte of its memory");
    }
    Ok(())
}

/// Seconds pass.
fn rtc_update() -> Outcome {
    let first = cmos(0);
    for _ in 0..125 {
        timer::arm(0x51, timer::now() + timer::ticks(20_000));
        cpu::wait();
        if cmos(0) != first {
            return Ok(());
        }
    }
    check!(false, "no second passes in 2.5");
    Ok(())
}

fn com1_registers() -> Outcome {
    for value in [0x5a, 0xa5] {
        port::write8(SCR, value);
        check_eq!(port::read8(SCR), value, "the scratch register");
    }
    let control = port::read8(COM1 + 3);
    port::write8(COM1 + 3, 0x80 | control);
    let divisor = [port::read8(COM1), port::read8(COM1 + 1)];
    port::write8(COM1, 0x34);
    let read = port::read8(COM1);
    port::write8(COM1, divisor[0]);
    port::write8(COM1 + 3, control);
    check_eq!(read, 0x34, "the divisor");
    check!(port::read8(COM1 + 5) & 0x20 != 0, "the transmitter is not empty");
    check_eq!(port::read8(COM1 + 2) & 0xc1, 0xc1, "FIFOs on, no interrupt");
    Ok(())
}

fn acpi_tables() -> Outcome {
    let acpi = &platform().acpi;
    if !acpi.present {
        skip!("no ACPI");
    }
    check!(!acpi.cpus.as_slice().is_empty(), "the MADT names no CPU");
    check!(acpi.pm1a_control != 0, "the FADT names no PM1a_CNT");
    check!(acpi.s5.is_some(), "the DSDT has no S5");
    check!(acpi.reset.is_some(), "the FADT names no reset port");
    // Firmware of real machines waits to be asked.
    check!(port::read16(acpi.pm1a_control) & 1 == 1 || crate::is_bare(), "SCI_EN is clear");
    Ok(())
}

/// The timer counts at 3.579545 MHz, 24 bits.
fn acpi_timer() -> Outcome {
    let acpi = &platform().acpi;
    if acpi.pm_timer == 0 {
        skip!("no ACPI timer");
    }
    let first = port::read32(acpi.pm_timer);
    timer::wait(10_000, || false);
    let gone = port::read32(acpi.pm_timer).wrapping_sub(first) & 0xff_ffff;
    check!((35_000..50_000).contains(&gone), "{gone} ticks in 10 milliseconds");
    Ok(())
}
