// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as its device tree describes it (LoPAR, appendices on the device tree; Devicetree Specification 0.4).

use core::cell::UnsafeCell;

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};
use turnstile_guests_common::options;

use crate::println;

/// Most CPUs a guest can use.
pub const MAX_CPUS: usize = 32;
const MAX_REGIONS: usize = 8;
const MAX_COMMAND_LINE: usize = 2048;
/// The terminal of a machine that does not say.
const TERMINAL: u64 = 0x7100_0000;
/// The timebase's ticks per second of a machine that does not say.
const TIMEBASE: u64 = 512_000_000;

/// A range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Region {
    /// First address.
    pub base: u64,
    /// Bytes.
    pub size: u64,
}

impl Region {
    /// Returns the first address behind it.
    pub fn end(&self) -> u64 {
        self.base.saturating_add(self.size)
    }
}

/// A list of bounded length.
pub struct List<T, const N: usize> {
    items: [T; N],
    len: usize,
}

impl<T: Copy, const N: usize> List<T, N> {
    const fn new(nothing: T) -> Self {
        List { items: [nothing; N], len: 0 }
    }

    /// Appends; what does not fit is left out.
    pub fn push(&mut self, item: T) {
        if let Some(slot) = self.items.get_mut(self.len) {
            *slot = item;
            self.len += 1;
        }
    }

    /// The items.
    pub fn as_slice(&self) -> &[T] {
        &self.items[..self.len]
    }
}

/// Facts about a XIVE.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Xive {
    /// The operating system's page of the presentation.
    pub presentation: u64,
    /// The first source that is for interrupts between CPUs.
    pub first_source: u32,
    /// How many there are.
    pub sources: u32,
}

/// The interrupt controller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// There is none.
    None,
    /// By hypervisor calls.
    Xics,
    /// By pages of memory.
    Xive(Xive),
}

/// Where RTAS is in memory.
#[derive(Clone, Copy)]
pub struct Rtas {
    /// First address.
    pub base: u64,
    /// Its entry.
    pub entry: u64,
}

/// Tokens of RTAS services.
#[derive(Clone, Copy)]
pub struct Tokens {
    /// start-cpu.
    pub start_cpu: Option<u32>,
    /// stop-self.
    pub stop_self: Option<u32>,
    /// query-cpu-stopped-state.
    pub query_stopped: Option<u32>,
    /// power-off.
    pub power_off: Option<u32>,
    /// system-reboot.
    pub reboot: Option<u32>,
    /// ibm,os-term.
    pub terminate: Option<u32>,
    /// get-time-of-day.
    pub get_time: Option<u32>,
    /// set-time-of-day.
    pub set_time: Option<u32>,
    /// display-character.
    pub display: Option<u32>,
    /// ibm,get-system-parameter.
    pub get_parameter: Option<u32>,
}

/// What the device tree says.
pub struct Platform {
    /// Memory.
    pub memory: List<Region, MAX_REGIONS>,
    /// Interrupt server numbers of the CPUs, the boot CPU's first.
    pub cpus: List<u32, MAX_CPUS>,
    /// The unit address of the terminal.
    pub terminal: u64,
    /// The timebase's ticks per second.
    pub timebase: u64,
    /// The interrupt controller.
    pub controller: Controller,
    /// RTAS, if its code is in memory.
    pub rtas: Option<Rtas>,
    /// RTAS's services.
    pub tokens: Tokens,
    /// A 16550A in memory.
    pub uart: Option<Region>,
    /// Whether translation by radix trees is offered.
    pub radix: bool,
    /// Where the loader's information lies: device tree, RTAS, initial RAM disk.
    pub loader: List<Region, 4>,
    line: [u8; MAX_COMMAND_LINE],
    line_len: usize,
}

struct Cell(UnsafeCell<Platform>);

// SAFETY: written once, before any other CPU runs.
unsafe impl Sync for Cell {}

const NOWHERE: Region = Region { base: 0, size: 0 };

static PLATFORM: Cell = Cell(UnsafeCell::new(Platform {
    memory: List::new(NOWHERE),
    cpus: List::new(0),
    terminal: TERMINAL,
    timebase: TIMEBASE,
    controller: Controller::None,
    rtas: None,
    tokens: Tokens {
        start_cpu: None,
        stop_self: None,
        query_stopped: None,
        power_off: None,
        reboot: None,
        terminate: None,
        get_time: None,
        set_time: None,
        display: None,
        get_parameter: None,
    },
    uart: None,
    radix: false,
    loader: List::new(NOWHERE),
    line: [0; MAX_COMMAND_LINE],
    line_len: 0,
}));

/// Returns the machine.
pub fn platform() -> &'static Platform {
    // SAFETY: only `init` writes, and it has come to its end.
    unsafe { &*PLATFORM.0.get() }
}

impl Platform {
    /// The command line.
    pub fn command_line(&self) -> &str {
        core::str::from_utf8(&self.line[..self.line_len]).unwrap_or("")
    }

    /// The first address behind all memory.
    pub fn end_of_memory(&self) -> u64 {
        self.memory.as_slice().iter().map(Region::end).max().unwrap_or(0)
    }
}

/// Reads the device tree.
///
/// # Safety
/// `address` is that of a device tree blob; nothing else runs, and no reference into the platform exists yet.
pub unsafe fn init(address: u64) {
    // SAFETY: the caller's promise.
    let platform = unsafe { &mut *PLATFORM.0.get() };
    let header = address as *const u32;
    // SAFETY: the header of a device tree is readable, by the caller's promise.
    let size = u32::from_be(unsafe { header.add(1).read() });
    // SAFETY: a blob is as long as its header says.
    let blob = unsafe { core::slice::from_raw_parts(address as *const u8, size as usize) };
    // Not `new`, which takes no names of more than 31 characters: PAPR has some.
    let tree = Fdt::new_unchecked(blob);
    platform.loader.push(Region { base: address, size: u64::from(size) });
    for node in tree.root().children() {
        match node.name_without_address() {
            "chosen" => chosen(platform, &node),
            "cpus" => node.children().for_each(|cpu| read_cpu(platform, &cpu)),
            "memory" => memory(platform, &node),
            "rtas" => rtas(platform, &node),
            "vdevice" => vdevice(platform, &node),
            _ => device(platform, &node),
        }
    }
    // One that the device tree does not tell: its address is an option.
    let base = options::number(platform.command_line(), "uart", 0);
    if base != 0 {
        platform.uart = Some(Region { base, size: 0x1000 });
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

/// Reads two cells as one number.
fn wide(node: &FdtNode<'_>, name: &str, index: usize) -> Option<u64> {
    Some(u64::from(cell(node, name, index)?) << 32 | u64::from(cell(node, name, index + 1)?))
}

fn is_compatible(node: &FdtNode<'_>, name: &str) -> bool {
    let has = |bytes: &[u8]| bytes.split(|byte| *byte == 0).any(|entry| entry == name.as_bytes());
    with_value(node, "compatible", has).unwrap_or(false)
}

/// Reads a number of one or two cells, whichever the property has.
fn integer(node: &FdtNode<'_>, name: &str) -> Option<u64> {
    match with_value(node, name, <[u8]>::len)? {
        4 => cell(node, name, 0).map(u64::from),
        _ => wide(node, name, 0),
    }
}

fn chosen(platform: &mut Platform, node: &FdtNode<'_>) {
    with_value(node, "bootargs", |bytes| {
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or(&[]);
        let len = text.len().min(MAX_COMMAND_LINE);
        platform.line[..len].copy_from_slice(&text[..len]);
        platform.line_len = len;
    });
    if let (Some(start), Some(end)) = (integer(node, "linux,initrd-start"), integer(node, "linux,initrd-end"))
    {
        platform.loader.push(Region { base: start, size: end.saturating_sub(start) });
    }
}

fn read_cpu(platform: &mut Platform, node: &FdtNode<'_>) {
    if !with_value(node, "device_type", |bytes| bytes.starts_with(b"cpu")).unwrap_or(false) {
        return;
    }
    let threads = with_value(node, "ibm,ppc-interrupt-server#s", <[u8]>::len).unwrap_or(0) / 4;
    for thread in 0..threads {
        if let Some(server) = cell(node, "ibm,ppc-interrupt-server#s", thread) {
            platform.cpus.push(server);
        }
    }
    if let Some(hertz) = cell(node, "timebase-frequency", 0).filter(|hertz| *hertz != 0) {
        platform.timebase = u64::from(hertz);
    }
    platform.radix |= node.property("ibm,processor-radix-AP-encodings").is_some();
}

/// Addresses and sizes of a partition's memory have two cells each.
fn memory(platform: &mut Platform, node: &FdtNode<'_>) {
    if let (Some(base), Some(size)) = (wide(node, "reg", 0), wide(node, "reg", 2)) {
        platform.memory.push(Region { base, size });
    }
}

fn rtas(platform: &mut Platform, node: &FdtNode<'_>) {
    let token = |name| cell(node, name, 0);
    platform.tokens = Tokens {
        start_cpu: token("start-cpu"),
        stop_self: token("stop-self"),
        query_stopped: token("query-cpu-stopped-state"),
        power_off: token("power-off"),
        reboot: token("system-reboot"),
        terminate: token("ibm,os-term"),
        get_time: token("get-time-of-day"),
        set_time: token("set-time-of-day"),
        display: token("display-character"),
        get_parameter: token("ibm,get-system-parameter"),
    };
    if let (Some(base), Some(entry)) = (token("linux,rtas-base"), token("linux,rtas-entry")) {
        let size = token("rtas-size").unwrap_or(4096);
        platform.rtas = Some(Rtas { base: u64::from(base), entry: u64::from(entry) });
        platform.loader.push(Region { base: u64::from(base), size: u64::from(size) });
    }
}

fn vdevice(platform: &mut Platform, node: &FdtNode<'_>) {
    let terminals = node.children().filter(|child| child.name_without_address() == "vty");
    // The first one; others are for other purposes.
    if let Some(unit) = terminals.filter_map(|vty| cell(&vty, "reg", 0)).next() {
        platform.terminal = u64::from(unit);
    }
}

fn device(platform: &mut Platform, node: &FdtNode<'_>) {
    if is_compatible(node, "ibm,power-ivpe") {
        // The user's page, then the operating system's.
        let presentation = wide(node, "reg", 4);
        let ranges = |index| cell(node, "ibm,xive-lisn-ranges", index);
        if let (Some(presentation), Some(first_source), Some(sources)) = (presentation, ranges(0), ranges(1))
        {
            platform.controller = Controller::Xive(Xive { presentation, first_source, sources });
        }
    } else if is_compatible(node, "IBM,ppc-xicp") {
        platform.controller = Controller::Xics;
    } else if is_compatible(node, "ns16550a")
        && let (Some(base), Some(size)) = (wide(node, "reg", 0), wide(node, "reg", 2))
    {
        platform.uart = Some(Region { base, size });
    }
}

/// Prints what machine this is.
pub fn report() {
    let machine = platform();
    let bytes: u64 = machine.memory.as_slice().iter().map(|region| region.size).sum();
    let controller = match machine.controller {
        Controller::None => "no interrupt controller",
        Controller::Xics => "XICS",
        Controller::Xive(_) => "XIVE",
    };
    println!(
        "  {} CPUs, {} KiB, {controller}, processor {:#x}",
        machine.cpus.as_slice().len(),
        bytes >> 10,
        crate::mfspr!(crate::cpu::spr::PVR),
    );
}
