// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Doorbells that are rung again ([`crate::vm::bell`]), by guests that change what the instruction is.

use super::*;
use crate::cpu::regs::efer;
use crate::cpu::svm::vmcb::{Segment, attribute};

/// EXITINFO1 of a store, by a walk's last step.
const STORE: u64 = 1 << 32 | 1 << 2 | 1 << 1;
/// Where the code is.
const CODE: usize = 0x5010;
const RIP: u64 = 0x10;
/// `mov [rdi], eax`, `mov [rdi], ecx`, and `mov [rdi], ebx`, whose register the light tier does not have.
const EAX: &[u8] = &[0x89, 0x07];
const ECX: &[u8] = &[0x89, 0x0f];
const EBX: &[u8] = &[0x89, 0x1f];
/// Present, writable, accessed.
const USUAL: u64 = 0x23;
/// Where the number of the queue is written.
const BELL: u64 = MEMORY + 0x40;
const VALUE: Doorbells = Doorbells { first: 0x40, size: 4, by: BY_VALUE };

/// A guest that rings.
struct Ringer {
    vcpu: &'static Vcpu,
    frame: Frame,
    vmcb: Vmcb,
    ram: &'static mut [u8],
}

impl Ringer {
    /// One with RAX = 1, RCX = 2 and RBX = 3, which has rung by an instruction twice: decoded by the full tier, and found again.
    fn new(doorbells: Doorbells, address: u64, code: &[u8]) -> Self {
        let mut ringer = Self::of(served_with(doorbells));
        ringer.start(address, code);
        ringer
    }

    fn of((vcpu, frame, vmcb, ram, _): Parts) -> Self {
        Self { vcpu, frame, vmcb, ram }
    }

    /// Rings by an instruction twice.
    fn start(&mut self, address: u64, code: &[u8]) {
        let ringer = self;
        for (at, entry) in [(0x1000, 0x2000), (0x2000, 0x3000), (0x3000, 0x4000), (0x4000, 0x5000)] {
            ringer.put(at, entry);
        }
        ringer.vmcb.set_cr0(cr0::PE | cr0::PG);
        ringer.vmcb.set_cr4(cr4::PAE);
        ringer.vmcb.set_cr3(0x1000);
        for (register, value) in [(number::RAX, 1), (number::RCX, 2), (number::RBX, 3)] {
            ringer.frame.set(&mut ringer.vmcb, register, value);
        }
        ringer.code(CODE, code);
        ringer.vmcb.set_exit_info([STORE, address]);
        assert_eq!(ringer.ring().0, Code::FULL);
        ringer.ring();
    }

    fn by_value() -> Self {
        let ringer = Self::new(VALUE, BELL, EAX);
        ringer.vcpu.bell_at(BELL).unwrap();
        ringer
    }

    /// Says whether what it does next is what is remembered.
    fn is_same(&mut self) -> bool {
        self.vmcb.set_rip(RIP);
        self.vcpu.bell().is_same(&self.vmcb)
    }

    fn put(&mut self, at: usize, entry: u64) {
        self.ram[at..at + 8].copy_from_slice(&(entry | USUAL).to_le_bytes());
    }

    fn code(&mut self, at: usize, code: &[u8]) {
        self.ram[at..at + code.len()].copy_from_slice(code);
    }

    /// Leaves the guest.
    fn exit(&mut self, rip: u64) -> u32 {
        self.vmcb.set_rip(rip);
        handle(&mut self.frame, &mut self.vmcb, code::NESTED_PAGE_FAULT)
    }

    /// Rings, and lets the full tier do what is left to it; returns the light tier's code and what the service got.
    fn ring(&mut self) -> (u32, Vec<[u64; 6]>) {
        let code = self.exit(RIP);
        if code != 0 {
            crate::exit::memory::full(&mut self.frame, &mut self.vmcb, self.vcpu, monitor());
        }
        (code, seen())
    }
}

/// What the service gets of a queue's doorbell.
fn rung(queue: u64) -> Vec<[u64; 6]> {
    std::vec![[Kind::Doorbell as u64, 1 << queue, 0, 0, 0, 0]]
}

#[test]
fn the_same_instruction_rings_again() {
    let mut ringer = Ringer::by_value();
    for (value, queue) in [(0, 0), (5, 5), (31, 31), (32, 0), (u64::MAX, 31), (1 << 32 | 7, 7)] {
        ringer.vmcb.set_rax(value);
        ringer.vmcb.set_interrupt_shadow(1);
        assert!(ringer.is_same());
        assert_eq!(ringer.ring(), (0, rung(queue)), "{value:#x}");
        assert_eq!((ringer.vmcb.rip(), ringer.vmcb.interrupt_shadow()), (RIP + 2, 0));
    }
    ringer.vmcb.set_rflags(1 << 8);
    assert_eq!(ringer.exit(RIP), Code::STEPPED, "it is traced");
}

#[test]
fn all_forms_ring_by_their_operand() {
    // mov [rdi], cx; mov [rdi], cl; mov dword ptr [rdi], 4; mov [rdi + disp32], rcx.
    let forms: [(&[u8], u64); 4] = [
        (&[0x66, 0x89, 0x0f], 2),
        (&[0x88, 0x0f], 2),
        (&[0xc7, 0x07, 4, 0, 0, 0], 4),
        (&[0x48, 0x89, 0x8f, 0, 0, 0, 0], 2),
    ];
    let by_place = Doorbells { first: 0x40, size: 0x40, by: BY_PLACE };
    for (code, queue) in forms {
        let mut ringer = Ringer::new(VALUE, BELL + 2, code);
        assert!(ringer.is_same());
        assert_eq!(ringer.ring(), (0, rung(queue)), "{code:x?}");
        let mut ringer = Ringer::new(by_place, BELL, code);
        for (offset, queue) in [(0, 0), (5, 1), (0x3f, 15)] {
            ringer.vmcb.set_exit_info([STORE, BELL + offset]);
            assert!(ringer.is_same() && ringer.vcpu.bell_at(BELL + offset).is_some());
            assert_eq!(ringer.ring(), (0, rung(queue)), "{code:x?}");
        }
        ringer.vmcb.set_exit_info([STORE, BELL + 0x40]);
        assert_eq!(ringer.ring().1[0][0], Kind::Write as u64, "behind the area");
    }
    // By value, mov [rdi], ch and mov [rdi], ebx need what the light tier does not have; mov dword ptr [rdi + disp32], 4 is long.
    let others: [(&[u8], u32, u64); 3] =
        [(&[0x88, 0x2f], Code::FULL, 0), (EBX, Code::FULL, 3), (&[0xc7, 0x87, 0, 0, 0, 0, 4, 0, 0, 0], 0, 4)];
    for (code, light, queue) in others {
        let mut ringer = Ringer::new(VALUE, BELL, code);
        assert!(ringer.vcpu.bell_at(BELL).is_none());
        assert_eq!(ringer.ring(), (light, rung(queue)), "{code:x?}");
    }
}

#[test]
fn a_members_doorbells_are_behind_those_of_others() {
    let by_place = Doorbells { first: 0x40, size: 0x10, by: BY_PLACE };
    let immediate = &[0xc7, 0x07, 3, 0, 0, 0];
    // What is in a register is not remembered.
    for (doorbells, code, offset, queue, is_remembered) in [
        (by_place, EAX, 0, 8, true),
        (by_place, EAX, 12, 11, true),
        (by_place, immediate, 4, 9, true),
        (VALUE, immediate, 0, 11, true),
        (VALUE, EAX, 0, 9, false),
        (VALUE, ECX, 0, 10, false),
    ] {
        let mut ringer = Ringer::of(served_from(8, doorbells));
        ringer.start(BELL + offset, code);
        assert_eq!(ringer.vcpu.bell_at(BELL + offset).is_some(), is_remembered);
        assert_eq!(ringer.ring(), (0, rung(queue)), "{doorbells:?} {code:x?}");
    }
}

#[test]
fn another_instruction_is_never_taken_for_it() {
    // Its bytes are others.
    let mut ringer = Ringer::by_value();
    ringer.code(CODE, ECX);
    assert_eq!(ringer.ring().1, rung(2));
    ringer.code(CODE, EAX);
    assert_eq!(ringer.ring().1, rung(1));
    // Its page is another: by each entry on the way, and by other tables.
    let tables = [(0x6000, 0x7000), (0x7000, 0x8000), (0x8000, 0x9000), (0x9000, 0xa000)];
    for (at, entry) in [(0x4000, 0xa000), (0x3000, 0x9000), (0x2000, 0x8000), (0x1000, 0x7000), (0, 0)] {
        let mut ringer = Ringer::by_value();
        tables.iter().for_each(|(at, entry)| ringer.put(*at, *entry));
        ringer.code(0xa010, ECX);
        match at {
            0 => ringer.vmcb.set_cr3(0x6000),
            _ => ringer.put(at, entry),
        }
        assert!(!ringer.is_same());
        assert_eq!(ringer.ring().1, rung(2), "{at:#x}");
    }
    // Five levels by the same root: what was the page is the last table.
    let mut ringer = Ringer::by_value();
    ringer.put(0x5000, 0x6000);
    ringer.code(0x6010, ECX);
    ringer.vmcb.set_cr4(cr4::PAE | cr4::LA57);
    assert_eq!(ringer.ring().1, rung(2));
    // Elsewhere in the page.
    let mut ringer = Ringer::by_value();
    ringer.code(CODE + 0x20, ECX);
    assert_eq!(ringer.exit(RIP + 0x20), Code::FULL);
    assert_eq!(seen(), [[0; 6]; 0]);
}

#[test]
fn other_modes_and_other_faults_are_another_instruction() {
    let changes: [fn(&mut Vmcb); 5] = [
        |vmcb| {
            let cs = vmcb.cs();
            vmcb.set_cs(Segment { attributes: cs.attributes & !attribute::LONG, ..cs });
        },
        |vmcb| vmcb.set_efer(vmcb.efer() & !efer::LMA),
        |vmcb| vmcb.set_cr4(vmcb.cr4() | cr4::LA57),
        // A read, and the guest's own tables.
        |vmcb| vmcb.set_exit_info([STORE & !2, BELL]),
        |vmcb| vmcb.set_exit_info([STORE | 1 << 33, BELL]),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut ringer = Ringer::by_value();
        assert!(ringer.is_same());
        change(&mut ringer.vmcb);
        assert!(!ringer.is_same(), "{number}");
    }
    let mut ringer = Ringer::by_value();
    ringer.vmcb.set_exit_interrupt(1 << 31 | 0x20);
    assert_eq!(ringer.exit(RIP), Code::FULL, "an event was being delivered");
    assert_eq!((seen(), ringer.vmcb.rip()), (Vec::new(), RIP));
}

#[test]
fn what_the_hardware_has_fetched_is_the_instruction() {
    let mut ringer = Ringer::by_value();
    ringer.vmcb.set_fetched_code(EAX);
    ringer.code(CODE, ECX);
    assert!(ringer.is_same());
    assert_eq!(ringer.ring(), (0, rung(1)), "whatever is in memory meanwhile");
    ringer.vmcb.set_fetched_code(ECX);
    assert!(!ringer.is_same());
    assert_eq!(ringer.ring(), (Code::FULL, rung(2)));
    assert_eq!(ringer.ring(), (0, rung(2)));
    assert!(ringer.is_same());
    // Remembered by what was fetched: no walk belongs to it.
    ringer.vmcb.set_fetched_code(&[0; 15]);
    assert!(!ringer.is_same());
    ringer.vmcb.set_fetched_count(0);
    assert!(!ringer.is_same());
    assert_eq!(ringer.ring(), (0, rung(2)));
}

#[test]
fn no_place_is_behind_the_device_or_in_another_page() {
    let ringer = Ringer::new(Doorbells { first: 0x40, size: 0x2000, by: BY_PLACE }, BELL, EAX);
    let vcpu = ringer.vcpu;
    assert_eq!(vcpu.bell_at(MEMORY + 0xff).map(|(place, _)| place), Some(0xbf));
    for address in [0, MEMORY + 0x3f, MEMORY + 0x100, u64::MAX] {
        assert!(vcpu.bell_at(address).is_none(), "{address:#x}");
    }
    vcpu.forget_bell();
    assert!(vcpu.bell_at(MEMORY + 0xff).is_none());
    // A device that is larger than a page, with doorbells at its end.
    let service = ringer.vcpu.vm.services().unwrap().all[0];
    let doorbells = Doorbells { first: 0xff0, size: 0x20, by: BY_PLACE };
    let device =
        Served { base: MEMORY, size: 0x2000, device: 3, mask: u64::MAX, bell: 0, doorbells, service };
    let mut vmcb = ringer.vmcb;
    vmcb.set_fetched_code(EAX);
    let mut remember = |address: u64, width: u8| {
        vmcb.set_exit_info([STORE, address]);
        ringer.vcpu.owned(|owned| {
            Bell::new(&vmcb, (&device, address - MEMORY), Number::place(0), [width, 2], 0, &owned.walks)
        })
    };
    for (width, last) in [(1, 0xfff), (2, 0xffe), (4, 0xffc), (8, 0xff8)] {
        assert_eq!(remember(MEMORY + 0xff0, width).unwrap().last(), MEMORY + last, "{width}");
    }
    assert!(remember(MEMORY + 0x1000, 4).is_none(), "in the page behind");
}

#[test]
fn a_new_life_remembers_no_doorbell() {
    let mut ringer = Ringer::by_value();
    crate::exit::attend::begin(&mut ringer.frame, ringer.vcpu, turnstile_vm::startup::Start::Startup(0));
    assert!(ringer.vcpu.bell_at(BELL).is_none());
}

/// It was found by addresses of memory that may be somebody else's by now.
#[test]
fn who_forgets_translations_remembers_no_doorbell() {
    let mut ringer = Ringer::by_value();
    assert!(ringer.vcpu.bell_at(BELL).is_some());
    ringer.vcpu.attention.raise(turnstile_vm::attention::Reasons::FLUSH);
    crate::exit::attend::attend(&mut ringer.frame, ringer.vcpu, crate::vm::monitor::monitor());
    assert!(ringer.vcpu.bell_at(BELL).is_none());
}

#[test]
fn who_rings_again_while_somebody_is_inside_goes_on_at_once() {
    let mut ringer = Ringer::by_value();
    let service = ringer.vcpu.vm.services().unwrap().all[0];
    assert!(service.rings(9));
    assert_eq!(ringer.ring(), (0, Vec::new()));
    assert_eq!(ringer.vmcb.rip(), RIP + 2);
    // SAFETY: inside since the ring above.
    unsafe { service.rung(&mut Kept { vcpu: ringer.vcpu }) };
    assert_eq!(seen(), [[Kind::Doorbell as u64, 1 << 9 | 1 << 1, 0, 0, 0, 0]]);
}

/// Where the BAR is that [`with_bar`] makes.
const BAR: u64 = 0xd000_0000;

/// A guest that has rung in a BAR of so many bytes.
fn with_bar(size: u64) -> (Ringer, &'static Service) {
    let mut ringer = Ringer::of(served_by_bar(VALUE));
    let service = ringer.vcpu.vm.services().unwrap().all[0];
    assert!(ringer.vcpu.vm.services().unwrap().move_bar(service, 5, BAR, size));
    ringer.start(BAR + 0x40, EAX);
    (ringer, service)
}

#[test]
fn a_bar_is_remembered_until_it_moves() {
    let (mut ringer, service) = with_bar(0x1000);
    assert!(ringer.vcpu.bell_at(BAR + 0x40).is_some() && ringer.is_same());
    assert_eq!(ringer.ring(), (0, rung(1)));
    let services = ringer.vcpu.vm.services().unwrap();
    for base in [0xd800_0000, BAR] {
        assert!(services.move_bar(service, 5, base, 0x1000));
        turnstile_arch_common::vm::Vcpu::device_has_moved(ringer.vcpu);
        assert!(ringer.vcpu.bell_at(BAR + 0x40).is_none());
        assert_eq!(ringer.ring().1, if base == BAR { rung(1) } else { Vec::new() });
    }
    assert!(ringer.vcpu.bell_at(BAR + 0x40).is_some(), "again");
}

#[test]
fn a_bar_that_ends_among_its_doorbells_is_not_remembered() {
    let (mut ringer, _) = with_bar(0x40 + 2);
    assert!(ringer.vcpu.bell_at(BAR + 0x40).is_none());
    assert_eq!(ringer.ring(), (0, rung(1)));
}
