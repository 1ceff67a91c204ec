// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be wrong with the description of a VM.

use core::fmt;

use arrayvec::ArrayString;
use turnstile_machine::{MapError, pseries};

use crate::machine::Apic;
use crate::schedule::Class;
use crate::{MAX_CMDLINE, MAX_NAME, MAX_PHYSICAL_CPUS};

/// Which VM an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmLabel {
    /// Its place in the bundle, from 0.
    pub index: usize,
    /// Its name, empty if that is unusable.
    pub name: ArrayString<MAX_NAME>,
}

impl VmLabel {
    /// Names the VM at `index`.
    #[must_use]
    pub fn new(index: usize, name: &str) -> VmLabel {
        VmLabel { index, name: ArrayString::from(name).unwrap_or_default() }
    }
}

impl fmt::Display for VmLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() { write!(f, "VM {}", self.index) } else { write!(f, "VM `{}`", self.name) }
    }
}

/// What is wrong with the description of one VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecError {
    /// The name is empty.
    NoName,
    /// The name has this many bytes.
    NameTooLong(usize),
    /// The name contains this character.
    NameCharacter(char),
    /// The vCPUs or the memory do not fit the guest machine.
    Map(MapError),
    /// The number of vCPUs is not 1 to [`Apic::max_vcpus`].
    ApicVcpus {
        /// How the local APICs are reached.
        apic: Apic,
        /// The number asked for.
        vcpus: usize,
    },
    /// The number of a partition's vCPUs is not 1 to [`pseries::MAX_VCPUS`].
    PartitionVcpus(usize),
    /// No core has this many threads.
    Threads(u8),
    /// A partition's vCPUs are no whole cores.
    Cores {
        /// The number of vCPUs.
        vcpus: usize,
        /// The threads of a core.
        threads: u8,
    },
    /// The VM is pinned, and its list of physical CPUs has not one for each vCPU.
    Pinning {
        /// The number of vCPUs.
        vcpus: usize,
        /// The number of physical CPUs.
        cpus: usize,
    },
    /// The VM shares physical CPUs, and its list of them is empty.
    NoCpus,
    /// This is no weight.
    Weight(u16),
    /// This is no real-time priority.
    Priority(u8),
    /// The list names this physical CPU more than once.
    CpuTwice(u16),
    /// The index of this physical CPU is too large for any machine.
    CpuOutOfRange(u16),
    /// The command line has this many bytes.
    CmdlineTooLong(usize),
    /// The command line contains a NUL.
    CmdlineNul,
    /// There is no kernel, or it is empty.
    NoKernel,
    /// The initial RAM disk is empty.
    EmptyInitrd,
    /// Its memory comes from a pool, and there is none.
    NoPool,
    /// Its memory comes from a pool that is smaller.
    PoolTooSmall {
        /// The bytes of its memory.
        memory: u64,
        /// Those of the pool.
        pool: u64,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::NoName => f.write_str("it has no name; give one"),
            SpecError::NameTooLong(length) => {
                write!(f, "its name has {length} bytes; give one of at most {MAX_NAME}")
            }
            SpecError::NameCharacter(character) => {
                write!(f, "its name contains {character:?}; use only a-z, 0-9 and `-`")
            }
            SpecError::Map(error) => error.fmt(f),
            SpecError::ApicVcpus { vcpus: 0, .. } => f.write_str("there are no vCPUs; give at least 1"),
            SpecError::ApicVcpus { apic, vcpus } => {
                write!(
                    f,
                    "{vcpus} vCPUs are too many for a PC with an {apic}; give at most {}",
                    apic.max_vcpus()
                )
            }
            SpecError::PartitionVcpus(0) => f.write_str("there are no vCPUs; give at least 1"),
            SpecError::PartitionVcpus(vcpus) => {
                write!(f, "{vcpus} vCPUs are too many for a partition; give at most {}", pseries::MAX_VCPUS)
            }
            SpecError::Threads(threads) => {
                write!(f, "a core cannot have {threads} threads; give 1, 2, 4 or 8")
            }
            SpecError::Cores { vcpus, threads } => {
                write!(
                    f,
                    "{vcpus} vCPUs are no whole cores of {threads} threads; give a multiple of {threads}"
                )
            }
            SpecError::Pinning { vcpus, cpus } => {
                write!(f, "its {vcpus} vCPUs are pinned to {cpus} physical CPUs; name one for each")
            }
            SpecError::NoCpus => f.write_str("it has no physical CPUs; name at least one"),
            SpecError::Weight(weight) => {
                let (least, most) = (Class::WEIGHTS.start(), Class::WEIGHTS.end());
                write!(f, "its weight is {weight}; give one of {least} to {most}")
            }
            SpecError::Priority(priority) => {
                let (least, most) = (Class::PRIORITIES.start(), Class::PRIORITIES.end());
                write!(f, "its real-time priority is {priority}; give one of {least} to {most}")
            }
            SpecError::CpuTwice(cpu) => {
                write!(f, "physical CPU {cpu} is in its list twice; name it once")
            }
            SpecError::CpuOutOfRange(cpu) => {
                write!(f, "physical CPU {cpu} cannot exist; use indexes below {MAX_PHYSICAL_CPUS}")
            }
            SpecError::CmdlineTooLong(length) => {
                write!(f, "its command line has {length} bytes; shorten it to {MAX_CMDLINE}")
            }
            SpecError::CmdlineNul => f.write_str("its command line contains a NUL; remove it"),
            SpecError::NoKernel => f.write_str("its kernel is missing or empty; give one"),
            SpecError::EmptyInitrd => f.write_str("its initrd is empty; give another one, or none"),
            SpecError::NoPool => f.write_str("its memory comes from a pool, and there is none; describe one"),
            SpecError::PoolTooSmall { memory, pool } => write!(
                f,
                "it may have {} MiB, and the pool has {} MiB; give it less, or make the pool larger",
                memory >> 20,
                pool >> 20
            ),
        }
    }
}

impl core::error::Error for SpecError {}
