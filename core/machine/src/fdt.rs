// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device tree a guest is given: it names what the machine has, and nothing else.
//!
//! Format: Devicetree Specification 0.4; node contents: the Linux bindings `arm,gic` and `arm,gic-v3`,
//! `arm,armv8-timer`, `psci`, `arm,pl011`, `arm,pl031`, `ns16550a`, `cfi-flash`, `arm,armv8-pmuv3`, `pci-host-ecam-generic`
//! and `arm,gic-v2m-frame`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use vm_fdt::FdtWriter;

use crate::gic::GicVersion;
use crate::map::{
    self, Device, FIRST_MESSAGE, FIRST_PPI, FIRST_SPI, GuestMachine, MESSAGES, Map, MapError, PMU_INTID, Pci,
    Region, TIMER_HYPERVISOR_INTID, TIMER_PHYSICAL_INTID, TIMER_SECURE_INTID, TIMER_VIRTUAL_INTID, UartKind,
};

/// The most bytes that [`build`] returns, and so the room that a layout keeps for the device tree.
///
/// The CPU nodes of the largest VM take about 60 KiB, a command line at most [`MAX_BOOTARGS`]. Aligned to its
/// own size it does not cross a 2 MiB boundary, which older kernels demand.
pub const MAX_SIZE: u64 = 0x2_0000;
/// The most bytes of a command line: Linux's `COMMAND_LINE_SIZE` on arm64, without the final NUL.
pub const MAX_BOOTARGS: usize = 2047;

/// The rate of the fixed clock that the PrimeCells are said to run at, in Hz. Nothing depends on it.
const APB_CLOCK_HZ: u32 = 24_000_000;
/// The reference clock of a 16550 in a PC, in Hz, from which a driver computes the divisor.
const UART_16550_CLOCK_HZ: u32 = 1_843_200;

const PHANDLE_GIC: u32 = 1;
const PHANDLE_CLOCK: u32 = 2;
const PHANDLE_MESSAGES: u32 = 3;

/// Interrupt types and flags of the GIC's three-cell interrupt specifier.
const CELL_SPI: u32 = 0;
const CELL_PPI: u32 = 1;
const CELL_EDGE_RISING: u32 = 1;
const CELL_LEVEL_HIGH: u32 = 4;
const CELL_LEVEL_LOW: u32 = 8;

/// A range of PCI addresses: memory below 4 GiB that is not prefetchable (IEEE 1275 PCI Bus Binding 2.1, section 2.2.1.1).
const CELL_PCI_MEMORY: u32 = 2 << 24;

/// What a device tree is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform<'a> {
    /// The guest machine.
    pub machine: GuestMachine,
    /// The interrupt controller.
    pub gic: GicVersion,
    /// The number of vCPUs.
    pub vcpus: usize,
    /// The size of RAM in bytes.
    pub memory: u64,
    /// The kernel's command line.
    pub bootargs: &'a str,
    /// The guest physical addresses of the initial RAM disk.
    pub initrd: Option<Range<u64>>,
    /// Whether the guest has a PMU.
    pub pmu: bool,
    /// The size of each bank of flash in bytes; zero if there is none.
    pub flash: u64,
    /// Whether it has the registers of a service.
    pub service: bool,
    /// Whether it has PCI functions.
    pub pci: bool,
    /// How many virtio devices it has behind MMIO.
    pub virtio: usize,
}

/// Why no device tree was built.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    /// The vCPUs or the memory do not fit the machine.
    Map(MapError),
    /// The command line has this many bytes, more than [`MAX_BOOTARGS`].
    BootargsTooLong(usize),
    /// The command line contains a NUL.
    BootargsNul,
    /// The initial RAM disk is empty or outside RAM.
    Initrd(Range<u64>),
    /// The blob could not be written; the text says what the writer refused.
    Write(vm_fdt::Error),
    /// The blob has this many bytes, more than [`MAX_SIZE`].
    TooLarge(usize),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Map(error) => error.fmt(f),
            Error::BootargsTooLong(length) => {
                write!(f, "a command line of {length} bytes is too long; give at most {MAX_BOOTARGS}")
            }
            Error::BootargsNul => f.write_str("the command line contains a NUL; remove it"),
            Error::Initrd(range) => {
                write!(f, "the initial RAM disk at {:#x}..{:#x} is not in the RAM", range.start, range.end)
            }
            Error::Write(error) => write!(f, "the device tree cannot be written: {error}"),
            Error::TooLarge(size) => {
                write!(f, "the device tree has {size} bytes, more than the {MAX_SIZE} kept for it")
            }
        }
    }
}

impl core::error::Error for Error {}

impl From<vm_fdt::Error> for Error {
    fn from(error: vm_fdt::Error) -> Self {
        Error::Write(error)
    }
}

/// Builds the flattened device tree of a guest.
///
/// # Errors
///
/// Refuses a platform that does not fit its machine, see [`Error`].
pub fn build(platform: &Platform<'_>) -> Result<Vec<u8>, Error> {
    let map = platform.machine.map();
    check(platform, map)?;

    let mut fdt = FdtWriter::new()?;
    let root = fdt.begin_node("")?;
    fdt.property_string("compatible", "linux,dummy-virt")?;
    fdt.property_string("model", &format!("turnstile,{}", platform.machine))?;
    fdt.property_u32("#address-cells", 2)?;
    fdt.property_u32("#size-cells", 2)?;
    fdt.property_u32("interrupt-parent", PHANDLE_GIC)?;
    let uart = uart_name(map);
    chosen(&mut fdt, platform, &uart)?;
    memory(&mut fdt, map.ram(platform.memory))?;
    cpus(&mut fdt, platform.vcpus)?;
    psci(&mut fdt)?;
    interrupt_controller(&mut fdt, map, platform)?;
    timer(&mut fdt, platform)?;
    if platform.pmu {
        pmu(&mut fdt, platform)?;
    }
    clock(&mut fdt)?;
    serial(&mut fdt, map, &uart)?;
    rtc(&mut fdt, map)?;
    flash(&mut fdt, map, platform.flash)?;
    if platform.service {
        service(&mut fdt, map)?;
    }
    if platform.pci {
        pci(&mut fdt, map)?;
    }
    for window in (0..platform.virtio).map_while(|number| map.virtio.device(number)) {
        virtio(&mut fdt, &window)?;
    }
    fdt.end_node(root)?;

    let blob = fdt.finish()?;
    if blob.len() as u64 > MAX_SIZE { Err(Error::TooLarge(blob.len())) } else { Ok(blob) }
}

fn check(platform: &Platform<'_>, map: &Map) -> Result<(), Error> {
    map.check(platform.gic, platform.vcpus, platform.memory).map_err(Error::Map)?;
    map.check_flash(platform.flash).map_err(Error::Map)?;
    if platform.bootargs.len() > MAX_BOOTARGS {
        return Err(Error::BootargsTooLong(platform.bootargs.len()));
    }
    if platform.bootargs.contains('\0') {
        return Err(Error::BootargsNul);
    }
    let ram = map.ram(platform.memory);
    match &platform.initrd {
        Some(range) if range.is_empty() || range.start < ram.base || range.end > ram.end() => {
            Err(Error::Initrd(range.clone()))
        }
        _ => Ok(()),
    }
}

fn uart_name(map: &Map) -> String {
    let kind = match map.uart_kind {
        UartKind::Pl011 => "pl011",
        UartKind::Uart16550 => "serial",
    };
    format!("{kind}@{:x}", map.uart.region.base)
}

fn chosen(fdt: &mut FdtWriter, platform: &Platform<'_>, uart: &str) -> Result<(), Error> {
    let path = format!("/{uart}");
    let node = fdt.begin_node("chosen")?;
    fdt.property_string("bootargs", platform.bootargs)?;
    fdt.property_string("stdout-path", &path)?;
    if let Some(initrd) = &platform.initrd {
        fdt.property_u64("linux,initrd-start", initrd.start)?;
        fdt.property_u64("linux,initrd-end", initrd.end)?;
    }
    fdt.end_node(node)?;
    // Linux numbers the serial port by its alias: without one a PL011 is numbered by the order of probing.
    let node = fdt.begin_node("aliases")?;
    fdt.property_string("serial0", &path)?;
    fdt.end_node(node)?;
    Ok(())
}

fn memory(fdt: &mut FdtWriter, ram: Region) -> Result<(), Error> {
    let node = fdt.begin_node(&format!("memory@{:x}", ram.base))?;
    fdt.property_string("device_type", "memory")?;
    reg(fdt, &[ram])?;
    fdt.end_node(node)?;
    Ok(())
}

fn cpus(fdt: &mut FdtWriter, vcpus: usize) -> Result<(), Error> {
    let cpus = fdt.begin_node("cpus")?;
    // One cell holds Aff2..Aff0; two are needed only when Aff3 is used (binding `arm/cpus`).
    fdt.property_u32("#address-cells", 1)?;
    fdt.property_u32("#size-cells", 0)?;
    for affinity in (0..vcpus).filter_map(map::mpidr) {
        let node = fdt.begin_node(&format!("cpu@{affinity:x}"))?;
        fdt.property_string("device_type", "cpu")?;
        fdt.property_string("compatible", "arm,armv8")?;
        fdt.property_string("enable-method", "psci")?;
        fdt.property_u32("reg", affinity as u32)?;
        fdt.end_node(node)?;
    }
    fdt.end_node(cpus)?;
    Ok(())
}

fn psci(fdt: &mut FdtWriter) -> Result<(), Error> {
    let node = fdt.begin_node("psci")?;
    strings(fdt, "compatible", &["arm,psci-1.0", "arm,psci-0.2"])?;
    fdt.property_string("method", "hvc")?;
    fdt.end_node(node)?;
    Ok(())
}

fn interrupt_controller(fdt: &mut FdtWriter, map: &Map, platform: &Platform<'_>) -> Result<(), Error> {
    let node = fdt.begin_node(&format!("intc@{:x}", map.gicd.base))?;
    fdt.property_null("interrupt-controller")?;
    fdt.property_u32("#interrupt-cells", 3)?;
    fdt.property_u32("#address-cells", 2)?;
    fdt.property_u32("#size-cells", 2)?;
    fdt.property_null("ranges")?;
    match platform.gic {
        GicVersion::V2 => {
            fdt.property_string("compatible", "arm,cortex-a15-gic")?;
            reg(fdt, &[map.gicd, map.gicc])?;
        }
        GicVersion::V3 => {
            fdt.property_string("compatible", "arm,gic-v3")?;
            let gicr = map.gicr(platform.vcpus, platform.memory);
            let regions: Vec<Region> = [map.gicd].into_iter().chain(gicr.regions()).collect();
            fdt.property_u32("#redistributor-regions", regions.len() as u32 - 1)?;
            reg(fdt, &regions)?;
        }
    }
    fdt.property_phandle(PHANDLE_GIC)?;
    if platform.pci {
        let frame = fdt.begin_node(&format!("v2m@{:x}", map.pci.frame.base))?;
        // Linux takes such a frame for a GICv3, too, which has no ITS.
        fdt.property_string("compatible", "arm,gic-v2m-frame")?;
        fdt.property_null("msi-controller")?;
        reg(fdt, &[map.pci.frame])?;
        fdt.property_u32("arm,msi-base-spi", FIRST_MESSAGE)?;
        fdt.property_u32("arm,msi-num-spis", MESSAGES)?;
        fdt.property_phandle(PHANDLE_MESSAGES)?;
        fdt.end_node(frame)?;
    }
    fdt.end_node(node)?;
    Ok(())
}

/// Returns the interrupt specifier of a PPI. A GICv2's names the CPUs that have it, in bits 15 to 8.
fn ppi(platform: &Platform<'_>, intid: u32, level: u32) -> [u32; 3] {
    let cpus = match platform.gic {
        GicVersion::V2 => ((1 << platform.vcpus) - 1) << 8,
        GicVersion::V3 => 0,
    };
    [CELL_PPI, intid - FIRST_PPI, cpus | level]
}

fn timer(fdt: &mut FdtWriter, platform: &Platform<'_>) -> Result<(), Error> {
    // The polarity is what each machine's own device tree says; a GIC ignores it for PPIs.
    let level = match platform.machine {
        GuestMachine::Virt => CELL_LEVEL_HIGH,
        GuestMachine::Kvmtool => CELL_LEVEL_LOW,
    };
    let node = fdt.begin_node("timer")?;
    strings(fdt, "compatible", &["arm,armv8-timer", "arm,armv7-timer"])?;
    // The binding's order: secure, physical, virtual, hypervisor.
    let cells: Vec<u32> =
        [TIMER_SECURE_INTID, TIMER_PHYSICAL_INTID, TIMER_VIRTUAL_INTID, TIMER_HYPERVISOR_INTID]
            .iter()
            .flat_map(|&intid| ppi(platform, intid, level))
            .collect();
    fdt.property_array_u32("interrupts", &cells)?;
    // A vCPU in WFI keeps its timer: no broadcast timer is needed.
    fdt.property_null("always-on")?;
    fdt.end_node(node)?;
    Ok(())
}

fn pmu(fdt: &mut FdtWriter, platform: &Platform<'_>) -> Result<(), Error> {
    let node = fdt.begin_node("pmu")?;
    fdt.property_string("compatible", "arm,armv8-pmuv3")?;
    fdt.property_array_u32("interrupts", &ppi(platform, PMU_INTID, CELL_LEVEL_HIGH))?;
    fdt.end_node(node)?;
    Ok(())
}

fn clock(fdt: &mut FdtWriter) -> Result<(), Error> {
    let node = fdt.begin_node("apb-pclk")?;
    fdt.property_string("compatible", "fixed-clock")?;
    fdt.property_u32("#clock-cells", 0)?;
    fdt.property_u32("clock-frequency", APB_CLOCK_HZ)?;
    fdt.property_string("clock-output-names", "clk24mhz")?;
    fdt.property_phandle(PHANDLE_CLOCK)?;
    fdt.end_node(node)?;
    Ok(())
}

fn serial(fdt: &mut FdtWriter, map: &Map, name: &str) -> Result<(), Error> {
    let node = fdt.begin_node(name)?;
    match map.uart_kind {
        UartKind::Pl011 => {
            strings(fdt, "compatible", &["arm,pl011", "arm,primecell"])?;
            fdt.property_array_u32("clocks", &[PHANDLE_CLOCK, PHANDLE_CLOCK])?;
            strings(fdt, "clock-names", &["uartclk", "apb_pclk"])?;
        }
        UartKind::Uart16550 => {
            fdt.property_string("compatible", "ns16550a")?;
            fdt.property_u32("clock-frequency", UART_16550_CLOCK_HZ)?;
            fdt.property_u32("reg-shift", 0)?;
        }
    }
    device(fdt, &map.uart)?;
    fdt.end_node(node)?;
    Ok(())
}

fn rtc(fdt: &mut FdtWriter, map: &Map) -> Result<(), Error> {
    let node = fdt.begin_node(&format!("pl031@{:x}", map.rtc.region.base))?;
    strings(fdt, "compatible", &["arm,pl031", "arm,primecell"])?;
    fdt.property_u32("clocks", PHANDLE_CLOCK)?;
    fdt.property_string("clock-names", "apb_pclk")?;
    device(fdt, &map.rtc)?;
    fdt.end_node(node)?;
    Ok(())
}

/// What the registers mean, the service's program says.
fn service(fdt: &mut FdtWriter, map: &Map) -> Result<(), Error> {
    let node = fdt.begin_node(&format!("service@{:x}", map.service.region.base))?;
    fdt.property_string("compatible", "turnstile,service")?;
    device(fdt, &map.service)?;
    fdt.end_node(node)?;
    Ok(())
}

/// One bus, without interrupt pins: all functions have messages. What they write is coherent with the CPUs' caches.
fn pci(fdt: &mut FdtWriter, map: &Map) -> Result<(), Error> {
    let Pci { ecam, memory, .. } = map.pci;
    let node = fdt.begin_node(&format!("pcie@{:x}", ecam.base))?;
    fdt.property_string("compatible", "pci-host-ecam-generic")?;
    fdt.property_string("device_type", "pci")?;
    fdt.property_u32("#address-cells", 3)?;
    fdt.property_u32("#size-cells", 2)?;
    fdt.property_array_u32("bus-range", &[0, 0])?;
    fdt.property_u32("linux,pci-domain", 0)?;
    reg(fdt, &[ecam])?;
    let halves = |value: u64| [(value >> 32) as u32, value as u32];
    let addresses = [memory.base, memory.base, memory.size].into_iter().flat_map(halves);
    let range: Vec<u32> = [CELL_PCI_MEMORY].into_iter().chain(addresses).collect();
    fdt.property_array_u32("ranges", &range)?;
    fdt.property_u32("msi-parent", PHANDLE_MESSAGES)?;
    fdt.property_null("dma-coherent")?;
    fdt.end_node(node)?;
    Ok(())
}

/// A device behind MMIO. It has no level: each interrupt is an edge. What it writes is coherent with the CPUs' caches.
fn virtio(fdt: &mut FdtWriter, window: &Device) -> Result<(), Error> {
    let node = fdt.begin_node(&format!("virtio_mmio@{:x}", window.region.base))?;
    fdt.property_string("compatible", "virtio,mmio")?;
    reg(fdt, &[window.region])?;
    fdt.property_array_u32("interrupts", &[CELL_SPI, window.intid - FIRST_SPI, CELL_EDGE_RISING])?;
    fdt.property_null("dma-coherent")?;
    fdt.end_node(node)?;
    Ok(())
}

/// All banks are in one node: two chips of 16 bits side by side in each.
fn flash(fdt: &mut FdtWriter, map: &Map, size: u64) -> Result<(), Error> {
    let banks: Vec<Region> = map.flash_banks(size).collect();
    let Some(first) = banks.first() else { return Ok(()) };
    let node = fdt.begin_node(&format!("flash@{:x}", first.base))?;
    fdt.property_string("compatible", "cfi-flash")?;
    reg(fdt, &banks)?;
    fdt.property_u32("bank-width", 4)?;
    fdt.end_node(node)?;
    Ok(())
}

fn device(fdt: &mut FdtWriter, device: &Device) -> Result<(), Error> {
    reg(fdt, &[device.region])?;
    fdt.property_array_u32("interrupts", &[CELL_SPI, device.intid - FIRST_SPI, CELL_LEVEL_HIGH])?;
    Ok(())
}

fn reg(fdt: &mut FdtWriter, regions: &[Region]) -> Result<(), Error> {
    let cells: Vec<u64> = regions.iter().flat_map(|region| [region.base, region.size]).collect();
    fdt.property_array_u64("reg", &cells)?;
    Ok(())
}

fn strings(fdt: &mut FdtWriter, name: &str, values: &[&str]) -> Result<(), Error> {
    fdt.property_string_list(name, values.iter().map(|value| String::from(*value)).collect())?;
    Ok(())
}
