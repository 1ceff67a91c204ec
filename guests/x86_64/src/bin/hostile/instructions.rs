// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions that access devices, most of them no hypervisor has to carry out: it says so by an exception. And code in
//! places where code cannot be.

use turnstile_guests_x86_64::apic::{self, register};
use turnstile_guests_x86_64::mmu::{self, entry};
use turnstile_guests_x86_64::probe::{self, Registers, place};
use turnstile_guests_x86_64::random::{self, Random};
use turnstile_guests_x86_64::{boot, crash, io_apic, mmio, trap};

use crate::{Tally, is_bare, stride};

/// Instructions that would not come back, or would take from this program what it runs on.
fn is_own(map: u8, opcode: u8, group: u8) -> bool {
    match (map, opcode) {
        // Stacks, jumps, calls, returns, interrupts, HLT, far pointers, prefixes.
        (
            0,
            0x06..=0x07 | 0x0e..=0x0f | 0x16..=0x17 | 0x1e..=0x1f | 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x61,
        ) => true,
        (
            0,
            0x64..=0x67
            | 0x68
            | 0x6a
            | 0x70..=0x7f
            | 0x8e
            | 0x8f
            | 0x9a
            | 0x9c
            | 0x9d
            | 0xc2..=0xc5
            | 0xc8..=0xcf,
        ) => true,
        (0, 0x6c..=0x6f | 0xe0..=0xf1 | 0xf2 | 0xf3 | 0xf4 | 0xfa | 0xfb) => true,
        (0, 0xff) => group >= 2,
        // Descriptor tables, task register, machine status; INVLPG is fine.
        (1, 0x00) => group >= 2,
        (1, 0x01) => matches!(group, 2 | 3 | 5 | 6),
        // System calls, control and debug registers, MSRs, FS and GS, RSM, jumps.
        (1, 0x05 | 0x07 | 0x20..=0x27 | 0x30 | 0x34 | 0x35 | 0x80..=0x8f | 0xa0 | 0xa1 | 0xa8..=0xaa) => true,
        (1, 0xb2 | 0xb4 | 0xb5 | 0x0b | 0xb9 | 0xff) => true,
        // XRSTORS and the like, with lists of what nobody checks; WRFSBASE and WRGSBASE are registers only.
        (1, 0xc7 | 0xae) => is_bare(),
        _ => false,
    }
}

fn places() -> [u64; 4] {
    [
        io_apic::base() + io_apic::WINDOW,
        apic::PAGE + u64::from(register::TIMER_INITIAL),
        crash::outside() + 0x40,
        0xfed0_0000,
    ]
}

fn attack(tally: &mut Tally, code: &[u8], address: u64, seed: u64) {
    let mut registers: Registers = probe::pattern(seed);
    registers[place::RDI] = address;
    registers[place::RSI] = address;
    registers[place::RBX] = address;
    registers[place::RCX] = 3;
    registers[place::RDX] = 0x80;
    // SAFETY: what the code can reach is the device, the red zone of the probe's stack, and registers.
    tally.add(unsafe { probe::execute(code, &registers, 0) }.is_err());
}

/// Every opcode of the four maps with a memory operand, in each group, under each prefix.
pub fn opcodes(tally: &mut Tally) {
    apic::init_as(false);
    mmio::write32(io_apic::base() + io_apic::SELECT, 0);
    let prefixes: [&[u8]; 9] =
        [&[], &[0x66], &[0xf2], &[0xf3], &[0xf0], &[0x48], &[0x66, 0x4c], &[0x67], &[0xf3, 0x48]];
    let maps: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];
    for (map, escape) in (0..).zip(maps) {
        for opcode in (0..=255_u8).step_by(stride()) {
            for group in (0..8).filter(|group| !is_own(map, opcode, *group)) {
                for (index, prefix) in prefixes.into_iter().enumerate() {
                    // What is behind the operand, immediate or not, does nothing as an instruction.
                    let mut code = [0x90; 24];
                    let last = [opcode, group << 3 | 7];
                    let bytes = prefix.iter().chain(escape).chain(&last);
                    for (slot, byte) in code.iter_mut().zip(bytes) {
                        *slot = *byte;
                    }
                    let place = places()[(index + usize::from(group)) % places().len()];
                    attack(tally, &code, place, u64::from(opcode));
                }
            }
        }
    }
    io_apic::mask_all();
}

/// Prefixes of all kinds and numbers before a few instructions that are carried out: up to too many bytes.
pub fn prefixes(tally: &mut Tally) {
    apic::init_as(false);
    let all = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x40, 0x44, 0x48, 0x4f, 0x41];
    let codes: [&[u8]; 9] = [
        &[0x8b, 0x07],
        &[0x89, 0x07],
        &[0xc7, 0x07, 0x90, 0x90, 0x90, 0x90],
        &[0x81, 0x0f, 0x90, 0x90, 0x90, 0x90],
        &[0x87, 0x17],
        &[0xab],
        &[0xa5],
        &[0x0f, 0xb6, 0x07],
        &[0x63, 0x07],
    ];
    let mut random: Random = random::stream(16);
    for round in 0..40_000 / stride() {
        let mut code = [0x90; 24];
        let count = random.below(if round % 2 == 0 { 5 } else { 16 }) as usize;
        for slot in &mut code[..count] {
            *slot = all[random.below(all.len() as u64) as usize];
        }
        let last = codes[random.below(codes.len() as u64) as usize];
        code[count..count + last.len().min(24 - count)].copy_from_slice(&last[..last.len().min(24 - count)]);
        // FS is where nothing is: with it the address is another, and mapped nowhere or to nobody.
        let place = places()[random.below(4) as usize];
        attack(tally, &code, place, round as u64);
    }
}

/// Instructions of which the second half is not there, may not be executed, is a device, or is other memory.
pub fn page_ends(tally: &mut Tally) {
    apic::init_as(false);
    let scratch = boot::image().1.next_multiple_of(mmu::WINDOW_SIZE);
    let code = [0x48, 0xc7, 0x87, 0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12];
    let seconds = [
        0,
        scratch | entry::USUAL,
        io_apic::base() | entry::USUAL,
        apic::PAGE | entry::USUAL,
        crash::outside() | entry::USUAL,
        scratch | entry::USUAL | 1 << 63,
        1 << 51 | entry::USUAL,
    ];
    for second in seconds {
        // An entry with bits that must not be set: where NX is not switched on, bit 63 is one of them.
        for split in 1..code.len() as u64 {
            for place in places() {
                let first = mmu::set_page(0, (scratch + 0x1000) | entry::USUAL);
                mmu::set_page(1, scratch | entry::USUAL);
                let start = first + 4096 - split;
                // SAFETY: both pages are nobody's; the way back is in the second one, if it is still mapped.
                unsafe { probe::write(start, &code) };
                mmu::set_page(1, second);
                let mut registers = probe::pattern(split);
                registers[place::RDI] = place;
                if second != scratch | entry::USUAL && is_bare() {
                    continue;
                }
                // SAFETY: as above.
                tally.add(unsafe { probe::execute_at(start, &registers, 0) }.is_err());
            }
        }
    }
    mmu::set_upper(3, 0);
}

/// Jumps to devices, to nothing, and to memory that changes.
pub fn fetch(tally: &mut Tally) {
    if is_bare() {
        return;
    }
    for place in places().into_iter().chain([0xa_0000, 0xffff_fff0, 0xe000_0000]) {
        for offset in [0, 1, 0xff0, 0xfff] {
            let address = place & !0xfff | offset;
            let trap = trap::caught(|| {
                // SAFETY: nothing comes back from there but exceptions.
                unsafe { core::arch::asm!("call {}", in(reg) address, clobber_abi("C")) };
            });
            tally.add(trap.is_some());
        }
    }
}
