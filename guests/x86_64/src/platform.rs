// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What machine this is: memory, command line, and what ACPI says (PVH: `xen/include/public/arch-x86/hvm/start_info.h`;
//! Multiboot Specification 0.6.96, section 3.3).

pub use crate::cpu::MAX_CPUS;
pub use turnstile_guests_common::list::List;
pub use turnstile_guests_common::memory::Region;

use turnstile_guests_common::global::Global;
use turnstile_guests_common::image::image;
use turnstile_guests_common::memory;

use crate::{acpi, println};

/// What is mapped: the first 4 GiB.
const MAPPED: u64 = 4 << 30;
const MAX_REGIONS: usize = 16;
const MULTIBOOT_MAGIC: u32 = 0x2bad_b002;
const PVH_MAGIC: u32 = 0x336e_c578;
/// Usable memory, in both protocols.
const RAM: u32 = 1;

/// The machine.
pub struct Platform {
    /// Usable memory.
    pub memory: List<Region, MAX_REGIONS>,
    /// APIC identifiers of the CPUs, the boot CPU's first.
    pub cpus: List<u32, MAX_CPUS>,
    /// What ACPI says.
    pub acpi: acpi::Facts,
    /// Where image and loader's information lie.
    pub taken: List<Region, 8>,
    command_line: &'static str,
}

static PLATFORM: Global<Platform> = Global::new(Platform {
    memory: List::new(Region::NOWHERE),
    cpus: List::new(0),
    acpi: acpi::Facts::NONE,
    taken: List::new(Region::NOWHERE),
    command_line: "",
});

/// Returns the machine.
pub fn platform() -> &'static Platform {
    PLATFORM.get()
}

impl Platform {
    /// The command line.
    pub fn command_line(&self) -> &'static str {
        self.command_line
    }

    /// The first address behind all memory.
    pub fn end_of_memory(&self) -> u64 {
        memory::end(self.memory.as_slice())
    }

    /// Returns the addresses of all whole blocks of so many bytes from `first` on that are mapped and hold neither image nor what
    /// the loader told.
    pub fn free_blocks(&self, first: u64, size: u64) -> impl Iterator<Item = u64> + Clone {
        let regions = self.memory.as_slice().iter();
        regions.flat_map(move |region| {
            memory::free_blocks(region.clipped(first, MAPPED), self.taken.as_slice(), size)
        })
    }
}

/// Reads what the loader hands over.
///
/// # Safety
/// `information` and what it points to is mapped memory of the loader's protocol; no other CPU runs.
pub unsafe fn init(magic: u32, information: u32) {
    // SAFETY: no other CPU runs, and nobody has asked for the machine yet.
    let platform = unsafe { PLATFORM.write() };
    let information = u64::from(information);
    let (start, end) = image();
    platform.taken.push(Region::between(start, end));
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
        let count = turnstile_guests_common::options::number_in(platform.command_line, "cpus", 1);
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
        platform.taken.push(Region { base: start_info, size: 56 });
        platform.taken.push(Region { base: line.as_ptr() as u64, size: line.len() as u64 + 1 });
        platform.command_line = line;
        if read_u32(start_info + 4) >= 1 {
            let (table, entries) = (read_u64(start_info + 40), u64::from(read_u32(start_info + 48)));
            platform.taken.push(Region { base: table, size: 24 * entries });
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
        platform.taken.push(Region { base: information, size: 4096 });
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
