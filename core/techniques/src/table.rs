// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table.

use core::fmt;

/// An architecture that Turnstile runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// Armv8-A.
    Arm64,
    /// x86-64 with SVM.
    Amd64,
    /// POWER9 and POWER10.
    Power64,
}

macro_rules! techniques {
    ($($variant:ident, $name:literal, on $on:tt, seed $seed:literal, $acts:literal,
       saves $saves:literal, without $without:literal;)*) => {
        /// A way in which Turnstile makes exits cheap, and which can be measured by going without it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Technique {
            $(#[doc = $saves] $variant,)*
        }

        impl Technique {
            /// All techniques, in the order of the table.
            pub const ALL: [Technique; [$($name),*].len()] = [$(Technique::$variant),*];

            /// Its name: what `without=` and `--ablate=` take.
            pub const fn name(self) -> &'static str {
                match self { $(Technique::$variant => $name,)* }
            }

            /// On which architectures it is a technique.
            pub const fn architectures(self) -> &'static [Architecture] {
                use Architecture::*;
                match self { $(Technique::$variant => &$on,)* }
            }

            /// The seed that it comes from or that it takes further; `design` if none does.
            pub const fn seed(self) -> &'static str {
                match self { $(Technique::$variant => $seed,)* }
            }

            /// Where it acts.
            pub const fn acts(self) -> &'static str {
                match self { $(Technique::$variant => $acts,)* }
            }

            /// What it saves.
            pub const fn saves(self) -> &'static str {
                match self { $(Technique::$variant => $saves,)* }
            }

            /// What is done instead when it is off.
            pub const fn without(self) -> &'static str {
                match self { $(Technique::$variant => $without,)* }
            }
        }
    };
}

techniques! {
    LightExit, "light-exit", on [Arm64, Amd64, Power64], seed "design", "every exit",
        saves "saving and restoring x19 to x29, and the general handler behind them",
        without "every exit stores all 31 registers and goes through the full tier";
    IndexedDispatch, "indexed-dispatch", on [Arm64, Amd64, Power64], seed "000", "trapped system registers",
        saves "the search of a list for the handler",
        without "linear search of the list, as before the seed";
    IndexedVsBinary, "indexed-vs-binary", on [Arm64], seed "000", "trapped system registers",
        saves "what the seed's own binary search still costs over one indexed load",
        without "binary search of the list, as the seed left it";
    SgiRoutes, "sgi-routes", on [Arm64], seed "001", "SGIs",
        saves "the search of all vCPUs for the targets",
        without "the affinity of one vCPU after the other is compared, until all targets are found";
    LrInUse, "lr-in-use", on [Arm64], seed "000", "every exit",
        saves "reading, clearing and writing list registers that nothing has changed",
        without "all list registers are stored, cleared and loaded again";
    LrReadOnDemand, "lr-read-on-demand", on [Arm64], seed "000", "every exit",
        saves "looking at ELRSR and at list registers whose content nobody asks for",
        without "ELRSR and all list registers are read, and the model learns from each in use";
    MaintenanceOnDemand, "maintenance-on-demand", on [Arm64], seed "000", "every exit",
        saves "the maintenance state, and switching the virtual interface off and on",
        without "MISR, EISR, ELRSR and HCR are read; HCR is written zero, and written back";
    InterfaceResident, "interface-resident", on [Arm64], seed "000", "every exit",
        saves "VMCR and the active priorities",
        without "VMCR and all active priority registers are stored and loaded again";
    El1Resident, "el1-resident", on [Arm64], seed "004", "every exit",
        saves "the system registers of EL1 and EL0",
        without "23 system registers are stored and loaded again";
    FpResident, "fp-resident", on [Arm64, Amd64, Power64], seed "design", "every exit",
        saves "the FP and SIMD registers",
        without "Q0 to Q31, FPCR and FPSR are stored and loaded again";
    TimerResident, "timer-resident", on [Arm64], seed "004", "every exit",
        saves "both timers of the guest and the offset of its counter",
        without "both timers are stored and stopped, the offset is cleared; all are loaded again";
    TrapsConstant, "traps-constant", on [Arm64], seed "004", "every exit",
        saves "switching stage 2, traps and features between guest and hypervisor",
        without "HCR, CPTR, MDCR, HSTR, CNTHCTL, VTCR and VTTBR get the hypervisor's values and then the guest's";
    DebugResident, "debug-resident", on [Arm64], seed "design", "every exit",
        saves "breakpoints and watchpoints",
        without "all breakpoint and watchpoint registers and MDSCR are stored and loaded again";
    NoErrorWindow, "no-error-window", on [Arm64], seed "design", "every exit",
        saves "waiting for the guest's SErrors, which come as exits of their own",
        without "DSB, SErrors unmasked for a moment, ISB";
    MitigationsOnDemand, "mitigations-on-demand", on [Arm64], seed "design", "every exit",
        saves "clearing the branch history on CPUs that do not need it",
        without "a loop of 24 turns on every exit, which a Neoverse N1 needs, and two barriers";
    AttentionWord, "attention-word", on [Arm64, Amd64, Power64], seed "design", "every exit",
        saves "a lock and a walk over everything that others may have posted",
        without "the vCPU's lock is taken, its inbox and its requests are looked through, the plan is checked";
    SegmentsResident, "segments-resident", on [Amd64], seed "design", "every exit",
        saves "FS, GS, TR, LDTR and the MSRs of SYSCALL and SYSENTER",
        without "VMSAVE of the guest's, VMLOAD of the hypervisor's, VMSAVE and VMLOAD the other way round";
    CleanBits, "clean-bits", on [Amd64], seed "design", "every exit",
        saves "loading state of the control block that nothing has changed",
        without "no part of the control block counts as unchanged";
    TranslationsResident, "translations-resident", on [Amd64], seed "design", "every exit",
        saves "forgetting the guest's translations",
        without "each VMRUN flushes the TLB";
    GifConstant, "gif-constant", on [Amd64], seed "design", "every exit",
        saves "switching interrupts on and off, and looking for those that have arrived",
        without "STGI and CLGI, and what has arrived is served";
    DecodeCache, "decode-cache", on [Amd64], seed "design", "devices in memory",
        saves "decoding the instruction",
        without "each instruction is decoded anew, in the full tier";
    PartitionResident, "partition-resident", on [Power64], seed "002", "every exit",
        saves "switching the partition: LPIDR, LPCR and PIDR, with an ISYNC around each",
        without "all three get the hypervisor's values, and then the guest's again";
    SprsResident, "sprs-resident", on [Power64], seed "002", "every exit",
        saves "the special-purpose registers of the guest",
        without "18 registers are stored, and loaded again";
    SprCompare, "spr-compare", on [Power64], seed "002", "switches of vCPUs",
        saves "writing special-purpose registers that have the value already",
        without "all are written";
    SprGroups, "spr-groups", on [Power64], seed "002", "switches of vCPUs",
        saves "waiting for a write of a special-purpose register before the next one is read (cycles, no instructions)",
        without "each register is read and written before the next one";
    FewTimebase, "few-mftb", on [Power64], seed "002", "every exit",
        saves "reading the time base, and setting both decrementers by it",
        without "the time base is read twice, the decrementer is stored as a time and set again";
    DemandMonitor, "demand-pm", on [Power64], seed "002", "every exit",
        saves "the performance monitor of guests that do not use it",
        without "its 13 registers are stored, it is frozen, and all are loaded again";
    DemandTransactions, "demand-tm", on [Power64], seed "002", "every exit",
        saves "the registers of transactions of guests that have none",
        without "three registers are stored and loaded again, with MSR.TM on";
    DemandBranches, "demand-ebb", on [Power64], seed "002", "every exit",
        saves "the registers of event-based branches of guests that have none",
        without "three registers are stored and loaded again";
    DeferredTlbsync, "deferred-tlbsync", on [Power64], seed "002", "every exit",
        saves "waiting for invalidations that the guest may have been in the middle of",
        without "EIEIO, TLBSYNC and PTESYNC, which are done once when the vCPU moves to another CPU";
    FewBarriers, "few-barriers", on [Power64], seed "002", "every exit",
        saves "telling others by atomic operations that the vCPU has left its guest, and is back",
        without "two atomic operations with a barrier each";
}

impl Technique {
    /// Says whether it is a technique on an architecture.
    pub fn is_on(self, architecture: Architecture) -> bool {
        self.architectures().contains(&architecture)
    }
}

impl fmt::Display for Technique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
