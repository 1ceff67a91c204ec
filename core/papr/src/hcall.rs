// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The numbers of hypervisor calls (LoPAPR 14.5.1, table "Hypervisor Call (hcall) Function Token Values"; those of XIVE, radix
//! translation and the firmware as Linux and QEMU have them).

use turnstile_trapmap::HcallMap;

macro_rules! calls {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)+) => {
        /// A call that is carried out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Hcall {
            /// None of them: the answer is [`Code::FUNCTION`](crate::code::Code::FUNCTION).
            Unknown,
            $($(#[$doc])* $variant,)+
        }

        impl Hcall {
            /// Every call that is carried out.
            pub const ALL: &'static [Hcall] = &[$(Hcall::$variant),+];

            /// Returns the call's number, which a guest has in R3; `None` of the unknown.
            #[must_use]
            pub const fn number(self) -> Option<u64> {
                match self {
                    Hcall::Unknown => None,
                    $(Hcall::$variant => Some($number),)+
                }
            }

            /// Returns the call's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    Hcall::Unknown => "unknown",
                    $(Hcall::$variant => $name,)+
                }
            }
        }

        /// All of them, whether their numbers are dense or not.
        const CALLS: &[(u64, Hcall)] = &[$(($number, Hcall::$variant)),+];
    };
}

calls! {
    /// Sets SPRG0.
    SetSprg0 = 0x24, "H_SET_SPRG0";
    /// Clears or copies a page.
    PageInit = 0x2c, "H_PAGE_INIT";
    /// Takes typed characters.
    GetTermChar = 0x54, "H_GET_TERM_CHAR";
    /// Writes characters.
    PutTermChar = 0x58, "H_PUT_TERM_CHAR";
    /// XICS: ends an interrupt.
    Eoi = 0x64, "H_EOI";
    /// XICS: sets the processor's priority.
    Cppr = 0x68, "H_CPPR";
    /// XICS: interrupts a vCPU.
    Ipi = 0x6c, "H_IPI";
    /// XICS: reads what would be accepted.
    Ipoll = 0x70, "H_IPOLL";
    /// XICS: accepts an interrupt.
    Xirr = 0x74, "H_XIRR";
    /// Tells of areas shared with the hypervisor.
    RegisterVpa = 0xdc, "H_REGISTER_VPA";
    /// Waits for an interrupt or a prod.
    Cede = 0xe0, "H_CEDE";
    /// Gives time to another vCPU.
    Confer = 0xe4, "H_CONFER";
    /// Wakes a vCPU.
    Prod = 0xe8, "H_PROD";
    /// What the processor does against side channels.
    GetCpuCharacteristics = 0x1c8, "H_GET_CPU_CHARACTERISTICS";
    /// XICS: accepts an interrupt, with a time stamp.
    XirrX = 0x2fc, "H_XIRR_X";
    /// A random number.
    Random = 0x300, "H_RANDOM";
    /// Sets modes of a vCPU or of all.
    SetMode = 0x31c, "H_SET_MODE";
    /// Tells where the process table is.
    RegisterProcTbl = 0x37c, "H_REGISTER_PROC_TBL";
    /// Interrupts vCPUs as a reset does.
    SignalSysReset = 0x380, "H_SIGNAL_SYS_RESET";
    /// XIVE: where a source's event state buffer is.
    IntGetSourceInfo = 0x3a8, "H_INT_GET_SOURCE_INFO";
    /// XIVE: routes a source.
    IntSetSourceConfig = 0x3ac, "H_INT_SET_SOURCE_CONFIG";
    /// XIVE: reads where a source goes.
    IntGetSourceConfig = 0x3b0, "H_INT_GET_SOURCE_CONFIG";
    /// XIVE: where a queue is notified.
    IntGetQueueInfo = 0x3b4, "H_INT_GET_QUEUE_INFO";
    /// XIVE: places a queue.
    IntSetQueueConfig = 0x3b8, "H_INT_SET_QUEUE_CONFIG";
    /// XIVE: reads where a queue is.
    IntGetQueueConfig = 0x3bc, "H_INT_GET_QUEUE_CONFIG";
    /// XIVE: the reporting line of the operating system.
    IntSetOsReportingLine = 0x3c0, "H_INT_SET_OS_REPORTING_LINE";
    /// XIVE: reads that.
    IntGetOsReportingLine = 0x3c4, "H_INT_GET_OS_REPORTING_LINE";
    /// XIVE: accesses an event state buffer.
    IntEsb = 0x3c8, "H_INT_ESB";
    /// XIVE: waits until what was written to a queue can be seen.
    IntSync = 0x3cc, "H_INT_SYNC";
    /// XIVE: forgets all configuration.
    IntReset = 0x3d0, "H_INT_RESET";
    /// The firmware: R4 is the address of the arguments.
    Rtas = 0xf000, "H_RTAS";
}

/// The numbers of the table: all that PAPR has given out, rounded up.
const DENSE: usize = 0x480 / 4;

static MAP: HcallMap<Hcall, DENSE> = HcallMap::new(Hcall::Unknown, CALLS);

impl Hcall {
    /// Returns the call of this number. HOT: one load.
    #[inline(always)] // The dispatch of every call.
    #[must_use]
    pub fn of(number: u64) -> Hcall {
        MAP.lookup(number)
    }

    /// As [`Hcall::of`], with the numbers that are far from the others.
    #[must_use]
    pub fn of_any(number: u64) -> Hcall {
        if Some(number) == Hcall::Rtas.number() { Hcall::Rtas } else { Hcall::of(number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_their_calls() {
        for &(number, call) in CALLS {
            assert_eq!(Hcall::of_any(number), call, "{number:#x}");
            assert_eq!(call.number(), Some(number));
            for not in [1, 2, 3, 1 << 32, 1 << 63] {
                assert_eq!(Hcall::of_any(number | not), Hcall::Unknown, "{:#x}", number | not);
            }
        }
        assert_eq!(Hcall::of(0xf000), Hcall::Unknown, "it is no part of the table");
    }

    #[test]
    fn all_other_numbers_are_unknown() {
        let known: Vec<u64> = CALLS.iter().map(|(number, _)| *number).collect();
        for number in (0..0x2_0000).chain([u64::MAX, u64::MAX - 3, 1 << 63]) {
            assert_eq!(Hcall::of_any(number) != Hcall::Unknown, known.contains(&number), "{number:#x}");
        }
    }

    extern crate std;
    use std::vec::Vec;
}
