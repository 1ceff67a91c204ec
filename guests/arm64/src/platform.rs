// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as its device tree describes it: every address a guest uses comes from here
//! (Devicetree Specification 0.4; Linux bindings arm,gic-v3, arm,gic, arm,psci, arm,armv8-timer, arm,pl011, ns16550a).

use core::cell::UnsafeCell;

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};

use crate::println;

/// Most CPUs a guest can use.
pub const MAX_CPUS: usize = 512;
const MAX_REGIONS: usize = 4;
const MAX_BOOTARGS: usize = 2048;

/// A range of physical addresses.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Region {
    /// First address.
    pub base: u64,
    /// Bytes.
    pub size: u64,
}

impl Region {
    /// Returns the first address behind the region.
    pub fn end(&self) -> u64 {
        self.base.wrapping_add(self.size)
    }
}

/// Which UART the console is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UartKind {
    /// Arm PL011.
    Pl011,
    /// 16550A with registers of one byte, `1 << shift` bytes apart.
    Uart16550 {
        /// Distance of two registers as a power of two.
        shift: u32,
    },
}

/// The console UART.
#[derive(Clone, Copy)]
pub struct Uart {
    /// Which model.
    pub kind: UartKind,
    /// Its registers.
    pub region: Region,
    /// Its interrupt.
    pub intid: u32,
}

/// How to call the firmware, or the hypervisor in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conduit {
    /// HVC #0.
    Hvc,
    /// SMC #0.
    Smc,
}

/// What the device tree says.
pub struct Platform {
    /// Memory regions.
    pub memory: List<Region, MAX_REGIONS>,
    /// The console.
    pub uart: Option<Uart>,
    /// The distributor of the GICv3 or GICv2.
    pub gicd: Option<Region>,
    /// The CPU interface of a GICv2.
    pub gicc: Option<Region>,
    /// GICv3 redistributor regions.
    pub gicr: List<Region, MAX_REGIONS>,
    /// PSCI's conduit, if there is PSCI.
    pub psci: Option<Conduit>,
    /// MPIDR affinity of each CPU node that is not disabled.
    pub cpus: List<u64, MAX_CPUS>,
    /// PL031 real-time clock.
    pub rtc: Option<Region>,
    /// The INTID of the clock's alarm.
    pub rtc_intid: Option<u32>,
    /// INTID of the EL1 physical timer.
    pub physical_timer: u32,
    /// INTID of the virtual timer.
    pub virtual_timer: u32,
    /// INTID of the PMU's overflow interrupt, if there is a PMU.
    pub pmu: Option<u32>,
    /// The device tree itself.
    pub device_tree: Region,
    /// The initial RAM disk, if there is one.
    pub initrd: Option<Region>,
    /// Whether this is a domain of Xen, which offers its hypercalls.
    pub xen: bool,
    bootargs: [u8; MAX_BOOTARGS],
    bootargs_len: usize,
    found: bool,
}

/// A short list without allocation; what does not fit is left out.
pub struct List<T, const N: usize> {
    items: [T; N],
    len: usize,
}

impl<T: Copy, const N: usize> List<T, N> {
    /// Returns an empty list; `filler` is never seen.
    pub const fn new(filler: T) -> Self {
        List { items: [filler; N], len: 0 }
    }

    /// Appends an item, if there is room.
    pub fn push(&mut self, item: T) {
        if let Some(slot) = self.items.get_mut(self.len) {
            *slot = item;
            self.len += 1;
        }
    }

    /// Returns the items.
    pub fn as_slice(&self) -> &[T] {
        self.items.get(..self.len).unwrap_or(&[])
    }
}

impl Platform {
    /// Returns the guest's command line.
    pub fn bootargs(&self) -> &str {
        self.bootargs.get(..self.bootargs_len).and_then(|b| core::str::from_utf8(b).ok()).unwrap_or("")
    }

    /// Returns the first memory region.
    ///
    /// # Panics
    /// When the device tree has none.
    pub fn ram(&self) -> Region {
        *self.memory.as_slice().first().expect("the device tree has no memory")
    }
}

struct Holder(UnsafeCell<Platform>);

// SAFETY: written once by `init`, before any other CPU runs, and only read afterwards.
unsafe impl Sync for Holder {}

const NOWHERE: Region = Region { base: 0, size: 0 };

static PLATFORM: Holder = Holder(UnsafeCell::new(Platform {
    memory: List::new(NOWHERE),
    uart: None,
    gicd: None,
    gicc: None,
    gicr: List::new(NOWHERE),
    psci: None,
    cpus: List::new(0),
    rtc: None,
    rtc_intid: None,
    physical_timer: 0,
    virtual_timer: 0,
    pmu: None,
    device_tree: NOWHERE,
    initrd: None,
    xen: false,
    bootargs: [0; MAX_BOOTARGS],
    bootargs_len: 0,
    found: false,
}));

/// Returns the machine.
pub fn platform() -> &'static Platform {
    // SAFETY: see `Holder`.
    unsafe { &*PLATFORM.0.get() }
}

/// Returns whether the device tree has been read.
pub fn is_known() -> bool {
    platform().found
}

/// Reads the device tree.
///
/// # Safety
/// `address` is that of a device tree blob, or anything that is not one by its magic number; nothing else
/// runs, and no reference into the platform exists yet.
pub unsafe fn init(address: u64) {
    // SAFETY: the caller's promise.
    let platform = unsafe { &mut *PLATFORM.0.get() };
    if address == 0 || !address.is_multiple_of(8) {
        return;
    }
    let header = address as *const u32;
    // SAFETY: the header of a device tree is readable, by the caller's promise.
    let (magic, size) = unsafe { (u32::from_be(header.read()), u32::from_be(header.add(1).read())) };
    if magic != 0xd00d_feed {
        return;
    }
    // SAFETY: a blob is as long as its header says.
    let blob = unsafe { core::slice::from_raw_parts(address as *const u8, size as usize) };
    let Ok(tree) = Fdt::new(blob) else { return };
    platform.device_tree = Region { base: address, size: u64::from(size) };
    walk(platform, &tree);
    platform.found = true;
}

/// Cells of an address and of a size below one node.
#[derive(Clone, Copy)]
struct CellSizes {
    address: usize,
    size: usize,
}

fn walk(platform: &mut Platform, tree: &Fdt<'_>) {
    let root = tree.root();
    let sizes = cell_sizes(&root);
    let mut stdout = [0u8; 128];
    let stdout = stdout_path(tree, &mut stdout);
    for node in root.children() {
        match node.name_without_address() {
            "chosen" => chosen(platform, &node),
            "cpus" => cpus(platform, &node),
            "memory" => each_region(&node, sizes, |region| platform.memory.push(region)),
            _ => {
                device(platform, &node, sizes, stdout);
                // Boards keep their devices below a bus with a one-to-one mapping.
                let below = cell_sizes(&node);
                node.children().for_each(|child| device(platform, &child, below, stdout));
            }
        }
    }
}

fn cell_sizes(node: &FdtNode<'_>) -> CellSizes {
    CellSizes {
        address: cell(node, "#address-cells", 0).unwrap_or(2) as usize,
        size: cell(node, "#size-cells", 0).unwrap_or(1) as usize,
    }
}

fn with_value<R>(node: &FdtNode<'_>, name: &str, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
    node.property(name).map(|property| f(property.value()))
}

fn be32(bytes: &[u8], index: usize) -> Option<u32> {
    let bytes = bytes.get(index * 4..index * 4 + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

fn cell(node: &FdtNode<'_>, name: &str, index: usize) -> Option<u32> {
    with_value(node, name, |bytes| be32(bytes, index)).flatten()
}

/// Reads a number of one or two cells, whichever the property has.
fn integer(node: &FdtNode<'_>, name: &str) -> Option<u64> {
    with_value(node, name, |bytes| cells(bytes, 0, bytes.len() / 4)).flatten()
}

fn cells(bytes: &[u8], first: usize, count: usize) -> Option<u64> {
    (first..first + count).try_fold(0, |value: u64, index| Some(value << 32 | u64::from(be32(bytes, index)?)))
}

fn each_region(node: &FdtNode<'_>, sizes: CellSizes, mut f: impl FnMut(Region)) {
    with_value(node, "reg", |bytes| {
        let stride = sizes.address + sizes.size;
        for index in 0..(bytes.len() / 4).checked_div(stride).unwrap_or(0) {
            let base = cells(bytes, index * stride, sizes.address);
            let size = cells(bytes, index * stride + sizes.address, sizes.size);
            if let (Some(base), Some(size)) = (base, size) {
                f(Region { base, size });
            }
        }
    });
}

fn first_region(node: &FdtNode<'_>, sizes: CellSizes) -> Option<Region> {
    let mut first = None;
    each_region(node, sizes, |region| {
        first.get_or_insert(region);
    });
    first
}

fn is_compatible(node: &FdtNode<'_>, name: &str) -> bool {
    let has = |bytes: &[u8]| bytes.split(|byte| *byte == 0).any(|entry| entry == name.as_bytes());
    with_value(node, "compatible", has).unwrap_or(false)
}

/// INTID of the interrupt specifier at `index` (arm,gic-v3: type, number, flags).
fn intid(node: &FdtNode<'_>, index: usize) -> Option<u32> {
    let kind = cell(node, "interrupts", index * 3)?;
    let number = cell(node, "interrupts", index * 3 + 1)?;
    Some(if kind == 0 { number + 32 } else { number + 16 })
}

/// Finds the full path of the console: `/chosen/stdout-path`, its options cut off, its alias resolved.
fn stdout_path<'b>(tree: &Fdt<'_>, buffer: &'b mut [u8; 128]) -> &'b str {
    let mut len = 0;
    let mut copy = |bytes: &[u8]| {
        let end = bytes.iter().position(|b| *b == 0 || *b == b':').unwrap_or(bytes.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..end), bytes.get(..end)) {
            to.copy_from_slice(from);
            len = end;
        }
    };
    if let Some(node) = tree.find_node("/chosen") {
        with_value(&node, "stdout-path", |path| {
            copy(path);
            let end = path.iter().position(|b| *b == 0 || *b == b':').unwrap_or(path.len());
            let alias = path.get(..end).and_then(|name| core::str::from_utf8(name).ok()).unwrap_or("/");
            if !alias.starts_with('/')
                && let Some(aliases) = tree.find_node("/aliases")
            {
                with_value(&aliases, alias, &mut copy);
            }
        });
    }
    buffer.get(..len).and_then(|path| core::str::from_utf8(path).ok()).unwrap_or("")
}

fn chosen(platform: &mut Platform, node: &FdtNode<'_>) {
    with_value(node, "bootargs", |bytes| {
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or(&[]);
        let len = text.len().min(MAX_BOOTARGS);
        if let (Some(to), Some(from)) = (platform.bootargs.get_mut(..len), text.get(..len)) {
            to.copy_from_slice(from);
            platform.bootargs_len = len;
        }
    });
    let bounds = (integer(node, "linux,initrd-start"), integer(node, "linux,initrd-end"));
    if let (Some(start), Some(end)) = bounds {
        platform.initrd = Some(Region { base: start, size: end.saturating_sub(start) });
    }
}

fn cpus(platform: &mut Platform, node: &FdtNode<'_>) {
    for cpu in node.children().filter(|cpu| cpu.name_without_address() == "cpu") {
        let disabled = with_value(&cpu, "status", |status| status.starts_with(b"disabled")) == Some(true);
        if let (false, Some(affinity)) = (disabled, integer(&cpu, "reg")) {
            platform.cpus.push(affinity);
        }
    }
}

fn device(platform: &mut Platform, node: &FdtNode<'_>, sizes: CellSizes, stdout: &str) {
    if is_compatible(node, "arm,gic-v3") {
        each_region(node, sizes, |region| match platform.gicd {
            None => platform.gicd = Some(region),
            Some(_) => platform.gicr.push(region),
        });
        // The CPU interface's legacy regions follow the redistributors in the same property.
        let regions = cell(node, "#redistributor-regions", 0).unwrap_or(1) as usize;
        platform.gicr.len = platform.gicr.len.min(regions);
    } else if is_compatible(node, "arm,gic-400") || is_compatible(node, "arm,cortex-a15-gic") {
        // Hypervisors' and virtual interfaces follow, where there are any.
        each_region(node, sizes, |region| match (platform.gicd, platform.gicc) {
            (None, _) => platform.gicd = Some(region),
            (_, None) => platform.gicc = Some(region),
            _ => {}
        });
    } else if is_compatible(node, "arm,psci-0.2") || is_compatible(node, "arm,psci-1.0") {
        let hvc = with_value(node, "method", |method| method.starts_with(b"hvc")) == Some(true);
        platform.psci = Some(if hvc { Conduit::Hvc } else { Conduit::Smc });
    } else if is_compatible(node, "arm,armv8-timer") {
        platform.physical_timer = intid(node, 1).unwrap_or(30);
        platform.virtual_timer = intid(node, 2).unwrap_or(27);
    } else if is_compatible(node, "arm,armv8-pmuv3") {
        platform.pmu = intid(node, 0);
    } else if is_compatible(node, "arm,pl031") {
        platform.rtc = first_region(node, sizes);
        platform.rtc_intid = intid(node, 0);
    } else if is_compatible(node, "xen,xen") {
        platform.xen = true;
    } else {
        uart(platform, node, sizes, stdout);
    }
}

fn uart(platform: &mut Platform, node: &FdtNode<'_>, sizes: CellSizes, stdout: &str) {
    let kind = if is_compatible(node, "arm,pl011") {
        UartKind::Pl011
    } else if is_compatible(node, "ns16550a") {
        UartKind::Uart16550 { shift: cell(node, "reg-shift", 0).unwrap_or(0) }
    } else {
        return;
    };
    // Paths are compared by their last part, which has the unit address and is unique.
    let is_stdout = stdout.rsplit('/').next().is_some_and(|name| name == node.name());
    if let (true, Some(region), Some(intid)) =
        (is_stdout || platform.uart.is_none(), first_region(node, sizes), intid(node, 0))
    {
        platform.uart = Some(Uart { kind, region, intid });
    }
}

/// Prints what was found.
pub fn report() {
    let platform = platform();
    for memory in platform.memory.as_slice() {
        println!("memory {:#x} bytes at {:#x}", memory.size, memory.base);
    }
    if let Some(uart) = platform.uart {
        println!("console {:?} at {:#x}, INTID {}", uart.kind, uart.region.base, uart.intid);
    }
    if let Some(gicd) = platform.gicd {
        let version = if platform.gicc.is_some() { "GICv2" } else { "GICv3" };
        println!("{version} distributor at {:#x}", gicd.base);
    }
    if let Some(gicc) = platform.gicc {
        println!("GICv2 CPU interface {:#x} bytes at {:#x}", gicc.size, gicc.base);
    }
    for gicr in platform.gicr.as_slice() {
        println!("GICv3 redistributors {:#x} bytes at {:#x}", gicr.size, gicr.base);
    }
    println!("{} CPUs, PSCI by {:?}", platform.cpus.as_slice().len(), platform.psci);
}
