// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes the image of a service of its ELF file, as `turnstile_service::image` describes it.
//!
//! The file is a position-independent executable that lies at address zero, with code, constants and data in segments of their own
//! (`services/runtime/link.ld`). Memory that is kept is its section `.kept`, at the end of its zeros; where its device is rung says
//! the section `.doorbells`, if there is one.

use object::LittleEndian;
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader};
use turnstile_service::image::{Doorbells, Header, Image, PAGE};

/// The stack of a program that says nothing of it (`-z stack-size`).
const STACK: u64 = 16 << 10;

const ENDIAN: LittleEndian = LittleEndian;

/// Makes the image. The error says what is wrong with the file.
pub fn flatten(file: &[u8]) -> Result<Vec<u8>, String> {
    let program = Program::read(file)?;
    let relocations = program.relocations()?;
    let mut image = program.header(relocations.len())?.bytes().to_vec();
    let [code, constants, data] = &program.parts;
    for part in [code, constants, data] {
        image.extend(part.bytes);
        image.resize(image.len().next_multiple_of(PAGE as usize), 0);
    }
    for (offset, addend) in &relocations {
        let at = PAGE as usize + *offset as usize;
        let word = image.get_mut(at..at + 8).ok_or("a relocation is outside of what the file has")?;
        word.copy_from_slice(&addend.to_le_bytes());
    }
    for (offset, _) in &relocations {
        image.extend(offset.to_le_bytes());
    }
    // What the hypervisor checks again.
    Image::parse(&image, program.isa).map_err(|error| error.to_string())?;
    Ok(image)
}

/// A part of the address space.
#[derive(Clone, Copy, Default)]
struct Part<'a> {
    start: u64,
    bytes: &'a [u8],
    /// With zeros behind the bytes.
    size: u64,
}

/// What is used of a file.
struct Program<'a> {
    isa: u32,
    entry: u64,
    /// Code, constants, data.
    parts: [Part<'a>; 3],
    stack: u64,
    kept: Option<(u64, u64)>,
    doorbells: Doorbells,
    relocations: Vec<elf::Rela64<LittleEndian>>,
}

impl<'a> Program<'a> {
    fn read(file: &'a [u8]) -> Result<Self, String> {
        let broken = |error: object::read::Error| format!("it is not a sound ELF file: {error}");
        if file.get(4..6) != Some(&[elf::ELFCLASS64.0, elf::ELFDATA2LSB.0]) || !file.starts_with(b"\x7fELF") {
            return Err("it is not a little-endian ELF file of 64 bits".to_owned());
        }
        let header = FileHeader64::<LittleEndian>::parse(file).map_err(broken)?;
        if header.e_type(ENDIAN) != elf::ET_DYN {
            return Err("it is not position independent (link it with -pie)".to_owned());
        }
        let mut program = Program {
            isa: header.e_machine(ENDIAN).0.into(),
            entry: header.e_entry(ENDIAN),
            parts: [Part::default(); 3],
            stack: STACK,
            kept: None,
            doorbells: Doorbells::NONE,
            relocations: Vec::new(),
        };
        for segment in header.program_headers(ENDIAN, file).map_err(broken)? {
            program.segment(segment, file)?;
        }
        let sections = header.sections(ENDIAN, file).map_err(broken)?;
        for section in sections.iter() {
            let name = sections.section_name(ENDIAN, section).map_err(broken)?;
            program.section(section, name, file)?;
        }
        program.check()?;
        Ok(program)
    }

    fn segment(&mut self, segment: &ProgramHeader64<LittleEndian>, file: &'a [u8]) -> Result<(), String> {
        let size = segment.p_memsz(ENDIAN);
        if segment.p_type(ENDIAN) == elf::PT_GNU_STACK && size != 0 {
            self.stack = size;
        }
        if segment.p_type(ENDIAN) != elf::PT_LOAD || size == 0 {
            return Ok(());
        }
        let flags = segment.p_flags(ENDIAN) & (elf::PF_R | elf::PF_W | elf::PF_X);
        let part = match flags {
            _ if flags == elf::PF_R | elf::PF_X => 0,
            _ if flags == elf::PF_R => 1,
            _ if flags == elf::PF_R | elf::PF_W => 2,
            _ => return Err("a segment can be both written and executed".to_owned()),
        };
        let bytes = segment.data(ENDIAN, file).map_err(|()| "a segment is cut off".to_owned())?;
        if self.parts[part].size != 0 {
            return Err("it has two segments of one kind: link it with services/runtime/link.ld".to_owned());
        }
        self.parts[part] = Part { start: segment.p_vaddr(ENDIAN), bytes, size };
        Ok(())
    }

    fn section(
        &mut self,
        section: &SectionHeader64<LittleEndian>,
        name: &[u8],
        file: &'a [u8],
    ) -> Result<(), String> {
        let flags = section.sh_flags(ENDIAN).0;
        if flags & elf::SHF_ALLOC.0 == 0 || section.sh_size(ENDIAN) == 0 {
            return Ok(());
        }
        match section.sh_type(ENDIAN) {
            elf::SHT_RELA => {
                let all = section.data_as_array::<elf::Rela64<LittleEndian>, _>(ENDIAN, file);
                self.relocations.extend(all.map_err(|error| format!("its relocations are broken: {error}"))?);
            }
            elf::SHT_REL | elf::SHT_RELR => {
                return Err("it has relocations without addends, or packed ones".to_owned());
            }
            _ if name == b".doorbells" => {
                let words = section.data_as_array::<object::U32<LittleEndian>, _>(ENDIAN, file);
                let words = words.ok().and_then(|words| <[_; 3]>::try_from(words).ok());
                let words = words.ok_or("its section .doorbells is broken")?;
                self.doorbells = Doorbells::from_words(words.map(|word| word.get(ENDIAN)));
            }
            _ if name == b".kept" => self.kept = Some((section.sh_addr(ENDIAN), section.sh_size(ENDIAN))),
            _ => {}
        }
        Ok(())
    }

    /// Checks that the parts follow each other as in an image.
    fn check(&self) -> Result<(), String> {
        let mut end = 0;
        for part in self.parts.iter().filter(|part| part.size != 0) {
            if part.start != end {
                return Err(
                    "its segments do not follow each other: link it with services/runtime/link.ld".to_owned()
                );
            }
            end = part.start.saturating_add(round(part.size));
        }
        let [code, constants, _] = &self.parts;
        if [code, constants].iter().any(|part| part.size != part.bytes.len() as u64) {
            return Err("its code or its constants have zeros that the file has not".to_owned());
        }
        match self.kept {
            Some((start, size))
                if !start.is_multiple_of(PAGE.into()) || round(start.saturating_add(size)) != end =>
            {
                Err("what it keeps is not at its end: link it with services/runtime/link.ld".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn header(&self, relocations: usize) -> Result<Header, String> {
        let fits = |size: u64| u32::try_from(size).map_err(|_| "it is too large".to_owned());
        let [code, constants, data] = &self.parts;
        let has = round(data.bytes.len() as u64);
        Ok(Header {
            isa: self.isa,
            entry: fits(self.entry)?,
            code: fits(round(code.size))?,
            constants: fits(round(constants.size))?,
            data: fits(has)?,
            zeros: fits(round(data.size) - has)?,
            kept: fits(self.kept.map_or(0, |(_, size)| round(size)))?,
            stack: fits(round(self.stack))?,
            relocations: fits(relocations as u64)?,
            doorbells: self.doorbells,
        })
    }

    /// Returns the words to which the base is added, with what is added to it, in ascending order.
    fn relocations(&self) -> Result<Vec<(u32, u64)>, String> {
        let relative = match elf::Machine(self.isa as u16) {
            elf::EM_AARCH64 => elf::R_AARCH64_RELATIVE,
            elf::EM_X86_64 => elf::R_X86_64_RELATIVE,
            elf::EM_PPC64 => elf::R_PPC64_RELATIVE,
            _ => return Err(format!("it is for another architecture (ELF machine {})", self.isa)),
        };
        let mut all = Vec::new();
        for relocation in &self.relocations {
            let kind = relocation.r_type(ENDIAN, false);
            if kind != relative {
                return Err(format!("it has relocations of kind {kind}, which need a dynamic linker"));
            }
            let offset = u32::try_from(relocation.r_offset(ENDIAN)).map_err(|_| "a relocation is outside")?;
            all.push((offset, relocation.r_addend(ENDIAN) as u64));
        }
        all.sort_unstable();
        Ok(all)
    }
}

fn round(size: u64) -> u64 {
    size.checked_next_multiple_of(PAGE.into()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use turnstile_service::image::AARCH64;

    use super::*;

    /// A section: its type, address, size and contents, and where its name is among the [`NAMES`].
    type Section = (u32, u64, u64, Vec<u8>, u32);

    const NAMES: &[u8] = b"\0.kept\0.rela\0.doorbells\0";
    const KEPT: u32 = 1;
    const RELA: u32 = 7;
    const DOORBELLS: u32 = 13;

    /// What a file is made of.
    struct Elf {
        kind: u16,
        machine: u16,
        /// Flags, address, contents, size in memory.
        segments: Vec<(u32, u64, Vec<u8>, u64)>,
        sections: Vec<Section>,
        stack: u64,
    }

    /// A program with a page of code, one of constants, one of data and two of zeros, of which the last is kept.
    fn program() -> Elf {
        Elf {
            kind: 3,
            machine: 183,
            segments: vec![
                (5, 0, vec![1; 0x800], 0x800),
                (4, 0x1000, vec![2; 0x10], 0x10),
                (6, 0x2000, vec![3; 0x20], 0x2008),
            ],
            sections: vec![(8, 0x4000, 8, Vec::new(), KEPT)],
            stack: 0x2000,
        }
    }

    /// A relocation of this kind at a place, with an addend.
    fn relocation(kind: u64, place: u64, addend: u64) -> Vec<u8> {
        [place, kind, addend].into_iter().flat_map(u64::to_le_bytes).collect()
    }

    fn relocated(kind: u64, place: u64) -> Elf {
        let bytes = relocation(kind, place, 0x1234);
        let mut elf = program();
        elf.sections.push((4, 0x1000, bytes.len() as u64, bytes, RELA));
        elf
    }

    impl Elf {
        fn bytes(&self) -> Vec<u8> {
            let count = self.segments.len() + 1;
            let mut body = Vec::new();
            let start = 64 + 56 * count as u64;
            let mut put = |bytes: &[u8]| {
                let at = start + body.len() as u64;
                body.extend(bytes);
                body.resize(body.len().next_multiple_of(8), 0);
                at
            };
            let mut headers = Vec::new();
            for (flags, address, bytes, size) in &self.segments {
                let at = put(bytes);
                headers.extend([1_u32, *flags].into_iter().flat_map(u32::to_le_bytes));
                let words = [at, *address, *address, bytes.len() as u64, *size, 0x1000];
                headers.extend(words.into_iter().flat_map(u64::to_le_bytes));
            }
            headers.extend([0x6474_e551_u32, 6].into_iter().flat_map(u32::to_le_bytes));
            headers.extend([0, 0, 0, 0, self.stack, 0].into_iter().flat_map(u64::to_le_bytes));
            let section = |name: u32, kind: u32, flags: u64, rest: [u64; 3], entry: u64| {
                let mut bytes: Vec<u8> = [name, kind].into_iter().flat_map(u32::to_le_bytes).collect();
                bytes.extend([flags, rest[0], rest[1], rest[2]].into_iter().flat_map(u64::to_le_bytes));
                bytes.extend([0; 8]);
                bytes.extend([8, entry].into_iter().flat_map(u64::to_le_bytes));
                bytes
            };
            let mut table = section(0, 0, 0, [0; 3], 0);
            for (kind, address, size, bytes, name) in &self.sections {
                let at = put(bytes);
                table.extend(section(*name, *kind, 2, [*address, at, *size], 24));
            }
            let at = put(NAMES);
            table.extend(section(0, 3, 0, [0, at, NAMES.len() as u64], 0));
            let at = put(&table);
            let mut file = b"\x7fELF\x02\x01\x01".to_vec();
            file.resize(16, 0);
            file.extend([self.kind, self.machine].into_iter().flat_map(u16::to_le_bytes));
            file.extend(1_u32.to_le_bytes());
            file.extend([0x40, 64, at].into_iter().flat_map(u64::to_le_bytes));
            file.extend(0_u32.to_le_bytes());
            let sections = self.sections.len() as u16 + 2;
            let sizes = [64, 56, count as u16, 64, sections, sections - 1];
            file.extend(sizes.into_iter().flat_map(u16::to_le_bytes));
            file.extend(headers);
            file.extend(body);
            file
        }
    }

    #[test]
    fn a_program_is_laid_out_by_pages() {
        let flat = flatten(&program().bytes()).unwrap();
        let image = Image::parse(&flat, AARCH64).unwrap();
        let header = image.header();
        let sizes = [header.code, header.constants, header.data, header.zeros, header.kept, header.stack];
        assert_eq!(sizes, [PAGE, PAGE, PAGE, 2 * PAGE, PAGE, 2 * PAGE]);
        assert_eq!((header.entry, header.kept_at()), (0x40, 0x4000));
        let at = |offset: usize| image.contents()[offset];
        assert_eq!(
            [at(0x7ff), at(0x800), at(0x1000), at(0x1010), at(0x2000), at(0x2020)],
            [1, 0, 2, 0, 3, 0]
        );
        let mut elf = program();
        elf.stack = 0;
        let flat = flatten(&elf.bytes()).unwrap();
        assert_eq!(Image::parse(&flat, AARCH64).unwrap().header().stack, 4 * PAGE, "as nothing is said");
    }

    #[test]
    fn addends_are_written_into_the_words() {
        for (machine, kind) in [(183, 1027), (62, 8), (21, 22)] {
            let mut elf = relocated(kind, 0x2008);
            elf.machine = machine;
            let flat = flatten(&elf.bytes()).unwrap();
            let image = Image::parse(&flat, machine.into()).unwrap();
            assert!(image.relocations().eq([0x2008]));
            let mut memory = vec![0; image.contents().len()];
            image.write(&mut memory, 0x10_0000);
            assert_eq!(memory[0x2008..0x2010], 0x10_1234_u64.to_le_bytes());
        }
    }

    #[test]
    fn where_its_device_is_rung_is_said() {
        let with = |bytes: Vec<u8>| {
            let mut elf = program();
            elf.sections.push((1, 0x1000, bytes.len() as u64, bytes, DOORBELLS));
            flatten(&elf.bytes())
        };
        let words = [0x100_u32, 8, 1].into_iter().flat_map(u32::to_le_bytes).collect();
        let header = *Image::parse(&with(words).unwrap(), AARCH64).unwrap().header();
        assert_eq!(header.doorbells, Doorbells { first: 0x100, size: 8, by: 1 });
        assert!(with(vec![0; 8]).unwrap_err().contains(".doorbells is broken"));
        assert!(with(vec![2; 12]).unwrap_err().contains("in a way that is not known"));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let refused = |change: fn(&mut Elf)| {
            let mut elf = program();
            change(&mut elf);
            flatten(&elf.bytes()).unwrap_err()
        };
        assert!(flatten(b"#!/bin/sh").unwrap_err().contains("not a little-endian ELF file"));
        assert!(refused(|elf| elf.kind = 2).contains("not position independent"));
        assert!(refused(|elf| elf.machine = 40).contains("ELF machine 40"));
        assert!(refused(|elf| elf.segments[0].0 = 7).contains("both written and executed"));
        assert!(refused(|elf| elf.segments[1].1 = 0x3000).contains("do not follow each other"));
        assert!(refused(|elf| elf.segments[1].0 = 6).contains("two segments of one kind"));
        assert!(refused(|elf| elf.sections[0].1 = 0x3000).contains("what it keeps is not at its end"));
        assert!(refused(|elf| elf.stack = 4 << 20).contains("a size in its header"));
        assert!(flatten(&relocated(1025, 0x2008).bytes()).unwrap_err().contains("kind 1025"));
        assert!(
            flatten(&relocated(1027, 0x10).bytes()).unwrap_err().contains("a relocation is wrong"),
            "in code"
        );
        assert!(flatten(&relocated(1027, 0x9000).bytes()).unwrap_err().contains("outside"));
        let cut = program().bytes();
        assert!(flatten(&cut[..100]).is_err());
    }
}
