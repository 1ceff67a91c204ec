// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reaching memory of guests: the only place where the hypervisor does.
//!
//! All of it is mapped as user pages, so that with SMAP (APM vol. 2, 5.6.5) an access by accident faults; the accesses
//! here are between STAC and CLAC, and nothing else is. On a CPU without SMAP, which does not know these instructions, they
//! are made no-operations once at boot ([`patch`]).
//!
//! A guest may change the memory at the same time: every access is one that the compiler neither repeats nor splits.

use turnstile_arch_common::demand::Clear;

/// STAC, noted in the list of places for [`patch`].
#[cfg(target_os = "none")]
macro_rules! open {
    () => {
        "771: stac\n.pushsection .smap_sites, \"a\"\n.quad 771b\n.popsection"
    };
}

/// CLAC, noted in the list of places for [`patch`].
#[cfg(target_os = "none")]
macro_rules! close {
    () => {
        "772: clac\n.pushsection .smap_sites, \"a\"\n.quad 772b\n.popsection"
    };
}

/// Makes all STAC and CLAC no-operations: the CPU has no SMAP.
///
/// # Safety
/// On the boot CPU, alone, while code can be written.
#[cfg(target_os = "none")]
pub unsafe fn patch() {
    unsafe extern "C" {
        static __smap_sites_start: u64;
        static __smap_sites_end: u64;
    }
    /// NOP with a memory operand, as long as STAC and CLAC (APM vol. 3, NOP).
    const NOP: [u8; 3] = [0x0f, 0x1f, 0x00];
    let (start, end) = (&raw const __smap_sites_start, &raw const __smap_sites_end);
    // SAFETY: the linker collects the addresses of the instructions between the two symbols; the caller may write code.
    unsafe {
        for index in 0..end.offset_from(start) {
            core::ptr::write_volatile(*start.offset(index) as *mut [u8; 3], NOP);
        }
    }
}

/// Reads sixteen bytes of guest memory, as two words.
///
/// # Safety
/// As for [`read_u64`].
#[inline(always)] // Four instructions.
pub unsafe fn read_pair(host: u64) -> [u64; 2] {
    #[cfg(target_os = "none")]
    {
        let (low, high): (u64, u64);
        // SAFETY: the caller's promise: mapped, and a guest's.
        unsafe {
            core::arch::asm!(
                open!(), "mov {low}, [{host}]", "mov {high}, [{host} + 8]", close!(),
                host = in(reg) host, low = out(reg) low, high = lateout(reg) high, options(nostack, readonly)
            );
        }
        [low, high]
    }
    #[cfg(not(target_os = "none"))]
    // SAFETY: the caller's promise.
    unsafe {
        [read_u64(host), read_u64(host + 8)]
    }
}

/// Five words of guest memory: where each is, and what it is to be.
pub type Words = [[u64; 2]; 5];

/// The loads and comparisons of [`Words`], at `{words}`: `{all}` is zero if nothing differs.
#[cfg(target_os = "none")]
macro_rules! compare {
    () => {
        "mov {at}, [{words}]
        mov {all}, [{at}]
        xor {all}, [{words} + 8]
        mov {at}, [{words} + 16]
        mov {one}, [{at}]
        xor {one}, [{words} + 24]
        or {all}, {one}
        mov {at}, [{words} + 32]
        mov {one}, [{at}]
        xor {one}, [{words} + 40]
        or {all}, {one}
        mov {at}, [{words} + 48]
        mov {one}, [{at}]
        xor {one}, [{words} + 56]
        or {all}, {one}
        mov {at}, [{words} + 64]
        mov {one}, [{at}]
        xor {one}, [{words} + 72]
        or {all}, {one}"
    };
}

/// A short instruction, and the way to it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Code {
    /// What is to be where on the way.
    pub words: Words,
    /// Where the instruction is.
    pub at: u64,
    /// Which of eight bytes are the instruction's.
    pub mask: u64,
    /// These bytes; the others are zero.
    pub bytes: u64,
}

impl Code {
    /// Of no instruction.
    pub const NONE: Self = Self { words: [[0; 2]; 5], at: 0, mask: 0, bytes: 0 };

    /// Says whether eight bytes begin with the instruction.
    #[inline(always)] // Three instructions.
    pub const fn is(&self, bytes: u64) -> bool {
        bytes & self.mask == self.bytes
    }

    /// Says whether the instruction is still there, and the way to it is the same. HOT.
    ///
    /// # Safety
    /// As for [`are`]; the instruction's address, too.
    #[inline(always)] // Two dozen instructions of the light exit of a doorbell.
    pub unsafe fn is_there(&self) -> bool {
        #[cfg(target_os = "none")]
        {
            let differs: u64;
            // SAFETY: the caller's promise: mapped, and a guest's. The structure itself is the hypervisor's.
            unsafe {
                core::arch::asm!(
                    open!(),
                    compare!(),
                    "mov {at}, [{words} + 80]",
                    "mov {one}, [{at}]",
                    "and {one}, [{words} + 88]",
                    "xor {one}, [{words} + 96]",
                    "or {all}, {one}",
                    close!(),
                    words = in(reg) self, at = out(reg) _, one = out(reg) _, all = out(reg) differs,
                    options(nostack, readonly)
                );
            }
            differs == 0
        }
        #[cfg(not(target_os = "none"))]
        // SAFETY: the caller's promise.
        unsafe {
            are(&self.words) && self.is(read_u64(self.at))
        }
    }
}

/// Says whether words of guest memory are what they are to be. HOT.
///
/// # Safety
/// Each address is one that [`super::GuestRam::host_in_page`] gave for eight bytes, of a VM that has not stopped since.
#[inline(always)] // Two dozen instructions of the light exit of an access to a device.
pub unsafe fn are(words: &Words) -> bool {
    #[cfg(target_os = "none")]
    {
        let differs: u64;
        // SAFETY: the caller's promise: mapped, and a guest's. The words themselves are the hypervisor's.
        unsafe {
            core::arch::asm!(
                open!(),
                compare!(),
                close!(),
                words = in(reg) words, at = out(reg) _, one = out(reg) _, all = out(reg) differs,
                options(nostack, readonly)
            );
        }
        differs == 0
    }
    #[cfg(not(target_os = "none"))]
    // SAFETY: the caller's promise.
    words.iter().all(|[at, word]| unsafe { read_u64(*at) } == *word)
}

macro_rules! accesses {
    ($type:ty, $read:ident, $write:ident, $and:ident, $exchange:ident, $move:literal, $register:literal, $accumulator:tt) => {
        /// Reads guest memory.
        ///
        /// # Safety
        /// `host` is an address that [`super::GuestRam::host`] gave for as many bytes, of a VM that has not stopped since.
        #[inline(always)] // A few instructions.
        pub unsafe fn $read(host: u64) -> $type {
            #[cfg(target_os = "none")]
            {
                let value: $type;
                // SAFETY: the caller's promise: mapped, and a guest's.
                unsafe {
                    core::arch::asm!(
                        open!(), concat!($move, " {value", $register, "}, [{host}]"), close!(),
                        host = in(reg) host, value = out(reg) value, options(nostack, readonly)
                    );
                }
                value
            }
            #[cfg(not(target_os = "none"))]
            // SAFETY: the caller's promise.
            unsafe {
                core::ptr::read_volatile(host as *const $type)
            }
        }

        /// Writes guest memory.
        ///
        /// # Safety
        /// As for reading.
        #[inline(always)] // A few instructions.
        pub unsafe fn $write(host: u64, value: $type) {
            #[cfg(target_os = "none")]
            // SAFETY: the caller's promise: mapped, and a guest's.
            unsafe {
                core::arch::asm!(
                    open!(), concat!($move, " [{host}], {value", $register, "}"), close!(),
                    host = in(reg) host, value = in(reg) value, options(nostack)
                );
            }
            #[cfg(not(target_os = "none"))]
            // SAFETY: the caller's promise.
            unsafe {
                core::ptr::write_volatile(host as *mut $type, value)
            }
        }

        /// Clears the bits of guest memory that `mask` has not, atomically; returns what was there before.
        ///
        /// # Safety
        /// As for reading; the address is aligned.
        #[inline]
        pub unsafe fn $and(host: u64, mask: $type) -> $type {
            loop {
                // SAFETY: the caller's promise.
                let old = unsafe { $read(host) };
                // SAFETY: as above.
                if unsafe { $exchange(host, old, old & mask) } == old {
                    return old;
                }
            }
        }

        /// Writes `new` to guest memory if it holds `old`, atomically; returns what it held.
        ///
        /// # Safety
        /// As for reading; the address is aligned.
        #[inline(always)] // A few instructions.
        pub unsafe fn $exchange(host: u64, old: $type, new: $type) -> $type {
            #[cfg(target_os = "none")]
            {
                let found: $type;
                // SAFETY: the caller's promise: mapped, and a guest's.
                unsafe {
                    core::arch::asm!(
                        open!(), concat!("lock cmpxchg [{host}], {new", $register, "}"), close!(),
                        host = in(reg) host, new = in(reg) new, inlateout($accumulator) old => found,
                        options(nostack)
                    );
                }
                found
            }
            #[cfg(not(target_os = "none"))]
            {
                use core::sync::atomic::Ordering::SeqCst;
                // SAFETY: the caller's promise.
                let cell = unsafe { <$type as Cell>::at(host) };
                cell.compare_exchange(old, new, SeqCst, SeqCst).unwrap_or_else(|found| found)
            }
        }
    };
}

/// The atomic of a number's size, at an address of a test's buffer.
#[cfg(not(target_os = "none"))]
trait Cell {
    type Atomic: 'static;
    /// # Safety
    /// The address is that of a buffer of the test, aligned.
    unsafe fn at(host: u64) -> &'static Self::Atomic {
        // SAFETY: the caller's promise.
        unsafe { &*(host as *const Self::Atomic) }
    }
}
#[cfg(not(target_os = "none"))]
impl Cell for u32 {
    type Atomic = core::sync::atomic::AtomicU32;
}
#[cfg(not(target_os = "none"))]
impl Cell for u64 {
    type Atomic = core::sync::atomic::AtomicU64;
}

accesses!(u32, read_u32, write_u32, and_u32, exchange_u32, "mov", ":e", "eax");
accesses!(u64, read_u64, write_u64, and_u64, exchange_u64, "mov", ":r", "rax");

/// Copies guest memory to `bytes`, upwards.
///
/// # Safety
/// As for [`read_u64`], for as many bytes as there are.
pub unsafe fn copy_from(host: u64, bytes: &mut [u8]) {
    // SAFETY: the caller's promise for the source; the target is a slice of its own.
    unsafe { copy(bytes.as_mut_ptr() as u64, host, bytes.len()) };
}

/// Copies `bytes` to guest memory, upwards.
///
/// # Safety
/// As for [`read_u64`], for as many bytes as there are.
pub unsafe fn copy_to(host: u64, bytes: &[u8]) {
    // SAFETY: the caller's promise for the target; the source is a slice of its own.
    unsafe { copy(host, bytes.as_ptr() as u64, bytes.len()) };
}

/// # Safety
/// Both ranges are mapped, do not overlap, and each is the hypervisor's or a guest's.
unsafe fn copy(target: u64, source: u64, length: usize) {
    #[cfg(target_os = "none")]
    // SAFETY: the caller's promise; the direction flag is clear, as the ABI has it.
    unsafe {
        core::arch::asm!(
            open!(), "rep movsb", close!(),
            inout("rdi") target => _, inout("rsi") source => _, inout("rcx") length => _, options(nostack)
        );
    }
    #[cfg(not(target_os = "none"))]
    // SAFETY: the caller's promise.
    unsafe {
        core::ptr::copy(source as *const u8, target as *mut u8, length);
    }
}

/// Clears memory of a guest that does not run, or that it has not touched.
///
/// # Safety
/// As for [`read_u64`], for `size` bytes.
pub unsafe fn clear(host: u64, size: u64) {
    #[cfg(target_os = "none")]
    // SAFETY: the caller's promise; the direction flag is clear, as the ABI has it.
    unsafe {
        core::arch::asm!(
            // By eight bytes: a CPU may take each repetition on its own, as emulated ones do.
            open!(), "rep stosq", "mov rcx, {rest}", "rep stosb", close!(),
            rest = in(reg) size % 8,
            inout("rdi") host => _, inout("rcx") size / 8 => _, in("rax") 0u64, options(nostack)
        );
    }
    #[cfg(not(target_os = "none"))]
    // SAFETY: the caller's promise.
    unsafe {
        core::ptr::write_bytes(host as *mut u8, 0, size as usize);
    }
}

/// A block of guest memory that is cleared at its first touch.
pub struct Block(u64);

impl Clear for Block {
    #[inline(always)] // Nothing: all of it is mapped.
    unsafe fn open(host: u64) -> Self {
        Self(host)
    }

    #[inline(always)] // One caller.
    fn clear(&mut self, offset: u64, size: u64) {
        // SAFETY: memory of guests, by the contract of `open`, and nobody else's meanwhile.
        unsafe { clear(self.0 + offset, size) };
    }

    /// Nothing: stores become visible in order, and caches are coherent, also with what is fetched and what a guest reads past them
    /// (APM vol. 2, 7.1 and 7.6.1).
    #[inline(always)]
    fn close(self) {}
}
