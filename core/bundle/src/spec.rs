// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a VM.

use crate::choices::choices;
use crate::cpus::CpuList;
use crate::machine::Machine;
use crate::schedule::Schedule;

choices! {
    /// What happens to a VM whose guest crashed.
    OnCrash {
        /// It stays stopped.
        #[default]
        Stop = "stop",
        /// It starts again.
        Restart = "restart",
    }
}

choices! {
    /// When the memory of a VM gets its translations.
    Mapping {
        /// Before it starts: no access to its memory ever exits.
        #[default]
        AtStart = "at-start",
        /// A block at a time, when the guest first touches it.
        OnDemand = "on-demand",
        /// A block at a time, when the guest first touches it; each is taken from the machine's pool then.
        FromPool = "from-pool",
    }
}

/// One VM: what it has and what it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmSpec<'a> {
    /// Its name: 1 to 31 of `a`–`z`, `0`–`9` and `-`, unique in the bundle.
    pub name: &'a str,
    /// The number of its vCPUs.
    pub vcpus: usize,
    /// The physical CPUs it runs on, without repetition. [`VmSpec::schedule`] says who else does.
    pub cpus: CpuList<'a>,
    /// Whether it has its CPUs for itself.
    pub schedule: Schedule,
    /// Its memory in bytes.
    pub memory: u64,
    /// When that memory gets its translations.
    pub mapping: Mapping,
    /// The machine that the guest sees.
    pub machine: Machine,
    /// What happens when its guest crashes.
    pub on_crash: OnCrash,
    /// Whether the hypervisor keeps statistics of its exits.
    pub statistics: bool,
    /// The kernel's command line.
    pub cmdline: &'a str,
    /// The kernel's file.
    pub kernel: &'a [u8],
    /// The initial RAM disk's file.
    pub initrd: Option<&'a [u8]>,
}
