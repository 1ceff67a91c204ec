// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of a PC as drivers use it.

use proptest::prelude::*;
use turnstile_devices::Cmos;

const SECOND: u64 = 1_000_000_000;
/// 2024-02-29 23:59:58, a Thursday.
const LEAP: u64 = 1_709_251_198 * SECOND;

fn read(cmos: &mut Cmos, index: u8, now: u64) -> u8 {
    cmos.write(Cmos::INDEX, index, now);
    cmos.read(Cmos::DATA, now)
}

fn write(cmos: &mut Cmos, index: u8, value: u8, now: u64) {
    cmos.write(Cmos::INDEX, index, now);
    cmos.write(Cmos::DATA, value, now);
}

fn date(cmos: &mut Cmos, now: u64) -> [u8; 8] {
    [0x32, 9, 8, 7, 6, 4, 2, 0].map(|index| read(cmos, index, now))
}

#[test]
fn it_tells_the_time() {
    let mut cmos = Cmos::new(1 << 30, 0);
    assert_eq!(date(&mut cmos, LEAP), [0x20, 0x24, 2, 0x29, 5, 0x23, 0x59, 0x58]);
    assert_eq!(date(&mut cmos, LEAP + 2 * SECOND), [0x20, 0x24, 3, 1, 6, 0, 0, 0]);
    write(&mut cmos, 0xb, 0x06, LEAP);
    assert_eq!(date(&mut cmos, LEAP), [20, 24, 2, 29, 5, 23, 59, 58]);
    write(&mut cmos, 0xb, 0x00, LEAP);
    assert_eq!(read(&mut cmos, 4, LEAP), 0x91, "eleven in the evening");
    assert_eq!(read(&mut cmos, 4, LEAP + 2 * SECOND), 0x12, "midnight is twelve");
}

#[test]
fn it_can_be_set() {
    let mut cmos = Cmos::new(1 << 30, 0);
    write(&mut cmos, 0xb, 0x82, LEAP);
    for (index, value) in [(0x32, 0x19), (9, 0x99), (8, 0x12), (7, 0x31), (4, 0x23), (2, 0x59), (0, 0x30)] {
        write(&mut cmos, index, value, LEAP);
    }
    assert_eq!(read(&mut cmos, 0, LEAP + 5 * SECOND), 0x30, "it stands");
    write(&mut cmos, 0xb, 0x02, LEAP + 5 * SECOND);
    assert_eq!(date(&mut cmos, LEAP + 35 * SECOND)[..4], [0x20, 0x00, 1, 1]);
}

#[test]
fn an_update_is_announced() {
    let mut cmos = Cmos::new(1 << 30, 0);
    assert_eq!(read(&mut cmos, 0xa, LEAP + SECOND / 2), 0x26);
    assert_eq!(read(&mut cmos, 0xa, LEAP + SECOND - 1), 0xa6);
    assert_eq!(read(&mut cmos, 0xd, LEAP), 0x80);
}

#[test]
fn the_alarm_rings_when_its_bytes_match() {
    let mut cmos = Cmos::new(1 << 30, 0);
    for (index, value) in [(1, 0x05), (3, 0xff), (5, 0x00), (0xb, 0x22)] {
        write(&mut cmos, index, value, LEAP);
    }
    let at = LEAP + 7 * SECOND;
    assert_eq!(cmos.deadline(LEAP), Some(at), "five seconds after midnight");
    cmos.advance(at - 1);
    assert!(!cmos.interrupt());
    cmos.advance(at);
    assert!(cmos.interrupt());
    assert_eq!(cmos.deadline(at), None);
    assert_eq!(read(&mut cmos, 0xc, at) & 0xa0, 0xa0);
    assert!(!cmos.interrupt());
    assert_eq!(cmos.deadline(at), Some(at + 60 * SECOND));
}

#[test]
fn an_alarm_of_no_time_never_rings() {
    let mut cmos = Cmos::new(1 << 30, 0);
    for (index, value) in [(1, 0x61), (3, 0xff), (5, 0xff), (0xb, 0x22)] {
        write(&mut cmos, index, value, LEAP);
    }
    assert_eq!(cmos.deadline(LEAP), None);
    cmos.advance(LEAP + 1_000_000 * SECOND);
    assert!(!cmos.interrupt());
}

#[test]
fn periodic_and_update_interrupts() {
    let mut cmos = Cmos::new(1 << 30, 0);
    write(&mut cmos, 0xb, 0x42, LEAP);
    let period = SECOND * 32 / 32_768;
    let first = cmos.deadline(LEAP).expect("it is periodic");
    assert!(first > LEAP && first <= LEAP + period && first.is_multiple_of(period));
    cmos.advance(first);
    assert_eq!(read(&mut cmos, 0xc, first), 0xc0);
    write(&mut cmos, 0xb, 0x12, first);
    assert_eq!(cmos.deadline(first), Some(LEAP + SECOND));
    cmos.advance(LEAP + SECOND);
    assert_eq!(read(&mut cmos, 0xc, LEAP + SECOND) & 0x90, 0x90);
}

#[test]
fn memory_is_told_as_firmware_does() {
    let mut cmos = Cmos::new(3 << 30, 5 << 30);
    let word =
        |cmos: &mut Cmos, at: u8| u32::from(read(cmos, at, LEAP)) | u32::from(read(cmos, at + 1, LEAP)) << 8;
    assert_eq!(word(&mut cmos, 0x15), 640);
    assert_eq!(word(&mut cmos, 0x30), 0xffff);
    assert_eq!(u64::from(word(&mut cmos, 0x34)) << 16, (3 << 30) - (16 << 20));
    assert_eq!((word(&mut cmos, 0x5b), read(&mut cmos, 0x5d, LEAP)), (0x4000, 1), "5 GiB in units of 64 KiB");
}

#[test]
fn the_index_masks_nmis() {
    let mut cmos = Cmos::new(1 << 30, 0);
    write(&mut cmos, 0x8f, 0x0a, LEAP);
    assert!(cmos.masks_nmi());
    assert_eq!(read(&mut cmos, 0x0f, LEAP), 0x0a, "the shutdown code is kept");
    assert!(!cmos.masks_nmi());
}

#[test]
fn the_firmware_takes_the_shutdown_code() {
    let mut cmos = Cmos::new(1 << 30, 0);
    assert!(!cmos.take_resume(), "a machine begins without one");
    for code in [0x0a, 0x00, 0x01, 0x05, 0x0b, 0xff] {
        write(&mut cmos, 0x0f, code, LEAP);
        assert_eq!(cmos.take_resume(), code == 0x0a, "{code:#x}");
        assert_eq!(read(&mut cmos, 0x0f, LEAP), 0, "it is used up");
        assert!(!cmos.take_resume());
    }
}

proptest! {
    #[test]
    fn what_is_set_is_what_is_read(seconds in 0u64..4_102_444_800, elapsed in 0u64..100_000) {
        let mut source = Cmos::new(1 << 30, 0);
        let parts = date(&mut source, seconds * SECOND);
        let mut cmos = Cmos::new(1 << 30, 0);
        write(&mut cmos, 0xb, 0x82, LEAP);
        for (index, value) in [0x32, 9, 8, 7, 6, 4, 2, 0].into_iter().zip(parts) {
            write(&mut cmos, index, value, LEAP);
        }
        write(&mut cmos, 0xb, 2, LEAP);
        let then = date(&mut source, (seconds + elapsed) * SECOND);
        prop_assert_eq!(date(&mut cmos, LEAP + elapsed * SECOND), then);
    }

    #[test]
    fn any_values_and_times(acts in proptest::collection::vec((any::<u8>(), any::<u8>(), any::<u64>()), 0..100)) {
        let mut cmos = Cmos::new(1 << 30, 0);
        for (index, value, now) in acts {
            write(&mut cmos, index, value, now);
            read(&mut cmos, index, now);
            if let Some(deadline) = cmos.deadline(now >> 1) {
                prop_assert!(deadline > now >> 1);
            }
        }
    }
}
