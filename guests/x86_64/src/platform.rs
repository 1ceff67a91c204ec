// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What machine this is: memory, command line, and what ACPI says (PVH: `xen/include/public/arch-x86/hvm/start_info.h`;
//! Multiboot Specification 0.6.96, section 3.3).

use core::cell::UnsafeCell;

use crate::{acpi, println};

/// Most CPUs.
pub const MAX_CPUS: usize = 64;
const MAX_REGIONS: usize = 16;
const MULTIBOOT_MAGIC: u32 = 0x2bad_b002;
const PVH_MAGIC: u32 = 0x336e_c578;
/// Usable memory, in both protocols.
const RAM: u32 = 1;

/// A part of the address space.
#[derive(Clone, Copy)]
pub struct Region {
    /// Its first address.
    pub base: u64,
    /// Its bytes.
    pub size: u64,
}

impl Region {
    /// Returns the first address behind it.
    pub fn end(&self) -> u64 {
        self.base.saturating_add(self.size)
    }
}

/// A list of bounded length.
pub struct List<T, const N: usize> {
    items: [T; N],
    len: usize,
}

impl<T: Copy, const N: usize> List<T, N> {
    const fn new(nothing: T) -> Self {
        List { items: [nothing; N], len: 0 }
    }

    /// Appends; what does not fit is left out.
    pub fn push(&mut self, item: T) {
        if let Some(slot) = self.items.get_mut(self.len) {
            *slot = item;
            self.len += 1;
        }
    }

    /// The items.
    pub fn as_slice(&self) -> &[T] {
        &self.items[..self.len]
    }
}

/// The machine.
pub struct Platform {
    /// Usable memory.
    pub memory: List<Region, MAX_REGIONS>,
    /// APIC identifiers of the CPUs, the boot CPU's first.
    pub cpus: List<u32, MAX_CPUS>,
    /// What ACPI says.
    pub acpi: acpi::Facts,
    /// Where the loader's information lies.
    pub loader: List<Region, 4>,
    command_line: &'static str,
}

struct Cell(UnsafeCell<Platform>);

// SAFETY: written once, before any other CPU runs.
unsafe impl Sync for Cell {}

static PLATFORM: Cell = Cell(UnsafeCell::new(Platform {
    memory: List::new(Region { base: 0, size: 0 }),
    cpus: List::new(0),
    acpi: acpi::Facts::NONE,
    loader: List::new(Region { base: 0, size: 0 }),
    command_line: "",
}));

/// Returns the machine.
pub fn platform() -> &'static Platform {
    // SAFETY: only `init` writes, and it has come to its end.
    unsafe { &*PLATFORM.0.get() }
}

impl Platform {
    /// The command line.
    pub fn command_line(&self) -> &'static str {
        self.command_line
    }

    /// The first address behind all memory.
    pub fn end_of_memory(&self) -> u64 {
        self.memory.as_slice().iter().map(Region::end).max().unwrap_or(0)
    }
}

/// Reads what the loader hands over.
///
/// # Safety
/// `information` and what it points to is mapped memory of the loader's protocol; no other CPU runs.
pub unsafe fn init(magic: u32, information: u32) {
    // SAFETY: only this function writes, once.
    let platform = unsafe { &mut *PLATFORM.0.get() };
    let information = u64::from(information);
    // SAFETY: the caller's promise.
    let root = unsafe {
        if magic == MULTIBOOT_MAGIC {
            read_multiboot(platform, information);
            0
        } else {
            read_pvh(platform, information)
        }
    };
    platform.acpi = acpi::read(root);
    let boot = crate::cpu::initial_apic_id() as u32;
    platform.cpus.push(boot);
    for id in platform.acpi.cpus.as_slice().iter().filter(|id| **id != boot) {
        platform.cpus.push(*id);
    }
    // Without ACPI the command line says how many there are.
    if platform.acpi.cpus.as_slice().is_empty() {
        let count = turnstile_guests_common::options::number(platform.command_line, "cpus", 1);
        for id in (0..count as u32).filter(|id| *id != boot) {
            platform.cpus.push(id);
        }
    }
}

unsafe fn read_u32(address: u64) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { (address as *const u32).read_unaligned() }
}

unsafe fn read_u64(address: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { (address as *const u64).read_unaligned() }
}

unsafe fn read_text(address: u64) -> &'static str {
    if address == 0 {
        return "";
    }
    // SAFETY: the caller's promise; a text ends with a zero byte.
    let text = unsafe { core::ffi::CStr::from_ptr(address as *const _) };
    text.to_str().unwrap_or("")
}

unsafe fn read_pvh(platform: &mut Platform, start_info: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        if read_u32(start_info) != PVH_MAGIC {
            return 0;
        }
        let line = read_text(read_u64(start_info + 24));
        platform.loader.push(Region { base: start_info, size: 56 });
        platform.loader.push(Region { base: line.as_ptr() as u64, size: line.len() as u64 + 1 });
        platform.command_line = line;
        if read_u32(start_info + 4) >= 1 {
            let (table, entries) = (read_u64(start_info + 40), u64::from(read_u32(start_info + 48)));
            platform.loader.push(Region { base: table, size: 24 * entries });
            for entry in (0..entries).map(|index| table + 24 * index) {
                if read_u32(entry + 16) == RAM {
                    platform.memory.push(Region { base: read_u64(entry), size: read_u64(entry + 8) });
                }
            }
        }
        read_u64(start_info + 32)
    }
}

unsafe fn read_multiboot(platform: &mut Platform, information: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        platform.loader.push(Region { base: information, size: 4096 });
        let flags = read_u32(information);
        if flags & 1 << 2 != 0 {
            let line = read_text(u64::from(read_u32(information + 16)));
            platform.command_line = line;
        }
        if flags & 1 << 6 != 0 {
            let (length, table) = (read_u32(information + 44), read_u32(information + 48));
            let (mut entry, end) = (u64::from(table), u64::from(table) + u64::from(length));
            while entry < end {
                if read_u32(entry + 20) == RAM {
                    platform.memory.push(Region { base: read_u64(entry + 4), size: read_u64(entry + 12) });
                }
                entry += u64::from(read_u32(entry)) + 4;
            }
        } else if flags & 1 != 0 {
            platform.memory.push(Region { base: 1 << 20, size: u64::from(read_u32(information + 8)) << 10 });
        }
    }
}

/// Prints what machine this is.
pub fn report() {
    let machine = platform();
    let bytes: u64 = machine.memory.as_slice().iter().map(|region| region.size).sum();
    println!(
        "  {} CPUs, {} KiB, I/O APIC {:#x}, {}",
        machine.cpus.as_slice().len(),
        bytes >> 10,
        machine.acpi.io_apic,
        if crate::kvm::base().is_some() { "KVM's interface" } else { "no KVM interface" },
    );
}
