// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a file cannot be started on the machine `pseries`.

use core::fmt;

use crate::FileError;
use crate::file_kind::FileKind;

/// Why a kernel cannot be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootError {
    /// What is wrong with it would be wrong on any machine.
    File(FileError),
    /// The file is of a kind that is no kernel for a partition.
    Kind(FileKind),
    /// An ELF file for another processor: its `e_machine`.
    Processor(u16),
    /// An ELF file whose entry is in none of its segments.
    NoEntry,
    /// A position-independent ELF file whose relocations name this address, which is in none of its segments.
    Relocation(u64),
    /// The command line contains a NUL.
    CommandLine,
    /// Something would lie where there is no RAM.
    NotRam {
        /// Its first address.
        start: u64,
        /// The first behind it.
        end: u64,
        /// The machine's memory.
        memory: u64,
    },
    /// Two segments would lie in the same place.
    Overlap {
        /// The first address that both want.
        start: u64,
        /// The first behind.
        end: u64,
    },
    /// Kernel, firmware, initial RAM disk and device tree need more memory than there is: both in bytes.
    TooSmall {
        /// What they need.
        need: u64,
        /// What there is.
        have: u64,
    },
    /// The kernel leaves no room for the firmware below 1 GiB.
    TooHigh {
        /// Where it ends.
        end: u64,
    },
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::File(error) => error.fmt(f),
            Self::Kind(kind) => write!(f, "not a kernel for a POWER partition but {kind}; {}", advice(kind)),
            Self::Processor(machine) => {
                write!(f, "the ELF file is for another processor (e_machine {machine}); use one for ppc64le")
            }
            Self::NoEntry => {
                f.write_str("the entry of the ELF file is in none of its segments; link it again")
            }
            Self::Relocation(address) => {
                write!(
                    f,
                    "the ELF file's relocations name {address:#x}, which is in none of its segments; link it again"
                )
            }
            Self::CommandLine => f.write_str("the command line contains a NUL; remove it"),
            Self::NotRam { start, end, memory } => write!(
                f,
                "the kernel wants {start:#x} to {end:#x}, and the VM's {} MiB begin at zero; give it more memory, \
                 or link it lower",
                memory >> 20
            ),
            Self::Overlap { start, end } => {
                write!(f, "two segments would lie at {start:#x} to {end:#x}; link the kernel again")
            }
            Self::TooSmall { need, have } => write!(
                f,
                "kernel, initial RAM disk and device tree need {} MiB, and the VM has {}; give it more memory",
                need.div_ceil(1 << 20),
                have >> 20
            ),
            Self::TooHigh { end } => {
                write!(
                    f,
                    "the kernel ends at {end:#x}, and the firmware behind it must end below 1 GiB; link it lower"
                )
            }
        }
    }
}

impl core::error::Error for BootError {}

impl From<FileError> for BootError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

fn advice(kind: FileKind) -> &'static str {
    match kind {
        FileKind::EfiZboot
        | FileKind::Efi
        | FileKind::BzImage
        | FileKind::RiscvImage
        | FileKind::Elf
        | FileKind::UImage => "use a vmlinux for ppc64le",
        FileKind::DeviceTree | FileKind::Script => "give a kernel",
        _ => kind.advice(),
    }
}
