// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device tree of a partition, as Linux takes it without Open Firmware (LoPAPR appendix B; Linux,
//! `Documentation/arch/powerpc/booting.rst`).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use turnstile_papr::rtas::Function;
use turnstile_papr::terminal;
use vm_fdt::{Error, FdtReserveEntry, FdtWriter};

use crate::functions::Functions;

use super::{
    INTERRUPT_PAGE, Interrupts, RESERVED_PRIORITY, TERMINAL_SOURCE, TIMA, TIMA_OS_PAGE, TIMA_USER_PAGE,
    ipi_sources,
};
use super::{long_name, pci};

/// What a device tree is built from.
#[derive(Clone, Debug)]
pub struct Platform<'a> {
    /// The number of vCPUs.
    pub vcpus: usize,
    /// How many of them are the threads of a core: see [`THREADS`](super::THREADS).
    pub threads: usize,
    /// The size of RAM in bytes.
    pub memory: u64,
    /// The kernel's command line.
    pub bootargs: &'a str,
    /// Where the initial RAM disk is.
    pub initrd: Option<Range<u64>>,
    /// Where the firmware is; its entry is at the beginning.
    pub rtas: Range<u64>,
    /// The interrupt controller.
    pub interrupts: Interrupts,
    /// How often the time base counts in a second.
    pub timebase: u64,
    /// Its PCI functions.
    pub functions: Functions,
}

const PHANDLE_INTERRUPTS: u32 = 1;

/// The groups of calls that Linux looks for.
const CALLS: [&str; 8] = [
    "hcall-term",
    "hcall-interrupt",
    "hcall-splpar",
    "hcall-set-mode",
    "hcall-vio",
    "hcall-perfmon",
    "hcall-sprg0",
    "hcall-copy",
];

/// Facilities of the processor (LoPAPR C.6.2, `ibm,pa-features`; those of Power ISA 3.0 as Linux and QEMU number them): the
/// length, the kind, then bits from the most significant on. Without transactional memory.
const PA_FEATURES: [u8; 68] = [
    66, 0, // All bytes that follow; the only kind there is.
    0xf6, 0x1f, 0xc7, 0xc0, 0x80,
    0xf0, // 0: MMU, FPU, SLB, run latch, no-execute …; 5: little-endian.
    0x80, 0, 0, 0, 0, 0, // 6: Power ISA 2.07.
    0, 0, 0, 0, 0x80, 0, // 16: vectors.
    0x80, 0, 0x80, 0, 0, 0, // 18: vector-scalar, 20: vector exclusive or, 22: no transactional memory.
    0x80, 0, 0x80, 0, 0x80,
    0, // 24: external control of the decrementer, 26: 64 bits, 28: performance monitor.
    0x80, 0, 0x80, 0, 0xc0, 0, // 30: MMR, 32: little-endian atomics, 34: event-based branches.
    0x80, 0, 0x80, 0, 0x80, 0, // 36: SO, 38: copy and paste, 40: radix trees.
    0x80, 0, 0x80, 0, 0x80, 0, // 42: PM, 44: PC-relative addresses, 46: vectored system calls.
    0x80, 0, 0x80, 0, 0x80, 0, // 48: SIMD, 50: quad precision, 52: strings.
    0x80, 0, 0x80, 0, 0x80, 0, // 54: decimal floating point, 56: decimal integers, 58: SHA.
    0x80, 0, 0x80, 0, 0, 0, // 60: atomics in memory, 62: random numbers.
];

/// Page sizes of radix trees: the encoding in the highest three bits, the shift (Power ISA 3.0B Book III 5.7.10.1).
const RADIX_PAGES: [u32; 4] = [12, 5 << 29 | 16, 1 << 29 | 21, 2 << 29 | 30];

/// The name of their property, without the last letter, for which the writer has no room.
const RADIX_PAGES_NAME: &str = "ibm,processor-radix-AP-encoding";

/// How much of a property's name the writer has room for.
const NAME: usize = 31;

/// Bytes of a line of the first-level caches, and of each of them.
const CACHE_LINE: u32 = 128;
const CACHE_SIZE: u32 = 0x8000;
/// What is said of the processor's clock; nothing depends on it.
const CLOCK_HZ: u32 = 2_000_000_000;

/// Builds the flattened device tree.
///
/// # Errors
///
/// When the writer refuses it: a command line with a NUL.
pub fn build(platform: &Platform<'_>) -> Result<Vec<u8>, Error> {
    let firmware = &platform.rtas;
    let reserved = FdtReserveEntry::new(firmware.start, firmware.end - firmware.start)?;
    let mut fdt = FdtWriter::new_with_mem_reserv(&[reserved])?;
    let root = fdt.begin_node("")?;
    fdt.property_string("device_type", "chrp")?;
    fdt.property_string("model", "Turnstile pseries")?;
    fdt.property_string("compatible", "turnstile,pseries")?;
    fdt.property_u32("#address-cells", 2)?;
    fdt.property_u32("#size-cells", 2)?;
    fdt.property_u32("interrupt-parent", PHANDLE_INTERRUPTS)?;
    if platform.interrupts == Interrupts::Xive {
        let reserved = [RESERVED_PRIORITY, 0xff - RESERVED_PRIORITY];
        fdt.property_array_u32("ibm,plat-res-int-priorities", &reserved)?;
    }
    chosen(&mut fdt, platform)?;
    memory(&mut fdt, platform.memory)?;
    cpus(&mut fdt, platform)?;
    rtas(&mut fdt, platform)?;
    match platform.interrupts {
        Interrupts::Xive => xive(&mut fdt, platform.vcpus)?,
        Interrupts::Xics => xics(&mut fdt, platform.vcpus)?,
    }
    devices(&mut fdt)?;
    if !platform.functions.is_empty() {
        pci::bridge(&mut fdt, &platform.functions)?;
    }
    fdt.end_node(root)?;
    let mut blob = fdt.finish()?;
    long_name::lengthen(&mut blob, RADIX_PAGES_NAME, "s").ok_or(Error::InvalidPropertyName)?;
    if !platform.functions.is_empty() {
        let (name, rest) = split(Function::QueryInterruptSource.name());
        long_name::lengthen(&mut blob, name, rest).ok_or(Error::InvalidPropertyName)?;
    }
    Ok(blob)
}

fn chosen(fdt: &mut FdtWriter, platform: &Platform<'_>) -> Result<(), Error> {
    let node = fdt.begin_node("chosen")?;
    fdt.property_string("bootargs", platform.bootargs)?;
    fdt.property_string("stdout-path", &format!("/vdevice/vty@{:x}", terminal::UNIT))?;
    if let Some(initrd) = &platform.initrd {
        fdt.property_u64("linux,initrd-start", initrd.start)?;
        fdt.property_u64("linux,initrd-end", initrd.end)?;
    }
    if !platform.functions.is_empty() {
        // Functions reach memory by its own addresses: there is no table between, and no call that changes one.
        fdt.property_null("linux,iommu-off")?;
    }
    fdt.property("ibm,architecture-vec-5", &options(platform.interrupts))?;
    fdt.end_node(node)
}

/// What a negotiation would have led to (LoPAPR B.6.2.3, option vector 5): its length without two bytes, then the bytes by
/// their numbers.
fn options(interrupts: Interrupts) -> [u8; 28] {
    let mut vector = [0; 28];
    vector[0] = vector.len() as u8 - 2;
    // A logical partition, whose processors may be shared.
    vector[2] = 0xc0;
    vector[23] = match interrupts {
        Interrupts::Xive => 0x40,
        Interrupts::Xics => 0,
    };
    // Radix trees, whose translations the guest invalidates itself.
    vector[24] = 0x40;
    vector[26] = 0x40;
    vector
}

fn memory(fdt: &mut FdtWriter, memory: u64) -> Result<(), Error> {
    let node = fdt.begin_node("memory@0")?;
    fdt.property_string("device_type", "memory")?;
    fdt.property_array_u64("reg", &[0, memory])?;
    fdt.end_node(node)
}

fn cpus(fdt: &mut FdtWriter, platform: &Platform<'_>) -> Result<(), Error> {
    let cpus = fdt.begin_node("cpus")?;
    fdt.property_u32("#address-cells", 1)?;
    fdt.property_u32("#size-cells", 0)?;
    for first in (0..platform.vcpus).step_by(platform.threads.max(1)) {
        let threads: Vec<u32> =
            (first..platform.vcpus).take(platform.threads).map(|vcpu| vcpu as u32).collect();
        let node = fdt.begin_node(&format!("PowerPC,POWER9@{first:x}"))?;
        core(fdt, &threads, platform.timebase)?;
        fdt.end_node(node)?;
    }
    fdt.end_node(cpus)
}

/// A processor with these threads, whose number is that of the first.
fn core(fdt: &mut FdtWriter, threads: &[u32], timebase: u64) -> Result<(), Error> {
    let global: Vec<u32> = threads.iter().flat_map(|thread| [*thread, 0]).collect();
    fdt.property_string("device_type", "cpu")?;
    fdt.property_u32("reg", threads.first().copied().unwrap_or_default())?;
    fdt.property_string("status", "okay")?;
    fdt.property_null("64-bit")?;
    fdt.property_array_u32("ibm,ppc-interrupt-server#s", threads)?;
    fdt.property_array_u32("ibm,ppc-interrupt-gserver#s", &global)?;
    fdt.property_u32("timebase-frequency", timebase as u32)?;
    fdt.property_u32("clock-frequency", CLOCK_HZ)?;
    for cache in ["i-cache", "d-cache"] {
        fdt.property_u32(&format!("{cache}-block-size"), CACHE_LINE)?;
        fdt.property_u32(&format!("{cache}-line-size"), CACHE_LINE)?;
        fdt.property_u32(&format!("{cache}-size"), CACHE_SIZE)?;
    }
    fdt.property("ibm,pa-features", &PA_FEATURES)?;
    fdt.property_array_u32(RADIX_PAGES_NAME, &RADIX_PAGES)?;
    // Vectors with VSX.
    fdt.property_u32("ibm,vmx", 2)?;
    for facility in ["ibm,dfp", "ibm,purr", "ibm,spurr"] {
        fdt.property_u32(facility, 1)?;
    }
    Ok(())
}

fn rtas(fdt: &mut FdtWriter, platform: &Platform<'_>) -> Result<(), Error> {
    let node = fdt.begin_node("rtas")?;
    fdt.property_u32("linux,rtas-base", platform.rtas.start as u32)?;
    fdt.property_u32("linux,rtas-entry", platform.rtas.start as u32)?;
    fdt.property_u32("rtas-size", (platform.rtas.end - platform.rtas.start) as u32)?;
    fdt.property_string_list("ibm,hypertas-functions", CALLS.map(String::from).into())?;
    // The report of a panic returns.
    fdt.property_null("ibm,extended-os-term")?;
    let is_there = |function: &&Function| {
        (platform.interrupts == Interrupts::Xics || !function.is_xics())
            && (!platform.functions.is_empty() || !function.is_pci())
    };
    for function in Function::ALL.iter().filter(is_there) {
        fdt.property_u32(split(function.name()).0, function.token())?;
    }
    fdt.end_node(node)
}

/// Splits a property's name: what the writer takes, and the rest.
fn split(name: &str) -> (&str, &str) {
    name.split_at_checked(NAME).unwrap_or((name, ""))
}

fn xive(fdt: &mut FdtWriter, vcpus: usize) -> Result<(), Error> {
    let [user, os] = [TIMA_USER_PAGE, TIMA_OS_PAGE].map(|page| TIMA.base + page * INTERRUPT_PAGE);
    let node = fdt.begin_node(&format!("interrupt-controller@{user:x}"))?;
    fdt.property_string("device_type", "power-ivpe")?;
    fdt.property_string("compatible", "ibm,power-ivpe")?;
    fdt.property_array_u64("reg", &[user, INTERRUPT_PAGE, os, INTERRUPT_PAGE])?;
    fdt.property_array_u32("ibm,xive-eq-sizes", &[12, 16])?;
    fdt.property_array_u32("ibm,xive-lisn-ranges", &[0, ipi_sources(vcpus)])?;
    controller(fdt)?;
    fdt.end_node(node)
}

fn xics(fdt: &mut FdtWriter, vcpus: usize) -> Result<(), Error> {
    let node = fdt.begin_node("interrupt-controller")?;
    fdt.property_string("device_type", "PowerPC-External-Interrupt-Presentation")?;
    fdt.property_string("compatible", "IBM,ppc-xicp")?;
    fdt.property_array_u32("ibm,interrupt-server-ranges", &[0, vcpus as u32])?;
    controller(fdt)?;
    fdt.end_node(node)
}

fn controller(fdt: &mut FdtWriter) -> Result<(), Error> {
    fdt.property_null("interrupt-controller")?;
    fdt.property_u32("#interrupt-cells", 2)?;
    fdt.property_phandle(PHANDLE_INTERRUPTS)
}

/// What is reached by calls.
fn devices(fdt: &mut FdtWriter) -> Result<(), Error> {
    let bus = fdt.begin_node("vdevice")?;
    fdt.property_string("device_type", "vdevice")?;
    fdt.property_string("compatible", "IBM,vdevice")?;
    fdt.property_u32("#address-cells", 1)?;
    fdt.property_u32("#size-cells", 0)?;
    let node = fdt.begin_node(&format!("vty@{:x}", terminal::UNIT))?;
    fdt.property_string("device_type", "serial")?;
    fdt.property_string("compatible", "hvterm1")?;
    fdt.property_u32("reg", terminal::UNIT as u32)?;
    // An edge.
    fdt.property_array_u32("interrupts", &[TERMINAL_SOURCE, 0])?;
    fdt.end_node(node)?;
    fdt.end_node(bus)
}
