// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's page tables (APM vol. 2, chapter 5): none, 32-bit, PAE, four and five levels.
//!
//! [`translate`] does what the hardware does: checks, page faults, accessed and dirty bits. [`locate`] only finds where the
//! instruction is that the hardware has just fetched, for which it has done all that.

/// Control registers that say how addresses are translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paging {
    /// CR0.
    pub cr0: u64,
    /// CR3.
    pub cr3: u64,
    /// CR4.
    pub cr4: u64,
    /// EFER.
    pub efer: u64,
    /// RFLAGS, for AC under SMAP.
    pub rflags: u64,
    /// PKRU, for the keys of pages where CR4.PKE is set.
    pub pkru: u32,
    /// How many bits physical addresses have.
    pub physical_bits: u32,
}

const CR0_WP: u64 = 1 << 16;
const CR0_PG: u64 = 1 << 31;
const CR4_PSE: u64 = 1 << 4;
const CR4_PAE: u64 = 1 << 5;
const CR4_LA57: u64 = 1 << 12;
const CR4_SMEP: u64 = 1 << 20;
const CR4_SMAP: u64 = 1 << 21;
const CR4_PKE: u64 = 1 << 22;
const EFER_LMA: u64 = 1 << 10;
const EFER_NXE: u64 = 1 << 11;
const RFLAGS_AC: u64 = 1 << 18;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;

/// The error code of a page fault (APM vol. 2, 8.4.2).
pub mod error {
    /// The page is present.
    pub const PRESENT: u32 = 1;
    /// A write.
    pub const WRITE: u32 = 1 << 1;
    /// In user mode.
    pub const USER: u32 = 1 << 2;
    /// A reserved bit of an entry is set.
    pub const RESERVED: u32 = 1 << 3;
    /// An instruction fetch.
    pub const FETCH: u32 = 1 << 4;
    /// The page's protection key forbids it.
    pub const KEY: u32 = 1 << 5;
}

/// What is to be done at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Fetches an instruction.
    Fetch,
}

/// Guest physical memory.
pub trait Memory {
    /// Reads an entry of `size` bytes, 4 or 8, at an address that is a multiple of it. `None` if no RAM is there.
    fn read(&self, address: u64, size: u8) -> Option<u64>;
    /// Sets bits of an entry that has not changed since it was read. False if it has, or no RAM is there.
    fn set_bits(&self, address: u64, size: u8, entry: u64, bits: u64) -> bool;
}

/// Why there is no physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A page fault, with its error code.
    PageFault(u32),
    /// An entry of the tables is not in RAM.
    Outside,
}

impl Paging {
    /// The levels of the tables; none without paging.
    fn levels(&self) -> u32 {
        if self.cr0 & CR0_PG == 0 {
            0
        } else if self.efer & EFER_LMA != 0 {
            if self.cr4 & CR4_LA57 != 0 { 5 } else { 4 }
        } else if self.cr4 & CR4_PAE != 0 {
            3
        } else {
            2
        }
    }

    /// Whether entries have eight bytes.
    fn is_wide(&self) -> bool {
        self.cr4 & CR4_PAE != 0 || self.efer & EFER_LMA != 0
    }

    /// The address of the root.
    fn root(&self, levels: u32) -> u64 {
        match levels {
            2 => self.cr3 & 0xffff_f000,
            3 => self.cr3 & 0xffff_ffe0,
            _ => self.cr3 & self.frame_mask(),
        }
    }

    /// The bits of an entry that are an address.
    fn frame_mask(&self) -> u64 {
        self.physical_mask() & !0xfff
    }

    fn physical_mask(&self) -> u64 {
        (1 << self.physical_bits.clamp(32, 52)) - 1
    }

    /// The bits of an entry that must be zero (APM vol. 2, 5.3 and 5.4).
    fn reserved(&self, levels: u32, level: u32, entry: u64) -> u64 {
        let large = level > 1 && entry & LARGE != 0;
        if !self.is_wide() {
            // PSE-36: bits 20:13 are the address's upper bits, bit 21 is reserved.
            return if large { 1 << 21 } else { 0 };
        }
        let mut reserved = !self.physical_mask() & ((1 << 52) - 1);
        if self.efer & EFER_NXE == 0 {
            reserved |= NO_EXECUTE;
        }
        if levels == 3 {
            // Without long mode nothing but NX is above; the page-directory pointers have no permissions.
            reserved |= 0x7ff << 52;
            if level == 3 {
                reserved |= NO_EXECUTE | 0x1e6;
            }
        } else if level >= 4 {
            reserved |= LARGE;
        }
        if large && level < levels.max(4) && !(levels == 3 && level == 3) {
            // Bit 12 is PAT; the rest of the offset is reserved.
            reserved |= ((1 << (12 + 9 * (level - 1))) - 1) & !0x1fff;
        }
        reserved
    }
}

/// What the entries of a walk allow together.
#[derive(Clone, Copy)]
struct Rights {
    writable: bool,
    user: bool,
    executable: bool,
}

/// Where a walk stands.
struct Leaf {
    entry: u64,
    place: u64,
    /// Bytes of the page, less one.
    offset_mask: u64,
    rights: Rights,
}

/// Translates a linear address as the hardware does for an access in `user` mode or not.
///
/// # Errors
/// A page fault, or tables that are not in RAM.
pub fn translate(
    paging: &Paging,
    memory: &impl Memory,
    linear: u64,
    intent: Intent,
    user: bool,
) -> Result<u64, Failure> {
    let levels = paging.levels();
    if levels == 0 {
        return Ok(linear & 0xffff_ffff);
    }
    let code = error_code(paging, intent, user);
    let leaf = walk(paging, memory, levels, linear, code)?;
    let by_key = forbidden_by_key(paging, &leaf, intent, user);
    if by_key || !allowed(paging, leaf.rights, intent, user) {
        return Err(Failure::PageFault(code | error::PRESENT | if by_key { error::KEY } else { 0 }));
    }
    let size = if paging.is_wide() { 8 } else { 4 };
    let wanted = ACCESSED | if intent == Intent::Write { DIRTY } else { 0 };
    // Who has changed the entry meanwhile is another vCPU: the instruction is executed again, and finds that.
    if leaf.entry & wanted != wanted && !memory.set_bits(leaf.place, size, leaf.entry, wanted) {
        return Err(Failure::PageFault(code));
    }
    Ok(physical(paging, &leaf, linear))
}

fn physical(paging: &Paging, leaf: &Leaf, linear: u64) -> u64 {
    let frame = if paging.is_wide() {
        leaf.entry & paging.frame_mask()
    } else if leaf.offset_mask == 0xfff {
        leaf.entry & 0xffff_f000
    } else {
        leaf.entry & 0xffc0_0000 | (leaf.entry >> 13 & 0xff) << 32
    };
    frame & !leaf.offset_mask | linear & leaf.offset_mask
}

fn error_code(paging: &Paging, intent: Intent, user: bool) -> u32 {
    let fetch_is_told = paging.efer & EFER_NXE != 0 && paging.is_wide() || paging.cr4 & CR4_SMEP != 0;
    let intent = match intent {
        Intent::Read => 0,
        Intent::Write => error::WRITE,
        Intent::Fetch if fetch_is_told => error::FETCH,
        Intent::Fetch => 0,
    };
    intent | if user { error::USER } else { 0 }
}

fn walk(paging: &Paging, memory: &impl Memory, levels: u32, linear: u64, code: u32) -> Result<Leaf, Failure> {
    let (size, index_bits) = if paging.is_wide() { (8u8, 9) } else { (4u8, 10) };
    let mut table = paging.root(levels);
    let mut rights = Rights { writable: true, user: true, executable: true };
    let mut level = levels;
    loop {
        let shift = 12 + index_bits * (level - 1);
        let index = linear >> shift & ((1 << if levels == 3 && level == 3 { 2 } else { index_bits }) - 1);
        let place = table + index * u64::from(size);
        let entry = memory.read(place, size).ok_or(Failure::Outside)?;
        if entry & PRESENT == 0 {
            return Err(Failure::PageFault(code));
        }
        if entry & paging.reserved(levels, level, entry) != 0 {
            return Err(Failure::PageFault(code | error::PRESENT | error::RESERVED));
        }
        let pointer = levels == 3 && level == 3;
        if !pointer {
            rights.writable &= entry & WRITABLE != 0;
            rights.user &= entry & USER != 0;
            rights.executable &= entry & NO_EXECUTE == 0 || size == 4;
        }
        let large = !pointer && entry & LARGE != 0 && (size == 8 || paging.cr4 & CR4_PSE != 0);
        if level == 1 || large {
            return Ok(Leaf { entry, place, offset_mask: (1 << shift) - 1, rights });
        }
        if !pointer && entry & ACCESSED == 0 && !memory.set_bits(place, size, entry, ACCESSED) {
            return Err(Failure::PageFault(code));
        }
        table = entry & if size == 8 { paging.frame_mask() } else { 0xffff_f000 };
        level -= 1;
    }
}

/// Permissions (APM vol. 2, 5.6).
fn allowed(paging: &Paging, rights: Rights, intent: Intent, user: bool) -> bool {
    if user && !rights.user {
        return false;
    }
    let supervisor_on_user = !user && rights.user;
    match intent {
        Intent::Fetch => rights.executable && !(supervisor_on_user && paging.cr4 & CR4_SMEP != 0),
        _ if supervisor_on_user && paging.cr4 & CR4_SMAP != 0 && paging.rflags & RFLAGS_AC == 0 => false,
        Intent::Read => true,
        Intent::Write => rights.writable || !user && paging.cr0 & CR0_WP == 0,
    }
}

/// What PKRU says of the page's key (APM vol. 2, 5.6.7): of user pages in long mode, and of data alone.
fn forbidden_by_key(paging: &Paging, leaf: &Leaf, intent: Intent, user: bool) -> bool {
    if paging.cr4 & CR4_PKE == 0 || paging.efer & EFER_LMA == 0 || !leaf.rights.user {
        return false;
    }
    let bits = paging.pkru >> (2 * (leaf.entry >> 59 & 0xf));
    let (no_access, no_write) = (bits & 1 != 0, bits & 2 != 0);
    match intent {
        Intent::Fetch => false,
        Intent::Read => no_access,
        Intent::Write => no_access || no_write && (user || paging.cr0 & CR0_WP != 0),
    }
}

/// The bits of an entry that are an address, as far as any processor has them: of an entry that the hardware has accepted, no
/// other is set.
const ADDRESS: u64 = ((1 << 52) - 1) & !0xfff;

/// Finds the physical address of what the hardware has just read through four or five levels: no checks but what the walk
/// itself needs, and nothing is written. `None` with other tables, or if they have changed meanwhile. `step` gets each entry that the
/// walk goes through, and where it is.
pub fn locate(
    paging: &Paging,
    memory: &impl Memory,
    linear: u64,
    mut step: impl FnMut(u64, u64),
) -> Option<u64> {
    if paging.efer & EFER_LMA == 0 {
        return None;
    }
    let mut next = |table: u64, index: u64| {
        let address = (table & ADDRESS) + (index & 0x1ff) * 8;
        let entry = memory.read(address, 8)?;
        step(address, entry);
        (entry & PRESENT != 0).then_some(entry)
    };
    let mut entry = paging.cr3;
    if paging.cr4 & CR4_LA57 != 0 {
        entry = next(entry, linear >> 48)?;
    }
    for shift in [39, 30, 21, 12] {
        entry = next(entry, linear >> shift)?;
        if shift < 39 && (shift == 12 || entry & LARGE != 0) {
            let offset = (1 << shift) - 1;
            return Some(entry & ADDRESS & !offset | linear & offset);
        }
    }
    None
}
