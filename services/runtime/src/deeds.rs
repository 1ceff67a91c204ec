// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a service must not do, as functions that any program may call: each ends in the hypervisor, which stops the service, or
//! refuses.

#[cfg(target_os = "none")]
use turnstile_service::abi::REGISTERS;

/// Reads eight bytes at any address.
pub fn read(address: u64) -> u64 {
    // SAFETY: there is no state of the program that matters afterwards: it faults, or the value says what is there.
    unsafe { (address as *const u64).read_volatile() }
}

/// Writes eight bytes at any address.
pub fn write(address: u64, value: u64) {
    // SAFETY: the program has to expect that it changes itself; nobody else is to notice.
    unsafe { (address as *mut u64).write_volatile(value) };
}

/// Returns where a byte of the guest's is in the address space; zero if it is nowhere. That is no misdeed, but who misbehaves there has
/// to know it.
pub fn place(address: u64) -> u64 {
    crate::memory::GuestMemory::own().place(address).unwrap_or(0)
}

/// Makes any call.
#[cfg(target_os = "none")]
pub fn call(registers: [u64; REGISTERS]) -> u64 {
    crate::calls::raw(registers)
}

/// Makes any call.
#[cfg(not(target_os = "none"))]
pub fn call(_: [u64; 6]) -> u64 {
    0
}

/// Uses more stack than there is.
#[inline(never)]
pub fn overflow(depth: u64) -> u64 {
    let frame = core::hint::black_box([depth; 64]);
    if depth == u64::MAX { frame[0] } else { overflow(depth + 1) + core::hint::black_box(frame)[1] }
}

/// Returns where the code of this function is.
pub fn code() -> u64 {
    code as *const () as u64
}

/// Takes no end.
pub fn spin() -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Continues at any address.
pub fn jump(address: u64) {
    // SAFETY: as for `write`: whatever is executed there runs without privilege.
    unsafe {
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("blr {}", in(reg) address, clobber_abi("C"));
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("call {}", in(reg) address, clobber_abi("C"));
        #[cfg(target_arch = "powerpc64")]
        core::arch::asm!("mtctr {}", "bctrl", in(reg_nonzero) address, out("ctr") _, out("lr") _);
    }
}

/// Uses a stack that is somewhere else.
pub fn stack(address: u64) {
    // SAFETY: as for `write`. The stack pointer is what it was afterwards.
    unsafe {
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "mov {old}, sp", "mov sp, {new}", "str xzr, [sp, #-16]!", "mov sp, {old}",
            old = out(reg) _, new = in(reg) address
        );
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "mov {old}, rsp", "mov rsp, {new}", "push 0", "mov rsp, {old}",
            old = out(reg) _, new = in(reg) address
        );
        #[cfg(target_arch = "powerpc64")]
        core::arch::asm!(
            "mr {old}, 1", "mr 1, {new}", "stdu 1, -32(1)", "mr 1, {old}",
            old = out(reg) _, new = in(reg) address
        );
    }
}

/// Executes the instruction of this number among those that a service has no right to, or that are none; false if there is none.
pub fn instruction(number: u64) -> bool {
    number < INSTRUCTIONS.len() as u64 && {
        INSTRUCTIONS[number as usize]();
        true
    }
}

/// Executes the instruction of this number among those that show a service what it has of registers that are its guest's otherwise,
/// on `operand`; returns what it leaves there.
pub fn shown(number: u64, operand: u64) -> u64 {
    usize::try_from(number)
        .ok()
        .and_then(|number| SHOWN.get(number))
        .map_or(0, |instruction| instruction(operand))
}

/// Asks for vector registers. Returns zero if they have zeros, as they must. Then gives all of them this value, and the status registers others,
/// spins so often, and returns a bit in which they differ, if they do.
#[cfg(all(target_os = "none", target_arch = "powerpc64"))]
pub fn vectors(value: u64, spins: u64) -> u64 {
    /// VSR0 to VSR63, and FPSCR.
    type Image = [u64; 130];
    /// Moves all of them: the lower half of the registers by the first instruction, the upper half by the second. R3 = where.
    macro_rules! each {
        ($image:expr, $lower:literal, $upper:literal, $status:literal) => {
            core::arch::asm!(
                ".set vsr, 0",
                ".rept 32",
                concat!(".long ", $lower, " | vsr << 21 | vsr << 4"),
                concat!(".long ", $upper, " | vsr << 21 | (vsr + 32) << 4"),
                ".set vsr, vsr + 1",
                ".endr",
                $status,
                in("r3") $image
            )
        };
    }
    let found = || {
        let mut image: Image = [0; 130];
        // SAFETY: STXV and STFD into the image, which is as large. VSR0 has been stored when FPSCR goes through it, and is as it was.
        unsafe {
            each!(&raw mut image, "0xf4030005", "0xf403000d", "mffs 0\nstfd 0, 1024(3)\nlxv 0, 0(3)");
        }
        image
    };
    crate::calls::raw([turnstile_service::abi::VECTORS, 0, 0, 0, 0, 0]);
    if found() != [0; 130] {
        return 1;
    }
    let mut image = [value; 130];
    // Rounding, of all that it says.
    (image[128], image[129]) = (3, 0);
    // SAFETY: LFD and LXV from the image. The compiler has nothing in these registers.
    unsafe {
        core::arch::asm!("lfd 0, 1024(3)", "mtfsf 255, 0, 1, 0", in("r3") &raw const image);
        each!(&raw const image, "0xf4030001", "0xf4030009", "");
    }
    (0..spins).for_each(|spin| {
        core::hint::black_box(spin);
    });
    u64::from(found() != image) << 1
}

/// Asks for vector registers, which no other architecture gives: what it finds is zero.
#[cfg(not(all(target_os = "none", target_arch = "powerpc64")))]
pub fn vectors(_: u64, _: u64) -> u64 {
    0
}

/// Makes a function of each instruction. The operands are registers that it may change.
macro_rules! instructions {
    ($operands:tt $($text:literal),* $(,)?) => {
        &[$(|| {
            // SAFETY: as for `write`.
            unsafe { instructions!(@one $text, $operands) }
        }),*]
    };
    (@one $text:literal, ($($operands:tt)*)) => { core::arch::asm!($text, $($operands)*) };
}

/// Makes a function of each instruction on x9.
#[cfg(target_arch = "aarch64")]
macro_rules! shown {
    ($($text:literal),*) => {
        &[$(|operand: u64| {
            let mut value = operand;
            // SAFETY: as for `write`.
            unsafe { core::arch::asm!($text, inout("x9") value) };
            value
        }),*]
    };
}

/// None of these is a service's, whatever its guest has opened to EL0. Among the last: SW_INCR, timers, the debug communications
/// channel, FPCR, SMSTART, TPIDR2_EL0.
#[cfg(target_arch = "aarch64")]
#[rustfmt::skip]
const INSTRUCTIONS: &[fn()] = instructions![
    (out("x9") _, out("x10") _)
    "udf #0", "brk #0", "hvc #0", "smc #0", "hlt #0", "wfi", "eret", ".inst 0x9e6703e0", "msr daifset, #15", "msr daifclr, #15",
    "mrs x9, midr_el1", "mrs x9, currentel", "mrs x9, sctlr_el1", "msr sctlr_el1, x9", "msr vbar_el1, x9",
    "msr ttbr0_el1, x9", "msr hcr_el2, x9", "msr vttbr_el2, x9", "mrs x9, cntvct_el0", "mrs x9, cntpct_el0",
    "msr cntv_ctl_el0, x9", "msr cntp_cval_el0, x9", "mrs x9, pmccntr_el0", "msr pmcr_el0, x9", "mrs x9, ctr_el0",
    "mov x9, #0\ndc zva, x9", "mov x9, #0\ndc civac, x9", "mov x9, #0\nic ivau, x9",
    "mov x9, #0\ndc isw, x9", "ic ialluis", "tlbi vmalle1is", "mov x9, #0\nat s1e1r, x9", "mrs x9, mdscr_el1",
    "msr dbgbcr0_el1, x9", "mrs x9, icc_iar1_el1", "msr icc_eoir1_el1, x9", "msr icc_sgi1r_el1, x9",
    "msr icc_pmr_el1, x9", "msr spsel, #0", ".inst 0xffffffff", ".inst 0x04bf5000", "msr pmswinc_el0, x9",
    "mrs x9, cntv_tval_el0", "mrs x9, cntp_ctl_el0", "mrs x9, mdccsr_el0", "msr dbgdtrtx_el0, x9", ".inst 0xd51b4409",
    ".inst 0xd503477f", ".inst 0xd53bd0a9",
];
/// TPIDR_EL0, TPIDRRO_EL0, PACGA, then what changes what the service has: flags, its thread register; a call that is none.
#[cfg(target_arch = "aarch64")]
const SHOWN: &[fn(u64) -> u64] = shown![
    "mrs x9, tpidr_el0",
    "mrs x9, tpidrro_el0",
    ".inst 0x9ac93129",
    "msr nzcv, x9",
    "msr tpidr_el0, x9",
    "svc #1",
    "wfe",
    "mrs x9, dczid_el0"
];
#[cfg(not(target_arch = "aarch64"))]
const SHOWN: &[fn(u64) -> u64] = &[];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const INSTRUCTIONS: &[fn()] = instructions![
    (inout("rax") 0_u64 => _, inout("rcx") 0_u64 => _, inout("rdx") 0_u64 => _)
    "ud2", "int3", "int 0x80", "int 0x20", ".byte 0xf1", "syscall", "sysenter", "hlt", "cli", "sti", "popfq", "iretq",
    "vmrun", "vmload", "vmsave", "stgi", "clgi", "skinit", "invlpga", "vmcall", "monitor", "mwait", "pause", "cpuid",
    "rdtsc", "rdtscp", "rdpmc", "rdmsr", "wrmsr", "xgetbv", "xsetbv", "in al, 0x71", "out 0x70, al", "in al, dx",
    "mov dx, 0xcf8\nin eax, dx", "mov rax, cr0", "mov cr0, rax", "mov rax, cr3", "mov cr3, rax", "mov cr8, rax",
    "mov rax, dr7", "mov dr7, rax", "lgdt [rsp]", "lidt [rsp]", "lldt ax", "ltr ax", "sgdt [rsp - 64]", "sidt [rsp - 64]",
    "str ax", "sldt ax", "smsw ax", "lmsw ax", "mov ds, ax", "mov ss, ax", "mov fs, ax", "mov gs, ax", "swapgs",
    "mov eax, 7\nmov fs, eax", "mov eax, 0xf\nmov gs, eax", "mov eax, 0x10\nmov fs, eax", "push 0xf\npush rax\nretfq", "push 0x17\npush rax\nretfq",
    "fwait", "rdpid rax", "rdpkru", "wrpkru", ".byte 0xf3, 0x48, 0x0f, 0x1e, 0xc8", "mwaitx", "clzero", "rdpru", "mov rax, dr0", "mov dr0, rax",
    "rdfsbase rax", "wrgsbase rax", "invlpg [rsp]", "invd", "wbinvd", "clts", "fninit", "fld1", "xorps xmm0, xmm0",
    "movq mm0, rax", "emms", "vzeroupper", "xsave [rsp - 640]", "fxsave [rsp - 640]", "sysret", "clflush [rsp]",
    "rdrand rax", "stac", "clac",
];

#[cfg(target_arch = "powerpc64")]
#[rustfmt::skip]
const INSTRUCTIONS: &[fn()] = instructions![
    (out("r9") _, out("r10") _)
    ".long 0", "trap", "sc 0", "sc 2", ".long 0x44000001", ".long 0x00000200", "rfid", "hrfid", ".long 0x4c000364",
    ".long 0x4c0002e4", "wait", "mfmsr 9", "mtmsrd 9", "mfspr 9, 318", "mtspr 318, 9", "mfspr 9, 304", "mtspr 304, 9",
    "mfspr 9, 22", "mtspr 22, 9", "mtspr 26, 9", "mtspr 272, 9", "mfspr 9, 272", "mfspr 9, 259", "mfspr 9, 268", "mtspr 284, 9",
    "mfspr 9, 13", "mtspr 13, 9", "mfspr 9, 29", "mtspr 29, 9", "mtspr 48, 9", "mfspr 9, 190", "mtspr 190, 9",
    "mfspr 9, 804", "mtspr 806, 9", "mfspr 9, 776", "mtspr 779, 9", "mfspr 9, 896", "mtspr 896, 9", "mfspr 9, 256", "mtspr 256, 9",
    "mfspr 9, 3", "mtspr 3, 9", "mfspr 9, 815", "mtspr 815, 9", "tlbie 9, 9", "slbia", "slbmfee 9, 9", "tlbsync",
    ".long 0x7c00499c", ".long 0x7c00491c", ".long 0x7c0049dc", "icbi 0, 9", "dcbz 0, 9", ".long 0xfc00002a", ".long 0x10000484",
    ".long 0xf0000497", ".long 0x7c00051d", ".long 0x7c0005dc", "mfspr 9, 128", ".long 0x44000001", ".long 0x4c0000a4", ".long 0x4c0002e4",
    ".long 0x7d2005e6", ".long 0x7c20060c",
];
