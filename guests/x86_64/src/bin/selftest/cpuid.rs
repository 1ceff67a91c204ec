// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What CPUID tells: consistent, and nothing that a guest does not have (AMD APM vol. 3, appendix E).

use turnstile_guests_x86_64::cpu::{self, feature};
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{check, check_eq, kvm, platform, read_control, skip, write_control};

pub const TESTS: &[Test] = &[
    Test { name: "cpuid-leaves", run: leaves },
    Test { name: "cpuid-hidden", run: hidden },
    Test { name: "cpuid-hypervisor", run: hypervisor },
    Test { name: "cpuid-dynamic", run: dynamic },
    Test { name: "cpuid-topology", run: topology },
    Test { name: "cpuid-addresses", run: addresses },
];

fn leaves() -> Outcome {
    let [most, b, c, d] = cpu::cpuid(0, 0);
    check!(most >= 7, "the last leaf is {most:#x}");
    let [most_extended, ..] = cpu::cpuid(0x8000_0000, 0);
    check!(most_extended >= 0x8000_0008, "the last extended leaf is {most_extended:#x}");
    check!(cpu::cpuid(0x8000_0000, 0) == [most_extended, b, c, d], "two vendors");
    // The x2APIC is the VM's choice (`apic`).
    check!(cpu::has(feature::XSAVE) || crate::is_bare(), "leaf 1 has no XSAVE");
    // FPU, TSC, MSR, PAE, CX8, APIC, CMOV, FXSR, SSE2 of leaf 1; long mode and SYSCALL.
    let [_, _, _, edx] = cpu::cpuid(1, 0);
    check_eq!(edx & 0x0700_8371, 0x0700_8371, "leaf 1's EDX");
    let [_, _, _, edx] = cpu::cpuid(0x8000_0001, 0);
    check_eq!(edx & 0x2000_0800, 0x2000_0800, "leaf 0x8000_0001's EDX");
    check!(cpu::cpuid(1, 0) == cpu::cpuid(1, 0), "leaf 1 differs from one time to the next");
    Ok(())
}

/// No nested virtualization, no performance counters, no machine of somebody else.
fn hidden() -> Outcome {
    if crate::is_bare() {
        skip!("nobody hides anything");
    }
    let [_, _, ecx, _] = cpu::cpuid(0x8000_0001, 0);
    check!(ecx >> 2 & 1 == 0, "SVM is shown");
    check!(cpu::cpuid(0x8000_000a, 0) == [0; 4], "SVM's leaf is shown");
    let [_, _, ecx, _] = cpu::cpuid(1, 0);
    check!(ecx >> 5 & 1 == 0, "VMX is shown");
    check!(ecx >> 3 & 1 == 0, "MONITOR is shown");
    Ok(())
}

fn hypervisor() -> Outcome {
    if crate::is_bare() {
        skip!("no hypervisor");
    }
    check!(cpu::has(feature::HYPERVISOR), "leaf 1 does not say that there is a hypervisor");
    let [most, ..] = cpu::cpuid(0x4000_0000, 0);
    check!((0x4000_0000..0x4000_0100).contains(&most), "the last of its leaves is {most:#x}");
    check!(kvm::base().is_some() || most >= 0x4000_0000, "it has no signature");
    Ok(())
}

/// What follows from this CPU's registers.
fn dynamic() -> Outcome {
    let os_xsave = || cpu::cpuid(1, 0)[2] >> 27 & 1;
    let cr4 = read_control!("cr4");
    for on in [1, 0, 1] {
        write_control!("cr4", cr4 & !(1 << 18) | on << 18);
        check_eq!(u64::from(os_xsave()), on, "OSXSAVE");
    }
    write_control!("cr4", cr4);
    let [_, _, _, edx] = cpu::cpuid(1, 0);
    check!(edx >> 9 & 1 == 1, "the APIC's bit");
    let base = cpu::read_msr(cpu::msr::APIC_BASE);
    cpu::write_msr(cpu::msr::APIC_BASE, base & !0xc00);
    let [_, _, _, edx] = cpu::cpuid(1, 0);
    cpu::write_msr(cpu::msr::APIC_BASE, base & !0x400 | 0x800);
    cpu::write_msr(cpu::msr::APIC_BASE, base);
    check!(edx >> 9 & 1 == 0, "the APIC's bit while it is switched off");
    Ok(())
}

fn topology() -> Outcome {
    let [_, ebx, ..] = cpu::cpuid(1, 0);
    check_eq!(u64::from(ebx >> 24), cpu::initial_apic_id() & 0xff, "leaf 1's identifier");
    let logical = ebx >> 16 & 0xff;
    let count = platform::platform().cpus.as_slice().len() as u32;
    check!(
        count == 1 || logical >= count.min(255) || crate::is_bare(),
        "leaf 1 tells {logical} CPUs of {count}"
    );
    Ok(())
}

fn addresses() -> Outcome {
    let [eax, ..] = cpu::cpuid(0x8000_0008, 0);
    check!((36..=52).contains(&(eax & 0xff)), "{} bits of physical addresses", eax & 0xff);
    check!((48..=57).contains(&(eax >> 8 & 0xff)), "{} bits of linear addresses", eax >> 8 & 0xff);
    check!(platform::platform().end_of_memory() <= 1 << (eax & 0xff), "memory lies beyond");
    Ok(())
}
