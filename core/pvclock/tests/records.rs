// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records as a guest reads them, between any two stores.

use turnstile_pvclock::{
    ClockRecord, Memory, Request, Scale, StealRecord, WallClock, clock_request, steal_request,
};

/// A record's bytes after each store.
struct Page {
    bytes: [u8; 64],
    history: Vec<[u8; 64]>,
}

impl Page {
    fn new(fill: u8) -> Self {
        Self { bytes: [fill; 64], history: Vec::new() }
    }

    fn store(&mut self, offset: u64, value: &[u8]) {
        assert!(offset.is_multiple_of(value.len() as u64), "{offset} is not aligned");
        let offset = offset as usize;
        self.bytes[offset..offset + value.len()].copy_from_slice(value);
        self.history.push(self.bytes);
    }
}

impl Memory for Page {
    fn write_u32(&mut self, offset: u64, value: u32) {
        self.store(offset, &value.to_le_bytes());
    }
    fn write_u64(&mut self, offset: u64, value: u64) {
        self.store(offset, &value.to_le_bytes());
    }
}

fn u32_at(bytes: &[u8; 64], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8; 64], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// A reader accepts what it saw if the version was even, and the same before and after. `before` is the record of the
/// stores before; nothing but it and the finished one may be accepted.
fn assert_never_torn(page: &Page, version: usize, before: [u8; 64], used: std::ops::Range<usize>) {
    let last = *page.history.last().unwrap();
    assert!(u32_at(&last, version).is_multiple_of(2), "the record ends with an even version");
    assert_ne!(u32_at(&last, version), u32_at(&before, version), "a reader that began before must notice");
    for state in &page.history {
        if u32_at(state, version).is_multiple_of(2) {
            assert_eq!(
                state[used.clone()],
                last[used.clone()],
                "an even version with a record that is not finished"
            );
        }
    }
}

#[test]
fn a_clock_is_never_read_in_halves() {
    let mut page = Page::new(0);
    let mut version = 0;
    for round in 1..5u64 {
        let before = page.bytes;
        page.history.clear();
        let scale = Scale::new(2_600_000_000 + round);
        let record =
            ClockRecord { timestamp: u64::MAX / round, time: round << 33, scale, paused: round == 2 };
        version = record.write(&mut page, version);
        assert_never_torn(&page, 0, before, 0..32);
        assert_eq!(u64_at(&page.bytes, 8), record.timestamp);
        assert_eq!(u64_at(&page.bytes, 16), record.time);
        assert_eq!(u32_at(&page.bytes, 24), scale.multiplier);
        let flags = 1 | u8::from(record.paused) << 1;
        assert_eq!((page.bytes[28] as i8, page.bytes[29]), (scale.shift, flags));
        assert_eq!(page.bytes[30..32], [0; 2]);
        let state = u32_at(&page.bytes, ClockRecord::STATE as usize);
        assert_eq!(ClockRecord::tells_of_pause(state), record.paused);
    }
    assert_eq!(page.bytes[32..], [0; 32], "nothing behind the record is touched");
}

#[test]
fn a_wall_clock_is_never_read_in_halves() {
    for (fill, seconds) in [(0, 0), (0xff, 1_704_067_200)] {
        let mut page = Page::new(fill);
        let before = page.bytes;
        let clock = WallClock { seconds, nanoseconds: 17 };
        clock.write(&mut page, u32_at(&before, 0));
        assert_never_torn(&page, 0, before, 0..12);
        assert_eq!((u32_at(&page.bytes, 4), u32_at(&page.bytes, 8)), (seconds, 17));
        assert_eq!(page.bytes[12..], [fill; 52]);
    }
}

#[test]
fn the_wall_clock_is_that_of_the_vms_beginning() {
    let clock = WallClock::new(1_704_067_200_000_000_000, 2_500_000_000);
    assert_eq!(clock, WallClock { seconds: 1_704_067_197, nanoseconds: 500_000_000 });
    assert_eq!(WallClock::new(1_000_000_000, 5_000_000_000), WallClock { seconds: 0, nanoseconds: 0 });
}

#[test]
fn stolen_time_leaves_the_state_to_the_guest() {
    let mut page = Page::new(0x5a);
    let before = page.bytes;
    let record = StealRecord { stolen: 0x1234_5678_9abc };
    assert_eq!(record.write(&mut page, 4), 6);
    assert_never_torn(&page, 8, before, 0..16);
    assert_eq!(u64_at(&page.bytes, 0), record.stolen);
    assert_eq!(page.bytes[16..], [0x5a; 48]);
}

#[test]
fn only_addresses_that_can_be_are_taken() {
    assert_eq!(clock_request(0x1001), Some(Request::At(0x1000)));
    assert_eq!(clock_request(0x1000), Some(Request::Off));
    assert_eq!(clock_request(0x1003), None);
    assert_eq!(clock_request(u64::MAX), None);
    assert_eq!(steal_request(0x1041), Some(Request::At(0x1040)));
    assert_eq!(steal_request(0x1040), Some(Request::Off));
    for bit in 1..6 {
        assert_eq!(steal_request(0x1001 | 1 << bit), None, "bit {bit} is reserved");
        assert_eq!(steal_request(0x1000 | 1 << bit), None, "bit {bit} is reserved");
    }
    assert_eq!(steal_request(1 << 63 | 1), None);
}
