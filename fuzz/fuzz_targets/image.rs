// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel headers and where they make the images go.
#![no_main]

use libfuzzer_sys::fuzz_target;
use turnstile_machine::FileKind;
use turnstile_machine::image::parse;
use turnstile_machine::{GuestMachine, layout};

fuzz_target!(|input: (u16, Option<u32>, &[u8])| {
    let (units, initrd, file) = input;
    let _ = FileKind::of(file);
    let Ok(header) = parse(file) else { return };
    for machine in GuestMachine::ALL {
        let map = machine.map();
        let ram = map.ram(u64::from(units) << 21);
        let initrd = initrd.map(u64::from);
        let Ok(layout) = layout(map, ram.size, &header, file.len() as u64, initrd) else { continue };
        assert!(layout.kernel.start >= ram.base && layout.kernel.end <= layout.dtb.start);
        let end = layout.initrd.map_or(layout.dtb.end, |initrd| {
            assert!(layout.dtb.end <= initrd.start);
            initrd.end
        });
        assert!(end <= ram.end());
    }
});
