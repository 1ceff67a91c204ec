// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of bytes that somebody else may read and write at the same time: each byte is read once and written once, and bytes are moved
//! by words where they lie so.
//!
//! The compiler makes no pairs of atomic loads or stores, so the fast loop is assembly where one instruction moves more than a word.

use core::ptr::with_exposed_provenance as place;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Bytes of a word.
pub(crate) const WORD: usize = size_of::<u64>();
/// Words that are moved at once by [`blocks`].
const BLOCK: usize = 8;

/// Returns the byte at an address.
///
/// # Safety
/// It is mapped; if not writable, nobody stores to it.
#[inline(always)] // An address.
pub(crate) unsafe fn byte<'a>(at: usize) -> &'a AtomicU8 {
    // SAFETY: the caller's promise. Somebody else may write it, so it is an atomic.
    unsafe { &*place(at) }
}

/// Returns the word at an address.
///
/// # Safety
/// As for [`byte`], for all of its bytes, and the address is a multiple of eight.
#[inline(always)] // An address.
pub(crate) unsafe fn word<'a>(at: usize) -> &'a AtomicU64 {
    // SAFETY: the caller's promise.
    unsafe { &*place(at) }
}

/// Returns the half of a word at an address.
///
/// # Safety
/// As for [`byte`], for all of its bytes, and the address is a multiple of four.
#[inline(always)] // An address.
pub(crate) unsafe fn half_word<'a>(at: usize) -> &'a AtomicU32 {
    // SAFETY: the caller's promise.
    unsafe { &*place(at) }
}

/// Copies bytes.
///
/// # Safety
/// All of them are mapped at both places, the former readable, the latter writable; they do not overlap. If a place is that of a
/// reference, it was exposed.
#[inline(never)] // Long, and called for much.
pub(crate) unsafe fn copy(to: usize, from: usize, length: usize) {
    let head = (to.wrapping_neg() % WORD).min(length);
    // SAFETY: the caller's promise, for parts of it; the words are aligned behind the head.
    unsafe {
        bytes(to, from, head);
        let (to, from, length) = (to + head, from + head, length - head);
        let done = if from.is_multiple_of(WORD) {
            words(to, from, length / WORD);
            length / WORD * WORD
        } else {
            shifted(to, from, length)
        };
        bytes(to + done, from + done, length - done);
    }
}

/// Copies byte by byte.
#[inline(always)] // Three times above.
unsafe fn bytes(to: usize, from: usize, length: usize) {
    for at in 0..length {
        // SAFETY: the caller's promise.
        unsafe { byte(to + at).store(byte(from + at).load(Ordering::Relaxed), Ordering::Relaxed) };
    }
}

/// Copies aligned words.
#[inline(always)] // Once above.
unsafe fn words(to: usize, from: usize, count: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        blocks(to, from, count / BLOCK);
        for at in (count / BLOCK * BLOCK..count).map(|at| at * WORD) {
            word(to + at).store(word(from + at).load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// Copies to aligned words what lies across words: those are read, and put together. Returns how many bytes were copied; the others
/// are less than two words.
#[cold]
#[inline(never)] // Drivers align their buffers.
unsafe fn shifted(to: usize, from: usize, length: usize) -> usize {
    // The bytes in front of the first word, of which there are one to seven.
    let front = from.wrapping_neg() % WORD;
    let count = length.saturating_sub(front) / WORD;
    if count == 0 {
        return 0;
    }
    // SAFETY: the caller's promise: all bytes that are read are among those to copy.
    unsafe {
        let mut left = 0;
        for at in 0..front {
            left |= u64::from(byte(from + at).load(Ordering::Relaxed)) << (8 * at);
        }
        for at in (0..count).map(|at| at * WORD) {
            let next = u64::from_le(word(from + front + at).load(Ordering::Relaxed));
            word(to + at).store((left | next << (8 * front)).to_le(), Ordering::Relaxed);
            left = next >> (8 * (WORD - front));
        }
        for at in 0..front {
            byte(to + count * WORD + at).store((left >> (8 * at)) as u8, Ordering::Relaxed);
        }
    }
    count * WORD + front
}

/// Copies aligned blocks of [`BLOCK`] words: eight instructions for each, and two for sixteen of them.
#[cfg(target_arch = "aarch64")]
#[inline(always)] // Once above.
unsafe fn blocks(to: usize, from: usize, count: usize) {
    macro_rules! loop_of {
        ($times:literal, $count:expr, $to:ident, $from:ident) => {
            core::arch::asm!(
                "2:",
                concat!(".rept ", $times),
                "ldp {a}, {b}, [{from}], #64",
                "ldp {c}, {d}, [{from}, #-48]",
                "ldp {e}, {f}, [{from}, #-32]",
                "ldp {g}, {h}, [{from}, #-16]",
                "stp {a}, {b}, [{to}], #64",
                "stp {c}, {d}, [{to}, #-48]",
                "stp {e}, {f}, [{to}, #-32]",
                "stp {g}, {h}, [{to}, #-16]",
                ".endr",
                "subs {count}, {count}, #1",
                "b.ne 2b",
                count = inout(reg) $count => _, from = inout(reg) $from, to = inout(reg) $to,
                a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
                e = out(reg) _, f = out(reg) _, g = out(reg) _, h = out(reg) _,
                options(nostack)
            )
        };
    }
    let (mut to, mut from) = (to, from);
    // SAFETY: the caller's promise; neither loop begins without a block.
    unsafe {
        if count / 16 != 0 {
            loop_of!("16", count / 16, to, from);
        }
        if !count.is_multiple_of(16) {
            loop_of!("1", count % 16, to, from);
        }
    }
    // The last values go.
    let _ = (to, from);
}

/// Copies aligned blocks of [`BLOCK`] words: one instruction.
#[cfg(target_arch = "x86_64")]
#[inline(always)] // Once above.
unsafe fn blocks(to: usize, from: usize, count: usize) {
    // SAFETY: the caller's promise. The direction flag is clear, as the ABI says.
    unsafe {
        core::arch::asm!(
            "rep movsq",
            inout("rcx") count * BLOCK => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies aligned blocks of [`BLOCK`] words: sixteen instructions for each, and one for sixteen of them.
#[cfg(target_arch = "powerpc64")]
#[inline(always)] // Once above.
unsafe fn blocks(to: usize, from: usize, count: usize) {
    macro_rules! loop_of {
        ($times:literal, $count:expr, $to:ident, $from:ident) => {
            core::arch::asm!(
                "mtctr {count}",
                "2:",
                concat!(".rept ", $times),
                "ldu {a}, 64({from})",
                "ld {b}, 8({from})",
                "ld {c}, 16({from})",
                "ld {d}, 24({from})",
                "ld {e}, 32({from})",
                "ld {f}, 40({from})",
                "ld {g}, 48({from})",
                "ld {h}, 56({from})",
                "stdu {a}, 64({to})",
                "std {b}, 8({to})",
                "std {c}, 16({to})",
                "std {d}, 24({to})",
                "std {e}, 32({to})",
                "std {f}, 40({to})",
                "std {g}, 48({to})",
                "std {h}, 56({to})",
                ".endr",
                "bdnz 2b",
                count = in(reg) $count, from = inout(reg_nonzero) $from, to = inout(reg_nonzero) $to,
                a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
                e = out(reg) _, f = out(reg) _, g = out(reg) _, h = out(reg) _,
                out("ctr") _,
                options(nostack, preserves_flags)
            )
        };
    }
    // Each block begins with the step to it.
    let (mut to, mut from) = (to.wrapping_sub(BLOCK * WORD), from.wrapping_sub(BLOCK * WORD));
    // SAFETY: the caller's promise; neither loop begins without a block.
    unsafe {
        if count / 16 != 0 {
            loop_of!("16", count / 16, to, from);
        }
        if !count.is_multiple_of(16) {
            loop_of!("1", count % 16, to, from);
        }
    }
    // The last values go.
    let _ = (to, from);
}

/// Copies aligned blocks of [`BLOCK`] words.
#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64", target_arch = "powerpc64")))]
#[inline(always)] // Once above.
unsafe fn blocks(to: usize, from: usize, count: usize) {
    for block in (0..count).map(|block| block * BLOCK * WORD) {
        // SAFETY: the caller's promise.
        let read = |at: usize| unsafe { word(from + block + at * WORD) }.load(Ordering::Relaxed);
        let values: [u64; BLOCK] = core::array::from_fn(read);
        for (at, value) in values.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { word(to + block + at * WORD) }.store(value, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the bytes lie: they are copied, and no others are changed.
    #[test]
    fn bytes_are_copied_from_anywhere_to_anywhere() {
        let from: Vec<u8> = (0..4096_u32).map(|at| (at * 7 + at / 256) as u8).collect();
        let mut lengths: Vec<usize> = (0..40).collect();
        lengths.extend([63, 64, 65, 127, 128, 200, 511, 1023, 1024, 1100, 2048, 3000]);
        for (at, length) in (0..9).flat_map(|at| lengths.iter().map(move |length| (at, *length))) {
            for begin in 0..9 {
                let mut to = vec![0xaa; 4096];
                let (target, source) =
                    (to.as_mut_ptr().expose_provenance(), from.as_ptr().expose_provenance());
                // SAFETY: both are longer than that.
                unsafe { copy(target + at, source + begin, length) };
                assert_eq!(to[at..at + length], from[begin..begin + length], "{length} from {begin} to {at}");
                assert!(to[..at].iter().chain(&to[at + length..]).all(|byte| *byte == 0xaa));
            }
        }
    }
}
