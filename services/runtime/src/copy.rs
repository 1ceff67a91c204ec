// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of bytes that somebody else may read and write at the same time: each byte is read once and written once, whatever they lie at.
//! The CPUs move words that lie anywhere, so nothing is aligned first.
//!
//! Neither Rust's atomics nor its volatile accesses can lie anywhere, and the compiler makes no pairs of them. So the moves are assembly.

/// Bytes of a word.
pub(crate) const WORD: usize = size_of::<u64>();
/// Words that are moved at once by [`blocks`].
const BLOCK: usize = 8;

/// How many bytes are moved by one instruction.
#[derive(Clone, Copy)]
enum Size {
    Byte = 1,
    Pair = 2,
    Half = 4,
    Word = 8,
}

/// Makes the two functions that load and store bytes, each by one instruction.
macro_rules! moves {
    ($($size:ident: $arm:literal $register:literal $bytes:literal, $name:literal $modifier:literal, $load:literal $store:literal;)*) => {
        /// Loads bytes, the first into the lowest of the value.
        ///
        /// # Safety
        /// They are mapped.
        #[inline(always)] // One instruction.
        unsafe fn load(at: usize, size: Size) -> u64 {
            let value: u64;
            // SAFETY: the caller's promise. Somebody else may write them meanwhile, which the compiler does not see.
            match size { $(Size::$size => unsafe {
                #[cfg(target_arch = "aarch64")]
                core::arch::asm!(
                    concat!("ldr", $arm, " {value:", $register, "}, [{at}]"),
                    value = out(reg) value, at = in(reg) at, options(nostack, preserves_flags)
                );
                #[cfg(target_arch = "x86_64")]
                core::arch::asm!(
                    concat!($name, " [{at}]"),
                    value = out(reg) value, at = in(reg) at, options(nostack, preserves_flags)
                );
                #[cfg(target_arch = "powerpc64")]
                core::arch::asm!(
                    concat!($load, " {value}, 0({at})"),
                    value = out(reg) value, at = in(reg_nonzero) at, options(nostack, preserves_flags)
                );
            },)* }
            value
        }

        /// Copies bytes of a size, and goes on behind them.
        ///
        /// # Safety
        /// They are mapped, and those that are stored writable.
        #[inline(always)] // Two instructions where there are such.
        unsafe fn one(to: &mut usize, from: &mut usize, size: Size) {
            #[cfg(target_arch = "aarch64")]
            match size { $(Size::$size => {
                // SAFETY: the caller's promise.
                unsafe {
                    core::arch::asm!(
                        concat!("ldr", $arm, " {value:", $register, "}, [{from}], #", $bytes),
                        concat!("str", $arm, " {value:", $register, "}, [{to}], #", $bytes),
                        from = inout(reg) *from, to = inout(reg) *to, value = out(reg) _,
                        options(nostack, preserves_flags)
                    );
                }
            },)* }
            #[cfg(not(target_arch = "aarch64"))]
            {
                // SAFETY: the caller's promise.
                unsafe { store(*to, load(*from, size), size) };
                (*to, *from) = (*to + size as usize, *from + size as usize);
            }
        }

        /// Stores the lowest bytes of a value.
        ///
        /// # Safety
        /// They are mapped, and writable.
        #[inline(always)] // One instruction.
        unsafe fn store(at: usize, value: u64, size: Size) {
            // SAFETY: as above.
            match size { $(Size::$size => unsafe {
                #[cfg(target_arch = "aarch64")]
                core::arch::asm!(
                    concat!("str", $arm, " {value:", $register, "}, [{at}]"),
                    value = in(reg) value, at = in(reg) at, options(nostack, preserves_flags)
                );
                #[cfg(target_arch = "x86_64")]
                core::arch::asm!(
                    concat!("mov [{at}], {value", $modifier, "}"),
                    value = in(reg) value, at = in(reg) at, options(nostack, preserves_flags)
                );
                #[cfg(target_arch = "powerpc64")]
                core::arch::asm!(
                    concat!($store, " {value}, 0({at})"),
                    value = in(reg) value, at = in(reg_nonzero) at, options(nostack, preserves_flags)
                );
            },)* }
        }
    };
}

moves! {
    Byte: "b" "w" 1, "movzx {value:e}, byte ptr" ":l", "lbz" "stb";
    Pair: "h" "w" 2, "movzx {value:e}, word ptr" ":x", "lhz" "sth";
    Half: "" "w" 4, "mov {value:e}, dword ptr" ":e", "lwz" "stw";
    Word: "" "x" 8, "mov {value:r}, qword ptr" ":r", "ld" "std";
}

/// Loads two words, the first bytes into the lowest of the first.
///
/// # Safety
/// They are mapped.
#[inline(always)] // One instruction, or two.
unsafe fn load_two(at: usize) -> [u64; 2] {
    let (first, second): (u64, u64);
    // SAFETY: as for one.
    unsafe {
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "ldp {first}, {second}, [{at}]",
            first = out(reg) first, second = out(reg) second, at = in(reg) at, options(nostack, preserves_flags)
        );
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "mov {first}, [{at}]",
            "mov {second}, [{at} + 8]",
            first = out(reg) first, second = lateout(reg) second, at = in(reg) at,
            options(nostack, preserves_flags)
        );
        #[cfg(target_arch = "powerpc64")]
        core::arch::asm!(
            "ld {first}, 0({at})",
            "ld {second}, 8({at})",
            first = out(reg) first, second = lateout(reg) second, at = in(reg_nonzero) at,
            options(nostack, preserves_flags)
        );
    }
    [first, second]
}

/// Stores two words.
///
/// # Safety
/// They are mapped, and writable.
#[inline(always)] // As above.
unsafe fn store_two(at: usize, [first, second]: [u64; 2]) {
    // SAFETY: as for one.
    unsafe {
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "stp {first}, {second}, [{at}]",
            first = in(reg) first, second = in(reg) second, at = in(reg) at, options(nostack, preserves_flags)
        );
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "mov [{at}], {first}",
            "mov [{at} + 8], {second}",
            first = in(reg) first, second = in(reg) second, at = in(reg) at, options(nostack, preserves_flags)
        );
        #[cfg(target_arch = "powerpc64")]
        core::arch::asm!(
            "std {first}, 0({at})",
            "std {second}, 8({at})",
            first = in(reg) first, second = in(reg) second, at = in(reg_nonzero) at,
            options(nostack, preserves_flags)
        );
    }
}

/// Calls a function with the place and the size of each piece of so many bytes, fewer than a block: two words, which have no size, and what is left.
#[inline(always)] // Of known lengths, often.
fn pieces(length: usize, mut each: impl FnMut(usize, Option<Size>)) {
    let mut at = 0;
    for words in [4, 2] {
        if length & (words * WORD) != 0 {
            (0..words / 2).for_each(|pair| each(at + pair * 2 * WORD, None));
            at += words * WORD;
        }
    }
    for size in [Size::Word, Size::Half, Size::Pair, Size::Byte] {
        if length & size as usize != 0 {
            each(at, Some(size));
            at += size as usize;
        }
    }
}

/// Reads a few bytes, into as many registers as are needed if their number is known.
///
/// # Safety
/// All of them are mapped.
#[inline(always)] // Of known lengths, often.
pub(crate) unsafe fn read_few(bytes: &mut [u8], from: usize) {
    pieces(bytes.len(), |at, size| {
        // SAFETY: the caller's promise.
        let (words, length) = unsafe {
            match size {
                None => (load_two(from + at), 2 * WORD),
                Some(size) => ([load(from + at, size), 0], size as usize),
            }
        };
        let words = words.map(u64::to_le_bytes);
        if let (Some(place), Some(value)) =
            (bytes.get_mut(at..at + length), words.as_flattened().get(..length))
        {
            place.copy_from_slice(value);
        }
    });
}

/// Writes a few bytes.
///
/// # Safety
/// All of them are mapped, and writable.
#[inline(always)] // Of known lengths, often.
pub(crate) unsafe fn write_few(to: usize, bytes: &[u8]) {
    let get = |at, size| {
        let mut value = [0; WORD];
        if let (Some(place), Some(bytes)) = (value.get_mut(..size), bytes.get(at..at + size)) {
            place.copy_from_slice(bytes);
        }
        u64::from_le_bytes(value)
    };
    pieces(bytes.len(), |at, size| {
        // SAFETY: the caller's promise.
        unsafe {
            match size {
                None => store_two(to + at, [get(at, WORD), get(at + WORD, WORD)]),
                Some(size) => store(to + at, get(at, size as usize), size),
            }
        }
    });
}

/// Reads two words.
///
/// # Safety
/// All of both is mapped.
#[inline(always)] // One instruction, or two.
pub(crate) unsafe fn read_words(from: usize) -> [u64; 2] {
    // SAFETY: the caller's promise.
    unsafe { load_two(from) }.map(u64::from_le)
}

/// Writes a word.
///
/// # Safety
/// All of it is mapped, and writable.
#[inline(always)] // One instruction.
pub(crate) unsafe fn write_word(to: usize, word: u64) {
    // SAFETY: the caller's promise.
    unsafe { store(to, word, Size::Word) };
}

/// Copies bytes.
///
/// # Safety
/// All of them are mapped at both places, the former readable, the latter writable; they do not overlap. If a place is that of a
/// reference, it was exposed.
#[inline(never)] // Long, and called for much.
#[cfg_attr(target_os = "none", unsafe(link_section = ".copy"))] // By which the meter tells it apart.
pub(crate) unsafe fn copy(to: usize, from: usize, length: usize) {
    let whole = length & !(BLOCK * WORD - 1);
    // SAFETY: the caller's promise, for parts of it.
    unsafe {
        if whole != 0 {
            blocks(to, from, whole / (BLOCK * WORD));
        }
        rest(to + whole, from + whole, length - whole);
    }
}

/// Copies fewer bytes than a block.
#[inline(always)] // Once above.
unsafe fn rest(mut to: usize, mut from: usize, length: usize) {
    // SAFETY: the caller's promise, for parts of it.
    unsafe {
        for words in [4, 2] {
            if length & (words * WORD) != 0 {
                (0..words / 2).for_each(|_| two(&mut to, &mut from));
            }
        }
        for size in [Size::Word, Size::Half, Size::Pair, Size::Byte] {
            if length & size as usize != 0 {
                one(&mut to, &mut from, size);
            }
        }
    }
}

/// Copies two words, and goes on behind them.
#[inline(always)] // Two instructions where there are such.
unsafe fn two(to: &mut usize, from: &mut usize) {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "ldp {a}, {b}, [{from}], #16",
            "stp {a}, {b}, [{to}], #16",
            from = inout(reg) *from, to = inout(reg) *to, a = out(reg) _, b = out(reg) _,
            options(nostack, preserves_flags)
        );
        #[cfg(not(target_arch = "aarch64"))]
        store_two(*to, load_two(*from));
    }
    #[cfg(not(target_arch = "aarch64"))]
    {
        (*to, *from) = (*to + 2 * WORD, *from + 2 * WORD);
    }
}

/// Copies blocks of [`BLOCK`] words: eight instructions for each, and two for sixteen of them.
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

/// Copies blocks of [`BLOCK`] words: one instruction.
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

/// Copies blocks of [`BLOCK`] words: sixteen instructions for each, and one for sixteen of them; with vector registers, if they are many, eight,
/// and three. Few registers hold what is moved, so that no copy has to store some first.
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
                "stdu {a}, 64({to})",
                "std {b}, 8({to})",
                "std {c}, 16({to})",
                "std {d}, 24({to})",
                "ld {a}, 32({from})",
                "ld {b}, 40({from})",
                "ld {c}, 48({from})",
                "ld {d}, 56({from})",
                "std {a}, 32({to})",
                "std {b}, 40({to})",
                "std {c}, 48({to})",
                "std {d}, 56({to})",
                ".endr",
                "bdnz 2b",
                count = in(reg) $count, from = inout(reg_nonzero) $from, to = inout(reg_nonzero) $to,
                a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
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
            #[cfg(target_os = "none")]
            if count / 16 >= vectors::FEWEST {
                return vectors::blocks(
                    to.wrapping_add(BLOCK * WORD),
                    from.wrapping_add(BLOCK * WORD),
                    count,
                );
            }
            loop_of!("16", count / 16, to, from);
        }
        if !count.is_multiple_of(16) {
            loop_of!("1", count % 16, to, from);
        }
    }
    // The last values go.
    let _ = (to, from);
}

/// The same with vector registers, which a program has for as long as it makes no call.
#[cfg(all(target_arch = "powerpc64", target_os = "none"))]
mod vectors {
    use turnstile_service::abi::VECTORS;

    /// So many times sixteen blocks save more than what the call takes by which the registers come.
    pub(super) const FEWEST: usize = 3;

    /// Copies so many blocks at a time, so often. VSR0 to VSR3 hold one.
    macro_rules! moves {
        ($blocks:literal, $count:expr, $to:ident, $from:ident) => {
            core::arch::asm!(
                "mtctr {count}",
                "2:",
                ".set at, 0",
                concat!(".rept ", $blocks),
                "lxv 0, at({from})",
                "lxv 1, at + 16({from})",
                "lxv 2, at + 32({from})",
                "lxv 3, at + 48({from})",
                "stxv 0, at({to})",
                "stxv 1, at + 16({to})",
                "stxv 2, at + 32({to})",
                "stxv 3, at + 48({to})",
                ".set at, at + 64",
                ".endr",
                concat!("addi {from}, {from}, 64 * ", $blocks),
                concat!("addi {to}, {to}, 64 * ", $blocks),
                "bdnz 2b",
                count = in(reg) $count, from = inout(reg_nonzero) $from, to = inout(reg_nonzero) $to,
                out("ctr") _,
                options(nostack, preserves_flags)
            )
        };
    }

    /// Copies blocks, sixteen at least.
    ///
    /// # Safety
    /// As for [`super::blocks`].
    #[inline(always)] // Once above.
    pub(super) unsafe fn blocks(mut to: usize, mut from: usize, count: usize) {
        // SAFETY: the compiler uses no vector registers, and not R13 (ELFv2 ABI, 2.2.1.1), which is 0 when an event begins and when a call has
        // taken the registers away. The call changes what is named. The caller's promise; no loop begins without a block.
        unsafe {
            core::arch::asm!(
                "cmpdi 13, 0",
                "bne 2f",
                "sc 1",
                "li 13, 1",
                "2:",
                inout("r3") VECTORS => _, out("r0") _, out("r12") _, out("ctr") _, out("cr0") _,
                options(nostack)
            );
            moves!("16", count / 16, to, from);
            if !count.is_multiple_of(16) {
                moves!("1", count % 16, to, from);
            }
        }
        // The last values go.
        let _ = (to, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However few they are: they are read and written, and no others are changed.
    #[test]
    fn a_few_bytes_are_read_and_written() {
        let from: Vec<u8> = (1..=80).collect();
        let source = from.as_ptr().expose_provenance();
        for (at, length) in (0..9).flat_map(|at| (0..64).map(move |length| (at, length))) {
            let mut bytes = vec![0xaa; length];
            // SAFETY: both are as long.
            unsafe { read_few(&mut bytes, source + at) };
            assert_eq!(bytes, from[at..at + length]);
            let mut to = [0xaa_u8; 80];
            let target = to.as_mut_ptr().expose_provenance();
            // SAFETY: it is longer than that.
            unsafe { write_few(target + at, &bytes) };
            assert_eq!(to[at..at + length], bytes);
            assert!(to[..at].iter().chain(&to[at + length..]).all(|byte| *byte == 0xaa));
        }
        // SAFETY: it is longer than that.
        let words = unsafe { read_words(source + 3) };
        assert_eq!(words.map(u64::to_le_bytes).as_flattened(), &from[3..19]);
    }

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
