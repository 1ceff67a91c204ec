// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a file cannot be started on the machine `pc`.

use core::fmt;

use crate::FileError;
use crate::file_kind::FileKind;

/// Why a kernel cannot be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootError {
    /// What is wrong with it would be wrong on any machine.
    File(FileError),
    /// The file is of a kind that is no kernel for a PC.
    Kind(FileKind),
    /// A Linux kernel of a boot protocol before 2.12: the version.
    OldProtocol(u16),
    /// A Linux kernel of 32 bits.
    NotLong,
    /// An ELF file for another processor: its `e_machine`.
    Processor(u16),
    /// An ELF file with neither a PVH note nor a Multiboot header.
    NoProtocol,
    /// A Multiboot header that asks for what there is not: its flags.
    Wanted(u32),
    /// A Multiboot header whose addresses contradict each other.
    BadAddresses,
    /// The command line is longer than the kernel takes: bytes there are, and bytes it takes.
    CommandLine(usize, usize),
    /// Something would lie where there is no RAM.
    NotRam {
        /// Its first address.
        start: u64,
        /// The first behind it.
        end: u64,
        /// The machine's memory.
        memory: u64,
    },
    /// Two things would lie in the same place.
    Overlap {
        /// The first address that both want.
        start: u64,
        /// The first behind.
        end: u64,
    },
    /// Kernel and initial RAM disk need more memory below 3 GiB than there is: both in bytes.
    TooSmall {
        /// What they need.
        need: u64,
        /// What there is.
        have: u64,
    },
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::File(error) => error.fmt(f),
            Self::Kind(kind) => write!(f, "not a kernel for a PC but {kind}; {}", advice(kind)),
            Self::OldProtocol(version) => write!(
                f,
                "the kernel speaks version {}.{:02} of Linux's boot protocol; use Linux 3.8 or newer",
                version >> 8,
                version & 0xff
            ),
            Self::NotLong => f.write_str("the kernel has no 64-bit entry; use one for x86-64"),
            Self::Processor(machine) => {
                write!(f, "the ELF file is for another processor (e_machine {machine}); use one for x86")
            }
            Self::NoProtocol => f.write_str(
                "the ELF file has neither a PVH note nor a Multiboot header; add one, or convert it to a flat file \
                 (objcopy -O binary)",
            ),
            Self::Wanted(flags) => write!(
                f,
                "the Multiboot header asks for what there is not (flags {flags:#x}); ask for alignment and memory \
                 information only",
            ),
            Self::BadAddresses => {
                f.write_str("the addresses of the Multiboot header contradict each other; link the kernel again")
            }
            Self::CommandLine(have, most) => write!(
                f,
                "the command line has {have} bytes, and the kernel takes {most}; make it shorter",
            ),
            Self::NotRam { start, end, memory } => write!(
                f,
                "the kernel wants {start:#x} to {end:#x}, where a PC with {} MiB has no RAM; give it more memory, or \
                 link it elsewhere (RAM is below 0xa0000 and from 0x100000 on)",
                memory >> 20
            ),
            Self::Overlap { start, end } => write!(
                f,
                "two things would lie at {start:#x} to {end:#x}; keep the kernel off 0x10000 to 0x20000, where it is \
                 told of its machine, and off its own segments",
            ),
            Self::TooSmall { need, have } => write!(
                f,
                "kernel and initial RAM disk need {} MiB, and below 3 GiB the VM has {}; give it more memory",
                need.div_ceil(1 << 20),
                have >> 20
            ),
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
        FileKind::EfiZboot | FileKind::Efi | FileKind::RiscvImage => "use the kernel's arch/x86/boot/bzImage",
        FileKind::UImage => "take the kernel out of it (dumpimage)",
        FileKind::DeviceTree | FileKind::Script => "give a kernel",
        _ => kind.advice(),
    }
}
