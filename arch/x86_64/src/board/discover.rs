// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What machine this is: what the boot loader and the firmware say (`turnstile_firmware`), and what the CPU says.

use core::fmt;

use turnstile_firmware::Physical;

use crate::cpu;
use crate::cpu::regs::VM_CR;

/// Physical memory as the boot-time tables map it: the first 4 GiB.
pub struct EarlyMemory;

impl Physical for EarlyMemory {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        const END: u64 = 1 << 32;
        if address == 0 || address.checked_add(length as u64)? > END {
            return None;
        }
        // SAFETY: mapped by the boot-time tables; what no memory answers reads as ones. Firmware and boot loader have left
        // these tables, and nothing writes them while the boot CPU, alone, reads them.
        Some(unsafe { core::slice::from_raw_parts(address as *const u8, length) })
    }
}

/// Why the CPU cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has no SVM.
    NoSvm,
    /// SVM without nested paging.
    NoNestedPaging,
    /// The firmware has turned SVM off.
    Disabled {
        /// And locked that until a reset.
        locked: bool,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSvm => {
                "the CPU has no SVM (AMD-V), which a hypervisor needs: use an AMD CPU (under QEMU, -cpu max or -cpu EPYC)"
            }
            Self::NoNestedPaging => {
                "the CPU's SVM has no nested paging: use a newer CPU (under QEMU, -cpu max or -cpu EPYC, without -npt)"
            }
            Self::Disabled { locked: false } => "the firmware has disabled SVM: enable it in the firmware's set-up",
            Self::Disabled { locked: true } => {
                "the firmware has disabled SVM and locked it: enable it in the firmware's set-up, and switch the machine off \
                 and on"
            }
        })
    }
}

/// Looks whether the CPU has what is needed, by what CPUID and VM_CR say (APM vol. 2, 15.4).
///
/// # Errors
/// What it has not.
pub fn check_svm(cpuid: impl Fn(u32) -> [u32; 4], vm_cr: impl FnOnce() -> u64) -> Result<(), Refusal> {
    const SVM: u32 = 1 << 2;
    const NESTED_PAGING: u32 = 1;
    const SVM_LOCKED: u32 = 1 << 2;
    const SVM_DISABLED: u64 = 1 << 4;
    let extended = cpuid(0x8000_0000)[0];
    if extended < 0x8000_0001 || cpuid(0x8000_0001)[2] & SVM == 0 {
        return Err(Refusal::NoSvm);
    }
    let features = if extended < 0x8000_000a { 0 } else { cpuid(0x8000_000a)[3] };
    if vm_cr() & SVM_DISABLED != 0 {
        return Err(Refusal::Disabled { locked: features & SVM_LOCKED != 0 });
    }
    if features & NESTED_PAGING == 0 { Err(Refusal::NoNestedPaging) } else { Ok(()) }
}

/// Looks whether this CPU has what is needed.
///
/// # Errors
/// What it has not.
pub fn check_this_cpu() -> Result<(), Refusal> {
    check_svm(|leaf| cpu::cpuid(leaf, 0), || VM_CR.read())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(extended: u32, features: u32, svm: u32, vm_cr: u64) -> Result<(), Refusal> {
        let cpuid = |leaf| match leaf {
            0x8000_0000 => [extended, 0, 0, 0],
            0x8000_0001 => [0, 0, features, 0],
            0x8000_000a => [0, 0, 0, svm],
            _ => panic!("leaf {leaf:#x}"),
        };
        check_svm(cpuid, || vm_cr)
    }

    #[test]
    fn only_a_cpu_with_svm_and_nested_paging_will_do() {
        assert_eq!(check(0x8000_001f, 1 << 2, 1, 0), Ok(()));
        assert_eq!(check(0x8000_0000, 1 << 2, 1, 0), Err(Refusal::NoSvm));
        assert_eq!(check(0x8000_001f, 0, 1, 0), Err(Refusal::NoSvm));
        assert_eq!(check(0x8000_001f, 1 << 2, 0, 0), Err(Refusal::NoNestedPaging));
        assert_eq!(check(0x8000_0008, 1 << 2, 1, 0), Err(Refusal::NoNestedPaging));
        assert_eq!(check(0x8000_001f, 1 << 2, 1, 1 << 4), Err(Refusal::Disabled { locked: false }));
        assert_eq!(check(0x8000_001f, 1 << 2, 1 | 1 << 2, 1 << 4), Err(Refusal::Disabled { locked: true }));
    }
}
