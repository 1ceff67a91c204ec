// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What CPUID tells the guest: what KVM supports, less what is switched off
//! (Linux, Documentation/virt/kvm/api.rst, KVM_SET_CPUID2; AMD APM vol. 3, appendix E).

use kvm_bindings::{CpuId, kvm_cpuid_entry2};

use super::options::{Apic, Pc};

/// CPUID 1 ECX: x2APIC; the timer's mode with a deadline; a hypervisor, whose leaves begin at 4000_0000.
const X2APIC: u32 = 1 << 21;
const TSC_DEADLINE: u32 = 1 << 24;
const HYPERVISOR: u32 = 1 << 31;
/// KVM's features.
const KVM_FEATURES: u32 = 0x4000_0001;

/// Makes the tables of a vCPU out of what KVM supports.
pub fn adapt(supported: &CpuId, options: &Pc, apic_id: u32) -> CpuId {
    let mut tables = supported.clone();
    for entry in tables.as_mut_slice() {
        adapt_entry(entry, options, apic_id);
    }
    tables
}

fn adapt_entry(entry: &mut kvm_cpuid_entry2, options: &Pc, apic_id: u32) {
    match entry.function {
        1 => {
            entry.ebx = entry.ebx & 0x00ff_ffff | apic_id << 24;
            // KVM's own APIC has the mode; the others leave it to the monitor to say what they run on.
            entry.ecx |= TSC_DEADLINE | HYPERVISOR;
            if options.apic == Apic::Xapic {
                entry.ecx &= !X2APIC;
            }
        }
        0xb | 0x1f | 0x8000_0026 => entry.edx = apic_id,
        0x8000_001e => entry.eax = apic_id,
        KVM_FEATURES => entry.eax &= options.features(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::options::Options;

    fn adapted(words: &[&str], function: u32) -> kvm_cpuid_entry2 {
        let words = ["/init", "--guest=/guest"].iter().chain(words);
        let options = Options::try_parse_from(words).unwrap().pc;
        let all = kvm_cpuid_entry2 { function, eax: !0, ebx: !0, ecx: !0, edx: !0, ..Default::default() };
        let supported = CpuId::from_entries(&[all]).unwrap();
        *adapt(&supported, &options, 3).as_slice().first().unwrap()
    }

    #[test]
    fn each_vcpu_has_its_number() {
        assert_eq!(adapted(&[], 1).ebx >> 24, 3);
        assert_eq!(adapted(&[], 0xb).edx, 3);
    }

    #[test]
    fn what_is_switched_off_is_not_seen() {
        assert_eq!(adapted(&["--apic=xapic"], 1).ecx, !X2APIC);
        assert_eq!(adapted(&[], 1).ecx, !0);
        assert_eq!(adapted(&["--paravirt=eoi"], KVM_FEATURES).eax, 1 << 6);
        assert_eq!(adapted(&["--no-paravirt"], KVM_FEATURES).eax, 0);
    }
}
