// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ID registers: what they show exists, what they do not show is UNDEFINED (Arm ARM D23.2, D24).

use turnstile_guests::patch;
use turnstile_guests::platform::platform;
use turnstile_guests::test::{Outcome, Test};
use turnstile_guests::{check, check_eq, cpu, gic, mmu, println, read_sysreg, skip, write_sysreg};

use crate::is_bare;

pub const TESTS: &[Test] = &[
    Test { name: "id-readable", run: readable },
    Test { name: "id-levels", run: levels },
    Test { name: "id-registers-of-features", run: registers_of_features },
    Test { name: "id-instructions", run: instructions },
    Test { name: "id-other-levels", run: other_levels },
    Test { name: "id-implementation-defined", run: implementation_defined },
    Test { name: "id-mpidr", run: mpidr },
    Test { name: "pmu-registers", run: pmu },
];

type Encoding = (u32, u32, u32, u32, u32);

fn read(encoding: Encoding) -> Result<u64, turnstile_guests::trap::Trap> {
    let (op0, op1, crn, crm, op2) = encoding;
    patch::read(op0, op1, crn, crm, op2)
}

fn readable() -> Outcome {
    for crm in 0..8 {
        for op2 in 0..8 {
            // The gaps of the first row are not part of the ID space.
            if crm == 0 && ![0, 5, 6].contains(&op2) {
                continue;
            }
            match patch::read(3, 0, 0, crm, op2) {
                Ok(value) => println!("S3_0_C0_C{crm}_{op2} = {value:#018x}"),
                Err(trap) => check!(false, "S3_0_C0_C{crm}_{op2}: {trap}"),
            }
        }
    }
    for (encoding, name) in [((3, 3, 0, 0, 1), "CTR_EL0"), ((3, 3, 0, 0, 7), "DCZID_EL0")] {
        check!(read(encoding).is_ok(), "{name}");
    }
    Ok(())
}

fn levels() -> Outcome {
    let features = read_sysreg!("id_aa64pfr0_el1");
    check!(features & 0xf != 0 && features >> 4 & 0xf != 0, "EL0 or EL1 missing: {features:#x}");
    check_eq!(features >> 8 & 0xf, 0, "EL2 shown");
    check_eq!(features >> 12 & 0xf, 0, "EL3 shown");
    if platform().gicd.is_some() {
        let gicv3 = gic::version() == gic::Version::Gicv3;
        check!((features >> 24 & 0xf != 0) == gicv3 || is_bare(), "GIC system registers: {features:#x}");
    }
    Ok(())
}

/// A register that exists only with a feature.
struct Feature {
    name: &'static str,
    register: Encoding,
    /// CRm and op2 of the ID register, shift of the field, least value that has the register.
    id: (u32, u32, u32, u64),
}

/// Registers that EL2 can take away. Not ALLINT (FEAT_NMI), whose reads no trap covers, nor IRG below (FEAT_MTE),
/// which inserts a zero tag where allocation tags are disabled.
const FEATURES: &[Feature] = &[
    Feature { name: "RAS ERRIDR_EL1", register: (3, 0, 5, 3, 0), id: (4, 0, 28, 1) },
    Feature { name: "AMU AMCR_EL0", register: (3, 3, 13, 2, 0), id: (4, 0, 44, 1) },
    Feature { name: "DIT", register: (3, 3, 4, 2, 5), id: (4, 0, 48, 1) },
    Feature { name: "SSBS", register: (3, 3, 4, 2, 6), id: (4, 1, 4, 2) },
    Feature { name: "MTE GCR_EL1", register: (3, 0, 1, 0, 6), id: (4, 1, 8, 2) },
    Feature { name: "MTE TFSR_EL1", register: (3, 0, 5, 6, 0), id: (4, 1, 8, 2) },
    Feature { name: "SME SVCR", register: (3, 3, 4, 2, 2), id: (4, 1, 24, 1) },
    Feature { name: "SME SMCR_EL1", register: (3, 0, 1, 2, 6), id: (4, 1, 24, 1) },
    Feature { name: "SVE ZCR_EL1", register: (3, 0, 1, 2, 0), id: (4, 0, 32, 1) },
    Feature { name: "GCS GCSCR_EL1", register: (3, 0, 2, 5, 0), id: (4, 1, 44, 1) },
    Feature { name: "RNDR", register: (3, 3, 2, 4, 0), id: (6, 0, 60, 1) },
    Feature { name: "PAN", register: (3, 0, 4, 2, 3), id: (7, 1, 20, 1) },
    Feature { name: "LOR LORC_EL1", register: (3, 0, 10, 4, 3), id: (7, 1, 16, 1) },
    Feature { name: "UAO", register: (3, 0, 4, 2, 4), id: (7, 2, 4, 1) },
    Feature { name: "TCR2_EL1", register: (3, 0, 2, 0, 3), id: (7, 3, 0, 1) },
    Feature { name: "SCTLR2_EL1", register: (3, 0, 1, 0, 3), id: (7, 3, 4, 1) },
    Feature { name: "S1PIE PIR_EL1", register: (3, 0, 10, 2, 3), id: (7, 3, 8, 1) },
    Feature { name: "S1POE POR_EL1", register: (3, 0, 10, 2, 4), id: (7, 3, 16, 1) },
    Feature { name: "SPE PMSCR_EL1", register: (3, 0, 9, 9, 0), id: (5, 0, 32, 1) },
    Feature { name: "TRF TRFCR_EL1", register: (3, 0, 1, 2, 1), id: (5, 0, 40, 1) },
    Feature { name: "TRBE TRBLIMITR_EL1", register: (3, 0, 9, 11, 0), id: (5, 0, 44, 1) },
    Feature { name: "BRBE BRBCR_EL1", register: (2, 1, 9, 0, 0), id: (5, 0, 52, 1) },
    Feature { name: "trace TRCPRGCTLR", register: (2, 1, 0, 1, 0), id: (5, 0, 4, 1) },
];

/// CPACR_EL1 with ZEN, FPEN and SMEN set: the guest itself traps nothing.
const ALL_ENABLED: u64 = 3 << 16 | FP_ENABLED | 3 << 24;
const FP_ENABLED: u64 = 3 << 20;

fn registers_of_features() -> Outcome {
    let mut wrong = 0;
    write_sysreg!("cpacr_el1", ALL_ENABLED);
    for feature in FEATURES {
        let (crm, op2, shift, least) = feature.id;
        let field = patch::read(3, 0, 0, crm, op2).unwrap_or(0) >> shift & 0xf;
        let shown = field >= least && field != 0xf;
        match read(feature.register) {
            Ok(_) if shown => {}
            Err(trap) if !shown && trap.is_undefined() => {}
            Ok(_) => {
                wrong += 1;
                println!("  {} can be read and is not shown (field {field:#x})", feature.name);
            }
            Err(trap) => {
                wrong += 1;
                println!("  {} with field {field:#x}: {trap}", feature.name);
            }
        }
    }
    write_sysreg!("cpacr_el1", FP_ENABLED);
    check!(wrong == 0, "{wrong} registers contradict the ID registers");
    Ok(())
}

fn instructions() -> Outcome {
    let field = |crm, op2, shift: u32| patch::read(3, 0, 0, crm, op2).unwrap_or(0) >> shift & 0xf;
    let pauth = [(6, 1, 4), (6, 1, 8), (6, 1, 24), (6, 1, 28), (6, 2, 8), (6, 2, 12)];
    let has_generic = [(6, 1, 24), (6, 1, 28), (6, 2, 8)].iter().any(|(a, b, c)| field(*a, *b, *c) != 0);
    let has_address = pauth.iter().any(|(a, b, c)| field(*a, *b, *c) != 0);
    write_sysreg!("cpacr_el1", ALL_ENABLED);
    let cases = [
        ("SVE rdvl", 0x04bf_5020, field(4, 0, 32) != 0),
        ("PAuth pacga", 0x9ac0_3000, has_generic),
        ("atomics swp", 0xf821_8001, field(6, 0, 20) >= 2),
        ("CRC32", 0x1ac0_4000, field(6, 0, 16) != 0),
        ("RNG rndr", patch::mrs(3, 3, 2, 4, 0), field(6, 0, 60) != 0),
    ];
    let mut scratch = 0u64;
    let mut wrong = 0;
    for (name, word, shown) in cases {
        // SAFETY: each changes x0 or x1 only; swp exchanges x1 and `scratch`, whose address is in x0.
        let (_, trap) = unsafe { patch::execute(word, &raw mut scratch as u64) };
        match trap {
            None if shown => {}
            Some(trap) if !shown && trap.is_undefined() => {}
            None => {
                wrong += 1;
                println!("  {name} works and is not shown");
            }
            Some(trap) => {
                wrong += 1;
                println!("  {name} (shown: {shown}): {trap}");
            }
        }
    }
    write_sysreg!("cpacr_el1", FP_ENABLED);
    if !has_address {
        let trap = read((3, 0, 2, 1, 0)).err();
        check!(trap.is_some_and(|trap| trap.is_undefined()), "APIAKeyLo_EL1 is not UNDEFINED");
    }
    check!(wrong == 0, "{wrong} instructions contradict the ID registers");
    Ok(())
}

fn other_levels() -> Outcome {
    let registers: [(&str, Encoding); 14] = [
        ("HCR_EL2", (3, 4, 1, 1, 0)),
        ("SCTLR_EL2", (3, 4, 1, 0, 0)),
        ("VTTBR_EL2", (3, 4, 2, 1, 0)),
        ("SPSR_EL2", (3, 4, 4, 0, 0)),
        ("SP_EL1", (3, 4, 4, 1, 0)),
        ("ESR_EL2", (3, 4, 5, 2, 0)),
        ("VBAR_EL2", (3, 4, 12, 0, 0)),
        ("ICH_HCR_EL2", (3, 4, 12, 11, 0)),
        ("ICH_LR0_EL2", (3, 4, 12, 12, 0)),
        ("CNTHCTL_EL2", (3, 4, 14, 1, 0)),
        ("SCTLR_EL12", (3, 5, 1, 0, 0)),
        ("CNTV_CTL_EL02", (3, 5, 14, 3, 1)),
        ("SCR_EL3", (3, 6, 1, 1, 0)),
        ("ICC_CTLR_EL3", (3, 6, 12, 12, 4)),
    ];
    for (name, register) in registers {
        match read(register) {
            Ok(value) => check!(false, "{name} reads {value:#x}"),
            Err(trap) => check!(trap.is_undefined(), "{name}: {trap}"),
        }
    }
    let instructions = [
        ("AT S12E1R", patch::msr(1, 4, 7, 8, 4)),
        ("AT S1E2R", patch::msr(1, 4, 7, 8, 0)),
        ("TLBI ALLE1", patch::msr(1, 4, 8, 7, 4)),
        ("TLBI ALLE2", patch::msr(1, 4, 8, 7, 0)),
        ("TLBI VMALLS12E1", patch::msr(1, 4, 8, 7, 6)),
        ("TLBI ALLE3", patch::msr(1, 6, 8, 7, 0)),
    ];
    for (name, word) in instructions {
        // SAFETY: changes no memory and no register.
        let (_, trap) = unsafe { patch::execute(word, 0) };
        check!(trap.is_some_and(|trap| trap.is_undefined()), "{name} is not UNDEFINED");
    }
    Ok(())
}

fn implementation_defined() -> Outcome {
    if is_bare() {
        skip!("the CPU model has some");
    }
    for op1 in 0..8 {
        for crn in [11, 15] {
            for crm in [0, 2, 15] {
                if let Ok(value) = patch::read(3, op1, crn, crm, 0) {
                    check!(false, "S3_{op1}_C{crn}_C{crm}_0 reads {value:#x}");
                }
            }
        }
    }
    Ok(())
}

fn mpidr() -> Outcome {
    let value = read_sysreg!("mpidr_el1");
    check!(value >> 31 & 1 == 1, "bit 31 is clear in {value:#x}");
    check!(value & !0xff_c1ff_ffff == 0, "reserved bits in {value:#x}");
    let nodes = platform().cpus.as_slice();
    check!(nodes.contains(&cpu::affinity()), "no CPU node has {:#x}", cpu::affinity());
    for (index, node) in nodes.iter().enumerate() {
        check!(!nodes.iter().skip(index + 1).any(|other| other == node), "two CPU nodes have {node:#x}");
    }
    check!(mmu::is_enabled(), "the MMU is off");
    Ok(())
}

fn pmu() -> Outcome {
    let version = read_sysreg!("id_aa64dfr0_el1") >> 8 & 0xf;
    let registers: [(&str, Encoding); 5] = [
        ("PMCR_EL0", (3, 3, 9, 12, 0)),
        ("PMSELR_EL0", (3, 3, 9, 12, 5)),
        ("PMCCNTR_EL0", (3, 3, 9, 13, 0)),
        ("PMUSERENR_EL0", (3, 3, 9, 14, 0)),
        ("PMINTENSET_EL1", (3, 0, 9, 14, 1)),
    ];
    if platform().pmu.is_none() {
        check!(version == 0 || version == 0xf, "PMUVer {version:#x} without a pmu node");
        if is_bare() {
            skip!("QEMU keeps some of the registers");
        }
        for (name, register) in registers {
            match read(register) {
                Ok(value) => check!(false, "{name} reads {value:#x} without a PMU"),
                Err(trap) => check!(trap.is_undefined(), "{name}: {trap}"),
            }
        }
        return Ok(());
    }
    check!(version != 0 && version != 0xf, "PMUVer {version:#x} with a pmu node");
    for (name, register) in registers {
        if let Err(trap) = read(register) {
            check!(false, "{name}: {trap}");
        }
    }
    for selection in [0, 31, 3] {
        write_sysreg!("pmselr_el0", selection);
        check_eq!(read_sysreg!("pmselr_el0"), selection, "PMSELR_EL0");
    }
    Ok(())
}
