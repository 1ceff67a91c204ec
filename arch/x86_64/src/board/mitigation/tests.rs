// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a CPU writes when it starts, on the host, and what guests may do then.

use std::vec::Vec;

use super::*;
use crate::cpu::regs::fakes::{self, Access};

/// Zen 2 with current microcode: IBPB, IBRS, STIBP, SSBD.
pub(crate) const ZEN2: Cpu = Cpu { extended_8_ebx: 1 << 12 | 1 << 14 | 1 << 15 | 1 << 24, ..of(0x17) };
/// Zen 5: also STIBP always on, BTC_NO; LFENCE, Automatic IBRS, SBPB, IBPB_BRTYPE, SRSO_MSR_FIX; SPEC_CTRL virtualized.
pub(crate) const ZEN5: Cpu = Cpu {
    extended_8_ebx: ZEN2.extended_8_ebx | 1 << 17 | 1 << 29,
    extended_21_eax: 1 << 2 | 1 << 8 | 1 << 27 | 1 << 28 | 1 << 31,
    svm_edx: 1 << 20,
    ..of(0x1a)
};
/// QEMU's usual one.
pub(crate) const EMULATED: Cpu = of(6);

const fn of(family: u32) -> Cpu {
    Cpu {
        foreign: false,
        family,
        model: 0,
        virtualized: false,
        leaf_7_edx: 0,
        extended_8_ebx: 0,
        svm_edx: 0,
        extended_21_eax: 0,
        extended_21_ecx: 0,
    }
}

fn written(registers: &Cpu, choice: Choice) -> Vec<Access> {
    fakes::reset();
    pretend(registers, choice);
    fakes::take_log().into_iter().filter(|access| matches!(access, Access::Write(..))).collect()
}

#[test]
fn a_cpu_writes_what_is_decided_once() {
    use Access::Write;
    assert_eq!(written(&EMULATED, Choice::Auto), []);
    assert_eq!(written(&of(0x17), Choice::Auto), [Write("DE_CFG", 2), Write("LS_CFG", 1 << 10)]);
    assert_eq!(written(&ZEN2, Choice::Auto), [Write("DE_CFG", 2), Write("SPEC_CTRL", 4)]);
    assert_eq!(
        written(&ZEN5, Choice::Auto),
        [Write("BP_CFG", 1 << 4), Write("EFER", 1 << 21), Write("SPEC_CTRL", 6)]
    );
    let told = Cpu { virtualized: true, extended_8_ebx: 1 << 25, ..of(0x17) };
    assert_eq!(written(&told, Choice::Auto), [Write("VIRT_SPEC_CTRL", 4)]);
    assert_eq!(written(&ZEN5, Choice::Off), [Write("SPEC_CTRL", 0)], "whatever firmware has left there");
}

#[test]
fn what_is_there_stays() {
    fakes::reset();
    fakes::set("DE_CFG", 0x200);
    fakes::set("LS_CFG", 0x8000);
    pretend(&of(0x17), Choice::Auto);
    assert_eq!((fakes::get("DE_CFG"), fakes::get("LS_CFG")), (0x202, 0x8400));
}

#[test]
fn the_machine_does_what_its_cpus_need() {
    pretend(&ZEN2, Choice::Auto);
    assert_eq!(exit(), Exit { barrier: true, fill: true, switch: true, clear: false });
    assert_eq!((host_spec_ctrl(), offer().spec_ctrl()), (4, 7));
    pretend(&EMULATED, Choice::Auto);
    assert_eq!((exit(), host_spec_ctrl(), offer()), (Exit::NOTHING, 0, Offer::default()));
}
