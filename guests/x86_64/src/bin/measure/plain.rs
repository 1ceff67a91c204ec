// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits of one instruction.

use turnstile_guests_x86_64::apic::register;
use turnstile_guests_x86_64::kvm::{self, feature};
use turnstile_guests_x86_64::{apic, bench, cpu, io_apic, measured_loop, mmio, mmu, port, println};

/// A number that no hypercall has.
const NOTHING: u64 = 0x7fff;

/// VMMCALL; a hypervisor that knows KVM's answers says that there is no such call.
pub fn null_hypercall() {
    bench::measure(
        "null-hypercall",
        |n| measured_loop!(n, ["mov eax, 0x7fff", "vmmcall"], out("rax") _,),
        |n| measured_loop!(n, ["mov eax, 0x7fff", "nop"], out("rax") _,),
    );
    let answer = kvm::hypercall(NOTHING, [0; 4]);
    if kvm::base().is_some() && answer != kvm::ENOSYS {
        println!("@error hypercall {NOTHING:#x} answers {answer:#x}");
    }
}

/// CPUID leaf 0.
pub fn cpuid() {
    bench::measure(
        "cpuid",
        |n| measured_loop!(n, ["xor eax, eax", "xor ecx, ecx", "cpuid"], out("rax") _, out("rcx") _, out("rdx") _,),
        |n| measured_loop!(n, ["xor eax, eax", "xor ecx, ecx", "nop"], out("rax") _, out("rcx") _, out("rdx") _,),
    );
    let [most, ..] = cpu::cpuid(0, 0);
    if most == 0 {
        println!("@error CPUID knows no leaf");
    }
}

/// WRMSR. Both registers keep their value: nothing is changed from one write to the next.
pub fn msr_write() {
    let (msr, value) = match kvm::has(feature::POLL_CONTROL) {
        true => (kvm::msr::POLL_CONTROL, 1),
        false => {
            apic::init();
            if !apic::is_x2apic() {
                println!("@error this machine has neither KVM_POLL_CONTROL nor an x2APIC");
                return;
            }
            (cpu::msr::X2APIC + register::TPR / 16, 0)
        }
    };
    bench::measure(
        "msr-write",
        |n| measured_loop!(n, ["wrmsr"], in("ecx") msr, in("eax") value, in("edx") 0,),
        |n| measured_loop!(n, ["nop"], in("ecx") msr, in("eax") value, in("edx") 0,),
    );
}

/// IN from the mask register of the first 8259.
pub fn port_read() {
    port::write8(turnstile_guests_x86_64::pic::MASK, 0xfb);
    bench::measure(
        "port-read",
        |n| measured_loop!(n, ["in al, 0x21"], out("rax") _,),
        |n| measured_loop!(n, ["nop"], out("rax") _,),
    );
    let mask = port::read8(turnstile_guests_x86_64::pic::MASK);
    if mask != 0xfb {
        println!("@error the 8259's mask is {mask:#x}");
    }
}

/// IN from the scratch register of the UART.
pub fn uart(row: &str) {
    const SCRATCH: u16 = 0x3ff;

    port::write8(SCRATCH, 0x5a);
    bench::measure(
        row,
        |n| measured_loop!(n, ["in al, dx"], in("dx") SCRATCH, out("rax") _,),
        |n| measured_loop!(n, ["nop"], in("dx") SCRATCH, out("rax") _,),
    );
    let value = port::read8(SCRATCH);
    if value != 0x5a {
        println!("@error the scratch register is {value:#x}");
    }
}

/// Uses five levels of page tables; says whether this machine has them.
pub fn five_levels() -> bool {
    if !mmu::has_five_levels() {
        println!("@error this machine has four levels of page tables");
        return false;
    }
    mmu::use_five_levels();
    true
}

/// Where a PC has neither memory nor a device, in memory and among the ports.
const NOWHERE: u64 = 0xd000_0000;
const NO_PORT: u16 = 0xe0;

/// A read of memory that is not there: all ones.
pub fn absent() {
    bench::measure(
        "absent",
        |n| measured_loop!(n, ["mov eax, [r13]"], in("r13") NOWHERE, out("rax") _,),
        |n| measured_loop!(n, ["nop"], in("r13") NOWHERE, out("rax") _,),
    );
    let value = mmio::read32(NOWHERE);
    if value != u32::MAX {
        println!("@error what is not there is {value:#x}");
    }
}

/// A read of a port that no device has: all ones.
pub fn absent_port() {
    bench::measure(
        "absent-port",
        |n| measured_loop!(n, ["in al, {port}"], port = const NO_PORT, out("rax") _,),
        |n| measured_loop!(n, ["nop"], out("rax") _,),
    );
    let value = port::read8(NO_PORT);
    if value != u8::MAX {
        println!("@error a port that is not there is {value:#x}");
    }
}

/// A read of the I/O APIC's window, which shows the version register.
pub fn io_apic(row: &str) {
    mmio::write32(io_apic::base() + io_apic::SELECT, io_apic::VERSION);
    let window = io_apic::base() + io_apic::WINDOW;
    bench::measure(
        row,
        |n| measured_loop!(n, ["mov eax, [r13]"], in("r13") window, out("rax") _,),
        |n| measured_loop!(n, ["nop"], in("r13") window, out("rax") _,),
    );
    let version = mmio::read32(window);
    if version & 0xff < 0x10 {
        println!("@error the I/O APIC's version register is {version:#x}");
    }
}
