// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the built image must not contain: a way from the light tier of an exit into a panic.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol};

/// The section of the light tier; its handlers' names begin so.
const LIGHT: &str = "turnstile_light_";
/// The light handlers there are: each must be found, or the test looks at the wrong thing.
const HANDLERS: usize = 10;

/// Follows every branch out of the light tier's handlers and fails if one leads to the panic machinery.
///
/// # Errors
/// Names the function, or says why the image cannot be read.
pub fn hot_path(elf: &Path) -> Result<(), String> {
    let bytes = fs::read(elf).map_err(|error| format!("{}: {error}", elf.display()))?;
    let file = object::File::parse(&*bytes).map_err(|error| format!("{}: {error}", elf.display()))?;
    let text = file.section_by_name(".text").ok_or("the image has no .text")?;
    let code = text.data().map_err(|error| error.to_string())?;
    let functions: BTreeMap<u64, (u64, String)> = file
        .symbols()
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.size() > 0)
        .filter_map(|symbol| Some((symbol.address(), (symbol.size(), symbol.name().ok()?.to_owned()))))
        .collect();
    let mut todo: Vec<u64> = functions
        .iter()
        .filter(|(_, (_, name))| name.starts_with(LIGHT))
        .map(|(address, _)| *address)
        .collect();
    if todo.len() != HANDLERS {
        return Err(format!("{} light handlers in the image, expected {HANDLERS}", todo.len()));
    }
    let mut seen = todo.clone();
    while let Some(start) = todo.pop() {
        let Some((size, name)) = functions.get(&start) else { continue };
        if name.contains("panic") {
            return Err(format!("the light tier can reach {name}"));
        }
        for target in branches(code, text.address(), start, *size) {
            let Some((function, _)) = functions.range(..=target).next_back() else { continue };
            if !seen.contains(function) {
                seen.push(*function);
                todo.push(*function);
            }
        }
    }
    Ok(())
}

/// Targets of the direct branches and calls (B, BL) of a function.
fn branches(code: &[u8], base: u64, start: u64, size: u64) -> Vec<u64> {
    let offset = (start - base) as usize;
    let body = code.get(offset..offset + size as usize).unwrap_or_default();
    let words = body.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    words
        .zip((start..).step_by(4))
        // B and BL: imm26 words from here, signed.
        .filter(|(word, _)| word >> 26 & 0x1f == 0b00101)
        .map(|(word, address)| address.wrapping_add_signed(i64::from((word << 6) as i32 >> 6) * 4))
        .collect()
}
