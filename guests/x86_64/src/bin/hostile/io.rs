// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every port in every size, strings of them, and devices' registers in memory.

use turnstile_guests_x86_64::mmu::{self, entry};
use turnstile_guests_x86_64::platform::platform;
use turnstile_guests_x86_64::probe::{self, place};
use turnstile_guests_x86_64::random::{self, Random};
use turnstile_guests_x86_64::{boot, console, crash, io_apic, pit, port, power, trap};

use crate::{Tally, is_bare, stride};

/// Ports that end or reset this machine, as they should, and the console's data, for the sake of whoever reads it.
fn is_own(port: u16) -> bool {
    let acpi = &platform().acpi;
    let ends =
        |first: u16, ports: u16| (first.saturating_sub(3)..first.saturating_add(ports)).contains(&port);
    acpi.pm1a_control != 0 && ends(acpi.pm1a_control, 4)
        || acpi.reset.is_some_and(|reset| ends(reset.port, 1))
        || ends(power::DEBUG_EXIT, 4)
        || ends(0x604, 2)
        // The keyboard controller's command, the fast reset, the reset control of a PC.
        || ends(0x64, 1)
        || ends(0x92, 1)
        || ends(0xcf9, 1)
        || ends(console::COM1, 1)
        // Chip sets of the machine itself.
        || is_bare() && port >= 0xcf0
}

/// IN and OUT of 1, 2 and 4 bytes.
pub fn ports(tally: &mut Tally) {
    let mut random = random::stream(4);
    for port in (0..=u16::MAX).step_by(stride()) {
        let mut attack = |access: fn(u16, u64), value| {
            tally.add(trap::caught(|| access(port, value)).is_some());
        };
        attack(|port, _| _ = port::read8(port), 0);
        attack(|port, _| _ = port::read16(port), 0);
        attack(|port, _| _ = port::read32(port), 0);
        if is_own(port) {
            continue;
        }
        attack(|port, value| port::write8(port, value as u8), random.special());
        attack(|port, value| port::write16(port, value as u16), random.special());
        attack(|port, value| port::write32(port, value as u32), random.special());
    }
    pit::stop();
}

/// INS and OUTS with memory that is not there, read-only, a device, or wraps around; with long counts.
pub fn strings(tally: &mut Tally) {
    let mut random = random::stream(5);
    let scratch = boot::image().1.next_multiple_of(mmu::WINDOW_SIZE);
    let writable = mmu::set_page(0, scratch | entry::USUAL);
    let read_only = mmu::set_page(2, scratch | entry::PRESENT);
    let device = mmu::map_page(4, io_apic::base());
    let outside = mmu::map_page(6, crash::outside());
    mmu::set_page(1, 0);
    let places = [
        writable,
        writable + 0xff8,
        writable + 0xffe,
        read_only,
        device + 0x10,
        outside + 0x100,
        mmu::WINDOW + 0x1000,
        1 << 62,
        u64::MAX - 1,
        0x7fff_ffff_ffff,
    ];
    let codes: [&[u8]; 10] = [
        &[0x6c],
        &[0x66, 0x6d],
        &[0x6d],
        &[0x6e],
        &[0x66, 0x6f],
        &[0x6f],
        &[0xf3, 0x6c],
        &[0xf3, 0x6d],
        &[0xf3, 0x6e],
        &[0xf2, 0x67, 0x6f],
    ];
    let ports = [0x21, 0x40, 0x61, 0x71, 0x80, 0x3fd, 0x3ff, 0x511, 0xcfc, 0xfffe];
    for round in 0..4000 / stride() {
        let mut registers = probe::pattern(round as u64);
        let pick = |random: &mut Random, list: &[u64]| list[random.below(list.len() as u64) as usize];
        registers[place::RDX] = pick(&mut random, &ports);
        registers[place::RSI] = pick(&mut random, &places);
        registers[place::RDI] = pick(&mut random, &places);
        registers[place::RCX] = random.below(64);
        let code = codes[random.below(codes.len() as u64) as usize];
        // Bit 10 lets strings go downwards.
        let flags = random.below(2) << 10;
        // SAFETY: the pages are nobody's; where the string goes elsewhere, nothing is mapped.
        tally.add(unsafe { probe::execute(code, &registers, flags) }.is_err());
    }
    // A million bytes, which no hypervisor moves in one go with everything else waiting.
    let mut registers = probe::pattern(1);
    registers[place::RDX] = 0x80;
    registers[place::RSI] = scratch;
    registers[place::RCX] = (1 << 20) / stride() as u64;
    // SAFETY: reads memory that is there, or faults.
    tally.add(unsafe { probe::execute(&[0xf3, 0x6e], &registers, 0) }.is_err());
    mmu::set_upper(3, 0);
}

/// Loads by RDI, and stores of RDX by RDI, of 1 to 8 bytes.
pub const ACCESSES: [&[u8]; 8] = [
    &[0x8a, 0x07],
    &[0x66, 0x8b, 0x07],
    &[0x8b, 0x07],
    &[0x48, 0x8b, 0x07],
    &[0x88, 0x17],
    &[0x66, 0x89, 0x17],
    &[0x89, 0x17],
    &[0x48, 0x89, 0x17],
];

/// Loads and stores of every size at every place of pages that devices have, or that nobody has.
pub fn devices(tally: &mut Tally) {
    let mut random = random::stream(6);
    // The local APIC's page has an attack of its own.
    let pages = [io_apic::base(), 0xfed0_0000, 0xfed4_0000, 0xe000_0000, crash::outside(), 0xffff_f000];
    let firmware = if is_bare() { 2 } else { pages.len() };
    for page in &pages[..firmware] {
        let window = mmu::map_page(0, *page);
        mmu::map_page(1, *page);
        for offset in (0..4096).step_by(stride()) {
            for code in ACCESSES {
                let mut registers = probe::pattern(offset);
                registers[place::RDI] = window + offset;
                registers[place::RDX] = random.special();
                // SAFETY: nothing of this program is there; what the I/O APIC sends in between is put back.
                tally.add(unsafe { probe::execute(code, &registers, 0) }.is_err());
            }
        }
    }
    io_apic::mask_all();
    mmu::set_upper(3, 0);
}
