// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table.

use core::fmt;

macro_rules! techniques {
    ($($variant:ident, $name:literal, seed $seed:literal, $acts:literal,
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
    LightExit, "light-exit", seed "design", "every exit",
        saves "saving and restoring x19 to x29, and the general handler behind them",
        without "every exit stores all 31 registers and goes through the full tier";
    IndexedDispatch, "indexed-dispatch", seed "000", "trapped system registers",
        saves "the search of a list for the handler",
        without "linear search of the list, as before the seed";
    IndexedVsBinary, "indexed-vs-binary", seed "000", "trapped system registers",
        saves "what the seed's own binary search still costs over one indexed load",
        without "binary search of the list, as the seed left it";
    SgiRoutes, "sgi-routes", seed "001", "SGIs",
        saves "the search of all vCPUs for the targets",
        without "the affinity of one vCPU after the other is compared, until all targets are found";
    LrInUse, "lr-in-use", seed "000", "every exit",
        saves "reading, clearing and writing list registers that nothing has changed",
        without "all list registers are stored, cleared and loaded again";
    LrReadOnDemand, "lr-read-on-demand", seed "000", "every exit",
        saves "looking at ELRSR and at list registers whose content nobody asks for",
        without "ELRSR and all list registers are read, and the model learns from each in use";
    MaintenanceOnDemand, "maintenance-on-demand", seed "000", "every exit",
        saves "the maintenance state, and switching the virtual interface off and on",
        without "MISR, EISR, ELRSR and HCR are read; HCR is written zero, and written back";
    InterfaceResident, "interface-resident", seed "000", "every exit",
        saves "VMCR and the active priorities",
        without "VMCR and all active priority registers are stored and loaded again";
    El1Resident, "el1-resident", seed "004", "every exit",
        saves "the system registers of EL1 and EL0",
        without "23 system registers are stored and loaded again";
    FpResident, "fp-resident", seed "design", "every exit",
        saves "the FP and SIMD registers",
        without "Q0 to Q31, FPCR and FPSR are stored and loaded again";
    TimerResident, "timer-resident", seed "004", "every exit",
        saves "both timers of the guest and the offset of its counter",
        without "both timers are stored and stopped, the offset is cleared; all are loaded again";
    TrapsConstant, "traps-constant", seed "004", "every exit",
        saves "switching stage 2, traps and features between guest and hypervisor",
        without "HCR, CPTR, MDCR, HSTR, CNTHCTL, VTCR and VTTBR get the hypervisor's values and then the guest's";
    DebugResident, "debug-resident", seed "design", "every exit",
        saves "breakpoints and watchpoints",
        without "all breakpoint and watchpoint registers and MDSCR are stored and loaded again";
    NoErrorWindow, "no-error-window", seed "design", "every exit",
        saves "waiting for the guest's SErrors, which come as exits of their own",
        without "DSB, SErrors unmasked for a moment, ISB";
    MitigationsOnDemand, "mitigations-on-demand", seed "design", "every exit",
        saves "clearing the branch history on CPUs that do not need it",
        without "a loop of 24 turns on every exit, which a Neoverse N1 needs, and two barriers";
    AttentionWord, "attention-word", seed "design", "every exit",
        saves "a lock and a walk over everything that others may have posted",
        without "the vCPU's lock is taken, its inbox and its requests are looked through, the plan is checked";
}

impl fmt::Display for Technique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
