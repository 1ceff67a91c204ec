// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The architectures that the meter knows.

use crate::classify::{Effect, arm64, power64, x86};
use crate::power64_interrupts;

/// The architectures that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// AArch64.
    Arm64,
    /// AMD64.
    X86,
    /// POWER in 64-bit mode.
    Power64,
}

impl Isa {
    /// The architecture that QEMU names so.
    pub fn of(target: &str) -> Option<Self> {
        match target {
            "aarch64" => Some(Isa::Arm64),
            "x86_64" => Some(Isa::X86),
            "ppc64" => Some(Isa::Power64),
            _ => None,
        }
    }

    /// Decodes an instruction, given as it is in memory; POWER's may be in either order.
    pub fn classify(self, bytes: &[u8], little: bool) -> Effect {
        let word = |at: usize| {
            let bytes: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
            Some(if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
        };
        match (self, word(0)) {
            (Isa::X86, _) => x86::classify(bytes),
            (Isa::Arm64, Some(first)) => arm64::classify(first),
            (Isa::Power64, Some(first)) => power64::classify(first, word(4)),
            (_, None) => Effect::default(),
        }
    }

    /// Whether code at this address may be the first of an exception's.
    pub fn may_be_vector(self, address: u64) -> bool {
        match self {
            Isa::Arm64 => address & 0x7f == 0,
            Isa::Power64 => power64_interrupts::vector(address).is_some(),
            // There the instruction that causes the exception is counted.
            Isa::X86 => false,
        }
    }
}
