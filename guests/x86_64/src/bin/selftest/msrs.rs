// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Model-specific registers that systems rely on (AMD APM vol. 2, appendix A).

use turnstile_guests_x86_64::cpu::{self, msr};
use turnstile_guests_x86_64::exception::vector;
use turnstile_guests_x86_64::state::xsave;
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{check, check_eq, read_control, skip, timer, trap};

pub const TESTS: &[Test] = &[
    Test { name: "msr-keep", run: keep },
    Test { name: "msr-efer", run: efer },
    Test { name: "msr-svm", run: svm },
    Test { name: "msr-pat", run: pat },
    Test { name: "msr-unknown", run: unknown },
    Test { name: "msr-tsc", run: tsc },
    Test { name: "msr-counters", run: counters },
    Test { name: "msr-xsetbv", run: xsetbv },
    Test { name: "msr-speculation", run: speculation },
];

fn is_gp(trap: Option<trap::Trap>) -> bool {
    trap.is_some_and(|trap| trap.vector == vector::GP && trap.error == 0)
}

/// Those of system calls and segment bases.
fn keep() -> Outcome {
    for (number, value) in [
        (0xc000_0081, 0x0023_0010_dead_beef),
        (0xc000_0082, 0xffff_8000_1234_5678),
        (0xc000_0083, 0x0000_7fff_1234_5678),
        (0xc000_0084, 0x0004_7700),
        (msr::FS_BASE, 0xffff_8123_4567_89ab),
        (msr::KERNEL_GS_BASE, 0x0000_1234_5678_9abc),
        (0x174, 0x10),
        (0x175, 0x1234_5678),
        (0x176, 0x2345_6789),
    ] {
        let before = cpu::read_msr(number);
        cpu::write_msr(number, value);
        cpu::cpuid(0, 0);
        let read = cpu::read_msr(number);
        cpu::write_msr(number, before);
        check_eq!(read, value, "register {number:#x}");
    }
    Ok(())
}

fn efer() -> Outcome {
    const LME: u64 = 1 << 8;
    const LMA: u64 = 1 << 10;
    let efer = cpu::read_msr(msr::EFER);
    check!(efer & (LME | LMA) == LME | LMA, "EFER is {efer:#x}");
    for bit in [1, 1 << 11] {
        cpu::write_msr(msr::EFER, efer | bit);
        check_eq!(cpu::read_msr(msr::EFER), efer | bit, "EFER");
    }
    cpu::write_msr(msr::EFER, efer);
    check_eq!(cpu::read_msr(msr::EFER), efer, "EFER");
    if crate::is_bare() {
        return Ok(());
    }
    check!(is_gp(trap::caught(|| cpu::write_msr(msr::EFER, efer & !LME))), "LME can be cleared with paging");
    check!(is_gp(trap::caught(|| cpu::write_msr(msr::EFER, efer | 1 << 1))), "reserved bits can be set");
    Ok(())
}

/// There is no SVM: not its enable bit, not its registers.
fn svm() -> Outcome {
    if crate::is_bare() {
        skip!("the machine has SVM");
    }
    let efer = cpu::read_msr(msr::EFER);
    check!(efer & 1 << 12 == 0, "EFER is {efer:#x}");
    check!(is_gp(trap::caught(|| cpu::write_msr(msr::EFER, efer | 1 << 12))), "EFER.SVME can be set");
    check!(is_gp(trap::caught(|| _ = cpu::read_msr(0xc001_0117))), "VM_HSAVE_PA can be read");
    check!(is_gp(trap::caught(|| cpu::write_msr(0xc001_0117, 0x1000))), "VM_HSAVE_PA can be written");
    // SAFETY: each is an invalid instruction here.
    unsafe {
        use core::arch::asm;
        for (name, trap) in [
            ("VMRUN", trap::caught(|| asm!("vmrun", in("rax") 0))),
            ("VMLOAD", trap::caught(|| asm!("vmload", in("rax") 0))),
            ("VMSAVE", trap::caught(|| asm!("vmsave", in("rax") 0))),
            ("STGI", trap::caught(|| asm!("stgi"))),
            ("CLGI", trap::caught(|| asm!("clgi"))),
            ("SKINIT", trap::caught(|| asm!("skinit", in("eax") 0))),
            ("INVLPGA", trap::caught(|| asm!("invlpga", in("rax") 0, in("ecx") 0))),
        ] {
            check!(trap.is_some_and(|trap| trap.vector == vector::UD), "{name} is no #UD");
        }
    }
    Ok(())
}

fn pat() -> Outcome {
    let before = cpu::read_msr(msr::PAT);
    cpu::write_msr(msr::PAT, 0x0605_0401_0007_0406);
    let read = cpu::read_msr(msr::PAT);
    cpu::write_msr(msr::PAT, before);
    check_eq!(read, 0x0605_0401_0007_0406, "PAT");
    if !crate::is_bare() {
        check!(is_gp(trap::caught(|| cpu::write_msr(msr::PAT, 2))), "PAT takes a reserved kind");
    }
    Ok(())
}

fn unknown() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU has all registers");
    }
    for number in
        [0x1f00, 0x4000_0000, 0x4b56_4d7f, 0x8000_0000, 0xc000_1fff, 0xc001_1fff, 0xdead_beef, u32::MAX]
    {
        check!(is_gp(trap::caught(|| _ = cpu::read_msr(number))), "register {number:#x} can be read");
        check!(is_gp(trap::caught(|| cpu::write_msr(number, 0))), "register {number:#x} can be written");
    }
    Ok(())
}

fn tsc() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU's register is zero");
    }
    let (read, now) = (cpu::read_msr(msr::TSC), timer::now());
    check!(now >= read && now - read < timer::ticks(10_000), "the register says {read:#x}, RDTSC {now:#x}");
    Ok(())
}

/// The performance counters that every AMD processor has: without a performance monitor they stay at zero.
fn counters() -> Outcome {
    for number in 0xc001_0000..0xc001_0008 {
        let trap = trap::caught(|| {
            cpu::write_msr(number, 0);
            _ = cpu::read_msr(number);
        });
        check!(trap.is_none(), "register {number:#x} is not there");
        check_eq!(cpu::read_msr(number), 0, "register {number:#x}");
    }
    Ok(())
}

/// Without CR4.OSXSAVE there is no XCR0.
fn xsetbv() -> Outcome {
    if read_control!("cr4") & 1 << 18 != 0 {
        skip!("CR4.OSXSAVE is set");
    }
    let trap = trap::caught(|| xsave::set_xcr0(1));
    check!(trap.is_some_and(|trap| trap.vector == vector::UD), "XSETBV is no #UD");
    Ok(())
}

/// SPEC_CTRL keeps the bits that CPUID offers, over exits, and takes no others; PRED_CMD is written only.
fn speculation() -> Outcome {
    const SPEC_CTRL: u32 = 0x48;
    const PRED_CMD: u32 = 0x49;
    if crate::is_bare() {
        skip!("QEMU has all registers");
    }
    let [_, ebx, ..] = cpu::cpuid(0x8000_0008, 0);
    // IBRS, STIBP, SSBD, PSFD.
    let offered = [(14, 0), (15, 1), (24, 2), (28, 7)]
        .iter()
        .filter(|(bit, _)| ebx >> bit & 1 != 0)
        .fold(0_u64, |all, (_, bit)| all | 1 << bit);
    if ebx >> 12 & 1 != 0 {
        cpu::write_msr(PRED_CMD, 1);
    }
    check!(is_gp(trap::caught(|| _ = cpu::read_msr(PRED_CMD))), "PRED_CMD can be read");
    check!(is_gp(trap::caught(|| cpu::write_msr(PRED_CMD, 2))), "PRED_CMD takes what it has not");
    if offered == 0 {
        check!(is_gp(trap::caught(|| _ = cpu::read_msr(SPEC_CTRL))), "SPEC_CTRL can be read");
        check!(is_gp(trap::caught(|| cpu::write_msr(SPEC_CTRL, 0))), "SPEC_CTRL can be written");
        return Ok(());
    }
    check_eq!(cpu::read_msr(SPEC_CTRL), 0, "SPEC_CTRL at first");
    cpu::write_msr(SPEC_CTRL, offered);
    cpu::cpuid(0, 0);
    check_eq!(cpu::read_msr(SPEC_CTRL), offered, "SPEC_CTRL");
    check!(is_gp(trap::caught(|| cpu::write_msr(SPEC_CTRL, 1 << 40))), "SPEC_CTRL takes reserved bits");
    cpu::write_msr(SPEC_CTRL, 0);
    check_eq!(cpu::read_msr(SPEC_CTRL), 0, "SPEC_CTRL");
    Ok(())
}
