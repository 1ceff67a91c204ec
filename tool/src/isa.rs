// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The architectures that the tool builds for, and what each calls its things.

use std::fmt;

/// An architecture of machines, and so of hypervisors and guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum Isa {
    /// Armv8-A in AArch64 state
    #[default]
    Arm64,
    /// AMD64 with SVM
    #[value(name = "x86_64")]
    X86_64,
    /// POWER9 and POWER10
    #[value(name = "power64")]
    Power64,
}

impl Isa {
    /// Every architecture.
    pub const ALL: [Isa; 3] = [Isa::Arm64, Isa::X86_64, Isa::Power64];

    /// Its name in files, options and configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Arm64 => "arm64",
            Isa::X86_64 => "x86_64",
            Isa::Power64 => "power64",
        }
    }

    /// Its name in the table of techniques.
    pub const fn techniques(self) -> turnstile_techniques::Architecture {
        match self {
            Isa::Arm64 => turnstile_techniques::Architecture::Arm64,
            Isa::X86_64 => turnstile_techniques::Architecture::Amd64,
            Isa::Power64 => turnstile_techniques::Architecture::Power64,
        }
    }

    /// Rust's target of what runs on the bare machine.
    pub const fn target(self) -> &'static str {
        match self {
            Isa::Arm64 => "aarch64-unknown-none-softfloat",
            Isa::X86_64 => "x86_64-unknown-none",
            Isa::Power64 => "powerpc64le-turnstile-none",
        }
    }

    /// The description of that target, a file of the checkout, if rustc does not know it. Its core library has to be built,
    /// which a stable toolchain does only when told to.
    pub const fn target_file(self) -> Option<&'static str> {
        match self {
            Isa::Arm64 | Isa::X86_64 => None,
            Isa::Power64 => Some("targets/powerpc64le-turnstile-none.json"),
        }
    }

    /// Rust's target of what runs on Linux, linked statically.
    pub const fn linux_target(self) -> &'static str {
        match self {
            Isa::Arm64 => "aarch64-unknown-linux-musl",
            Isa::X86_64 => "x86_64-unknown-linux-musl",
            // The one with a standard library; its C library comes from Debian.
            Isa::Power64 => "powerpc64le-unknown-linux-gnu",
        }
    }

    /// The package of its guests, in the folder of `guests/` with its name.
    pub const fn guests_package(self) -> &'static str {
        match self {
            Isa::Arm64 => "turnstile-guests-arm64",
            Isa::X86_64 => "turnstile-guests-x86-64",
            Isa::Power64 => "turnstile-guests-power64",
        }
    }

    /// How the names of images end: boot loaders take a flat binary on arm64, an ELF file elsewhere.
    pub const fn image_extension(self) -> &'static str {
        match self {
            Isa::Arm64 => "image",
            Isa::X86_64 | Isa::Power64 => "elf",
        }
    }

    /// objcopy's options that make such an image of a program with its symbols.
    pub const fn image_options(self) -> &'static [&'static str] {
        match self {
            Isa::Arm64 => &["-O", "binary"],
            Isa::X86_64 | Isa::Power64 => &["--strip-all"],
        }
    }

    /// Debian's name of it.
    pub const fn debian(self) -> &'static str {
        match self {
            Isa::Arm64 => "arm64",
            Isa::X86_64 => "amd64",
            Isa::Power64 => "ppc64el",
        }
    }

    /// QEMU's emulator of it.
    pub const fn emulator(self) -> &'static str {
        match self {
            Isa::Arm64 => "qemu-system-aarch64",
            Isa::X86_64 => "qemu-system-x86_64",
            Isa::Power64 => "qemu-system-ppc64",
        }
    }

    /// Debian's package of that emulator.
    pub const fn emulator_package(self) -> &'static str {
        match self {
            Isa::Arm64 => "qemu-system-arm",
            Isa::X86_64 => "qemu-system-x86",
            Isa::Power64 => "qemu-system-ppc",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
