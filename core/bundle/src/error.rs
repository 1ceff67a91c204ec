// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be wrong with a bundle, in words that say what to do.

use core::fmt;

use arrayvec::ArrayString;
use turnstile_machine::{MapError, pseries};

use crate::machine::Apic;
use crate::schedule::Class;
use crate::{MAX_CMDLINE, MAX_NAME, MAX_PHYSICAL_CPUS, MAX_VMS, VERSION};

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
        }
    }
}

impl core::error::Error for SpecError {}

/// A part of a bundle that is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The header or the structure: nothing in it can be told apart.
    Structure,
    /// The description of the VMs, or the digest itself.
    Description,
    /// The image of this index.
    Image(usize),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Structure => f.write_str("its structure"),
            Part::Description => f.write_str("the description of its VMs"),
            Part::Image(index) => write!(f, "image {index}"),
        }
    }
}

/// Why a bundle cannot be used, or not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BundleError {
    /// There are no bytes: the boot loader passed nothing.
    Missing,
    /// The bytes are something else.
    NotABundle,
    /// The bundle ends early.
    Truncated {
        /// How many bytes there are.
        have: usize,
        /// How many bytes there must be.
        need: usize,
    },
    /// More follows the bundle than a boot loader pads with.
    Trailing {
        /// How many bytes there are.
        have: usize,
        /// How many bytes the bundle has.
        need: usize,
    },
    /// The bundle has this version.
    Version(u32),
    /// The digest does not match: a byte of this part was changed.
    Damaged(Part),
    /// The bundle is undamaged, but not of the form that this version writes; the text names the place.
    Malformed(&'static str),
    /// There are no VMs.
    NoVms,
    /// There are this many VMs.
    TooManyVms(usize),
    /// One VM's description is wrong.
    Vm {
        /// The VM.
        vm: VmLabel,
        /// What is wrong with it.
        problem: SpecError,
    },
    /// Two VMs have the same name.
    SameName {
        /// The later VM.
        vm: VmLabel,
        /// The earlier VM.
        other: VmLabel,
    },
    /// Two VMs are pinned to the same physical CPU.
    SharedCpu {
        /// The physical CPU's index.
        cpu: u16,
        /// The later VM.
        vm: VmLabel,
        /// The earlier VM.
        other: VmLabel,
    },
    /// A VM is pinned to a physical CPU that another one shares.
    PinnedAndShared {
        /// The physical CPU's index.
        cpu: u16,
        /// The VM that wants it for itself.
        pinned: VmLabel,
        /// The VM that shares it.
        shared: VmLabel,
    },
    /// The images have this many bytes together: more than the format's 4 GiB.
    TooLarge(u64),
}

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BundleError::Missing => f.write_str("there is no bundle; pass one as the initial RAM disk"),
            BundleError::NotABundle => {
                f.write_str("this is no bundle; pass the file that `turnstile build` wrote")
            }
            BundleError::Truncated { have, need } => {
                write!(f, "the bundle is truncated: {have} of {need} bytes are there; copy it again")
            }
            BundleError::Trailing { have, need } => {
                write!(f, "{} bytes follow the bundle's {need}; pass the bundle alone", have - need)
            }
            BundleError::Version(version) => {
                write!(
                    f,
                    "the bundle has version {version}, this is version {VERSION}; build it again with the \
                     `turnstile` of the same version"
                )
            }
            BundleError::Damaged(part) => {
                write!(f, "the bundle is damaged: {part} is not what was written; copy it or build it again")
            }
            BundleError::Malformed(place) => {
                write!(f, "the bundle is malformed: {place}; build it again with `turnstile build`")
            }
            BundleError::NoVms => f.write_str("there are no VMs; describe at least one"),
            BundleError::TooManyVms(count) => {
                write!(f, "{count} VMs are too many; describe at most {MAX_VMS}")
            }
            BundleError::Vm { vm, problem } => write!(f, "{vm}: {problem}"),
            BundleError::SameName { vm, other } => {
                write!(f, "VM {} has the name of VM {}, `{}`; rename one", vm.index, other.index, vm.name)
            }
            BundleError::SharedCpu { cpu, vm, other } => {
                write!(f, "{vm} and {other} both want physical CPU {cpu}; give each its own")
            }
            BundleError::PinnedAndShared { cpu, pinned, shared } => {
                write!(
                    f,
                    "{pinned} wants physical CPU {cpu} for itself, and {shared} shares it; take it out of one \
                     of their lists, or let both share it"
                )
            }
            BundleError::TooLarge(size) => {
                write!(f, "the images have {size} bytes together; a bundle holds less than 4 GiB")
            }
        }
    }
}

impl core::error::Error for BundleError {}
