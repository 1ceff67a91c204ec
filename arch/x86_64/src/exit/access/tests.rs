// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses of instructions that are carried out: segments, modes, page tables in the guest's memory.

use super::*;
use crate::cpu::regs::{cr0, efer, fakes};
use crate::cpu::svm::code;
use crate::cpu::svm::vmcb::event;
use crate::exit::tests::handle;
use crate::exit::tests::machine;
use crate::exit::tier::Code;
use crate::vcpu::frame::{Frame, number};
use crate::vm::monitor::monitor;

/// An entry of a page table: present, writable, for the user.
const USUAL: u64 = 7;

fn put(ram: &mut [u8], address: usize, entry: u64) {
    ram[address..address + 8].copy_from_slice(&entry.to_le_bytes());
}

/// Four levels of tables, all of them empty below the first 4 GiB: what is at `linear` is mapped by the table at 0x7000 if
/// that is the first one, by that at 0x8000 else.
fn with_tables(vmcb: &mut Vmcb, ram: &mut [u8]) {
    put(ram, 0x1000, 0x2000 | USUAL);
    put(ram, 0x2000, 0x3000 | USUAL);
    put(ram, 0x2000 + 3 * 8, 0x4000 | USUAL);
    put(ram, 0x3000, 0x7000 | USUAL);
    put(ram, 0x4000 + 511 * 8, 0x8000 | USUAL);
    vmcb.set_cr0(cr0::PE | cr0::PG | cr0::WP);
    vmcb.set_cr3(0x1000);
    vmcb.set_cr4(cr4::PAE);
    vmcb.set_efer(efer::LMA | efer::LME);
}

/// Makes the guest execute 32-bit code.
fn in_compatibility_mode(vmcb: &mut Vmcb) {
    let flat = Segment { limit: u32::MAX, ..Segment::default() };
    vmcb.set_cs(Segment { attributes: attribute::FLAT_CODE, ..flat });
    for set in [Vmcb::set_es, Vmcb::set_ds, Vmcb::set_ss] {
        set(vmcb, Segment { attributes: attribute::FLAT_DATA, ..flat });
    }
}

#[test]
fn limits_end_segments() {
    let up = Segment { attributes: attribute::REAL_DATA, limit: 0xffff, ..Segment::default() };
    assert!(covers(up, 0xfffc, 4) && !covers(up, 0xfffd, 4));
    let down = Segment { attributes: attribute::REAL_DATA | attribute::EXPAND_DOWN, limit: 0xfff, ..up };
    assert!(!covers(down, 0xfff, 1) && covers(down, 0x1000, 4) && !covers(down, 0xffff, 2));
    let big = Segment { attributes: down.attributes | attribute::BIG, ..down };
    assert!(covers(big, 0xffff_fffc, 4) && !covers(big, 0xffff_fffd, 4));
}

#[test]
fn attributes_permit() {
    assert!(permits(attribute::FLAT_DATA, true) && permits(attribute::FLAT_CODE, false));
    assert!(!permits(attribute::FLAT_CODE, true), "code is not written");
    assert!(!permits(attribute::FLAT_DATA & !attribute::PRESENT, false));
    assert!(!permits(attribute::FLAT_DATA & !attribute::WRITABLE, true));
    assert!(permits(attribute::FLAT_DATA & !attribute::WRITABLE, false));
}

#[test]
fn addresses_of_compatibility_mode_have_32_bits() {
    let (vcpu, _, mut vmcb, ram) = machine();
    with_tables(&mut vmcb, ram);
    in_compatibility_mode(&mut vmcb);
    vmcb.set_es(Segment { base: 0xffff_f000, ..vmcb.es() });
    assert_eq!(linear(&mut vmcb, ES, 0x1234, 4, false), Ok(0x234), "base and offset");
    vmcb.set_cs(Segment { base: 0xffff_0000, ..vmcb.cs() });
    vmcb.set_rip(0x1_2345);
    assert_eq!(code_address(&vmcb), 0x2345);

    // The last word of the first 4 GiB: its second half is in the first page.
    vmcb.set_es(Segment { base: 0, ..vmcb.es() });
    put(ram, 0x7000, 0x5000 | USUAL);
    put(ram, 0x8000 + 511 * 8, 0x6000 | USUAL);
    vmcb.set_es(Segment { limit: 0x1000, base: 0xffff_fffe, ..vmcb.es() });
    let mut access = Access { vmcb: &mut vmcb, vcpu, monitor: monitor() };
    assert_eq!(access.places(ES, 0, 4, true), Ok([(0x6ffe, 2), (0x5000, 2)]));
}

#[test]
fn all_bytes_of_an_operand_have_canonical_addresses() {
    let (_, _, mut vmcb, _) = machine();
    let last = 0x7fff_ffff_ffff;
    assert_eq!(linear(&mut vmcb, DS, last - 3, 4, false), Ok(last - 3));
    for size in [2, 4, 8] {
        assert_eq!(linear(&mut vmcb, DS, last, size, false), Err(Exception::PROTECTION), "{size} bytes");
        assert_eq!(linear(&mut vmcb, SS, last, size, true), Err(Exception::STACK), "{size} bytes");
    }
    assert_eq!(linear(&mut vmcb, DS, last + 1, 1, false), Err(Exception::PROTECTION));
    assert_eq!(linear(&mut vmcb, DS, !last - 2, 4, false), Err(Exception::PROTECTION), "from below");
    assert_eq!(linear(&mut vmcb, DS, u64::MAX, 2, false), Ok(u64::MAX), "the last byte, and the first");
    vmcb.set_cr4(cr4::LA57);
    assert_eq!(linear(&mut vmcb, DS, last, 8, false), Ok(last));
    assert_eq!(linear(&mut vmcb, DS, (1 << 56) - 1, 2, false), Err(Exception::PROTECTION));
}

#[test]
fn an_operand_at_the_end_of_all_addresses_goes_on_at_their_beginning() {
    let (vcpu, _, mut vmcb, ram) = machine();
    with_tables(&mut vmcb, ram);
    put(ram, 0x7000, 0x5000 | USUAL);
    put(ram, 0x1000 + 511 * 8, 0x9000 | USUAL);
    put(ram, 0x9000 + 511 * 8, 0xa000 | USUAL);
    put(ram, 0xa000 + 511 * 8, 0xb000 | USUAL);
    put(ram, 0xb000 + 511 * 8, 0x6000 | USUAL);
    let mut access = Access { vmcb: &mut vmcb, vcpu, monitor: monitor() };
    assert_eq!(access.places(DS, u64::MAX, 4, false), Ok([(0x6fff, 1), (0x5000, 3)]));
}

#[test]
fn protection_keys_are_the_guests() {
    const KEY: u64 = 2 << 59;
    let (vcpu, _, mut vmcb, ram) = machine();
    with_tables(&mut vmcb, ram);
    put(ram, 0x7000, 0x5000 | USUAL | KEY);
    fakes::set("PKRU", 2 << 4);
    let mut access = Access { vmcb: &mut vmcb, vcpu, monitor: monitor() };
    assert_eq!(access.store(DS, 0x10, 4, 0x1234), Ok(()));
    assert_eq!(fakes::take_log(), [], "without CR4.PKE nobody asks for them");
    access.vmcb.set_cr4(cr4::PAE | cr4::PKE);
    assert_eq!(access.load(DS, 0x10, 4), Ok(0x1234));
    assert_eq!(access.store(DS, 0x10, 4, 1), Err(Exception::page_fault(0x10, 1 << 5 | 1 << 1 | 1).into()));
    fakes::set("PKRU", 1 << 4);
    assert_eq!(access.load(DS, 0x10, 4), Err(Exception::page_fault(0x10, 1 << 5 | 1).into()));
    fakes::set("PKRU", !(3 << 4));
    assert_eq!(access.store(DS, 0x10, 4, 1), Ok(()), "the keys of other pages");
}

#[test]
fn a_probe_is_of_all_bytes_and_changes_nothing() {
    let (vcpu, _, mut vmcb, ram) = machine();
    with_tables(&mut vmcb, ram);
    put(ram, 0x7000, 0x5000 | USUAL);
    put(ram, 0x7008, 0x6000 | (USUAL & !2));
    let before = ram[0x5000..0x7000].to_vec();
    let mut access = Access { vmcb: &mut vmcb, vcpu, monitor: monitor() };
    assert_eq!(access.probe(DS, 0xffc, 4, true), Ok(()));
    let fault = Err(Exception::page_fault(0x1000, 1 << 1 | 1).into());
    assert_eq!(access.probe(DS, 0xffd, 4, true), fault, "the last byte cannot be written");
    assert_eq!(access.probe(DS, 0xffd, 4, false), Ok(()));
    assert_eq!(ram[0x5000..0x7000], before);
}

/// INSW at a page's end: what cannot be stored is not read, either.
#[test]
fn a_string_of_ports_reads_nothing_that_it_cannot_store() {
    let (vcpu, mut frame, mut vmcb, ram) = machine();
    with_tables(&mut vmcb, ram);
    put(ram, 0x7000, 0x5000 | USUAL);
    // The 8254's channel 0, both bytes, latched: reads take turns.
    for (port, value) in [(0x43, 0x34), (0x40, 0x34), (0x40, 0x12), (0x43, 0)] {
        vcpu.vm.write_port(port, value);
    }
    frame.set(&mut vmcb, number::RDX, 0x40);
    frame.set(&mut vmcb, number::RDI, 0xfff);
    // IN, string, 16-bit.
    vmcb.set_exit_info([0x40 << 16 | 1 << 5 | 1 << 2 | 1, 0x1003]);
    crate::exit::port::full(&mut frame, &mut vmcb, vcpu, monitor());
    assert_eq!(vmcb.event(), event::VALID | event::EXCEPTION | event::ERROR_CODE | 14 | 2 << 32);
    assert_eq!((vmcb.cr2(), vmcb.rip()), (0x1000, 0x1000));
    assert_eq!((vcpu.vm.read_port(0x40), vcpu.vm.read_port(0x40)), (0x34, 0x12));
}

/// MOV EAX, \[RDI\] on the I/O APIC's window by the light tier, with its code mapped by the tables.
fn light_load(frame: &mut Frame, vmcb: &mut Vmcb) -> u32 {
    vmcb.set_rip(0x10);
    // A read, by a walk's last step.
    vmcb.set_exit_info([1 << 32 | 1 << 2, 0xfec0_0010]);
    handle(frame, vmcb, code::NESTED_PAGE_FAULT)
}

#[test]
fn accesses_to_devices_are_light_with_four_and_five_levels() {
    for five in [false, true] {
        let (vcpu, mut frame, mut vmcb, ram) = machine();
        with_tables(&mut vmcb, ram);
        put(ram, 0x7000, 0x5000 | USUAL);
        if five {
            put(ram, 0x9000, 0x1000 | USUAL);
            vmcb.set_cr3(0x9000);
            vmcb.set_cr4(cr4::PAE | cr4::LA57);
        }
        ram[0x5010..0x5012].copy_from_slice(&[0x8b, 0x07]);
        vcpu.vm.ioapic_write(0, 1);
        assert_eq!(light_load(&mut frame, &mut vmcb), Code::FULL, "it has not been decoded yet");
        crate::exit::memory::full(&mut frame, &mut vmcb, vcpu, monitor());
        assert_eq!((vmcb.rip(), vmcb.rax()), (0x12, 0x17_0020), "the version register");
        vmcb.set_rax(0);
        assert_eq!(light_load(&mut frame, &mut vmcb), 0, "five levels: {five}");
        assert_eq!((vmcb.rip(), vmcb.rax()), (0x12, 0x17_0020));
    }
}

#[test]
fn what_a_walk_found_is_not_used_when_it_would_find_something_else() {
    let (vcpu, mut frame, mut vmcb, ram) = machine();
    with_tables(&mut vmcb, ram);
    put(ram, 0x7000, 0x5000 | USUAL);
    put(ram, 0x7008, 0x6000 | USUAL);
    // mov eax, [rdi]; mov ecx, [rdi]
    ram[0x5010..0x5012].copy_from_slice(&[0x8b, 0x07]);
    ram[0x6010..0x6012].copy_from_slice(&[0x8b, 0x0f]);
    vcpu.vm.ioapic_write(0, 1);
    light_load(&mut frame, &mut vmcb);
    crate::exit::memory::full(&mut frame, &mut vmcb, vcpu, monitor());
    assert_eq!(light_load(&mut frame, &mut vmcb), 0);
    // The same address is another page now, whose code is another.
    put(ram, 0x7000, 0x6000 | USUAL);
    vmcb.set_rax(0);
    assert_eq!(
        light_load(&mut frame, &mut vmcb),
        Code::FULL,
        "the other instruction has not been decoded yet"
    );
    assert_eq!(vmcb.rax(), 0);
    crate::exit::memory::full(&mut frame, &mut vmcb, vcpu, monitor());
    assert_eq!(frame.rcx(), 0x17_0020);
    // A new life has other memory.
    vcpu.owned(crate::state::owned::Owned::reset);
    let root = crate::state::walks::Root { cr3: vmcb.cr3(), la57: 0 };
    assert_eq!(vcpu.owned(|owned| owned.walks.find(0x10, root)), None);
}

#[test]
fn an_access_to_nothing_is_light_once_it_has_been_decoded() {
    let (vcpu, mut frame, mut vmcb, ram) = machine();
    with_tables(&mut vmcb, ram);
    put(ram, 0x7000, 0x5000 | USUAL);
    // mov ecx, [rdi]; mov dl, [rdi]; movsx rsi, byte [rdi]; mov [rdi], eax
    let code: [&[u8]; 4] = [&[0x8b, 0x0f], &[0x8a, 0x17], &[0x48, 0x0f, 0xbe, 0x37], &[0x89, 0x07]];
    for (code, at) in code.into_iter().zip([0x10, 0x20, 0x30, 0x40]) {
        ram[0x5000 + at..0x5000 + at + code.len()].copy_from_slice(code);
    }
    let mut access = |frame: &mut Frame, rip, write: u64| {
        let before = [0x1122_3344_5566_7788; 3];
        frame.set_rcx(before[0]);
        frame.set_rdx(before[1]);
        frame.set(&mut vmcb, number::RSI, before[2]);
        vmcb.set_rip(rip);
        vmcb.set_exit_info([1 << 32 | 1 << 2 | write << 1, 0xd000_0123]);
        let code = handle(frame, &mut vmcb, code::NESTED_PAGE_FAULT);
        if code == Code::FULL {
            crate::exit::memory::full(frame, &mut vmcb, vcpu, monitor());
        }
        (code, frame.rcx(), frame.rdx(), frame.rsi(), vmcb.rip())
    };
    for (rip, write) in [(0x10, 0), (0x20, 0), (0x30, 0), (0x40, 1)] {
        let full = access(&mut frame, rip, write);
        assert_eq!(full.0, Code::FULL);
        let light = access(&mut frame, rip, write);
        assert_eq!((light.0, (light.1, light.2, light.3, light.4)), (0, (full.1, full.2, full.3, full.4)));
    }
    let old = 0x1122_3344_5566_7788;
    assert_eq!(access(&mut frame, 0x10, 0), (0, 0xffff_ffff, old, old, 0x12));
    assert_eq!(access(&mut frame, 0x20, 0), (0, old, old | 0xff, old, 0x22));
    assert_eq!(access(&mut frame, 0x30, 0), (0, old, old, u64::MAX, 0x34));
}
