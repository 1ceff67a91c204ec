// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions that access a device register: each is executed on memory first, which says what is right.
//!
//! The register is the xAPIC timer's initial count, which keeps all of its 32 bits.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use turnstile_guests_x86_64::apic::{self, register};
use turnstile_guests_x86_64::cpu::{self, msr};
use turnstile_guests_x86_64::exception::vector;
use turnstile_guests_x86_64::probe::{self, Registers, place};
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{boot, check, check_eq, mmio, mmu, read_control, skip, write_control};

pub const TESTS: &[Test] = &[
    Test { name: "emulation-moves", run: moves },
    Test { name: "emulation-arithmetic", run: arithmetic },
    Test { name: "emulation-strings", run: strings },
    Test { name: "emulation-comparisons", run: comparisons },
    Test { name: "emulation-keys", run: keys },
    Test { name: "emulation-addresses", run: addresses },
    Test { name: "emulation-page-end", run: page_end },
];

const DEVICE: u64 = apic::PAGE + register::TIMER_INITIAL as u64;
const FLAGS: u64 = 0x8d5;

/// Memory in the place of the register, with room before and behind it.
static MEMORY: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
static OTHER: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

fn memory() -> u64 {
    MEMORY[32].as_ptr() as u64
}

fn other() -> u64 {
    OTHER[32].as_ptr() as u64
}

/// What an instruction did: registers, flags, the word that it accessed, and the other one.
type Effect = (Registers, u64, u32, u32);

/// Executes code with RDI at `address` and RSI at the other word, or the other way around.
fn effect(code: &[u8], address: u64, swapped: bool) -> Result<Effect, turnstile_guests_x86_64::trap::Trap> {
    let value = 0x8123_4567;
    mmio::write32(address, value);
    OTHER[32].store(0x9abc_def0, SeqCst);
    let mut registers = probe::pattern(7);
    let [to, from] = if swapped { [other(), address] } else { [address, other()] };
    registers[place::RDI] = to;
    registers[place::RSI] = from;
    registers[place::RCX] = 1;
    // CMPXCHG succeeds.
    registers[place::RAX] = registers[place::RAX] & !0xffff_ffff | u64::from(value);
    // SAFETY: the codes here change the two words and registers.
    let (mut after, flags) = unsafe { probe::execute(code, &registers, 0x1) }?;
    // What depends on the address alone, as a difference.
    after[place::RDI] = after[place::RDI].wrapping_sub(to);
    after[place::RSI] = after[place::RSI].wrapping_sub(from);
    Ok((after, flags & FLAGS, mmio::read32(address), OTHER[32].load(SeqCst)))
}

/// Compares the device with memory. Arithmetic flags that the manual leaves undefined are not in the codes here.
fn compare(name: &str, code: &[u8], swapped: bool) -> Outcome {
    let right = match effect(code, memory(), swapped) {
        Ok(effect) => effect,
        Err(trap) => skip!("{name} on memory: {trap}"),
    };
    apic::write(register::LVT_TIMER, apic::MASKED | 0xfe);
    match effect(code, DEVICE, swapped) {
        Ok(found) => {
            check_eq!(found.2, right.2, "{name}: the word");
            check_eq!(found.3, right.3, "{name}: the other word");
            check_eq!(found.1, right.1, "{name}: the flags");
            for (index, (found, right)) in found.0.iter().zip(right.0).enumerate() {
                check_eq!(*found, right, "{name}: register {index}");
            }
        }
        Err(trap) => check!(false, "{name}: {trap}"),
    }
    Ok(())
}

fn each(codes: &[(&str, &[u8])]) -> Outcome {
    apic::init_as(false);
    codes.iter().try_for_each(|(name, code)| compare(name, code, false))
}

fn moves() -> Outcome {
    each(&[
        ("mov eax, [rdi]", &[0x8b, 0x07]),
        ("mov r15d, [rdi]", &[0x44, 0x8b, 0x3f]),
        ("mov [rdi], edx", &[0x89, 0x17]),
        ("mov [rdi], r9d", &[0x44, 0x89, 0x0f]),
        ("mov dword [rdi], imm", &[0xc7, 0x07, 0x44, 0x33, 0x22, 0x91]),
        ("movsxd rbx, [rdi]", &[0x48, 0x63, 0x1f]),
        ("xchg [rdi], edx", &[0x87, 0x17]),
        ("xchg [rdi], r8d", &[0x44, 0x87, 0x07]),
    ])
}

fn arithmetic() -> Outcome {
    each(&[
        ("or eax, [rdi]", &[0x0b, 0x07]),
        ("and edx, [rdi]", &[0x23, 0x17]),
        ("xor ebx, [rdi]", &[0x33, 0x1f]),
        ("add ecx, [rdi]", &[0x03, 0x0f]),
        ("sub r10d, [rdi]", &[0x44, 0x2b, 0x17]),
        ("cmp eax, [rdi]", &[0x3b, 0x07]),
        ("cmp [rdi], edx", &[0x39, 0x17]),
        ("test [rdi], edx", &[0x85, 0x17]),
        ("test dword [rdi], imm", &[0xf7, 0x07, 0x00, 0x00, 0x00, 0x80]),
        ("cmp dword [rdi], imm8", &[0x83, 0x3f, 0xff]),
        ("or [rdi], edx", &[0x09, 0x17]),
        ("and [rdi], edx", &[0x21, 0x17]),
        ("xor [rdi], edx", &[0x31, 0x17]),
        ("add [rdi], edx", &[0x01, 0x17]),
        ("sub [rdi], edx", &[0x29, 0x17]),
        ("or dword [rdi], imm", &[0x81, 0x0f, 0x88, 0x77, 0x66, 0x55]),
        ("and dword [rdi], imm8", &[0x83, 0x27, 0xf0]),
        ("lock or [rdi], edx", &[0xf0, 0x09, 0x17]),
    ])
}

fn strings() -> Outcome {
    apic::init_as(false);
    compare("stosd", &[0xab], false)?;
    compare("rep stosd", &[0xf3, 0xab], false)?;
    compare("movsd to the device", &[0xa5], false)?;
    compare("movsd from the device", &[0xa5], true)
}

/// Comparisons of strings, with the device on either side.
fn comparisons() -> Outcome {
    apic::init_as(false);
    compare("cmpsd with the device", &[0xa7], false)?;
    compare("cmpsd of the device", &[0xa7], true)?;
    compare("repe cmpsd", &[0xf3, 0xa7], false)?;
    compare("repne cmpsd", &[0xf2, 0xa7], true)?;
    compare("scasd", &[0xaf], false)?;
    compare("repne scasd", &[0xf2, 0xaf], false)
}

/// What is carried out for the guest respects its protection keys: a page that may not be written is not.
fn keys() -> Outcome {
    const PKU: u32 = 1 << 3;
    const PKE: u64 = 1 << 22;
    /// Key 1: no writes.
    const NO_WRITES: u32 = 2 << 2;
    let [_, _, features, _] = cpu::cpuid(7, 0);
    if features & PKU == 0 {
        skip!("no protection keys");
    }
    apic::init_as(false);
    mmio::write32(DEVICE, 0x1234_5678);
    let scratch = boot::image().1.next_multiple_of(mmu::WINDOW_SIZE);
    let page = mmu::set_page(6, scratch | mmu::entry::USUAL | 1 << 59);
    let mut registers = probe::pattern(4);
    registers[place::RSI] = DEVICE;
    registers[place::RDI] = page;
    let cr4 = read_control!("cr4");
    write_control!("cr4", cr4 | PKE);
    let move_under = |rights| {
        set_pkru(rights);
        // SAFETY: MOVSD to a page that is nobody's.
        let result = unsafe { probe::execute(&[0xa5], &registers, 0) };
        set_pkru(0);
        result
    };
    mmio::write32(page, 0);
    let (denied, kept) = (move_under(NO_WRITES), mmio::read32(page));
    let (allowed, moved) = (move_under(0), mmio::read32(page));
    write_control!("cr4", cr4);
    mmu::set_upper(3, 0);
    match denied {
        Ok(_) => check!(false, "a page whose key forbids it is written"),
        Err(trap) => {
            check_eq!(trap.vector, vector::PF, "the exception");
            check_eq!(trap.error, 0x23, "the error code");
            check_eq!(trap.address, page, "CR2");
        }
    }
    check_eq!(kept, 0, "the page behind the key");
    check!(allowed.is_ok(), "a page whose key allows it cannot be written");
    check_eq!(moved, 0x1234_5678, "the page without the key");
    Ok(())
}

/// Sets PKRU; CR4.PKE is set.
fn set_pkru(value: u32) {
    // SAFETY: changes what may be done with pages that have keys, which nothing of this program is in.
    unsafe { core::arch::asm!("wrpkru", in("eax") value, in("ecx") 0, in("edx") 0, options(nostack)) };
}

/// Ways to name the same address.
fn addresses() -> Outcome {
    apic::init_as(false);
    cpu::write_msr(msr::FS_BASE, DEVICE - 0x40);
    let check = |name: &str, code: &[u8]| {
        mmio::write32(DEVICE, 0x1234_5678);
        let mut registers = probe::pattern(9);
        registers[place::RDI] = DEVICE - 0x40;
        registers[place::RCX] = 8;
        registers[place::RBX] = DEVICE - 0x3000_0000;
        registers[12] = DEVICE;
        registers[11] = DEVICE - 0x40;
        registers[place::RSI] = 0xffff_ffff_0000_0000 | DEVICE;
        // SAFETY: the codes only load.
        let result = unsafe { probe::execute(code, &registers, 0) };
        match result {
            Ok((after, _)) => check_eq!(after[place::RAX], 0x1234_5678, "{name}"),
            Err(trap) => check!(false, "{name}: {trap}"),
        }
        Ok(())
    };
    check("[rdi + disp8]", &[0x8b, 0x47, 0x40])?;
    check("[rdi + disp32]", &[0x8b, 0x87, 0x40, 0, 0, 0])?;
    check("[rdi + 8 * rcx]", &[0x8b, 0x04, 0xcf])?;
    check("[rbx + disp32]", &[0x8b, 0x83, 0, 0, 0, 0x30])?;
    check("[r13]", &[0x41, 0x8b, 0x45, 0])?;
    check("[r12 + disp8]", &[0x41, 0x8b, 0x44, 0x24, 0x40])?;
    check("fs:[0x40]", &[0x64, 0x8b, 0x04, 0x25, 0x40, 0, 0, 0])?;
    check("[esi]", &[0x67, 0x8b, 0x06])?;
    let [a, b, c, d, ..] = DEVICE.to_le_bytes();
    check("moffs", &[0xa1, a, b, c, d, 0, 0, 0, 0])?;
    check("needless prefixes", &[0x3e, 0x3e, 0x2e, 0x8b, 0x47, 0x40])
}

/// The instruction begins on one page and ends on the next.
fn page_end() -> Outcome {
    #[repr(C, align(4096))]
    struct Pages([AtomicU32; 2048]);
    static PAGES: Pages = Pages([const { AtomicU32::new(0) }; 2048]);
    apic::init_as(false);
    let base = PAGES.0.as_ptr() as u64;
    // The second page comes first in the window.
    let code = mmu::map_page(0, base + 4096);
    mmu::map_page(1, base);
    mmio::write32(DEVICE, 0x1234_5678);
    let mut registers = probe::pattern(3);
    registers[place::RDI] = DEVICE - 0x40;
    for before in 1..6 {
        // SAFETY: the pages are nobody's; the code only loads.
        let result = unsafe {
            probe::write(code + 4096 - before, &[0x8b, 0x87, 0x40, 0, 0, 0]);
            probe::execute_at(code + 4096 - before, &registers, 0)
        };
        match result {
            Ok((after, _)) => check_eq!(after[place::RAX], 0x1234_5678, "{before} bytes before the end"),
            Err(trap) => check!(false, "{before} bytes before the end: {trap}"),
        }
    }
    Ok(())
}
