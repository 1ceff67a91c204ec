// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;

fn classes(word: u32) -> Vec<Class> {
    classify(word).classes.iter().collect()
}

#[test]
fn instructions_have_their_classes() {
    use Class::*;
    let none: &[Class] = &[];
    for (word, what, expected) in [
        (0xd503_201f, "nop", none),
        (0xd503_207f, "wfi", none),
        (0xd503_3fdf, "isb", &[Isb]),
        (0xd503_3f9f, "dsb sy", &[Dsb]),
        (0xd503_3b9f, "dsb ish", &[Dsb]),
        (0xd503_3bbf, "dmb ish", &[Dmb]),
        (0xd503_30ff, "sb", none),
        (0xd503_3f5f, "clrex", none),
        (0xd538_d080, "mrs x0, TPIDR_EL1", &[RegisterReads]),
        (0xd53c_1100, "mrs x0, HCR_EL2", &[RegisterReads, HardwareReads]),
        (0xd51c_1100, "msr HCR_EL2, x0", &[RegisterWrites, HardwareWrites]),
        (0xd53b_4220, "mrs x0, DAIF", &[RegisterReads]),
        (0xd538_4100, "mrs x0, SP_EL0", &[RegisterReads]),
        (0xd503_42df, "msr DAIFSet, #2", &[RegisterWrites]),
        (0xd538_cc00, "mrs x0, ICC_IAR1_EL1", &[RegisterReads, HardwareReads, IrqchipReads]),
        (0xd51c_cc00, "msr ICH_LR0_EL2, x0", &[RegisterWrites, HardwareWrites, IrqchipWrites]),
        (0xd508_871f, "tlbi vmalle1", &[Tlbi]),
        (0xd50c_83df, "tlbi vmalls12e1is", &[Tlbi]),
        (0xd508_7800, "at s1e1r, x0", &[At]),
        (0xd50c_7880, "at s12e1r, x0", &[At]),
        (0xd508_751f, "ic iallu", &[Cache]),
        (0xd50b_7e20, "dc civac, x0", &[Cache]),
        (0xd50b_7420, "dc zva, x0", &[Cache]),
        (0xd400_0002, "hvc #0", none),
        (0xd400_0001, "svc #0", none),
        (0xd69f_03e0, "eret", &[ExceptionReturns]),
        (0xd69f_0bff, "eretaa", &[ExceptionReturns]),
        (0xd65f_03c0, "ret", &[Branches]),
        (0xd65f_0bff, "retaa", &[Branches]),
        (0xd63f_0060, "blr x3", &[Branches]),
        (0xd61f_0060, "br x3", &[Branches]),
        (0xd73f_0862, "blraa x3, x2", &[Branches]),
        (0x1400_0001, "b", &[Branches]),
        (0x9400_0001, "bl", &[Branches]),
        (0x5400_0040, "b.eq", &[Branches]),
        (0x3500_0040, "cbnz w0", &[Branches]),
        (0xb700_0040, "tbnz x0, #32", &[Branches]),
        (0xa900_07e0, "stp x0, x1, [sp]", &[Stores]),
        (0xa940_07e0, "ldp x0, x1, [sp]", &[Loads]),
        (0xf940_0020, "ldr x0, [x1]", &[Loads]),
        (0xb900_0020, "str w0, [x1]", &[Stores]),
        (0x7860_6820, "ldrh w0, [x1, x0]", &[Loads]),
        (0x5800_0040, "ldr x0, literal", &[Loads]),
        (0xd800_0040, "prfm literal", none),
        (0xf980_0020, "prfm [x1]", none),
        (0xf880_0020, "prfum [x1]", none),
        (0x3dc0_0020, "ldr q0, [x1]", &[Loads]),
        (0x3d80_0020, "str q0, [x1]", &[Stores]),
        (0xad00_0420, "stp q0, q1, [x1]", &[Stores]),
        (0x4c40_2020, "ld1 {v0-v3}, [x1]", &[Loads]),
        (0x4c00_2020, "st1 {v0-v3}, [x1]", &[Stores]),
        (0xc85f_fc20, "ldaxr x0, [x1]", &[Loads]),
        (0xc800_fc22, "stlxr w0, x2, [x1]", &[Stores, Atomics]),
        (0xc8df_fc20, "ldar x0, [x1]", &[Loads]),
        (0xc89f_fc20, "stlr x0, [x1]", &[Stores]),
        (0xc8e0_fc22, "casal x0, x2, [x1]", &[Loads, Stores, Atomics]),
        (0x4860_fc22, "caspal", &[Loads, Stores, Atomics]),
        (0xf8e0_0022, "ldaddal x0, x2, [x1]", &[Loads, Stores, Atomics]),
        (0xf820_8022, "swp x0, x2, [x1]", &[Loads, Stores, Atomics]),
        (0xf8bf_c020, "ldapr x0, [x1]", &[Loads]),
        (0xf83f_d020, "ld64b x0, [x1]", &[Loads]),
        (0xf83f_9020, "st64b x0, [x1]", &[Stores]),
        (0xd900_0020, "stlur x0, [x1]", &[Stores]),
        (0xd940_0020, "ldapur x0, [x1]", &[Loads]),
        (0x1d01_0440, "cpyp", &[Loads, Stores]),
        (0x19c2_0420, "setp", &[Stores]),
        (0xd960_0020, "ldg x0, [x1]", &[Loads]),
        (0xd920_0820, "stg x0, [x1]", &[Stores]),
        (0x8580_4020, "ldr z0, [x1]", &[Loads]),
        (0xe580_4020, "str z0, [x1]", &[Stores]),
        (0x9100_0420, "add x0, x1, #1", none),
        (0x9b02_7c20, "mul x0, x1, x2", none),
        (0x4ea1_1c20, "mov v0.16b, v1.16b", none),
        (0x0000_0000, "udf", none),
    ] {
        assert_eq!(classes(word), expected, "{what}");
    }
}

#[test]
fn registers_are_named_and_what_is_on_the_stack_is_no_device() {
    let access = |word| classify(word).access.unwrap();
    assert_eq!((access(0xd53c_1100).write, access(0xd53c_1100).register.as_ref()), (false, "HCR_EL2"));
    assert_eq!((access(0xd51d_1000).write, access(0xd51d_1000).register.as_ref()), (true, "SCTLR_EL12"));
    assert_eq!(access(0xd503_42df).register, "DAIF");
    assert!(classify(0xf940_0020).may_be_device);
    assert!(!classify(0xf940_03e0).may_be_device, "ldr x0, [sp]");
    assert!(!classify(0x5800_0040).may_be_device, "ldr x0, literal");
    assert!(!classify(0x9100_0420).may_be_device, "add");
}

/// What an instruction is by the name that another decoder gives it: load, store, atomic, branch, return.
fn by_name(mnemonic: &str) -> [bool; 5] {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| mnemonic.starts_with(prefix));
    let modify = starts(&[
        "cas", "swp", "ldadd", "ldclr", "ldeor", "ldset", "ldsmax", "ldsmin", "ldumax", "ldumin", "stadd",
        "stclr", "steor", "stset", "stsmax", "stsmin", "stumax", "stumin", "rcw", "ldtadd", "ldtclr",
        "ldtset", "ldf", "stf", "ldbf", "stbf",
    ]);
    let conditional = starts(&["stx", "stlx", "sttx", "stltx"]);
    let copy = mnemonic.starts_with("cpy");
    let set = mnemonic.starts_with("set");
    let load = mnemonic.starts_with("ld") || modify || copy;
    let store = starts(&["st", "gcss"]) || modify || copy || set;
    let branch = ["b", "bl", "br", "blr", "ret", "cbz", "cbnz", "tbz", "tbnz"].contains(&mnemonic)
        || starts(&["b.", "bc.", "braa", "brab", "blra", "reta"]);
    [load, store, modify || conditional, branch, starts(&["eret"])]
}

#[test]
fn another_decoder_agrees() {
    // Instructions of the groups that matter, spread evenly by a fixed sequence.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut compared = [0u32; 5];
    let mut wrong = Vec::new();
    for _ in 0..2_000_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = (state >> 16) as u32;
        if !matches!(word >> 25 & 0xf, 0b0100 | 0b0110 | 0b1100 | 0b1110 | 0b1010 | 0b1011) {
            continue;
        }
        let Some(decoded) = disarm64::decoder::decode(word) else { continue };
        let text = decoded.to_string();
        let mnemonic = text.split_whitespace().next().unwrap_or_default();
        if mnemonic.starts_with("setgo") {
            // Of 2025; no QEMU executes it yet.
            continue;
        }
        let has = |class| classify(word).classes.has(class);
        let ours = [
            has(Class::Loads),
            has(Class::Stores),
            has(Class::Atomics),
            has(Class::Branches),
            has(Class::ExceptionReturns),
        ];
        let theirs = by_name(mnemonic);
        if ours != theirs {
            wrong.push(format!("{word:#010x} {text}: {ours:?}"));
        }
        compared.iter_mut().zip(theirs).for_each(|(count, is)| *count += u32::from(is));
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong[..wrong.len().min(60)].join("\n"));
    assert!(compared[0] > 10_000 && compared[1] > 10_000 && compared[3] > 10_000, "{compared:?}");
}
