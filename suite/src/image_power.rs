// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the built image for POWER must not contain: a floating-point or vector instruction outside of what saves, loads
//! and clears that state of guests, and a way from the light tier of an exit into a panic or through a pointer.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};

use super::reach::{Functions, Pointer};

/// What saves, loads and clears the floating-point and vector state of guests.
const KEEPERS: [&str; 3] = ["turnstile_save_vectors", "turnstile_load_vectors", "turnstile_clear_vectors"];
/// The tables of the light handlers of hypervisor calls; the end of their names.
const TABLE: &str = "::TABLE";
/// The module that they are in.
const MODULE: &str = "hcall";
/// The list of the instructions by which calls return to guests: its beginning and its end.
const RETURNS: (&str, &str) = ("turnstile_call_returns", "turnstile_call_returns_end");
/// What calls the handlers of the same tables in turn: for vCPUs that keep statistics.
const DISPATCHER: &str = "timed_handler";
/// The first of the instructions by which code goes over from the other byte order, as they are read in this one, and how
/// many those are (boot.S).
const OTHER_ORDER: (u32, usize) = (0xa600_607d, 8);
/// So many different light handlers there are at least: fewer were not found.
const FEWEST_HANDLERS: usize = 4;
/// So many instructions the image has at least: fewer were not decoded.
const FEWEST_INSTRUCTIONS: usize = 10_000;

/// The code of an image, and where things are.
pub(super) struct Program {
    code: Vec<u8>,
    base: u64,
    functions: Functions,
    /// The light handlers that tables name.
    handlers: BTreeSet<u64>,
    /// Where calls return to guests, as the list says whose instructions guards replace.
    returns: BTreeSet<u64>,
}

impl Program {
    pub(super) fn load(elf: &Path) -> Result<Self, String> {
        let bytes = fs::read(elf).map_err(|error| format!("{}: {error}", elf.display()))?;
        let file = object::File::parse(&*bytes).map_err(|error| format!("{}: {error}", elf.display()))?;
        let text = file.section_by_name(".text").ok_or("the image has no .text")?;
        let code = text.data().map_err(|error| error.to_string())?.to_vec();
        let (base, end) = (text.address(), text.address() + text.size());
        let named = || file.symbols().filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol)));
        let functions = named()
            // Constants of the assembler are symbols, too, in no section.
            .filter(|(_, symbol)| symbol.section_index().is_some())
            .filter(|(name, symbol)| (base..end).contains(&symbol.address()) && !name.starts_with('$'))
            .map(|(name, symbol)| (symbol.address(), (symbol.size(), name)))
            .collect();
        let functions = Functions::new(functions, Some(end));
        let tables: Vec<(u64, u64)> = named()
            .filter(|(name, _)| {
                let name = format!("{:#}", rustc_demangle::demangle(name));
                name.contains(MODULE) && name.ends_with(TABLE)
            })
            .map(|(_, symbol)| (symbol.address(), symbol.size()))
            .collect();
        let place = |name: &str| named().find(|(known, _)| known == name).map(|(_, symbol)| symbol.address());
        let listed = place(RETURNS.0).unwrap_or_default()..place(RETURNS.1).unwrap_or_default();
        let (mut handlers, mut returns) = (BTreeSet::new(), BTreeSet::new());
        // The image is relocated where it runs: what a table holds is in its relocations.
        for (place, relocation) in file.dynamic_relocations().into_iter().flatten() {
            let inside = tables.iter().any(|(start, size)| (*start..start + size).contains(&place));
            if inside && relocation.target() == RelocationTarget::Absolute {
                handlers.insert(relocation.addend() as u64);
            }
            if listed.contains(&place) {
                returns.insert(relocation.addend() as u64);
            }
        }
        Ok(Program { code, base, functions, handlers, returns })
    }

    /// Where calls return to guests, as the list says whose instructions guards replace.
    pub(super) fn returns(&self) -> &BTreeSet<u64> {
        &self.returns
    }

    /// The names that begin so, and their addresses.
    pub(super) fn named<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        let named = self.functions.iter().filter(move |(_, name)| name.starts_with(prefix));
        named.map(|(address, name)| (name, address))
    }

    /// The address of what has this name.
    pub(super) fn address(&self, name: &str) -> Option<u64> {
        self.functions.iter().find(|(_, known)| *known == name).map(|(address, _)| address)
    }

    /// All instructions from an address on, with their addresses.
    pub(super) fn code(&self, start: u64) -> impl Iterator<Item = (u64, u32)> {
        let rest = self.code.get(start.saturating_sub(self.base) as usize..).unwrap_or_default();
        (start..).step_by(4).zip(rest.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)))
    }

    /// The same without their addresses.
    pub(super) fn words(&self, start: u64) -> impl Iterator<Item = u32> {
        self.code(start).map(|(_, word)| word)
    }

    /// The instructions of a function with their addresses.
    pub(super) fn body(&self, start: u64) -> impl Iterator<Item = (u64, u32)> {
        let size = self.functions.size(start);
        let offset = start.saturating_sub(self.base) as usize;
        let body = self.code.get(offset..offset + size as usize).unwrap_or_default();
        (start..).step_by(4).zip(body.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)))
    }
}

/// Where a direct branch or call at `address` leads (Power ISA 3.0B Book I, 2.4: B, BC).
pub(super) fn target(word: u32, address: u64) -> Option<u64> {
    let absolute = word & 2 != 0;
    let displacement = match word >> 26 {
        18 => i64::from((word << 6) as i32 >> 6 & !3),
        16 => i64::from(i32::from((word & 0xfffc) as u16 as i16)),
        _ => return None,
    };
    (!absolute).then(|| address.wrapping_add_signed(displacement))
}

/// Says whether an instruction calls through CTR (BCCTRL), which holds a pointer.
fn calls_pointer(word: u32) -> bool {
    word & 0xfc00_07ff == 0x4c00_0421
}

/// Says whether an instruction names a floating-point or vector register, by its opcode and, for opcode 31, its extended
/// opcode (Power ISA 3.0B, Appendix E of Book III: opcode maps).
fn is_vector(word: u32) -> bool {
    match word >> 26 {
        // VMX, but for MADDHD, MADDHDU and MADDLD.
        4 => !matches!(word & 0x3f, 48 | 49 | 51),
        // Paired VSX storage accesses; floating-point storage accesses; VSX; floating-point and decimal arithmetic.
        6 | 48..=55 | 57 | 59..=61 | 63 => true,
        31 => is_vector_extended(word >> 1 & 0x3ff),
        _ => false,
    }
}

/// The extended opcodes of opcode 31 that move such a register.
fn is_vector_extended(extended: u32) -> bool {
    match extended {
        // LVEBX, LVEHX, LVEWX, LVX, LVXL, LVSL, LVSR; STVEBX, STVEHX, STVEWX, STVX, STVXL.
        7 | 39 | 71 | 103 | 359 | 6 | 38 | 135 | 167 | 199 | 231 | 487 => true,
        // LFSX, LFSUX, LFDX, LFDUX, LFDPX, LFIWAX, LFIWZX; STFSX, STFSUX, STFDX, STFDUX, STFDPX, STFIWX.
        535 | 567 | 599 | 631 | 791 | 855 | 887 | 663 | 695 | 727 | 759 | 919 | 983 => true,
        // LXSIWZX, LXSIWAX, LXSSPX, LXSDX, LXVDSX, LXVW4X, LXVH8X, LXVD2X, LXVB16X, LXVX, LXVWSX, LXVL, LXVLL, LXSIBZX,
        // LXSIHZX.
        12 | 76 | 524 | 588 | 332 | 780 | 812 | 844 | 876 | 268 | 300 | 364 | 269 | 301 | 781 | 813 => true,
        // STXSIWX, STXSSPX, STXSDX, STXVW4X, STXVH8X, STXVD2X, STXVB16X, STXVX, STXVL, STXVLL, STXSIBX, STXSIHX.
        140 | 652 | 716 | 908 | 940 | 972 | 1004 | 396 | 397 | 429 | 909 | 941 => true,
        // MFVSRD, MFVSRLD, MFVSRWZ, MTVSRD, MTVSRWA, MTVSRWZ, MTVSRWS, MTVSRDD.
        51 | 307 | 115 | 179 | 211 | 243 | 403 | 435 => true,
        _ => false,
    }
}

/// Follows every call and jump out of the light handlers and fails if one leads to the panic machinery, or through a
/// pointer.
///
/// # Errors
/// Names the function, or says why the image cannot be read.
pub fn hot_path(elf: &Path) -> Result<(), String> {
    let program = Program::load(elf)?;
    if program.handlers.len() < FEWEST_HANDLERS {
        return Err(format!("{} light handlers in the image, expected more", program.handlers.len()));
    }
    program.functions.follow(program.handlers.iter().copied(), |start| {
        let is_dispatcher = program.functions.name(start) == DISPATCHER;
        match program.body(start).any(|(_, word)| calls_pointer(word)) && !is_dispatcher {
            true => Err(Pointer),
            false => Ok(program.body(start).filter_map(|(address, word)| target(word, address)).collect()),
        }
    })
}

/// Fails if code names a register of the floating-point and vector state, which is the guest's while it is resident, but
/// where that state is saved and loaded.
///
/// # Errors
/// Names the function and the instruction's address.
pub fn no_vectors(elf: &Path) -> Result<(), String> {
    let program = Program::load(elf)?;
    let (mut seen, mut kept) = (0, 0);
    for (start, name) in program.functions.iter() {
        if KEEPERS.contains(&name) {
            kept += program.body(start).filter(|(_, word)| is_vector(*word)).count();
            continue;
        }
        let mut other_order = 0;
        for (address, word) in program.body(start) {
            if word == OTHER_ORDER.0 {
                other_order = OTHER_ORDER.1;
            }
            if other_order > 0 {
                other_order -= 1;
                continue;
            }
            seen += 1;
            if is_vector(word) {
                let name = rustc_demangle::demangle(name);
                return Err(format!("{name:#} has the instruction {word:#010x} at {address:#x}"));
            }
        }
    }
    if seen < FEWEST_INSTRUCTIONS || kept < 2 * 64 {
        return Err(format!("only {seen} instructions were found, and {kept} that move the state of guests"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_registers_are_seen() {
        // lfd f0, 0(r3); stxvd2x vs0, 0, r3; lvx v0, 0, r3; fadd f0, f1, f2; xxlxor; mfvsrd r3, vs0; vxor.
        let vectors =
            [0xc803_0000, 0x7c00_1f98, 0x7c00_18ce, 0xfc01_102a, 0xf000_04d0, 0x7c03_0066, 0x1000_04c4];
        for word in vectors {
            assert!(is_vector(word), "{word:#010x}");
        }
        // ld r3, 0(r4); std; mfspr r3, 256 (VRSAVE); maddld; hrfid; stdcx.; rldicl; bl.
        let others = [
            0xe864_0000,
            0xf864_0000,
            0x7c60_42a6,
            0x1064_2973,
            0x4c00_0224,
            0x7c60_21ad,
            0x7863_0020,
            0x4800_0001,
        ];
        for word in others {
            assert!(!is_vector(word), "{word:#010x}");
        }
    }

    #[test]
    fn branches_are_followed() {
        assert_eq!(target(0x4800_0009, 0x1000), Some(0x1008)); // bl .+8
        assert_eq!(target(0x4bff_fffc, 0x1000), Some(0xffc)); // b .-4
        assert_eq!(target(0x4082_fff8, 0x1000), Some(0xff8)); // bne .-8
        assert_eq!(target(0x4e80_0020, 0x1000), None); // blr
        assert!(calls_pointer(0x4e80_0421) && !calls_pointer(0x4e80_0420)); // bctrl, bctr
    }
}
