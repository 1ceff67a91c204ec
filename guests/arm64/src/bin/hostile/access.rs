// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads, stores and whatever else takes an address, at addresses where nothing is and where devices are.

use core::arch::{asm, global_asm};

use turnstile_guests::mmu::{self, BLOCK, descriptor};
use turnstile_guests::platform::{List, Region, platform};
use turnstile_guests::random;
use turnstile_guests::trap::{self, Trap};
use turnstile_guests::{console, mmio, println};

use crate::{Tally, is_bare, stride};

/// Declares a table of instructions that take an address in x0, each followed by RET.
macro_rules! accesses {
    ($($name:literal),* $(,)?) => {
        const ACCESSES: &[&str] = &[$($name),*];
        global_asm!(
            ".section .text.accesses, \"ax\"",
            ".arch_extension lse", ".arch_extension rcpc", ".arch_extension fp", ".arch_extension simd",
            ".p2align 3",
            ".global access_table",
            "access_table:",
            $($name, "ret",)*
            ".arch_extension nosimd", ".arch_extension nofp", ".arch_extension norcpc",
            ".arch_extension nolse",
        );
    };
}

accesses![
    "ldrb w1, [x0]",
    "ldrh w1, [x0]",
    "ldr w1, [x0]",
    "ldr x1, [x0]",
    "ldrsb x1, [x0]",
    "ldrsh w1, [x0]",
    "ldrsw x1, [x0]",
    "strb w1, [x0]",
    "strh w1, [x0]",
    "str w1, [x0]",
    "str x1, [x0]",
    "ldr x1, [x0], #8",
    "str x1, [x0, #8]!",
    "ldrb w1, [x0], #-1",
    "ldur w1, [x0, #1]",
    "stur x1, [x0, #3]",
    "ldurh w1, [x0, #1]",
    "ldp x1, x2, [x0]",
    "ldp w1, w2, [x0]",
    "stp x1, x2, [x0]",
    "ldnp x1, x2, [x0]",
    "ldpsw x1, x2, [x0]",
    "ldp x1, x2, [x0], #16",
    "ldtr x1, [x0]",
    "sttr w1, [x0]",
    "ldar x1, [x0]",
    "stlr x1, [x0]",
    "ldapr w1, [x0]",
    "ldxr x1, [x0]",
    "ldaxrb w1, [x0]",
    "stxr w3, x1, [x0]",
    "ldxp x1, x2, [x0]",
    "stlxp w3, x1, x2, [x0]",
    "ldadd x1, x2, [x0]",
    "swpal w1, w2, [x0]",
    "cas x1, x2, [x0]",
    "casp x4, x5, x6, x7, [x0]",
    "stclr x1, [x0]",
    "ldumaxb w1, w2, [x0]",
    "ldr q1, [x0]",
    "str q1, [x0]",
    "ldr b1, [x0]",
    "str d1, [x0]",
    "ldp q1, q2, [x0]",
    "stp d1, d2, [x0]",
    "ld1 {{v0.16b, v1.16b, v2.16b, v3.16b}}, [x0]",
    "st1 {{v0.b}}[3], [x0]",
    "ld4r {{v0.8h, v1.8h, v2.8h, v3.8h}}, [x0]",
    "prfm pldl1keep, [x0]",
    "prfm pstl3strm, [x0]",
    "dc zva, x0",
    "dc cvac, x0",
    "dc civac, x0",
    "dc ivac, x0",
    "dc cvau, x0",
    "ic ivau, x0",
    "at s1e1r, x0",
    "at s1e1w, x0",
    "at s1e0r, x0",
];

unsafe extern "C" {
    static access_table: [u32; 2];
}

/// Does the access of this number at an address; returns x1 and the exception, if any.
fn access(number: usize, address: u64, value: u64) -> (u64, Option<Trap>) {
    let function = &raw const access_table as u64 + 8 * number as u64;
    trap::expect(|| {
        let mut x1 = value;
        // SAFETY: the address is outside this program's memory; a trap skips the instruction.
        unsafe {
            asm!("blr {}", in(reg) function, inout("x0") address => _, inout("x1") x1, clobber_abi("C"));
        }
        x1
    })
}

fn end_of_memory() -> u64 {
    platform().end_of_memory()
}

fn is_memory(address: u64) -> bool {
    platform().memory.as_slice().iter().any(|region| address >= region.base && address < region.end())
}

/// Whether a device of the device tree is there: what lies behind one may be the next.
fn is_device(address: u64) -> bool {
    let machine = platform();
    let uart = machine.uart.map(|uart| uart.region);
    let single = [machine.gicd, machine.gicc, uart, machine.rtc];
    let mut regions = single.iter().flatten().chain(machine.gicr.as_slice()).chain(machine.flash.as_slice());
    regions.any(|region| address >= region.base && address < region.end())
}

/// Named addresses where the device tree has nothing.
fn hole_list() -> List<(&'static str, u64), 40> {
    let mut list = List::new(("", 0));
    let ram = platform().ram();
    let end = end_of_memory();
    list.push(("zero", 0));
    list.push(("first page", 0xff8));
    list.push(("low", 0x10_0000));
    list.push(("just below memory", ram.base - 64));
    list.push(("2 MiB below memory", ram.base - BLOCK));
    list.push(("just above memory", end));
    list.push(("2 MiB above memory", end + BLOCK));
    list.push(("4 GiB - 64", (4 << 30) - 64));
    list.push(("64 GiB", 64 << 30));
    list.push(("256 GiB", 256 << 30));
    list.push(("510 GiB", 510 << 30));
    let mut around = |before, behind, region: Region| {
        list.push((before, region.base - 64));
        list.push((behind, region.end()));
    };
    if let Some(gicd) = platform().gicd {
        around("before the distributor", "behind the distributor", gicd);
    }
    for gicr in platform().gicr.as_slice() {
        around("before the redistributors", "behind the redistributors", *gicr);
    }
    if let Some(uart) = platform().uart {
        around("before the UART", "behind the UART", uart.region);
    }
    if let Some(rtc) = platform().rtc {
        around("before the clock", "behind the clock", rtc);
    }
    list.push(("where virtio would be", 0x0a00_0000));
    list.push(("where PCI would be", 0x1000_0000));
    list.push(("where PCI configuration would be", 0x3f00_0000));
    list.push(("where an ITS would be", 0x0808_0000));
    list.push(("where a GICv2 CPU interface would be", 0x0801_0000));
    list
}

/// Every access at every hole; prints what the plain load and store got.
pub fn holes(tally: &mut Tally) {
    for (name, address) in hole_list().as_slice() {
        if is_memory(*address) || is_device(*address) {
            continue;
        }
        let (value, load) = access(3, *address, 0);
        let (_, store) = access(10, *address, 0x5a5a_5a5a_a5a5_a5a5);
        match (load, store) {
            (Some(load), Some(store)) => println!("  {name} {address:#x}: {load}; store {:#x}", store.esr),
            (None, Some(store)) => println!("  {name} {address:#x}: reads {value:#x}; store {store}"),
            (Some(load), None) => println!("  {name} {address:#x}: {load}; can be written"),
            (None, None) => println!("  {name} {address:#x}: reads {value:#x}, can be written"),
        }
        for number in 0..ACCESSES.len() {
            tally.add(access(number, *address, !0).1.is_some());
        }
    }
    // The same as memory with caches, through stage 1.
    for address in [end_of_memory() + BLOCK, 300 << 30, 1 << 39] {
        let window = mmu::set_window(5, Some((address, descriptor::NORMAL)));
        for number in 0..ACCESSES.len() {
            tally.add(access(number, window + 0x1240, !0).1.is_some());
        }
        mmu::set_window(5, None);
    }
}

/// Device registers that the accesses of every kind go to: harmless ones, and one of each page.
pub fn device_accesses(tally: &mut Tally) {
    let mut places: List<u64, 32> = List::new(0);
    if let Some(gicd) = platform().gicd {
        for offset in [0x4, 0x8, 0x410, 0x6200, 0xffd0, 0xfff8, 0x1000, 0x40, 0x407, 0xfffd] {
            places.push(gicd.base + offset);
        }
    }
    if let Some(gicc) = platform().gicc {
        for offset in [0x4, 0x8, 0x14, 0xfc, 0x1000, 0x7] {
            places.push(gicc.base + offset);
        }
    }
    for gicr in platform().gicr.as_slice() {
        for offset in [0x8, 0x1_0404, 0x1_ffe8, 0x1_fff8, 0xffff] {
            places.push(gicr.base + offset);
        }
    }
    if let Some(uart) = platform().uart {
        for offset in [0x18, 0x24, 0xfe0, 0x5, 0x7, uart.region.size - 8] {
            places.push(uart.region.base + offset);
        }
    }
    if let Some(rtc) = platform().rtc {
        places.push(rtc.base);
        places.push(rtc.base + 0xfe0);
    }
    for place in places.as_slice() {
        for number in 0..ACCESSES.len() {
            tally.add(access(number, *place, 0x5555_5555).1.is_some());
        }
    }
    console::init();
    // What DC ZVA may have sent to the console ends here.
    println!();
}

/// Every offset of UART and clock with ones, zeros and noise, at every size; not the UART's data register.
pub fn devices(tally: &mut Tally) {
    let uart = platform().uart.map(|uart| uart.region);
    let mut random = random::stream(2);
    for region in [uart, platform().rtc].into_iter().flatten() {
        // A 16550 has eight registers of a byte: its first one is data, a PL011's first word.
        for offset in (4..region.size.min(0x1000)).step_by(stride()) {
            let address = region.base + offset;
            for value in [!0, 0, random.number()] {
                write_sizes(tally, address, value);
                let reads = trap::expect(|| (mmio::read8(address), mmio::read32(address & !3)));
                tally.add(reads.1.is_some());
            }
        }
        console::init();
    }
}

/// Every command at every size, at the corners of each bank of flash and anywhere in it, with whatever command follows; and
/// accesses of every kind while it shows cells, and while it shows its status.
pub fn flash(tally: &mut Tally) {
    const BLOCK: u64 = 256 << 10;
    let mut random = random::stream(3);
    for bank in platform().flash.as_slice() {
        for command in 0..=0xff {
            for offset in [0, 2, BLOCK - 8, BLOCK, bank.size - 8, random.number() % (bank.size - 8)] {
                // Whatever was begun, in pairs: noise, and what confirms.
                let both = (command << 16 | command) * 0x1_0000_0001;
                write_sizes(tally, bank.base + offset, both);
                let next = if random.number().is_multiple_of(2) { 0xd0 } else { random.number() & 0xff };
                write_sizes(tally, bank.base + random.number() % (bank.size - 8), next);
                let address = bank.base + offset;
                let reads = trap::expect(|| (mmio::read8(address), mmio::read64(address & !7)));
                tally.add(reads.1.is_some());
            }
        }
        for mode in [0xff, 0x70, 0xe8] {
            for number in 0..ACCESSES.len() {
                // Ends a buffer that is being filled, if one is.
                (0..300).for_each(|_| mmio::write32(bank.base, 0xff_00ff));
                mmio::write32(bank.base, mode);
                tally.add(access(number, bank.base + 0x40, 0xff_00ff).1.is_some());
                tally.add(access(number, bank.end() - 8, 0xff_00ff).1.is_some());
            }
        }
        (0..300).for_each(|_| mmio::write32(bank.base, 0xff_00ff));
        // Nobody may execute what is not shown.
        mmio::write32(bank.base, 0x70);
        tally.add(call(bank.base).is_some());
        mmio::write32(bank.base, 0xff_00ff);
    }
}

/// Writes a value at every size; the wider ones at the aligned address.
pub fn write_sizes(tally: &mut Tally, address: u64, value: u64) {
    tally.add(trap::caught(|| mmio::write8(address, value as u8)).is_some());
    if address.is_multiple_of(2) {
        tally.add(trap::caught(|| mmio::write16(address, value as u16)).is_some());
    }
    if address.is_multiple_of(4) {
        tally.add(trap::caught(|| mmio::write32(address, value as u32)).is_some());
    }
    if address.is_multiple_of(8) {
        tally.add(trap::caught(|| mmio::write64(address, value)).is_some());
    }
}

fn call(address: u64) -> Option<Trap> {
    trap::caught(|| {
        // SAFETY: the fetch faults and the handler returns to the link register; what could be fetched
        // instead is zeros (UDF) or device registers, and ends in the handler too.
        unsafe { asm!("blr {}", in(reg) address, clobber_abi("C")) };
    })
}

/// Instruction fetches from holes and devices, executable as far as stage 1 is concerned.
pub fn fetch(tally: &mut Tally) {
    let mut places: List<u64, 48> = List::new(0);
    for (_, address) in hole_list().as_slice() {
        // Bare machines have flash memory below, whose contents could be executed.
        let is_flash = is_bare() && *address < 0x0800_0000;
        if !(is_memory(*address) || is_device(*address) || is_flash) {
            places.push(address & !3);
        }
    }
    // A CPU that reaches a device would execute what it reads; only a hypervisor keeps it away from there.
    if !is_bare() {
        for region in [platform().gicd, platform().uart.map(|uart| uart.region), platform().rtc] {
            region.iter().for_each(|region| places.push(region.base + 0xfe0));
        }
        platform().gicr.as_slice().iter().for_each(|region| places.push(region.base + 8));
        platform().gicc.iter().for_each(|region| places.push(region.base + 8));
    }
    for place in places.as_slice() {
        for kind in [descriptor::NORMAL, descriptor::NON_CACHEABLE, descriptor::DEVICE] {
            let window = mmu::set_window(6, Some((*place, kind)));
            let trap = call(window + place % BLOCK);
            if trap.is_none() {
                println!("  fetch from {place:#x} came back without an exception");
            }
            tally.add(trap.is_some());
        }
    }
    mmu::set_window(6, None);
    // Misaligned program counters.
    for offset in [1, 2, 3] {
        tally.add(call(end_of_memory() + offset).is_some());
    }
}

/// The same fault over and over: a report per fault would flood, a leak per fault would run out.
pub fn faults(tally: &mut Tally) {
    let address = end_of_memory();
    for number in [3, 10, 17, 33, 50] {
        for _ in 0..20_000 / stride() {
            tally.add(access(number, address, 0).1.is_some());
        }
    }
    for _ in 0..20_000 / stride() {
        tally.add(call(address).is_some());
    }
}
