// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernels of each protocol, made by hand from the specifications, and what becomes of them.

use turnstile_machine::FileKind;
use turnstile_machine::pc::boot::{BootError, INFORMATION, Mode, Plan, plan};
use turnstile_machine::pc::{self, regions, split};
use turnstile_machine::{FileError, Functions, Source};

const MIB: u64 = 1 << 20;

fn source(kernel: &[u8]) -> Source<'_> {
    Source {
        kernel,
        initrd: None,
        cmdline: "console=ttyS0",
        memory: 256 * MIB,
        vcpus: 2,
        functions: Functions::default(),
    }
}

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The smallest bzImage: setup code of one sector and a header of protocol 2.15.
fn bzimage(init_size: u32, preferred: u64) -> Vec<u8> {
    let mut file = vec![0; 0x400 + 0x1000];
    file[0x1f1] = 1;
    put(&mut file, 0x1fe, &[0x55, 0xaa, 0xeb, 0x6a]);
    put(&mut file, 0x202, b"HdrS\x0f\x02");
    put(&mut file, 0x22c, &0x7fff_ffffu32.to_le_bytes());
    put(&mut file, 0x230, &0x20_0000u32.to_le_bytes());
    put(&mut file, 0x234, &[1, 21, 3, 0]);
    put(&mut file, 0x238, &2047u32.to_le_bytes());
    put(&mut file, 0x258, &preferred.to_le_bytes());
    put(&mut file, 0x260, &init_size.to_le_bytes());
    file[0x400..].fill(0xf4);
    file
}

/// A 64-bit executable with one segment of code and a note, or a Multiboot header in the code.
fn elf(note: Option<u32>, multiboot: bool) -> Vec<u8> {
    let mut file = vec![0; 0x1000];
    put(&mut file, 0, b"\x7fELF\x02\x01\x01");
    put(&mut file, 16, &[2, 0, 62, 0, 1]);
    put(&mut file, 24, &0x10_0040u64.to_le_bytes());
    put(&mut file, 32, &64u64.to_le_bytes());
    put(&mut file, 52, &[64, 0, 56, 0, 2]);
    let mut segment = |at: usize, kind: u32, offset: u64, address: u64, bytes: u64, size: u64| {
        put(&mut file, at, &kind.to_le_bytes());
        for (index, value) in [offset, address, address, bytes, size, 4].into_iter().enumerate() {
            put(&mut file, at + 8 + 8 * index, &value.to_le_bytes());
        }
    };
    segment(64, 1, 0x800, 0x10_0000, 0x100, 0x3000);
    segment(120, 4, 0x200, 0, 20, 20);
    if let Some(entry) = note {
        put(&mut file, 0x200, &[4, 0, 0, 0, 4, 0, 0, 0, 18, 0, 0, 0]);
        put(&mut file, 0x20c, b"Xen\0");
        put(&mut file, 0x210, &entry.to_le_bytes());
    }
    if multiboot {
        put(&mut file, 0x800, &multiboot_header(0, &[]));
    }
    file
}

fn multiboot_header(flags: u32, addresses: &[u32]) -> Vec<u8> {
    let magic = 0x1bad_b002u32;
    let sum = 0u32.wrapping_sub(magic).wrapping_sub(flags);
    [magic, flags, sum].iter().chain(addresses).flat_map(|word| word.to_le_bytes()).collect()
}

/// The byte that a plan puts at an address.
fn byte(plan: &Plan<'_>, address: u64) -> u8 {
    let load = plan.loads.iter().find(|load| address.wrapping_sub(load.address) < load.bytes.len() as u64);
    load.map_or(0, |load| load.bytes[(address - load.address) as usize])
}

fn number(plan: &Plan<'_>, address: u64, bytes: u64) -> u64 {
    (0..bytes).rev().fold(0, |sum, at| sum << 8 | u64::from(byte(plan, address + at)))
}

fn text(plan: &Plan<'_>, address: u64) -> String {
    (address..).map(|at| byte(plan, at)).take_while(|byte| *byte != 0).map(char::from).collect()
}

#[test]
fn linux_gets_a_zero_page_and_page_tables() {
    let (file, disk) = (bzimage(0x20_0000, 0x100_0000), vec![7; 5000]);
    let source = Source { initrd: Some(&disk), ..source(&file) };
    let plan = plan(&source).expect("a kernel");
    let start = plan.start;
    assert_eq!((start.rip, start.rsi, start.selectors), (0x100_0200, INFORMATION, [0x10, 0x18]));
    let page = start.rsi;
    assert_eq!((number(&plan, page + 0x202, 4), byte(&plan, page + 0x210)), (0x5372_6448, 0xff));
    assert_eq!(text(&plan, number(&plan, page + 0x228, 4)), "console=ttyS0");
    let disk_at = number(&plan, page + 0x218, 4);
    assert_eq!((disk_at, number(&plan, page + 0x21c, 4)), (256 * MIB - 0x2000, 5000));
    assert_eq!(byte(&plan, disk_at + 4999), 7);
    assert_eq!(byte(&plan, 0x100_0000), 0xf4);
    assert_eq!(number(&plan, page + 0x70, 8), pc::FIRMWARE);
    assert_eq!(number(&plan, number(&plan, page + 0x70, 8), 8), u64::from_le_bytes(*b"RSD PTR "));
    let count = usize::from(byte(&plan, page + 0x1e8));
    let map: Vec<[u64; 3]> = (0..count as u64)
        .map(|index| page + 0x2d0 + 20 * index)
        .map(|at| [number(&plan, at, 8), number(&plan, at + 8, 8), number(&plan, at + 16, 4)])
        .collect();
    let expected: Vec<[u64; 3]> =
        regions(256 * MIB, 0).iter().map(|region| [region.base, region.size, region.kind as u64]).collect();
    assert_eq!(map, expected);
}

#[test]
fn the_page_tables_map_four_gigabytes() {
    let file = bzimage(0x20_0000, 0x100_0000);
    let plan = plan(&source(&file)).expect("a kernel");
    let Mode::Long { root } = plan.start.mode else { panic!("64-bit mode") };
    for address in [0, 0x1_0000, 0x100_0200, 0x3fff_ffff, 0xfee0_0000, 0xffff_ffff] {
        let top = number(&plan, root + (address >> 39 & 511) * 8, 8);
        let middle = number(&plan, (top & !0xfff) + (address >> 30 & 511) * 8, 8);
        let entry = number(&plan, (middle & !0xfff) + (address >> 21 & 511) * 8, 8);
        assert_eq!((top & 3, middle & 0x83, entry & 0x83), (3, 3, 0x83));
        assert_eq!(entry & !0x1f_ffff, address & !0x1f_ffff);
    }
}

#[test]
fn a_kernel_moves_down_if_memory_is_small() {
    let file = bzimage(0x200_0000, 0x100_0000);
    let small = Source { memory: 40 * MIB, ..source(&file) };
    assert_eq!(plan(&small).expect("fits lower").start.rip, 0x20_0200);
    let tiny = Source { memory: 32 * MIB, ..source(&file) };
    assert!(matches!(plan(&tiny), Err(BootError::TooSmall { .. })));
}

#[test]
fn old_and_short_kernels_are_refused() {
    let mut file = bzimage(0x20_0000, 0x100_0000);
    file[0x206] = 0xb;
    assert_eq!(plan(&source(&file)).err(), Some(BootError::OldProtocol(0x20b)));
    file[0x206] = 0xf;
    file[0x236] = 2;
    assert_eq!(plan(&source(&file)).err(), Some(BootError::NotLong));
    file[0x236] = 1;
    assert_eq!(plan(&source(&file[..0x300])).err(), Some(FileError::Truncated.into()));
    let long = "x".repeat(2048);
    let source = Source { cmdline: &long, ..source(&file) };
    assert_eq!(plan(&source).err(), Some(BootError::CommandLine(2048, 2047)));
}

#[test]
fn an_elf_with_a_note_starts_by_pvh() {
    let (file, disk) = (elf(Some(0x10_0010), true), vec![9; 100]);
    let source = Source { initrd: Some(&disk), ..source(&file) };
    let plan = plan(&source).expect("a kernel");
    assert_eq!((plan.start.mode, plan.start.rip), (Mode::Protected, 0x10_0010));
    let info = plan.start.rbx;
    assert_eq!((number(&plan, info, 4), number(&plan, info + 4, 4)), (0x336e_c578, 1));
    assert_eq!(text(&plan, number(&plan, info + 24, 8)), "console=ttyS0");
    assert_eq!(number(&plan, info + 32, 8), pc::FIRMWARE);
    let module = number(&plan, info + 16, 8);
    assert_eq!((number(&plan, info + 12, 4), number(&plan, module + 8, 8)), (1, 100));
    assert_eq!(number(&plan, module, 8), 0x10_3000, "behind the bss");
    let (map, count) = (number(&plan, info + 40, 8), number(&plan, info + 48, 4));
    assert_eq!(count as usize, regions(256 * MIB, 0).len());
    assert_eq!(
        (number(&plan, map, 8), number(&plan, map + 8, 8), number(&plan, map + 16, 4)),
        (0, 0xa_0000, 1)
    );
}

#[test]
fn an_elf_with_a_header_starts_by_multiboot() {
    let (file, disk) = (elf(None, true), vec![9; 100]);
    let source = Source { initrd: Some(&disk), ..source(&file) };
    let plan = plan(&source).expect("a kernel");
    assert_eq!((plan.start.rax, plan.start.rip), (0x2bad_b002, 0x10_0040));
    let info = plan.start.rbx;
    let flags = number(&plan, info, 4);
    assert_eq!(flags, 0b10_0100_1101);
    assert_eq!((number(&plan, info + 4, 4), number(&plan, info + 8, 4)), (640, 255 * 1024));
    assert_eq!(text(&plan, number(&plan, info + 16, 4)), "console=ttyS0");
    assert_eq!(text(&plan, number(&plan, info + 64, 4)), "turnstile");
    let module = number(&plan, info + 24, 4);
    assert_eq!([number(&plan, module, 4), number(&plan, module + 4, 4)], [0x10_3000, 0x10_3064]);
    let (length, map) = (number(&plan, info + 44, 4), number(&plan, info + 48, 4));
    assert_eq!(length as usize, 24 * regions(256 * MIB, 0).len());
    assert_eq!(
        (number(&plan, map, 4), number(&plan, map + 4, 8), number(&plan, map + 12, 8)),
        (20, 0, 0xa_0000)
    );
}

#[test]
fn a_flat_file_with_addresses_goes_where_it_says() {
    let mut file = vec![0x90; 0x400];
    let addresses = [0x20_0020, 0x20_0000, 0, 0x20_1000, 0x20_0100];
    put(&mut file, 0x40, &multiboot_header(1 << 16, &addresses));
    let plan = plan(&source(&file)).expect("a kernel");
    assert_eq!((plan.start.rip, number(&plan, 0x20_0020, 4)), (0x20_0100, 0x1bad_b002));
    put(&mut file, 0x40, &multiboot_header(1 << 16, &[0x10, 0x20_0000, 0, 0, 0]));
    assert_eq!(start_of(&file), Err(BootError::BadAddresses));
    put(&mut file, 0x40, &multiboot_header(1 << 16 | 4, &addresses));
    assert_eq!(start_of(&file), Err(BootError::Wanted(1 << 16 | 4)));
}

fn start_of(file: &[u8]) -> Result<u64, BootError> {
    plan(&source(file)).map(|plan| plan.start.rip)
}

#[test]
fn anything_else_is_flat_or_refused() {
    assert_eq!(start_of(&[0xf4, 0xeb, 0xfd]), Ok(0x10_0000));
    assert_eq!(start_of(&[]), Err(FileError::Empty.into()));
    assert_eq!(start_of(&[0x1f, 0x8b, 8, 0]), Err(BootError::Kind(FileKind::Gzip)));
    assert_eq!(start_of(&elf(None, false)), Err(BootError::NoProtocol));
    let mut arm = elf(Some(0x10_0010), false);
    arm[18] = 183;
    assert_eq!(start_of(&arm), Err(BootError::Processor(183)));
    let mut outside = elf(Some(0x10_0010), false);
    put(&mut outside, 64 + 24, &0xa_0000u64.to_le_bytes());
    assert!(matches!(start_of(&outside), Err(BootError::NotRam { start: 0xa_0000, .. })));
    put(&mut outside, 64 + 24, &INFORMATION.to_le_bytes());
    assert!(matches!(start_of(&outside), Err(BootError::Overlap { .. })));
}

#[test]
fn memory_goes_around_the_hole() {
    assert_eq!(split(3 << 30), [3 << 30, 0]);
    assert_eq!(split(8 << 30), [3 << 30, 5 << 30]);
    for memory in [4 * MIB, 3 << 30, 8 << 30] {
        let ram = pc::ram(memory);
        assert!(ram.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        let total: u64 = ram.iter().map(|(_, size)| size).sum();
        assert_eq!(total, memory - (pc::OPTION_ROMS - pc::LOW_END));
        assert_eq!(
            pc::whole_units(memory),
            memory - 2 * MIB,
            "all but the one with the display and the ROMs"
        );
        for region in regions(memory, 0).iter().filter(|region| region.kind != pc::Use::Reserved) {
            let inside =
                |(base, size): &(u64, u64)| region.base >= *base && region.base + region.size <= base + size;
            assert!(ram.iter().any(inside), "{region:?}");
        }
    }
}

/// Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn damaged_files_are_refused_or_placed_in_ram() {
    let mut random = Random(0x7475_726e_7374_696c);
    let mut flat = vec![0x90; 0x400];
    put(&mut flat, 0x40, &multiboot_header(1 << 16, &[0x20_0040, 0x20_0000, 0, 0x20_1000, 0x20_0100]));
    let files = [bzimage(0x20_0000, 0x100_0000), elf(Some(0x10_0010), false), elf(None, true), flat];
    let mut placed = [0; 4];
    for round in 0..20_000 {
        let mut file = files[round % 4].clone();
        // The bytes of headers: what is not zero, and its neighbours.
        let marked: Vec<usize> =
            (0..file.len().min(0x900)).filter(|at| file[*at] != 0 && file[*at] != 0x90).collect();
        for _ in 0..random.below(4) {
            let at = marked[random.below(marked.len())] + random.below(3);
            file[at] =
                if random.below(2) == 0 { random.below(256) as u8 } else { file[at] ^ 1 << random.below(8) };
        }
        if random.below(8) == 0 {
            file.truncate(random.below(file.len()));
        }
        let disk = vec![1; random.below(3 << 20)];
        let memory = (2 + random.below(32) as u64) * 2 * MIB;
        let source = Source { initrd: Some(&disk), memory, ..source(&file) };
        let Ok(plan) = plan(&source) else { continue };
        placed[round % 4] += 1;
        let mut ranges: Vec<(u64, u64)> =
            plan.loads.iter().map(|load| (load.address, load.address + load.bytes.len() as u64)).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        let ram = pc::ram(memory);
        let inside = |(start, end): &(u64, u64)| {
            start == end || ram.iter().any(|(base, size)| start >= base && *end <= base + size)
        };
        assert!(ranges.iter().all(inside));
    }
    assert!(placed.iter().all(|count| *count > 500), "{placed:?}");
}
