// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations on a device that remembers what was done to it, against arithmetic done otherwise.

use turnstile_x86insn::decode::{Prefixes, decode};
use turnstile_x86insn::execute::{Machine, Progress, execute};

const CF: u64 = 1;
const PF: u64 = 1 << 2;
const AF: u64 = 1 << 4;
const ZF: u64 = 1 << 6;
const SF: u64 = 1 << 7;
const DF: u64 = 1 << 10;
const OF: u64 = 1 << 11;

#[derive(Clone, Default)]
struct Fake {
    registers: [u64; 16],
    flags: u64,
    device: u64,
    log: Vec<(char, u8, u64)>,
    memory: Vec<u8>,
    faults: bool,
}

impl Machine for Fake {
    type Error = ();

    fn register(&self, number: u8) -> u64 {
        self.registers[usize::from(number)]
    }
    fn set_register(&mut self, number: u8, value: u64) {
        self.registers[usize::from(number)] = value;
    }
    fn flags(&self) -> u64 {
        self.flags
    }
    fn set_flags(&mut self, flags: u64) {
        self.flags = flags;
    }
    fn read(&mut self, size: u8) -> u64 {
        self.log.push(('r', size, self.device));
        self.device
    }
    fn write(&mut self, size: u8, value: u64) {
        self.log.push(('w', size, value));
        self.device = value;
    }
    fn load(&mut self, _: u8, offset: u64, size: u8) -> Result<u64, ()> {
        if offset == DEVICE {
            return Ok(self.read(size));
        }
        let place = self.place(offset, size)?;
        let bytes = &self.memory[place..][..usize::from(size)];
        Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }
    fn store(&mut self, offset: u64, size: u8, value: u64) -> Result<(), ()> {
        let place = self.place(offset, size)?;
        self.memory[place..][..usize::from(size)].copy_from_slice(&value.to_le_bytes()[..usize::from(size)]);
        Ok(())
    }
    fn probe(&mut self, _: u8, offset: u64, size: u8, write: bool) -> Result<(), ()> {
        if offset == DEVICE && !write { Ok(()) } else { self.place(offset, size).map(|_| ()) }
    }
}

impl Fake {
    /// Where bytes are in memory, if all of them are.
    fn place(&self, offset: u64, size: u8) -> Result<usize, ()> {
        let end = offset.checked_add(size.into()).ok_or(())?;
        if self.faults || end > self.memory.len() as u64 { Err(()) } else { Ok(offset as usize) }
    }
}

/// Where the device is for string instructions with two operands.
const DEVICE: u64 = 0x1000;

/// Executes an instruction of 64-bit code whose whole length the bytes are.
fn run(machine: &mut Fake, bytes: &[u8], write: bool) -> Progress {
    let operation = decode(bytes, 64).unwrap_or_else(|| panic!("{bytes:02x?}"));
    assert_eq!(usize::from(operation.length), bytes.len(), "{bytes:02x?}");
    execute(machine, &operation, write).expect("no fault")
}

fn with(rax: u64, rcx: u64, device: u64) -> Fake {
    let mut machine = Fake { device, ..Fake::default() };
    (machine.registers[0], machine.registers[1]) = (rax, rcx);
    machine
}

const ONES: u64 = u64::MAX;

#[test]
fn loads_and_stores_of_all_sizes() {
    let load = |bytes: &[u8], register: usize| {
        let mut machine = Fake { registers: [ONES; 16], device: 0x8877_6655_4433_f281, ..Fake::default() };
        run(&mut machine, bytes, false);
        machine.registers[register]
    };
    assert_eq!(load(&[0x8b, 0x00], 0), 0x4433_f281, "mov eax, [rax] clears the high half");
    assert_eq!(load(&[0x66, 0x8b, 0x00], 0), 0xffff_ffff_ffff_f281);
    assert_eq!(load(&[0x8a, 0x20], 0), 0xffff_ffff_ffff_81ff, "mov ah, [rax]");
    assert_eq!(load(&[0x40, 0x8a, 0x20], 4), 0xffff_ffff_ffff_ff81, "mov spl, [rax]");
    assert_eq!(load(&[0x4c, 0x8b, 0x38], 15), 0x8877_6655_4433_f281, "mov r15, [rax]");
    assert_eq!(load(&[0x0f, 0xb6, 0x08], 1), 0x81, "movzx ecx, byte [rax]");
    assert_eq!(load(&[0x48, 0x0f, 0xbf, 0x08], 1), 0xffff_ffff_ffff_f281, "movsx rcx, word [rax]");
    assert_eq!(load(&[0x0f, 0xbe, 0x08], 1), 0xffff_ff81, "movsx ecx, byte [rax]");
    let store = |bytes: &[u8]| {
        let mut machine = with(0x1122_3344_5566_7788, 0xa1a2_a3a4_a5a6_a7a8, 0);
        run(&mut machine, bytes, true);
        machine.log
    };
    assert_eq!(store(&[0x89, 0x08]), [('w', 4, 0xa5a6_a7a8)]);
    assert_eq!(store(&[0x88, 0x20]), [('w', 1, 0x77)], "mov [rax], ah");
    assert_eq!(
        store(&[0x48, 0xc7, 0x00, 0xfe, 0xff, 0xff, 0xff]),
        [('w', 8, ONES - 1)],
        "sign-extended constant"
    );
    assert_eq!(store(&[0xc7, 0x00, 0x78, 0x56, 0x34, 0x12]), [('w', 4, 0x1234_5678)]);
    assert_eq!(store(&[0x48, 0x0f, 0xc3, 0x08]), [('w', 8, 0xa1a2_a3a4_a5a6_a7a8)], "movnti");
    assert_eq!(store(&[0xa3, 0, 0, 0, 0, 0, 0, 0, 0]), [('w', 4, 0x5566_7788)], "mov [moffs], eax");
}

/// The flags of an 8-bit operation, by arithmetic on integers of unlimited range.
fn flags(unsigned: i32, signed: i32, nibbles: i32) -> u64 {
    let result = unsigned as u8;
    let parity = (0..8).filter(|bit| result >> bit & 1 != 0).count() % 2 == 0;
    let bit = |set: bool, flag: u64| if set { flag } else { 0 };
    bit(!(0..256).contains(&unsigned), CF)
        | bit(parity, PF)
        | bit(!(0..16).contains(&nibbles), AF)
        | bit(result == 0, ZF)
        | bit(result >= 0x80, SF)
        | bit(!(-128..128).contains(&signed), OF)
}

#[test]
fn arithmetic_on_all_bytes() {
    for a in 0..=255u8 {
        for b in 0..=255u8 {
            for carry in [0, 1] {
                let (ua, ub, sa, sb) = (i32::from(a), i32::from(b), i32::from(a as i8), i32::from(b as i8));
                let (na, nb) = (ua & 15, ub & 15);
                let c = carry as i32;
                // [rax] op cl, and what it is.
                let cases: [(&[u8], i32, u64); 7] = [
                    (&[0x00, 0x08], ua + ub, flags(ua + ub, sa + sb, na + nb)),
                    (&[0x10, 0x08], ua + ub + c, flags(ua + ub + c, sa + sb + c, na + nb + c)),
                    (&[0x28, 0x08], ua - ub, flags(ua - ub, sa - sb, na - nb)),
                    (&[0x18, 0x08], ua - ub - c, flags(ua - ub - c, sa - sb - c, na - nb - c)),
                    (&[0x20, 0x08], ua & ub, flags(ua & ub, 0, 0)),
                    (&[0x08, 0x08], ua | ub, flags(ua | ub, 0, 0)),
                    (&[0x30, 0x08], ua ^ ub, flags(ua ^ ub, 0, 0)),
                ];
                for (bytes, result, flags) in cases {
                    let mut machine = with(0, b.into(), a.into());
                    machine.flags = carry | 2;
                    run(&mut machine, bytes, true);
                    assert_eq!(
                        (machine.device as u8, machine.flags),
                        (result as u8, flags | 2),
                        "{bytes:02x?} {a} {b} {carry}"
                    );
                }
            }
        }
    }
}

#[test]
fn wide_results_carry_into_their_own_flags() {
    let mut machine = with(0, 1, ONES);
    run(&mut machine, &[0x48, 0x01, 0x08], true);
    assert_eq!((machine.device, machine.flags), (0, CF | PF | AF | ZF));
    let mut machine = with(0, 1, 1 << 31);
    run(&mut machine, &[0x29, 0x08], true);
    assert_eq!((machine.device, machine.flags & (OF | SF | CF)), (0x7fff_ffff, OF));
}

#[test]
fn one_operand() {
    for (bytes, device, result, set) in [
        (&[0xfe, 0x00][..], 0xffu64, 0u64, CF | PF | AF | ZF), // INC leaves the carry, which was set
        (&[0xfe, 0x08], 0x80, 0x7f, CF | AF | OF),
        (&[0xf6, 0x18], 1, 0xff, CF | PF | AF | SF),
        (&[0xf6, 0x10], 0x0f, 0xf0, CF),
    ] {
        let mut machine = with(0, 0, device);
        machine.flags = CF;
        run(&mut machine, bytes, true);
        assert_eq!((machine.device, machine.flags), (result, set), "{bytes:02x?}");
    }
}

#[test]
fn comparisons_write_nothing() {
    for (bytes, zero) in [
        (&[0x80, 0x38, 0x41][..], true), // cmp byte [rax], 0x41
        (&[0x3a, 0x08], false),          // cmp cl, [rax]
        (&[0xf6, 0x00, 0x3e], true),     // test byte [rax], 0x3e
        (&[0x84, 0x08], false),          // test [rax], cl
    ] {
        let mut machine = with(0, 0x40, 0x41);
        let before = machine.registers;
        run(&mut machine, bytes, false);
        assert_eq!((machine.flags & ZF != 0, machine.registers), (zero, before), "{bytes:02x?}");
        assert_eq!(machine.log.iter().map(|(kind, ..)| *kind).collect::<String>(), "r");
    }
    let mut machine = with(0, 0x40, 0x41);
    run(&mut machine, &[0x3a, 0x08], false);
    assert_ne!(machine.flags & CF, 0, "0x40 is below 0x41: the register is the first operand");
}

#[test]
fn exchanges() {
    let mut machine = with(0, 0x11, 0x22);
    run(&mut machine, &[0x87, 0x08], true);
    assert_eq!((machine.device, machine.registers[1]), (0x11, 0x22), "xchg");
    let mut machine = with(0, 3, 4);
    run(&mut machine, &[0xf0, 0x0f, 0xc1, 0x08], true);
    assert_eq!((machine.device, machine.registers[1]), (7, 4), "lock xadd");
    let mut machine = with(4, 9, 4);
    run(&mut machine, &[0xf0, 0x0f, 0xb1, 0x09], true);
    assert_eq!((machine.device, machine.registers[0], machine.flags & ZF), (9, 4, ZF), "equal");
    let mut machine = with(5, 9, 4);
    run(&mut machine, &[0x0f, 0xb1, 0x09], true);
    assert_eq!((machine.device, machine.registers[0], machine.flags & ZF), (4, 4, 0), "not equal");
}

#[test]
fn bits() {
    for (opcode, result) in [(0xa3, 0b0101u64), (0xab, 0b0111), (0xb3, 0b0101), (0xbb, 0b0111)] {
        let mut machine = with(0, 33, 0b0101);
        run(&mut machine, &[0x0f, opcode, 0x08], true);
        assert_eq!(
            (machine.device, machine.flags & CF),
            (result, 0),
            "{opcode:#x}: bit 33 is bit 1 of the next word"
        );
    }
    let mut machine = with(0, 0, 0b0101);
    run(&mut machine, &[0x0f, 0xba, 0x30, 2], true);
    assert_eq!((machine.device, machine.flags & CF), (1, CF), "btr dword [rax], 2");
}

#[test]
fn strings() {
    let mut machine = with(0xab, 2, 0);
    machine.registers[7] = 0x1000;
    assert_eq!(run(&mut machine, &[0xf3, 0xaa], true), Progress::Again, "rep stosb");
    assert_eq!(run(&mut machine, &[0xf3, 0xaa], true), Progress::Next);
    assert_eq!((machine.registers[1], machine.registers[7]), (0, 0x1002));
    assert_eq!(run(&mut machine, &[0xf3, 0xaa], true), Progress::Next, "none is left");
    assert_eq!(machine.log.len(), 2);

    let mut machine = with(0, 0, 0x4433_2211);
    machine.flags = DF;
    (machine.registers[6], machine.registers[7]) = (0x100, 4);
    machine.memory = vec![0; 16];
    run(&mut machine, &[0xa5], false);
    assert_eq!(machine.memory[4..8], [0x11, 0x22, 0x33, 0x44], "movsd from the device");
    assert_eq!((machine.registers[6], machine.registers[7]), (0xfc, 0));
    machine.flags = 0;
    machine.registers[6] = 4;
    run(&mut machine, &[0x48, 0xa5], true);
    assert_eq!(machine.device, 0x4433_2211, "movsq to the device");

    let mut machine = with(ONES, 0, 0x1234);
    run(&mut machine, &[0x66, 0xad], false);
    assert_eq!((machine.registers[0], machine.registers[6]), (0xffff_ffff_ffff_1234, 2), "lodsw");
}

#[test]
fn a_fault_of_the_other_side_changes_nothing() {
    for write in [false, true] {
        let mut machine = with(0, 5, 1);
        machine.faults = true;
        let operation = decode(&[0xf3, 0xa4], 64).expect("rep movsb");
        assert!(execute(&mut machine, &operation, write).is_err());
        assert_eq!((machine.registers[1], machine.registers[6], machine.log.len()), (5, 0, 0));
    }
}

#[test]
fn all_bytes_of_the_target_are_probed_before_the_device_is_read() {
    for missing in 1..4 {
        let mut machine = Fake { memory: vec![0; 16], device: 1, ..Fake::default() };
        (machine.registers[6], machine.registers[7]) = (DEVICE, 12 + missing);
        let before = machine.registers;
        let operation = decode(&[0xa5], 64).expect("movsd");
        assert!(execute(&mut machine, &operation, false).is_err(), "{missing} bytes are not there");
        assert_eq!((machine.registers, machine.log.len()), (before, 0));
    }
}

/// Carries a comparison of a device with memory or RAX out, to its end; says how often it was executed.
fn compared(bytes: &[u8], rcx: u64, sides: [u64; 2], device: u64) -> (Fake, u32) {
    let mut machine = with(0x1122_3344_5566_7788, rcx, device);
    machine.memory = vec![0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 9, 9, 9, 9, 9, 9, 9, 9];
    (machine.registers[6], machine.registers[7]) = (sides[0], sides[1]);
    for times in 1.. {
        if run(&mut machine, bytes, false) == Progress::Next {
            return (machine, times);
        }
        // It is the same device again.
        machine.registers[if sides[0] == DEVICE { 6 } else { 7 }] = DEVICE;
    }
    unreachable!()
}

#[test]
fn comparisons_of_strings() {
    // cmpsd.
    let (machine, _) = compared(&[0xa7], 5, [DEVICE, 0], 0x5566_7788);
    assert_eq!((machine.flags, machine.log.len()), (ZF | PF, 1));
    assert_eq!((machine.registers[6], machine.registers[7], machine.registers[1]), (DEVICE + 4, 4, 5));
    let (machine, _) = compared(&[0xa7], 5, [DEVICE, 0], 0x5566_7787);
    assert_eq!(machine.flags & (CF | ZF), CF, "what is at SI is the first operand");
    let (machine, _) = compared(&[0xa7], 5, [0, DEVICE], 0x5566_7787);
    assert_eq!((machine.flags & (CF | ZF), machine.log.len()), (0, 1), "what is at DI is the second");
    let (machine, _) = compared(&[0x48, 0xa7], 5, [DEVICE, 0], 0x1122_3344_5566_7788);
    assert_eq!(machine.flags & ZF, ZF, "cmpsq");

    // scasd: RAX is the first operand.
    let (machine, _) = compared(&[0xaf], 5, [0, DEVICE], 0x5566_7789);
    assert_eq!((machine.flags & (CF | ZF), machine.registers[7], machine.registers[6]), (CF, DEVICE + 4, 0));
    let (machine, _) = compared(&[0x66, 0xaf], 5, [0, DEVICE], 0x7788);
    assert_eq!((machine.flags & ZF, machine.registers[7]), (ZF, DEVICE + 2), "scasw");
}

#[test]
fn repeated_comparisons_end_by_their_result_or_their_count() {
    let left = |bytes: &[u8], rcx, sides, device| {
        let (machine, times) = compared(bytes, rcx, sides, device);
        assert_eq!(machine.log.len() as u64, rcx - machine.registers[1], "{bytes:02x?}: accesses");
        (machine.registers[1], times, machine.flags & ZF != 0)
    };
    // Against 0x88, 0x77 … in memory.
    assert_eq!(
        left(&[0xf3, 0xa6], 5, [0, DEVICE], 0x88),
        (3, 2, false),
        "repe cmpsb: the second one differs"
    );
    assert_eq!(
        left(&[0xf2, 0xa6], 5, [0, DEVICE], 0x66),
        (2, 3, true),
        "repne cmpsb: the third one is equal"
    );
    assert_eq!(left(&[0xf2, 0xa6], 2, [0, DEVICE], 0x66), (0, 2, false), "the count ends it");
    assert_eq!(left(&[0xf3, 0xa6], 5, [DEVICE, 0], 0x88), (3, 2, false), "the device first");
    assert_eq!(left(&[0xf3, 0xae], 3, [0, DEVICE], 0x88), (0, 3, true), "repe scasb");
    assert_eq!(left(&[0xf2, 0xae], 3, [0, DEVICE], 0x88), (2, 1, true), "repne scasb");
    assert_eq!(left(&[0xf2, 0xae], 3, [0, DEVICE], 0x87), (0, 3, false), "repne scasb that finds nothing");
    for bytes in [[0xf3, 0xa6], [0xf2, 0xae]] {
        let (machine, times) = compared(&bytes, 0, [DEVICE, DEVICE], 0x88);
        assert_eq!((machine.log.len(), times, machine.flags), (0, 1, 0), "none is left");
        assert_eq!(machine.registers[7], DEVICE);
    }
}

#[test]
fn what_a_comparison_cannot_reach_is_found_before_the_device_is_read() {
    for sides in [[DEVICE, 15], [15, DEVICE]] {
        let mut machine = Fake { memory: vec![0; 16], ..Fake::default() };
        (machine.registers[6], machine.registers[7]) = (sides[0], sides[1]);
        let operation = decode(&[0x66, 0xa7], 64).expect("cmpsw");
        assert!(execute(&mut machine, &operation, false).is_err());
        assert_eq!((machine.log.len(), machine.flags, machine.registers[6]), (0, 0, sides[0]));
    }
}

#[test]
fn what_a_device_does_not_see_is_not_decoded() {
    for bytes in [
        &[0x90][..],                     // nop
        &[0x01, 0xc8],                   // add eax, ecx
        &[0xff, 0x30],                   // push [rax]
        &[0xff, 0x10],                   // call [rax]
        &[0x0f, 0x28, 0x00],             // movaps xmm0, [rax]
        &[0xf2, 0x0f, 0x10, 0x00],       // movsd xmm0, [rax]: not the string instruction
        &[0xf2, 0x0f, 0xc2, 0x00, 0x00], // cmpsd xmm0, [rax], 0: nor this
        &[0x8e, 0x18],                   // mov ds, [rax]
        &[0x0f, 0xc7, 0x08],             // cmpxchg8b [rax]
        &[0x8b],                         // cut off
        &[],
        &[0x0f, 0x0b], // ud2
        &[0x66; 16],   // prefixes without an end
    ] {
        assert_eq!(decode(bytes, 64), None, "{bytes:02x?}");
    }
}

#[test]
fn bitness_decides() {
    // 40 is a REX prefix in 64-bit code and INC EAX elsewhere; 8B 00 is 16-bit MOV AX, [BX+SI] in real mode.
    assert_eq!(decode(&[0x8b, 0x00], 16).map(|operation| operation.size), Some(2));
    assert_eq!(decode(&[0x8b, 0x00], 32).map(|operation| operation.size), Some(4));
    assert_eq!(decode(&[0x40, 0x8b, 0x00], 32), None);
    assert_eq!(decode(&[0x40, 0x8b, 0x00], 64).map(|operation| operation.length), Some(3));
}

#[test]
fn random_bytes_do_no_harm() {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    let mut executed = 0;
    for _ in 0..200_000 {
        let bytes: [u8; 15] = std::array::from_fn(|_| next());
        for bitness in [16, 32, 64] {
            let Some(operation) = decode(&bytes, bitness) else { continue };
            assert!((1..=15).contains(&operation.length));
            let mut machine = Fake { memory: vec![0; 64], faults: true, device: 5, ..Fake::default() };
            machine.registers[1] = 1;
            let _ = execute(&mut machine, &operation, true);
            executed += 1;
        }
    }
    assert!(executed > 10_000, "{executed}");
}

#[test]
fn prefixes_are_read_up_to_the_opcode() {
    let of = |bytes: &[u8]| {
        let code = bytes.iter().rev().fold(0, |code, byte| code << 8 | u128::from(*byte));
        Prefixes::of(code, bytes.len())
    };
    assert_eq!(of(&[0xf3, 0x65, 0x26, 0x6e]), Prefixes { segment: Some(0), address_size: false });
    assert_eq!(of(&[0x67, 0x66, 0x6f]), Prefixes { segment: None, address_size: true });
    assert_eq!(
        of(&[0x6e, 0x65, 0x67]),
        Prefixes::default(),
        "behind the opcode they belong to the next instruction"
    );
    assert_eq!(of(&[]), Prefixes::default());
}
