// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decisions for AMD's processors, against a table written out by hand.

use turnstile_mitigation::State;
use turnstile_mitigation::x86_64::{
    Choice, Cpu, Decision, Exit, Offer, Once, StopBypass, Together, decide, spec_ctrl,
};

use State::{Mitigated, Unaffected, Vulnerable};

const IBPB: u32 = 1 << 12;
const IBRS: u32 = 1 << 14;
const STIBP: u32 = 1 << 15;
const STIBP_ALWAYS: u32 = 1 << 17;
const SSBD: u32 = 1 << 24;
const VIRT_SSBD: u32 = 1 << 25;
const SSB_NO: u32 = 1 << 26;
const PSFD: u32 = 1 << 28;
const BTC_NO: u32 = 1 << 29;
const IBPB_RET: u32 = 1 << 30;
const LFENCE: u32 = 1 << 2;
const VERW: u32 = 1 << 5;
const AUTO_IBRS: u32 = 1 << 8;
const SBPB: u32 = 1 << 27;
const BRTYPE: u32 = 1 << 28;
const SRSO_NO: u32 = 1 << 29;
const MSR_FIX: u32 = 1 << 31;
const VIRTUAL: u32 = 1 << 20;

const NONE: Cpu = Cpu {
    foreign: false,
    family: 0,
    model: 0,
    virtualized: false,
    leaf_7_edx: 0,
    extended_8_ebx: 0,
    svm_edx: 0,
    extended_21_eax: 0,
    extended_21_ecx: 0,
};
const QEMU: Cpu = Cpu { family: 6, model: 6, virtualized: true, ..NONE };
const BULLDOZER: Cpu = Cpu { family: 0x15, extended_8_ebx: IBPB, ..NONE };
const ZEN1: Cpu = Cpu { family: 0x17, model: 1, extended_8_ebx: IBPB, ..NONE };
const ZEN2: Cpu = Cpu { family: 0x17, model: 0x31, extended_8_ebx: IBPB | IBRS | STIBP | SSBD, ..NONE };
const ZEN3: Cpu = Cpu {
    family: 0x19,
    model: 1,
    extended_8_ebx: IBPB | IBRS | STIBP | STIBP_ALWAYS | SSBD | PSFD | BTC_NO,
    svm_edx: VIRTUAL,
    extended_21_eax: LFENCE | VERW | BRTYPE | SBPB,
    ..NONE
};
const ZEN4: Cpu = Cpu { model: 0x11, extended_21_eax: LFENCE | VERW | BRTYPE | SBPB | AUTO_IBRS, ..ZEN3 };
const ZEN5: Cpu = Cpu {
    family: 0x1a,
    model: 2,
    extended_8_ebx: ZEN3.extended_8_ebx | IBPB_RET,
    extended_21_eax: LFENCE | BRTYPE | SBPB | AUTO_IBRS | MSR_FIX,
    ..ZEN3
};

const STIBP_SSBD: u64 = spec_ctrl::STIBP | spec_ctrl::SSBD;

fn auto(cpu: Cpu) -> Decision {
    decide(&cpu, Choice::Auto)
}

fn exit(list: &str) -> Exit {
    match Choice::from_word(&format!("mitigations={list}")) {
        Some(Choice::Exit(exit)) => exit,
        other => panic!("{list}: {other:?}"),
    }
}

fn states(decision: Decision) -> [State; 4] {
    [decision.targets, decision.returns, decision.buffers, decision.bypass]
}

/// CPU; what each exit does; IBPB between vCPUs; targets, returns, buffers, bypass.
#[test]
fn each_generation_gets_what_it_needs() {
    const M: State = Mitigated;
    const U: State = Unaffected;
    const V: State = Vulnerable;
    let table: [(&str, Cpu, Exit, bool, [State; 4]); 15] = [
        ("an emulator", QEMU, Exit::NOTHING, false, [U, U, U, U]),
        ("another emulator", Cpu { family: 0xf, model: 107, ..NONE }, Exit::NOTHING, false, [U, U, U, U]),
        ("family 10h", Cpu { family: 0x10, ..NONE }, exit("fill"), false, [V, M, U, U]),
        ("Bulldozer", BULLDOZER, exit("barrier+fill"), false, [M, M, U, M]),
        ("Zen", ZEN1, exit("barrier+fill"), false, [M, M, U, M]),
        ("Zen, old microcode", Cpu { extended_8_ebx: 0, ..ZEN1 }, exit("fill"), false, [V, V, U, M]),
        ("a virtual Zen", Cpu { virtualized: true, ..ZEN1 }, exit("barrier+fill"), false, [M, M, U, V]),
        ("Zen 2", ZEN2, exit("barrier+fill+switch"), false, [M, M, U, M]),
        ("Zen 3", ZEN3, exit("barrier+fill+clear"), false, [M, M, M, M]),
        (
            "Zen 3, old microcode",
            Cpu { extended_21_eax: LFENCE, ..ZEN3 },
            exit("barrier+fill"),
            false,
            [M, V, V, M],
        ),
        ("Zen 4", ZEN4, exit("barrier+clear"), false, [M, M, M, M]),
        ("Zen 5", ZEN5, Exit::NOTHING, true, [M, M, U, M]),
        ("a virtual Zen 5", Cpu { virtualized: true, ..ZEN5 }, exit("barrier"), false, [M, M, U, M]),
        (
            "a later one without any of it",
            Cpu { family: 0x1b, extended_8_ebx: IBPB | SSB_NO, extended_21_eax: AUTO_IBRS | SRSO_NO, ..NONE },
            Exit::NOTHING,
            true,
            [M, M, U, U],
        ),
        ("nobody's", Cpu { foreign: true, family: 0xf, ..NONE }, exit("fill"), false, [V, V, V, V]),
    ];
    for (name, cpu, exit, switch_barrier, expected) in table {
        let decision = auto(cpu);
        assert_eq!((decision.exit, decision.switch_barrier), (exit, switch_barrier), "{name}");
        assert_eq!(states(decision), expected, "{name}");
    }
}

#[test]
fn what_is_written_once() {
    let once = |cpu| auto(cpu).once;
    let load_store = |bit: u32| Once {
        serialize: true,
        stop_bypass: Some(StopBypass::LoadStore(1 << bit)),
        ..Once::default()
    };
    assert_eq!(once(QEMU), Once::default());
    assert_eq!(once(BULLDOZER), load_store(54));
    assert_eq!(once(Cpu { family: 0x16, ..BULLDOZER }), load_store(33));
    assert_eq!(once(ZEN1), load_store(10));
    let by_spec_ctrl = Once {
        spec_ctrl: spec_ctrl::SSBD,
        stop_bypass: Some(StopBypass::SpecCtrl),
        serialize: true,
        ..Once::default()
    };
    assert_eq!(once(ZEN2), by_spec_ctrl);
    let zen3 = Once { spec_ctrl: STIBP_SSBD, serialize: false, ..by_spec_ctrl };
    assert_eq!(once(ZEN3), zen3);
    assert_eq!(once(ZEN4), Once { auto_ibrs: true, ..zen3 });
    assert_eq!(once(ZEN5), Once { auto_ibrs: true, reduce: true, ..zen3 });
}

#[test]
fn registers_that_cpuid_does_not_name_are_left_alone_in_a_virtual_machine() {
    for cpu in [BULLDOZER, ZEN1, ZEN5] {
        let once = auto(Cpu { virtualized: true, ..cpu }).once;
        assert!(!once.serialize && !once.reduce, "{cpu:x?}");
        assert!(!matches!(once.stop_bypass, Some(StopBypass::LoadStore(_))), "{cpu:x?}");
    }
    let told = Cpu { virtualized: true, extended_8_ebx: IBPB | VIRT_SSBD, ..ZEN1 };
    assert_eq!(auto(told).once.stop_bypass, Some(StopBypass::Virtual));
}

#[test]
fn off_is_nothing_and_says_what_is_open() {
    for cpu in [ZEN1, ZEN2, ZEN3, ZEN4, ZEN5] {
        let decision = decide(&cpu, Choice::Off);
        assert_eq!((decision.exit, decision.switch_barrier), (Exit::NOTHING, false));
        assert_eq!(decision.once, Once::default());
        assert!(states(decision).iter().all(|state| *state != Mitigated), "{cpu:x?}");
        assert!(decision.to_string().contains("open to guests: branch targets, returns"), "{decision}");
    }
    assert!(!decide(&QEMU, Choice::Off).is_remarkable());
}

#[test]
fn what_is_forced_is_done_if_the_cpu_can() {
    let forced = Choice::Exit(exit("barrier+fill+clear+switch"));
    assert_eq!(decide(&QEMU, forced).exit, exit("fill+clear"), "no PRED_CMD, no SPEC_CTRL");
    assert_eq!(decide(&ZEN2, forced).exit, exit("barrier+fill+clear+switch"));
    assert_eq!(decide(&ZEN3, forced).exit, exit("barrier+fill+clear"), "the hardware switches SPEC_CTRL");
    assert_eq!(decide(&ZEN5, Choice::Exit(exit("fill"))).once, Once::default(), "and nothing else");
}

#[test]
fn the_command_line_is_read() {
    assert_eq!(Choice::from_line("link=framed mitigations=off x mitigations=fill+barrier"), {
        Choice::Exit(Exit { barrier: true, fill: true, ..Exit::NOTHING })
    });
    assert_eq!(Choice::from_line("mitigations=off"), Choice::Off);
    assert_eq!(Choice::from_line("mitigation=off"), Choice::Auto);
    for word in ["mitigations=", "mitigations=on", "mitigations=fill+", "mitigations=loop:4", "fill"] {
        assert_eq!(Choice::from_word(word), None, "{word}");
    }
}

#[test]
fn each_run_loop_has_a_number() {
    let lists = ["barrier", "fill", "clear", "switch", "barrier+fill+clear+switch"];
    assert_eq!(lists.map(|list| exit(list).number()), [1, 2, 4, 8, 15]);
    assert_eq!(Exit::NOTHING.number(), 0);
}

#[test]
fn guests_are_told_the_truth() {
    let told = |cpu: Cpu, choice| Offer::of(&cpu, &decide(&cpu, choice));
    let zen1 = told(ZEN1, Choice::Auto);
    assert_eq!(zen1.extended_8_ebx, IBPB | SSB_NO, "loads overtake nothing in guests, either");
    assert_eq!(zen1.extended_21_eax, LFENCE, "DE_CFG makes it true");
    assert_eq!((zen1.spec_ctrl(), zen1.pred_cmd(), zen1.auto_ibrs()), (0, 1, false));
    let off = told(ZEN1, Choice::Off);
    assert_eq!((off.extended_8_ebx, off.extended_21_eax), (IBPB, 0));

    let zen2 = told(ZEN2, Choice::Auto);
    assert_eq!(zen2.extended_8_ebx, ZEN2.extended_8_ebx | SSB_NO);
    assert_eq!(zen2.spec_ctrl(), 0b111);
    assert_eq!(told(ZEN2, Choice::Off).spec_ctrl(), 0, "nobody would switch it");

    let zen4 = told(ZEN4, Choice::Off);
    assert_eq!(zen4.extended_8_ebx, ZEN4.extended_8_ebx);
    assert_eq!(zen4.extended_21_eax, ZEN4.extended_21_eax);
    assert_eq!((zen4.spec_ctrl(), zen4.pred_cmd(), zen4.auto_ibrs()), (0x87, 0x81, true));

    let zen5 = told(ZEN5, Choice::Auto);
    assert_eq!(zen5.extended_21_eax, ZEN5.extended_21_eax & !MSR_FIX, "BP_CFG is the hypervisor's");

    let all = Cpu { extended_8_ebx: !0, extended_21_eax: !0, extended_21_ecx: !0, ..ZEN5 };
    let all = told(all, Choice::Auto);
    assert_eq!(all.extended_8_ebx & 0xfff, 0, "what is not of speculation is told elsewhere");
    assert_eq!(all.extended_8_ebx & VIRT_SSBD, 0);
    assert_eq!(all.extended_21_ecx, 0b110);
}

fn together(cpus: &[Cpu]) -> Together {
    cpus.iter().fold(Together::NOBODY, |all, cpu| all.and(cpu, &auto(*cpu)))
}

#[test]
fn of_several_kinds_of_cpus_the_worst_counts() {
    let both = together(&[ZEN2, ZEN1]);
    assert_eq!((both.offer.extended_8_ebx, both.offer.spec_ctrl()), (IBPB | SSB_NO, 0));
    assert_eq!(both.exit(), exit("barrier+fill"), "no SPEC_CTRL where one has none");
    assert_eq!(together(&[ZEN2, ZEN2]).exit(), exit("barrier+fill+switch"));
    assert_eq!(together(&[ZEN4, ZEN3]).exit(), exit("barrier+fill+clear"));
    assert_eq!(together(&[ZEN4, ZEN3]).spec_ctrl, STIBP_SSBD);
}

#[test]
fn no_cpu_is_asked_for_what_it_does_not_have() {
    let old = Cpu { extended_8_ebx: 0, ..ZEN1 };
    for cpus in [[ZEN1, old], [old, ZEN1], [ZEN5, old]] {
        let all = together(&cpus);
        assert!(!all.exit().barrier && !all.between() && !all.is_enough(), "{all:?}");
        assert_eq!(all.offer.pred_cmd(), 0);
    }
    assert!(together(&[ZEN1, ZEN1]).is_enough() && together(&[QEMU, QEMU]).is_enough());
}

#[test]
fn a_barrier_comes_between_vcpus_or_on_exits() {
    assert_eq!(
        [[ZEN5, ZEN5], [ZEN4, ZEN4], [ZEN5, ZEN4], [QEMU, QEMU]].map(|cpus| together(&cpus).between()),
        [true, false, false, false]
    );
}

#[test]
fn it_is_said_in_words() {
    let said = auto(ZEN2).to_string();
    assert_eq!(
        said,
        "on each exit IBPB, return stack, SPEC_CTRL; between vCPUs nothing; for good DE_CFG, SSBD"
    );
    let said = auto(ZEN5).to_string();
    assert_eq!(
        said,
        "on each exit nothing; between vCPUs IBPB; for good Automatic IBRS, BP_CFG, SSBD, STIBP"
    );
    assert!(auto(Cpu { family: 0x10, ..NONE }).to_string().ends_with("; open to guests: branch targets"));
}

#[test]
fn cpuid_is_read_from_its_places() {
    let cpuid = |leaf, _| match leaf {
        0 => [0xd, u32::from_le_bytes(*b"Auth"), 0, 0],
        1 => [0x00a0_0f11, 0, 1 << 31, 0],
        7 => [0, 0, 0, 7],
        0x8000_0000 => [0x8000_0021, 0, 0, 0],
        0x8000_0008 => [0, 8, 0, 0],
        0x8000_000a => [0, 0, 0, 10],
        0x8000_0021 => [0x21, 0, 0x2100, 0],
        _ => panic!("leaf {leaf:#x}"),
    };
    let cpu = Cpu::read(cpuid);
    let expected = Cpu {
        foreign: false,
        family: 0x19,
        model: 1,
        virtualized: true,
        leaf_7_edx: 7,
        extended_8_ebx: 8,
        svm_edx: 10,
        extended_21_eax: 0x21,
        extended_21_ecx: 0x2100,
    };
    assert_eq!(cpu, expected);
    let old = Cpu::read(|leaf, _| match leaf {
        0 => [1, u32::from_le_bytes(*b"Cent"), 0, 0],
        1 => [0x0000_0671, 0, 0, 0],
        0x8000_0000 => [0x8000_0001, 0, 0, 0],
        _ => [u32::MAX; 4],
    });
    assert_eq!(
        old,
        Cpu { foreign: true, family: 6, model: 7, ..NONE },
        "leaves that are not there say nothing"
    );
}
