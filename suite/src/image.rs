// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the built image must not contain: a way from the light tier of an exit into a panic, and anything of what
//! only images for ablation have.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol};

/// The handlers of the light tier have names that begin so.
const LIGHT: [&str; 2] = ["turnstile_light_", "turnstile_wide_"];
/// The light and wide handlers there are: each must be found, or the test looks at the wrong thing.
const HANDLERS: usize = 25;
/// The vectors, and what follows what an exit executes of them.
const VECTORS: [&str; 2] = ["vectors", "turnstile_enter"];
/// A function whose result somebody uses in the image for ablation alone, so that the compiler leaves it out of the other: it is not
/// compared.
const WITHOUT_RESULT: &str = "11add_sources17";
/// Parts of names that only images for ablation have: their own code and data, and what only they use of the rest.
const NAIVE: [&str; 5] = ["naive", "NAIVE", "SearchedTargets", "synchronize", "turnstile_techniques"];
/// Of those, the ones that no optimization can hide: they must be found where they belong.
const CERTAIN: [&str; 2] = ["naive_vectors", "NAIVE_CHAIN"];

/// The code of an image.
pub(super) struct Program {
    code: Vec<u8>,
    base: u64,
    /// Address, size and name of each function.
    functions: BTreeMap<u64, (u64, String)>,
    /// Names without a size, by address: labels of assembly.
    labels: BTreeMap<u64, String>,
    /// All symbols.
    symbols: BTreeMap<String, u64>,
}

impl Program {
    pub(super) fn load(elf: &Path) -> Result<Self, String> {
        let bytes = fs::read(elf).map_err(|error| format!("{}: {error}", elf.display()))?;
        let file = object::File::parse(&*bytes).map_err(|error| format!("{}: {error}", elf.display()))?;
        let text = file.section_by_name(".text").ok_or("the image has no .text")?;
        let code = text.data().map_err(|error| error.to_string())?.to_vec();
        let named = || file.symbols().filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol)));
        let functions = named()
            .filter(|(_, symbol)| symbol.kind() == object::SymbolKind::Text && symbol.size() > 0)
            .map(|(name, symbol)| (symbol.address(), (symbol.size(), name)))
            .collect();
        let labels = named()
            .filter(|(name, symbol)| symbol.size() == 0 && !name.starts_with('$'))
            .map(|(name, symbol)| (symbol.address(), name))
            .collect();
        let symbols = named().map(|(name, symbol)| (name, symbol.address())).collect();
        Ok(Program { code, base: text.address(), functions, labels, symbols })
    }

    /// A program of these instructions, at zero, in no function.
    #[cfg(test)]
    pub(super) fn of(words: &[u32]) -> Self {
        let code = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (functions, labels, symbols) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Program { code, base: 0, functions, labels, symbols }
    }

    /// The address of a symbol.
    pub(super) fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.get(name).copied()
    }

    /// The addresses of the light tier's handlers, in the order of their names.
    fn handlers(&self) -> Result<Vec<u64>, String> {
        let all = self.symbols.iter().filter(|(name, _)| LIGHT.iter().any(|light| name.starts_with(light)));
        let handlers: Vec<u64> = all.map(|(_, address)| *address).collect();
        match handlers.len() {
            HANDLERS => Ok(handlers),
            count => Err(format!("{count} light handlers in the image, expected {HANDLERS}")),
        }
    }

    /// The function that an address is in.
    pub(super) fn function(&self, address: u64) -> Option<u64> {
        self.functions.range(..=address).next_back().map(|(start, _)| *start)
    }

    pub(super) fn name(&self, start: u64) -> &str {
        self.functions.get(&start).map_or("", |(_, name)| name)
    }

    /// The last label at an address or before it, in code written in assembly.
    pub(super) fn label(&self, address: u64) -> Option<&str> {
        self.labels.range(..=address).next_back().map(|(_, name)| name.as_str())
    }

    /// The instructions of a range.
    pub(super) fn words(&self, start: u64, size: u64) -> Vec<u32> {
        let offset = start.saturating_sub(self.base) as usize;
        let body = self.code.get(offset..offset + size as usize).unwrap_or_default();
        body.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
    }

    /// The instructions of a function.
    pub(super) fn body(&self, start: u64) -> Vec<u32> {
        let size = self.functions.get(&start).map_or(0, |(size, _)| *size);
        self.words(start, size)
    }
}

/// Where a direct branch or call (B, BL) at `address` leads.
pub(super) fn target(word: u32, address: u64) -> Option<u64> {
    // imm26 words from here, signed.
    let is_branch = word >> 26 & 0x1f == 0b00101;
    is_branch.then(|| address.wrapping_add_signed(i64::from((word << 6) as i32 >> 6) * 4))
}

/// Where the direct branches and calls of a range lead.
fn targets(words: &[u32], start: u64) -> impl Iterator<Item = u64> {
    words.iter().zip((start..).step_by(4)).filter_map(|(word, address)| target(*word, address))
}

/// Follows every branch out of the light tier's handlers and fails if one leads to the panic machinery.
///
/// # Errors
/// Names the function, or says why the image cannot be read.
pub fn hot_path(elf: &Path) -> Result<(), String> {
    let program = Program::load(elf)?;
    let mut todo = program.handlers()?;
    let mut seen: BTreeSet<u64> = todo.iter().copied().collect();
    while let Some(start) = todo.pop() {
        if program.name(start).contains("panic") {
            return Err(format!("the light tier can reach {}", program.name(start)));
        }
        let body = program.body(start);
        let called = targets(&body, start).filter_map(|target| program.function(target));
        todo.extend(called.filter(|function| seen.insert(*function)));
    }
    Ok(())
}

/// Fails if the image that is used contains anything of the switches of the image for ablation, or if an exit
/// executes other instructions in one than in the other with nothing switched: everything that the vectors and the
/// light handlers can reach is compared, apart from where things lie, and from one function ([`WITHOUT_RESULT`]).
///
/// # Errors
/// Says what is there that should not be, or where they differ.
pub fn without_switches(used: &Path, ablation: &Path) -> Result<(), String> {
    let (used, ablation) = (Program::load(used)?, Program::load(ablation)?);
    for part in NAIVE {
        if let Some(name) = used.symbols.keys().find(|name| name.contains(part)) {
            return Err(format!("the image contains {name}, which only images for ablation need"));
        }
    }
    for name in CERTAIN {
        if !ablation.symbols.contains_key(name) {
            return Err(format!("the image for ablation has no {name}: this looks at the wrong thing"));
        }
    }
    same_vectors(&used, &ablation)?;
    let mut todo: Vec<(u64, u64)> = used.handlers()?.into_iter().zip(ablation.handlers()?).collect();
    let mut seen: BTreeSet<(u64, u64)> = todo.iter().copied().collect();
    while let Some((one, other)) = todo.pop() {
        let (body, other_body) = (used.body(one), ablation.body(other));
        same_code(&body, &other_body).map_err(|place| {
            format!("{} differs at +{place:#x} from the image for ablation", used.name(one))
        })?;
        for (target, other_target) in targets(&body, one).zip(targets(&other_body, other)) {
            let pair = used.function(target).zip(ablation.function(other_target));
            let Some(pair) = pair else { return Err(format!("{target:#x} is in no function")) };
            if target - pair.0 != other_target - pair.1 {
                return Err(format!("{} branches elsewhere in the image for ablation", used.name(one)));
            }
            if !used.name(pair.0).contains(WITHOUT_RESULT) && seen.insert(pair) {
                todo.push(pair);
            }
        }
    }
    Ok(())
}

fn same_vectors(used: &Program, ablation: &Program) -> Result<(), String> {
    let words = |program: &Program| -> Option<Vec<u32>> {
        let [start, end] = VECTORS.map(|name| program.symbols.get(name).copied());
        Some(program.words(start?, end? - start?))
    };
    let (Some(one), Some(other)) = (words(used), words(ablation)) else {
        return Err("there is an image without vectors".to_owned());
    };
    same_code(&one, &other).map_err(|place| format!("the vectors differ at +{place:#x}"))
}

/// Compares instructions apart from addresses relative to the program counter; the error is the first place.
fn same_code(one: &[u32], other: &[u32]) -> Result<(), usize> {
    if one.is_empty() || one.len() != other.len() {
        return Err(4 * one.len().min(other.len()));
    }
    let mut pages = [false; 32];
    let mut other_pages = [false; 32];
    let differ =
        |(word, other): (&u32, &u32)| placeless(*word, &mut pages) != placeless(*other, &mut other_pages);
    match one.iter().zip(other).map(differ).position(|differ| differ) {
        Some(place) => Err(4 * place),
        None => Ok(()),
    }
}

/// An instruction without the address in it. `pages` are the registers that hold the page of an address, as ADRP
/// leaves it: what is added to one of them is an address, too.
fn placeless(word: u32, pages: &mut [bool; 32]) -> u32 {
    let (rd, rn) = ((word & 31) as usize, (word >> 5 & 31) as usize);
    match word {
        // B, BL: imm26.
        _ if word >> 26 & 0x1f == 0b00101 => word & 0xfc00_0000,
        // ADR, ADRP: immlo, immhi.
        _ if word >> 24 & 0x1f == 0b10000 => {
            pages[rd] = word >> 31 != 0;
            word & 0x9f00_001f
        }
        // LDR (literal): imm19.
        _ if word >> 24 & 0x3b == 0b01_1000 => {
            pages[rd] = false;
            word & 0xff00_001f
        }
        // ADD (immediate), LDR and STR (unsigned offset): imm12.
        _ if pages[rn] && (word >> 22 & 0x1ff == 0b0_0100_0100 || word >> 24 & 0x3b == 0b11_1001) => {
            let is_store = word >> 24 & 0x3b == 0b11_1001 && word >> 22 & 3 == 0;
            pages[rd] &= is_store;
            word & 0xffc0_03ff
        }
        _ => {
            pages[rd] = false;
            word
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_compared_apart_from_where_it_lies() {
        // bl; adrp x0; add x0, x0, #imm; ldr x1, [x0, #8]; ldr x2, literal; ret
        let code = |bl: u32, page: u32, offset: u32| {
            [
                0x9400_0000 | bl,
                0x9000_0000 | page << 5,
                0x9100_0000 | offset << 10,
                0xf940_0401,
                0x5800_0002 | offset << 5,
                0xd65f_03c0,
            ]
        };
        assert_eq!(same_code(&code(1, 2, 3), &code(4, 5, 6)), Ok(()));
        let mut other = code(4, 5, 6);
        other[3] = 0xf940_0801; // Another offset from the address itself.
        assert_eq!(same_code(&code(1, 2, 3), &other), Err(12));
        assert_eq!(same_code(&code(1, 2, 3), &code(1, 2, 3)[..4]), Err(16));
        assert_eq!(same_code(&[], &[]), Err(0), "nothing was compared");
    }

    #[test]
    fn branches_are_followed() {
        assert_eq!(target(0x9400_0002, 0x1000), Some(0x1008));
        assert_eq!(target(0x17ff_ffff, 0x1000), Some(0xffc));
        assert_eq!(target(0xd65f_03c0, 0x1000), None);
    }
}
