// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Special-purpose registers, one zero-sized value each, with `read` and `write`.
//!
//! On the bare machine an access is one `mfspr` or `mtspr`. Everywhere else it goes to a [`fakes`] recorder, so that host
//! tests run the exit handlers unchanged and assert exactly which registers they touched.
//!
//! Writing such a register can break memory safety, so `write` is `unsafe` everywhere.

mod bits;

#[cfg(not(target_os = "none"))]
pub use turnstile_arch_common::fakes;
use turnstile_arch_common::registers;

pub use bits::{hfscr, lpcr, msr};

/// Reads a register.
#[cfg(target_os = "none")]
macro_rules! mfspr {
    ($number:literal) => {{
        let value: u64;
        // SAFETY: reading changes nothing. Not `pure`, because hardware changes these registers.
        unsafe {
            core::arch::asm!(
                "mfspr {}, {number}", out(reg) value, number = const $number, options(nomem, nostack, preserves_flags)
            );
        }
        value
    }};
}

/// Writes a register. It may order with memory accesses, so it is not `nomem`.
#[cfg(target_os = "none")]
macro_rules! mtspr {
    ($value:expr, $number:literal) => {
        core::arch::asm!("mtspr {number}, {}", in(reg) $value, number = const $number, options(nostack, preserves_flags))
    };
}

macro_rules! sprs {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        registers! { mfspr, mtspr: $($(#[$doc])* $name = $number;)* }

        $(impl $name {
            /// The register's number.
            pub const NUMBER: u32 = $number;

            /// Says whether the CPU has the register: reading one that it has not changes nothing (Power ISA 3.0B Book III,
            /// 4.4.4, LPCR.EVIRT is 0). In hypervisor state, at boot.
            pub fn exists(self) -> bool {
                #[cfg(target_os = "none")]
                {
                    let (mut zeros, mut ones) = (0u64, u64::MAX);
                    // SAFETY: as for `read`.
                    unsafe {
                        core::arch::asm!(
                            "mfspr {}, {number}", "mfspr {}, {number}", inout(reg) zeros, inout(reg) ones,
                            number = const $number, options(nomem, nostack, preserves_flags)
                        );
                    }
                    (zeros, ones) != (0, u64::MAX)
                }
                #[cfg(not(target_os = "none"))]
                {
                    fakes::get(concat!("has ", stringify!($name))) != 0
                }
            }
        })*
    };
}

// Power ISA 3.0B Book III, 5.4.4 (table of SPRs) and the sections named there.
sprs! {
    /// Fixed-point exception register.
    XER = 1;
    /// Data stream control.
    DSCR = 17;
    /// Link register.
    LR = 8;
    /// Count register.
    CTR = 9;
    /// Authority mask, as a guest's kernel writes it.
    AMR = 29;
    /// Data storage interrupt status.
    DSISR = 18;
    /// Address of a data storage interrupt.
    DAR = 19;
    /// Decrementer.
    DEC = 22;
    /// Where an interrupt goes back to.
    SRR0 = 26;
    /// The machine state to which an interrupt goes back.
    SRR1 = 27;
    /// Come-from address.
    CFAR = 28;
    /// Process ID.
    PIDR = 48;
    /// Instruction authority mask override.
    IAMR = 61;
    /// Transaction's failure handler.
    TFHAR = 128;
    /// Transaction's failure instruction.
    TFIAR = 129;
    /// Transaction's status.
    TEXASR = 130;
    /// Control register: the run latch.
    CTRL = 136;
    /// Writes the control register.
    CTRLW = 152;
    /// Facility status and control.
    FSCR = 153;
    /// User authority mask override.
    UAMOR = 157;
    /// Program priority, 32 bits.
    PPR32 = 898;
    /// Completed instruction address breakpoint.
    CIABR = 187;
    /// Hypervisor facility status and control.
    HFSCR = 190;
    /// Vector registers in use.
    VRSAVE = 256;
    /// Time base, reading.
    TB = 268;
    /// A register for the operating system.
    SPRG0 = 272;
    /// A register for the operating system.
    SPRG1 = 273;
    /// A register for the operating system.
    SPRG2 = 274;
    /// A register for the operating system, which problem state reads.
    SPRG3 = 275;
    /// Time base, the lower half, writing.
    TBL = 284;
    /// Time base, the upper half, writing.
    TBU = 285;
    /// Time base's upper 40 bits, writing.
    TBU40 = 286;
    /// Processor version.
    PVR = 287;
    /// A register for the hypervisor: the area of this CPU.
    HSPRG0 = 304;
    /// A register for the hypervisor.
    HSPRG1 = 305;
    /// Status of a hypervisor data storage interrupt.
    HDSISR = 306;
    /// Address of a hypervisor data storage interrupt.
    HDAR = 307;
    /// Scaled processor use.
    SPURR = 308;
    /// Processor use.
    PURR = 309;
    /// Hypervisor decrementer.
    HDEC = 310;
    /// Hypervisor real mode offset.
    HRMOR = 313;
    /// Where a hypervisor interrupt goes back to.
    HSRR0 = 314;
    /// The machine state to which a hypervisor interrupt goes back.
    HSRR1 = 315;
    /// Hypervisor maintenance: what happened.
    HMER = 336;
    /// Hypervisor maintenance: what interrupts.
    HMEER = 337;
    /// Logical partition control.
    LPCR = 318;
    /// Logical partition ID.
    LPIDR = 319;
    /// The instruction that caused a hypervisor emulation assistance interrupt.
    HEIR = 339;
    /// Authority mask that an operating system may write.
    AMOR = 349;
    /// Problem state priority boost.
    PSPB = 159;
    /// Processor compatibility: what of later architectures is off.
    PCR = 338;
    /// Performance monitor: sampled event.
    SIER = 784;
    /// Thread ID.
    TIDR = 144;
    /// Doorbells of the same core that are pending for a guest.
    DPDES = 176;
    /// Data watchpoint address.
    DAWR0 = 180;
    /// Data watchpoint control.
    DAWRX0 = 188;
    /// Real page number control: what is read as real.
    RPR = 186;
    /// Partition table.
    PTCR = 464;
    /// Address space ID of large transactions: the guest's real address of a hypervisor storage interrupt.
    ASDR = 816;
    /// Performance monitor: control 2.
    MMCR2 = 785;
    /// Performance monitor: control A.
    MMCRA = 786;
    /// Performance monitor: counter 1.
    PMC1 = 787;
    /// Performance monitor: counter 2.
    PMC2 = 788;
    /// Performance monitor: counter 3.
    PMC3 = 789;
    /// Performance monitor: counter 4.
    PMC4 = 790;
    /// Performance monitor: counter 5.
    PMC5 = 791;
    /// Performance monitor: counter 6.
    PMC6 = 792;
    /// Performance monitor: control 0.
    MMCR0 = 795;
    /// Performance monitor: sampled instruction.
    SIAR = 796;
    /// Performance monitor: sampled data.
    SDAR = 797;
    /// Performance monitor: control 1.
    MMCR1 = 798;
    /// Event-based branches: their handler.
    EBBHR = 804;
    /// Event-based branches: where they go back to.
    EBBRR = 805;
    /// Event-based branches: control.
    BESCR = 806;
    /// Target address.
    TAR = 815;
    /// Instruction counter.
    IC = 848;
    /// Virtual time base.
    VTB = 849;
    /// Power-saving mode, as the hypervisor writes it.
    PSSCR = 855;
    /// Machine-check status and address.
    MMCRC = 851;
    /// Program priority.
    PPR = 896;
    /// Hardware implementation: byte order of hypervisor interrupts, radix.
    HID0 = 1008;
    /// This thread's number in the machine.
    PIR = 1023;
}

// Not of every CPU: Power ISA 3.0B has the first two, Power ISA 3.1 the others (Book III, 4.4.4 and the sections named there).
sprs! {
    /// Power-saving mode, as a guest's operating system writes it.
    PSSCRPR = 823;
    /// Key of the hashes by which problem state guards return addresses.
    HASHKEYR = 468;
    /// The same of privileged state; the hypervisor's to set.
    HASHPKEYR = 469;
    /// Dynamic execution control.
    DEXCR = 828;
    /// Performance monitor: control 3.
    MMCR3 = 754;
    /// Performance monitor: sampled event 2.
    SIER2 = 752;
    /// Performance monitor: sampled event 3.
    SIER3 = 753;
}

// What QEMU 10.0 lets a guest write, and keeps apart from everything else, though the architecture has another name for the
// same register, gives it to the hypervisor alone, or has it no more.
sprs! {
    /// External access.
    EAR = 282;
    /// Another name of [`SIER2`].
    USIER2 = 736;
    /// Another name of [`SIER3`].
    USIER3 = 737;
    /// Another name of [`MMCR3`].
    UMMCR3 = 738;
    /// Another name of [`SIER`].
    USIER = 768;
    /// Sets bits of [`BESCR`].
    BESCRS = 800;
    /// Clears bits of [`BESCR`].
    BESCRR = 802;
    /// Weights of threads.
    RWMR = 885;
    /// POWER8's thread activity control.
    TACR = 888;
    /// POWER8's thread context switch control.
    TCSCR = 889;
    /// POWER8's coprocessor signature.
    CSIGR = 890;
    /// POWER8's supervisor counter 1.
    SPMC1 = 892;
    /// POWER8's supervisor counter 2.
    SPMC2 = 893;
    /// POWER8's supervisor monitor control.
    MMCRS = 894;
    /// POWER8's workload optimization register.
    WORT = 895;
}
