// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the lookups against each other and against the fields of the syndrome, over every key.

use turnstile_trapmap::{Binary, CallMap, Group, Linear, SysReg, TrapMap, by_encoding, flat, flat_len, name};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Handler {
    Undefined,
    Zero,
    Sgi,
    Counter,
    Debug,
    SetWay,
}

/// Ascending by key, as `Binary` demands.
const ENTRIES: &[(SysReg, Handler)] = &[
    (SysReg::new(2, 0, 0, 2, 2), Handler::Debug),
    (SysReg::new(2, 0, 1, 0, 4), Handler::Zero),
    (SysReg::new(3, 3, 9, 13, 0), Handler::Counter),
    (SysReg::new(1, 0, 7, 14, 2), Handler::SetWay),
    (SysReg::new(3, 0, 12, 11, 5), Handler::Sgi),
];

static TABLE: TrapMap<Handler> = TrapMap::new(Handler::Undefined, ENTRIES);
static LINEAR: Linear<Handler> = Linear::new(Handler::Undefined, ENTRIES);
static BINARY: Binary<Handler> = Binary::new(Handler::Undefined, ENTRIES);

/// Builds an ISS from its fields, as the Arm ARM draws it; `rest` fills Rt, the direction and what is above.
fn iss(register: SysReg, rest: u32) -> u32 {
    let field = |value: u8, low: u32| u32::from(value) << low;
    let fields = field(register.op0(), 20)
        | field(register.op2(), 17)
        | field(register.op1(), 14)
        | field(register.crn(), 10)
        | field(register.crm(), 1);
    fields | (rest & 0x1f) << 5 | rest >> 5 & 1 | (rest >> 6) << 22
}

fn all_registers() -> impl Iterator<Item = SysReg> {
    (1u16 << 14..=u16::MAX).map(|bits| {
        let field = |low: u32, mask: u16| (bits >> low & mask) as u8;
        SysReg::new(field(14, 3), field(11, 7), field(7, 15), field(3, 15), field(0, 7))
    })
}

#[test]
fn fields_survive_the_encoding_and_the_syndrome() {
    let mut previous = None;
    for (bits, register) in (1u16 << 14..=u16::MAX).zip(all_registers()) {
        let fields = (register.op0(), register.op1(), register.crn(), register.crm(), register.op2());
        let expected = (bits >> 14, bits >> 11 & 7, bits >> 7 & 15, bits >> 3 & 15, bits & 7);
        let expected =
            (expected.0 as u8, expected.1 as u8, expected.2 as u8, expected.3 as u8, expected.4 as u8);
        assert_eq!(fields, expected);
        assert!(previous < Some(register), "ordered as written");
        previous = Some(register);
        for rest in [0, u32::MAX] {
            let iss = iss(register, rest);
            assert_eq!(SysReg::from_iss(iss), register);
            assert_eq!(SysReg::key_of_iss(iss), register.key());
        }
    }
}

#[test]
fn the_three_lookups_agree_on_every_key() {
    let mut defaults = 0;
    for register in all_registers() {
        let iss = iss(register, 0x1a5);
        let expected = TABLE.lookup(iss);
        assert_eq!(LINEAR.lookup(iss), expected, "{register}");
        assert_eq!(BINARY.lookup(iss), expected, "{register}");
        assert_eq!(TABLE.get(register), expected);
        defaults += usize::from(expected == Handler::Undefined);
    }
    // Two keys of op0 3 or 2 each, one of op0 1 that shares its key with op0 3, which is looked at twice.
    assert_eq!(defaults, (3 << 14) - ENTRIES.len() - ENTRIES.iter().filter(|(r, _)| r.op0() != 2).count());
    for &(register, handler) in ENTRIES {
        assert_eq!(TABLE.get(register), handler);
    }
}

#[test]
fn any_syndrome_has_an_answer() {
    let mut iss = 1u32;
    for _ in 0..100_000 {
        iss = iss.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        assert_eq!(TABLE.lookup(iss), LINEAR.lookup(iss));
    }
}

#[test]
fn groups_fill_what_has_no_handler_of_its_own() {
    const IDS: Group = Group { op0: 3, op1: 0, crn: 0, crm: (1, 7), op2: (0, 7) };
    const COUNTERS: Group = Group { op0: 3, op1: 3, crn: 14, crm: (8, 15), op2: (0, 7) };
    static MAP: TrapMap<Handler> = TrapMap::with_groups(
        Handler::Undefined,
        &[(IDS, Handler::Zero), (COUNTERS, Handler::Counter)],
        &[(SysReg::new(3, 0, 0, 4, 0), Handler::Debug)],
    );
    let count = |handler| all_registers().filter(|&r| r.op0() == 3 && MAP.get(r) == handler).count();
    assert_eq!((count(Handler::Zero), count(Handler::Counter), count(Handler::Debug)), (55, 64, 1));
    assert_eq!(MAP.get(SysReg::new(3, 0, 0, 4, 0)), Handler::Debug);
    assert_eq!(MAP.get(SysReg::new(3, 0, 0, 0, 7)), Handler::Undefined);
    assert_eq!(MAP.get(SysReg::new(3, 0, 0, 8, 0)), Handler::Undefined);
}

#[test]
fn the_flat_list_is_the_map() {
    const GROUPS: &[(Group, u8)] = &[
        (Group { op0: 3, op1: 0, crn: 0, crm: (1, 7), op2: (0, 7) }, 1),
        (Group { op0: 3, op1: 3, crn: 14, crm: (8, 15), op2: (2, 5) }, 2),
    ];
    const SINGLE: &[(SysReg, u8)] = &[
        (SysReg::new(3, 3, 14, 15, 5), 4),
        (SysReg::new(3, 0, 0, 1, 0), 3),
        (SysReg::new(2, 3, 0, 4, 0), 5),
    ];
    const LIST_LEN: usize = flat_len(GROUPS, SINGLE);
    static LIST: [(SysReg, u8); LIST_LEN] = flat(GROUPS, SINGLE);
    static MAP: TrapMap<u8> = TrapMap::with_groups(0, GROUPS, SINGLE);
    static ORDERED: [(SysReg, u8); LIST_LEN] = by_encoding(LIST);
    assert!(ORDERED.is_sorted_by_key(|(register, _)| *register));
    let (linear, binary) = (Linear::new(0, &ORDERED), Binary::new(0, &LIST));
    assert_eq!(LIST.len(), 7 * 8 + 8 * 4 + 1);
    for register in all_registers() {
        let iss = iss(register, 0);
        assert_eq!(
            (linear.lookup(iss), binary.lookup(iss)),
            (MAP.lookup(iss), MAP.lookup(iss)),
            "{register}"
        );
    }
}

#[test]
#[should_panic(expected = "two handlers for one encoding")]
fn a_register_has_one_handler() {
    let twice = [ENTRIES[0], ENTRIES[1], (ENTRIES[0].0, Handler::Zero)];
    TrapMap::new(Handler::Undefined, &twice);
}

#[test]
#[should_panic(expected = "sort the registers")]
fn the_binary_search_wants_order() {
    static UNSORTED: &[(SysReg, Handler)] = &[ENTRIES[1], ENTRIES[0]];
    Binary::new(Handler::Undefined, UNSORTED);
}

#[test]
fn registers_are_shown_as_assemblers_write_them() {
    let register = SysReg::new(3, 0, 12, 11, 5);
    assert_eq!(register.to_string(), "S3_0_C12_C11_5");
    assert_eq!(name(register), Some("ICC_SGI1R_EL1"));
    assert_eq!(name(SysReg::new(3, 7, 15, 15, 7)), None);
}

static CALLS: CallMap<u8, 64> = CallMap::new(
    0,
    &[(0x8400_0000, 1), (0xc400_0003, 2), (0x8400_0003, 3), (0x8000_0000, 4), (0x8600_ff01, 5)],
);

#[test]
fn calls_are_found_and_nothing_else_is() {
    let known = [(0x8400_0000, 1), (0xc400_0003, 2), (0x8400_0003, 3), (0x8000_0000, 4), (0x8600_ff01, 5)];
    for (identifier, handler) in known {
        assert_eq!(CALLS.lookup(identifier), handler);
    }
    let others = (0..=0xffff).flat_map(|low| [low, 0x8400_0000 | low, 0xc400_0000 | low, low << 16]);
    for identifier in others.filter(|id| !known.iter().any(|(known, _)| known == id)) {
        assert_eq!(CALLS.lookup(identifier), 0, "{identifier:#x}");
    }
    static ZERO: CallMap<u8, 2> = CallMap::new(7, &[(0, 9)]);
    assert_eq!((ZERO.lookup(0), ZERO.lookup(1), ZERO.lookup(u32::MAX)), (9, 7, 7));
    static EMPTY: CallMap<u8, 2> = CallMap::new(7, &[]);
    assert_eq!((EMPTY.lookup(0), EMPTY.lookup(1)), (7, 7));
}

#[test]
#[should_panic(expected = "occurs twice")]
fn a_call_has_one_handler() {
    CallMap::<u8, 64>::new(0, &[(5, 1), (6, 2), (5, 3)]);
}
