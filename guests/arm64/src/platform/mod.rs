// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as its device tree describes it: every address a guest uses comes from here.

mod tree;

pub use tree::init;
pub use turnstile_guests_common::list::List;
pub use turnstile_guests_common::memory::Region;

use turnstile_guests_common::global::Global;
use turnstile_guests_common::memory;
use turnstile_guests_common::tree::CommandLine;

use crate::println;

/// Most CPUs a guest can use.
pub const MAX_CPUS: usize = 512;
const MAX_REGIONS: usize = 4;

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

/// PCI functions on bus 0.
#[derive(Clone, Copy)]
pub struct Pci {
    /// Their configuration spaces.
    pub ecam: Region,
    /// Where their BARs can be.
    pub window: Region,
}

/// A GICv2m frame.
#[derive(Clone, Copy)]
pub struct MsiFrame {
    /// Its registers.
    pub region: Region,
    /// The INTID of its first interrupt.
    pub first: u32,
}

/// A virtio device behind MMIO.
#[derive(Clone, Copy)]
pub struct Virtio {
    /// Its registers.
    pub region: Region,
    /// Its interrupt.
    pub intid: u32,
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
    /// Banks of NOR flash.
    pub flash: List<Region, MAX_REGIONS>,
    /// PCI.
    pub pci: Option<Pci>,
    /// What makes interrupts of messages.
    pub messages: Option<MsiFrame>,
    /// The first virtio device behind MMIO.
    pub virtio: Option<Virtio>,
    /// INTID of the EL1 physical timer.
    pub physical_timer: u32,
    /// INTID of the virtual timer.
    pub virtual_timer: u32,
    /// INTID of the PMU's overflow interrupt, if there is a PMU.
    pub pmu: Option<u32>,
    /// Where image, device tree and initial RAM disk lie.
    pub taken: List<Region, 4>,
    /// Whether this is a domain of Xen, which offers its hypercalls.
    pub xen: bool,
    /// Where the device tree lies.
    pub tree: u64,
    command_line: CommandLine,
    found: bool,
}

impl Platform {
    /// Returns the guest's command line.
    pub fn command_line(&self) -> &str {
        self.command_line.as_str()
    }

    /// Returns the first address behind all memory.
    pub fn end_of_memory(&self) -> u64 {
        memory::end(self.memory.as_slice())
    }

    /// Returns the addresses of all whole blocks of so many bytes that hold neither image nor what the loader told.
    pub fn free_blocks(&self, size: u64) -> impl Iterator<Item = u64> + Clone {
        let regions = self.memory.as_slice().iter();
        regions.flat_map(move |region| memory::free_blocks(*region, self.taken.as_slice(), size))
    }

    /// Returns the first memory region.
    ///
    /// # Panics
    /// When the device tree has none.
    pub fn ram(&self) -> Region {
        *self.memory.as_slice().first().expect("the device tree has no memory")
    }
}

static PLATFORM: Global<Platform> = Global::new(Platform {
    memory: List::new(Region::NOWHERE),
    uart: None,
    gicd: None,
    gicc: None,
    gicr: List::new(Region::NOWHERE),
    psci: None,
    cpus: List::new(0),
    rtc: None,
    rtc_intid: None,
    flash: List::new(Region::NOWHERE),
    pci: None,
    messages: None,
    virtio: None,
    physical_timer: 0,
    virtual_timer: 0,
    pmu: None,
    taken: List::new(Region::NOWHERE),
    xen: false,
    tree: 0,
    command_line: CommandLine::NONE,
    found: false,
});

/// Returns the machine.
pub fn platform() -> &'static Platform {
    PLATFORM.get()
}

/// Returns whether the device tree has been read.
pub fn is_known() -> bool {
    platform().found
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
