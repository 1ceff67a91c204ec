// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decisions against a table written out by hand, and firmware that only pretends.

use turnstile_mitigation::State;
use turnstile_mitigation::arm64::{Answer, Answers, Choice, Cpu, Decision, Exit, Firmware, decide};

use Answer::{NotRequired, Required};
use State::{Mitigated, Unaffected, Vulnerable};

const A53: u64 = 0x410f_d034;
const A57: u64 = 0x411f_d070;
const A72: u64 = 0x410f_d083;
const A73: u64 = 0x410f_d091;
const A75: u64 = 0x412f_d0a0;
const N1: u64 = 0x414f_d0c1;
const V1: u64 = 0x411f_d401;
const V2: u64 = 0x410f_d4f0;
const A720: u64 = 0x410f_d811;
const TSV110: u64 = 0x481f_d010;
const NOBODY: u64 = 0x000f_0510;

const CSV2: u64 = 1 << 56;
const CSV2_3: u64 = 3 << 56;
const SSBS: u64 = 2 << 4;

const CALL_1: u32 = 0x8000_8000;
const CALL_3: u32 = 0x8000_3fff;

/// As firmware with all three workarounds answers on a CPU that needs them.
const ALL: Firmware = Firmware { first: Required, second: Required, third: Required };
/// Older firmware, from before branch history was known to matter.
const OLD: Firmware = Firmware { first: Required, second: Required, third: Answer::Absent };

fn cpu(midr: u64, pfr0: u64, pfr1: u64) -> Cpu {
    Cpu { midr, pfr0, pfr1, ..Cpu::default() }
}

fn auto(cpu: Cpu, firmware: Firmware) -> Decision {
    decide(&cpu, firmware, Choice::Auto)
}

#[test]
fn each_cpu_gets_what_it_needs() {
    let cases = [
        // CPU, firmware, exit, targets, history, bypass
        (cpu(A53, 0, 0), Firmware::NONE, Exit::Nothing, Unaffected, Unaffected, Unaffected),
        (cpu(A57, 0, 0), Firmware::NONE, Exit::Loop(8), Vulnerable, Mitigated, Vulnerable),
        (cpu(A57, 0, 0), OLD, Exit::LoopAndFirmware(8, CALL_1), Mitigated, Mitigated, Mitigated),
        (cpu(A72, 0, 0), ALL, Exit::Firmware(CALL_3), Mitigated, Mitigated, Mitigated),
        // A later A72, which keeps targets apart.
        (cpu(A72, CSV2, 0), ALL, Exit::Loop(8), Unaffected, Mitigated, Mitigated),
        (cpu(A73, 0, 0), Firmware::NONE, Exit::Nothing, Vulnerable, Vulnerable, Vulnerable),
        (cpu(A73, 0, 0), OLD, Exit::Firmware(CALL_1), Mitigated, Vulnerable, Mitigated),
        (cpu(A75, CSV2, 0), ALL, Exit::Firmware(CALL_3), Unaffected, Mitigated, Mitigated),
        (cpu(N1, CSV2, SSBS), Firmware::NONE, Exit::Loop(24), Unaffected, Mitigated, Mitigated),
        (cpu(V1, CSV2, SSBS), Firmware::NONE, Exit::Loop(32), Unaffected, Mitigated, Mitigated),
        (cpu(A720, CSV2, SSBS), Firmware::NONE, Exit::Loop(38), Unaffected, Mitigated, Mitigated),
        (cpu(V2, CSV2, SSBS), Firmware::NONE, Exit::Loop(132), Unaffected, Mitigated, Mitigated),
        (cpu(V2, CSV2_3, SSBS), Firmware::NONE, Exit::Nothing, Unaffected, Unaffected, Mitigated),
        // Nobody has listed it: a loop is run, and not relied on.
        (cpu(TSV110, 0, 0), Firmware::NONE, Exit::Loop(32), Unaffected, Vulnerable, Vulnerable),
        (cpu(NOBODY, CSV2, SSBS), Firmware::NONE, Exit::Loop(32), Unaffected, Vulnerable, Mitigated),
        (cpu(NOBODY, CSV2_3, SSBS), Firmware::NONE, Exit::Nothing, Unaffected, Unaffected, Mitigated),
        (cpu(NOBODY, 0, 0), ALL, Exit::Firmware(CALL_3), Mitigated, Mitigated, Mitigated),
    ];
    for (cpu, firmware, exit, targets, history, bypass) in cases {
        let found = auto(cpu, firmware);
        let found = (found.exit, found.targets, found.history, found.bypass);
        assert_eq!(found, (exit, targets, history, bypass), "{:#x} {firmware:?}", cpu.midr);
    }
}

#[test]
fn hardware_that_clears_history_needs_no_loop() {
    let by_exception = Cpu { mmfr1: 1 << 60, ..cpu(A720, CSV2, SSBS) };
    assert_eq!(auto(by_exception, Firmware::NONE).exit, Exit::Nothing);
    assert_eq!(auto(by_exception, Firmware::NONE).history, Unaffected);
    let by_instruction = Cpu { isar2: 1 << 28, ..cpu(A720, CSV2, SSBS) };
    assert_eq!(auto(by_instruction, Firmware::NONE).exit, Exit::Clear);
    assert_eq!(auto(by_instruction, Firmware::NONE).history, Mitigated);
}

#[test]
fn firmware_that_says_no_is_believed_where_nobody_knows_better() {
    let says_no = Firmware { first: NotRequired, second: NotRequired, third: NotRequired };
    let decision = auto(cpu(NOBODY, 0, 0), says_no);
    assert_eq!((decision.exit, decision.is_remarkable()), (Exit::Nothing, false));
    // The loop is the core's own affair: old firmware does not know it.
    assert_eq!(auto(cpu(N1, CSV2, SSBS), says_no).exit, Exit::Loop(24));
}

#[test]
fn off_does_nothing_and_says_what_is_open() {
    let decision = decide(&cpu(A72, 0, 0), ALL, Choice::Off);
    assert_eq!((decision.exit, decision.stop_bypass), (Exit::Nothing, false));
    assert_eq!((decision.targets, decision.history, decision.bypass), (Vulnerable, Vulnerable, Vulnerable));
    assert_eq!(decision.answers(), Answers { first: -1, second: -1, third: -1 });
    assert_eq!(
        decision.to_string(),
        "nothing is done on exits; open to guests: branch targets, branch history, store bypass"
    );
    assert!(!decide(&cpu(A53, 0, 0), ALL, Choice::Off).is_remarkable());
}

#[test]
fn what_is_forced_is_done_and_judged() {
    let forced = |cpu: Cpu, firmware, choice| {
        let decision = decide(&cpu, firmware, choice);
        (decision.exit, decision.targets, decision.history)
    };
    let n1 = cpu(N1, CSV2, SSBS);
    assert_eq!(forced(n1, ALL, Choice::Loop(8)), (Exit::Loop(8), Unaffected, Vulnerable), "too short");
    assert_eq!(forced(n1, ALL, Choice::Loop(24)), (Exit::Loop(24), Unaffected, Mitigated));
    let safe = cpu(NOBODY, CSV2_3, SSBS);
    assert_eq!(forced(safe, ALL, Choice::Loop(8)), (Exit::Loop(8), Unaffected, Unaffected));
    assert_eq!(forced(safe, ALL, Choice::Firmware), (Exit::Firmware(CALL_3), Unaffected, Unaffected));
    assert_eq!(forced(safe, Firmware::NONE, Choice::Firmware), (Exit::Nothing, Unaffected, Unaffected));
    assert_eq!(
        forced(cpu(A72, 0, 0), OLD, Choice::Firmware),
        (Exit::Firmware(CALL_1), Mitigated, Vulnerable)
    );
}

#[test]
fn guests_are_told_the_truth() {
    let answers = |cpu, firmware| {
        let Answers { first, second, third } = auto(cpu, firmware).answers();
        (first, second, third)
    };
    assert_eq!(answers(cpu(A53, 0, 0), Firmware::NONE), (1, -2, 1));
    assert_eq!(answers(cpu(A57, 0, 0), Firmware::NONE), (-1, -1, 0));
    // Bypass is stopped for good: a guest need not ask for it.
    assert_eq!(answers(cpu(A72, 0, 0), ALL), (0, -2, 0));
    // With SSBS the guest has a bit of its own, and no call.
    assert_eq!(answers(cpu(N1, CSV2, SSBS), Firmware::NONE), (1, -1, 0));
}

#[test]
fn of_several_kinds_of_cpus_the_worst_counts() {
    let big = auto(cpu(A72, 0, 0), OLD).answers();
    let little = auto(cpu(A53, 0, 0), OLD).answers();
    assert_eq!(Answers::BEST.worst(little), little);
    assert_eq!(big.worst(little), big);
    let bare = auto(cpu(A57, 0, 0), Firmware::NONE).answers();
    assert_eq!(big.worst(bare), Answers { first: -1, second: -1, third: 0 });
    assert_eq!(bare.worst(big), big.worst(bare));
}

/// Firmware that answers from a table and notes what it was asked.
fn pretend(version: i32, smccc: i32, features: [i32; 3]) -> (Firmware, Vec<(u32, u32)>) {
    let mut asked = Vec::new();
    let firmware = Firmware::ask(|function, argument| {
        asked.push((function, argument));
        match (function, argument) {
            (0x8400_0000, _) => version,
            (0x8400_000a, 0x8000_0000) => {
                if smccc == 0 {
                    -1
                } else {
                    0
                }
            }
            (0x8000_0000, _) => smccc,
            (0x8000_0001, 0x8000_8000) => features[0],
            (0x8000_0001, 0x8000_7fff) => features[1],
            (0x8000_0001, 0x8000_3fff) => features[2],
            other => panic!("nobody may call {other:x?}"),
        }
    });
    (firmware, asked)
}

#[test]
fn firmware_is_asked_only_what_it_knows() {
    assert_eq!(pretend(0x1_0001, 0x1_0002, [0, 0, 0]).0, ALL);
    assert_eq!(pretend(0x1_0001, 0x1_0001, [0, 0, -1]).0, OLD);
    let (firmware, _) = pretend(0x1_0001, 0x1_0001, [1, -2, 1]);
    assert_eq!(firmware, Firmware { first: NotRequired, second: NotRequired, third: NotRequired });
    // Only the second workaround may say −2.
    assert_eq!(pretend(0x1_0001, 0x1_0001, [-2, -1, -2]).0, Firmware::NONE);
    // PSCI 0.2, PSCI 1.0 without SMCCC 1.1, and a version that is none.
    assert_eq!(pretend(2, 0, [0; 3]), (Firmware::NONE, vec![(0x8400_0000, 0)]));
    assert_eq!(pretend(0x1_0000, 0, [0; 3]).1.len(), 2);
    assert_eq!(pretend(0x1_0000, 0x1_0000, [0; 3]).1.len(), 3);
    assert_eq!(pretend(-1, 0, [0; 3]).1.len(), 1);
}

#[test]
fn bypass_is_stopped_by_one_call() {
    let mut asked = Vec::new();
    Firmware::stop_bypass(|function, argument| {
        asked.push((function, argument));
        0
    });
    assert_eq!(asked, [(0x8000_7fff, 1)]);
    assert!(auto(cpu(A72, 0, 0), ALL).stop_bypass);
    assert!(!auto(cpu(A53, 0, 0), ALL).stop_bypass);
    assert!(!auto(cpu(A72, 0, 0), Firmware::NONE).stop_bypass);
}

#[test]
fn decisions_are_said_in_a_sentence() {
    let said = |cpu, firmware| auto(cpu, firmware).to_string();
    assert_eq!(
        said(cpu(A57, 0, 0), Firmware::NONE),
        "a loop of 8 on each exit; open to guests: branch targets, store bypass"
    );
    assert_eq!(said(cpu(A57, 0, 0), OLD), "a loop of 8 and firmware call 0x80008000 on each exit");
    assert_eq!(said(cpu(A72, 0, 0), ALL), "firmware call 0x80003fff on each exit");
    assert_eq!(said(Cpu { isar2: 1 << 28, ..cpu(N1, CSV2, SSBS) }, ALL), "CLRBHB on each exit");
}

#[test]
fn the_last_word_of_the_command_line_counts() {
    assert_eq!(Choice::from_line(""), Choice::Auto);
    assert_eq!(Choice::from_line("link=framed mitigations=off"), Choice::Off);
    assert_eq!(Choice::from_line("mitigations=off mitigations=loop:24"), Choice::Loop(24));
    assert_eq!(Choice::from_word("mitigations=firmware"), Some(Choice::Firmware));
    assert_eq!(Choice::from_word("mitigations=auto"), Some(Choice::Auto));
    for none in ["mitigations", "mitigations=", "mitigations=loop", "mitigations=loop:", "mitigations=loop:0"]
    {
        assert_eq!(Choice::from_word(none), None, "{none}");
    }
    assert_eq!(
        [1024, 1025].map(|n| Choice::from_word(&format!("mitigations=loop:{n}"))),
        [Some(Choice::Loop(1024)), None]
    );
}
