// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Page tables in a small memory.

use std::cell::RefCell;
use std::collections::HashMap;

use turnstile_x86insn::walk::{Failure, Intent, Memory, Paging, error, locate, translate};

#[derive(Default)]
struct Ram {
    entries: RefCell<HashMap<u64, u64>>,
    /// The next change of an entry is forestalled by another vCPU.
    contended: bool,
}

impl Ram {
    fn set(&self, address: u64, entry: u64) {
        self.entries.borrow_mut().insert(address, entry);
    }
    fn get(&self, address: u64) -> u64 {
        self.entries.borrow().get(&address).copied().unwrap_or(0)
    }
}

impl Memory for Ram {
    fn read(&self, address: u64, size: u8) -> Option<u64> {
        assert_eq!(address % u64::from(size), 0);
        (address < 1 << 30).then(|| self.get(address))
    }
    fn set_bits(&self, address: u64, _: u8, entry: u64, bits: u64) -> bool {
        let same = !self.contended && self.get(address) == entry;
        if same {
            self.set(address, entry | bits);
        }
        same
    }
}

const P: u64 = 1;
const W: u64 = 2;
const U: u64 = 4;
const A: u64 = 1 << 5;
const D: u64 = 1 << 6;
const PS: u64 = 1 << 7;
const NX: u64 = 1 << 63;
const ALL: u64 = P | W | U;

const CR0_WP: u64 = 1 << 16;
const CR0_PG: u64 = 1 << 31;
const PSE: u64 = 1 << 4;
const PAE: u64 = 1 << 5;
const LA57: u64 = 1 << 12;
const SMEP: u64 = 1 << 20;
const SMAP: u64 = 1 << 21;
const LMA: u64 = 1 << 10;
const NXE: u64 = 1 << 11;

fn long() -> Paging {
    Paging {
        cr0: CR0_PG | CR0_WP,
        cr3: 0x1000,
        cr4: PAE,
        efer: LMA | NXE,
        rflags: 0,
        pkru: 0,
        physical_bits: 40,
    }
}

/// Four levels from 0x1000 that map linear 0x12_3456_7000 with `leaf`.
const LINEAR: u64 = 0x12_3456_7abc;

fn four_levels(leaf: u64) -> Ram {
    let ram = Ram::default();
    ram.set(0x1000 + (LINEAR >> 39 & 0x1ff) * 8, 0x2000 | ALL);
    ram.set(0x2000 + (LINEAR >> 30 & 0x1ff) * 8, 0x3000 | ALL);
    ram.set(0x3000 + (LINEAR >> 21 & 0x1ff) * 8, 0x4000 | ALL);
    ram.set(0x4000 + (LINEAR >> 12 & 0x1ff) * 8, leaf);
    ram
}

fn leaf_place() -> u64 {
    0x4000 + (LINEAR >> 12 & 0x1ff) * 8
}

fn fault(code: u32) -> Result<u64, Failure> {
    Err(Failure::PageFault(code))
}

#[test]
fn without_paging_addresses_are_physical() {
    assert_eq!(
        translate(&Paging::default(), &Ram::default(), 0x1_2345_6789, Intent::Write, true),
        Ok(0x2345_6789)
    );
}

#[test]
fn four_levels_and_their_bits() {
    let ram = four_levels(0x7_7000 | ALL);
    let read = translate(&long(), &ram, LINEAR, Intent::Read, true);
    assert_eq!(read, Ok(0x7_7abc));
    assert_eq!(ram.get(leaf_place()), 0x7_7000 | ALL | A, "accessed, not dirty");
    assert_eq!(ram.get(0x1000), 0x2000 | ALL | A);
    assert_eq!(translate(&long(), &ram, LINEAR, Intent::Write, true), Ok(0x7_7abc));
    assert_eq!(ram.get(leaf_place()), 0x7_7000 | ALL | A | D);
    assert_eq!(locate(&long(), &ram, LINEAR, |_, _| {}), Some(0x7_7abc));
}

#[test]
fn large_pages() {
    let ram = four_levels(0);
    ram.set(0x3000 + (LINEAR >> 21 & 0x1ff) * 8, 0x4020_0000 | ALL | PS);
    let expected = 0x4020_0000 | LINEAR & 0x1f_ffff;
    assert_eq!(translate(&long(), &ram, LINEAR, Intent::Read, false), Ok(expected));
    assert_eq!(locate(&long(), &ram, LINEAR, |_, _| {}), Some(expected));
    ram.set(0x3000 + (LINEAR >> 21 & 0x1ff) * 8, 0x4020_2000 | ALL | PS);
    assert_eq!(
        translate(&long(), &ram, LINEAR, Intent::Read, false),
        fault(error::PRESENT | error::RESERVED),
        "bit 13 is reserved"
    );
    ram.set(0x2000 + (LINEAR >> 30 & 0x1ff) * 8, 0x8000_0000 | ALL | PS);
    assert_eq!(translate(&long(), &ram, LINEAR, Intent::Read, false), Ok(0x8000_0000 | LINEAR & 0x3fff_ffff));
}

#[test]
fn permissions() {
    let check = |leaf: u64, paging: Paging, intent, user| {
        translate(&paging, &four_levels(0x7_7000 | leaf), LINEAR, intent, user)
    };
    let ok = Ok(0x7_7abc);
    let present = error::PRESENT;
    assert_eq!(check(P | W, long(), Intent::Read, true), fault(present | error::USER));
    assert_eq!(check(P | U, long(), Intent::Write, true), fault(present | error::USER | error::WRITE));
    assert_eq!(check(P, long(), Intent::Write, false), fault(present | error::WRITE));
    assert_eq!(check(P, Paging { cr0: CR0_PG, ..long() }, Intent::Write, false), ok, "CR0.WP = 0");
    assert_eq!(check(P | NX, long(), Intent::Fetch, false), fault(present | error::FETCH));
    assert_eq!(check(P | NX, long(), Intent::Read, false), ok);
    assert_eq!(
        check(P | NX, Paging { efer: LMA, ..long() }, Intent::Read, false),
        fault(present | error::RESERVED),
        "without NXE it is reserved"
    );
    assert_eq!(
        check(ALL, Paging { cr4: PAE | SMEP, ..long() }, Intent::Fetch, false),
        fault(present | error::FETCH)
    );
    let smap = Paging { cr4: PAE | SMAP, ..long() };
    assert_eq!(check(ALL, smap, Intent::Read, false), fault(present));
    assert_eq!(check(ALL, Paging { rflags: 1 << 18, ..smap }, Intent::Read, false), ok);
    assert_eq!(check(ALL, smap, Intent::Read, true), ok);
    assert_eq!(check(0, long(), Intent::Write, false), fault(error::WRITE), "not present");
    assert_eq!(check(1 << 40 | ALL, long(), Intent::Read, false), fault(present | error::RESERVED));
}

#[test]
fn protection_keys() {
    const PKE: u64 = 1 << 22;
    let leaf = |key: u64, bits: u64| four_levels(0x7_7000 | key << 59 | bits);
    // Key 3: nothing; key 5: no writes; key 15: nothing.
    let keys = Paging { cr4: PAE | PKE, pkru: 1 << 6 | 2 << 10 | 1 << 30, ..long() };
    let check = |paging: Paging, key, intent, user| translate(&paging, &leaf(key, ALL), LINEAR, intent, user);
    let (ok, denied) = (Ok(0x7_7abc), error::PRESENT | error::KEY);
    assert_eq!(check(keys, 0, Intent::Write, true), ok);
    for key in [3, 15] {
        assert_eq!(check(keys, key, Intent::Read, true), fault(denied | error::USER));
        assert_eq!(check(keys, key, Intent::Write, false), fault(denied | error::WRITE));
        assert_eq!(check(keys, key, Intent::Fetch, true), ok, "keys are about data");
    }
    assert_eq!(check(keys, 5, Intent::Read, false), ok);
    assert_eq!(check(keys, 5, Intent::Write, false), fault(denied | error::WRITE));
    let unprotected = Paging { cr0: CR0_PG, ..keys };
    assert_eq!(check(unprotected, 5, Intent::Write, false), ok, "CR0.WP = 0");
    assert_eq!(check(unprotected, 5, Intent::Write, true), fault(denied | error::WRITE | error::USER));
    assert_eq!(check(unprotected, 3, Intent::Write, false), fault(denied | error::WRITE));
    assert_eq!(check(Paging { cr4: PAE, ..keys }, 3, Intent::Write, true), ok, "without PKE");
    let supervisor = translate(&keys, &leaf(3, P | W), LINEAR, Intent::Write, false);
    assert_eq!(supervisor, ok, "pages of the supervisor have no keys");
    let both = translate(&keys, &leaf(3, P | U), LINEAR, Intent::Write, true);
    assert_eq!(both, fault(denied | error::WRITE | error::USER), "forbidden by both");
}

#[test]
fn pae_and_32_bit() {
    let pae = Paging { cr3: 0x1020, efer: 0, ..long() };
    let ram = Ram::default();
    ram.set(0x1020 + 3 * 8, 0x2000 | P);
    ram.set(0x2000 + 0x1ff * 8, 0x3000 | ALL);
    ram.set(0x3000 + 0x1ff * 8, 0x9_9000 | ALL);
    assert_eq!(translate(&pae, &ram, 0xffff_f123, Intent::Write, true), Ok(0x9_9123));
    assert_eq!(ram.get(0x1020 + 24), 0x2000 | P, "pointers have no accessed bit");
    ram.set(0x1020 + 24, 0x2000 | P | W);
    assert_eq!(
        translate(&pae, &ram, 0xffff_f123, Intent::Read, false),
        fault(error::PRESENT | error::RESERVED)
    );

    let narrow = Paging { cr3: 0x1000, cr4: PSE, efer: 0, ..long() };
    let ram = Ram::default();
    ram.set(0x1000 + 0x3ff * 4, 0x2000 | ALL);
    ram.set(0x2000 + 0x3ff * 4, 0x9_9000 | ALL);
    ram.set(0x1000, 0x0080_0000 | 0x3 << 13 | ALL | PS);
    assert_eq!(translate(&narrow, &ram, 0xffff_f123, Intent::Write, true), Ok(0x9_9123));
    assert_eq!(translate(&narrow, &ram, 0x0012_3456, Intent::Read, true), Ok(0x3_0092_3456), "PSE-36");
    let without = Paging { cr4: 0, ..narrow };
    assert_eq!(
        translate(&without, &ram, 0x0012_3456, Intent::Read, true),
        fault(error::USER),
        "PS is ignored"
    );
}

#[test]
fn five_levels() {
    let ram = four_levels(0x7_7000 | ALL);
    ram.set(0x5000 + 7 * 8, 0x1000 | ALL);
    let paging = Paging { cr3: 0x5000, cr4: PAE | LA57, ..long() };
    assert_eq!(translate(&paging, &ram, 7 << 48 | LINEAR, Intent::Read, false), Ok(0x7_7abc));
    assert_eq!(locate(&paging, &ram, 7 << 48 | LINEAR, |_, _| {}), Some(0x7_7abc));
    assert_eq!(locate(&paging, &ram, 6 << 48 | LINEAR, |_, _| {}), None, "nothing is there");
    ram.set(0x3000 + (LINEAR >> 21 & 0x1ff) * 8, 0x4020_0000 | ALL | PS);
    assert_eq!(locate(&paging, &ram, 7 << 48 | LINEAR, |_, _| {}), Some(0x4020_0000 | LINEAR & 0x1f_ffff));
    ram.set(0x5000 + 7 * 8, 0x1000 | W);
    assert_eq!(locate(&paging, &ram, 7 << 48 | LINEAR, |_, _| {}), None, "the topmost level counts, too");
}

#[test]
fn tables_that_are_not_in_ram() {
    let ram = four_levels(0);
    ram.set(0x2000 + (LINEAR >> 30 & 0x1ff) * 8, 0x40_0000_0000 | ALL);
    assert_eq!(translate(&long(), &ram, LINEAR, Intent::Read, false), Err(Failure::Outside));
    assert_eq!(locate(&long(), &ram, LINEAR, |_, _| {}), None);
    let paging = Paging { cr3: 0xff_ffff_f000, ..long() };
    assert_eq!(translate(&paging, &ram, LINEAR, Intent::Read, false), Err(Failure::Outside));
}

#[test]
fn an_entry_that_changes_is_a_reason_to_execute_again() {
    let ram = Ram { contended: true, ..four_levels(0x7_7000 | ALL) };
    assert_eq!(translate(&long(), &ram, LINEAR, Intent::Write, true), fault(error::WRITE | error::USER));
}

#[test]
fn a_walk_says_where_it_went() {
    let ram = Ram::default();
    for (address, entry) in [(0x1000, 0x2000 | ALL), (0x2008, 0x3000 | ALL), (0x3010, 0x20_0000 | ALL | PS)] {
        ram.set(address, entry);
    }
    let paging = Paging { cr3: 0x1000, ..long() };
    let mut steps = Vec::new();
    let linear = 1 << 30 | 2 << 21 | 0x123;
    assert_eq!(locate(&paging, &ram, linear, |address, entry| steps.push((address, entry))), Some(0x20_0123));
    let expected = [(0x1000, 0x2000 | ALL), (0x2008, 0x3000 | ALL), (0x3010, 0x20_0000 | ALL | PS)];
    assert_eq!(steps, expected);
}
