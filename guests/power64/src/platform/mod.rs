// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as its device tree describes it (LoPAR, appendices on the device tree; Devicetree Specification 0.4).

mod tree;

pub use crate::cpu::MAX_CPUS;
pub use tree::init;
pub use turnstile_guests_common::list::List;
pub use turnstile_guests_common::memory::Region;

use turnstile_guests_common::global::Global;
use turnstile_guests_common::memory;
use turnstile_guests_common::tree::CommandLine;

use crate::println;

const MAX_REGIONS: usize = 8;
/// The terminal of a machine that does not say.
const TERMINAL: u64 = 0x7100_0000;
/// The timebase's ticks per second of a machine that does not say.
const TIMEBASE: u64 = 512_000_000;

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
    /// ibm,set-xive.
    pub set_xive: Option<u32>,
    /// ibm,int-on.
    pub int_on: Option<u32>,
    /// ibm,read-pci-config.
    pub read_pci: Option<u32>,
    /// ibm,write-pci-config.
    pub write_pci: Option<u32>,
    /// ibm,change-msi.
    pub change_msi: Option<u32>,
    /// ibm,query-interrupt-source-number.
    pub query_source: Option<u32>,
}

/// A host bridge.
#[derive(Clone, Copy)]
pub struct Pci {
    /// Its unit ID, by which firmware knows it.
    pub unit: u64,
    /// Where BARs of 32 bits can be: they have the lower half of the address.
    pub window: Region,
}

/// What the device tree says.
pub struct Platform {
    /// Memory.
    pub memory: List<Region, MAX_REGIONS>,
    /// Interrupt server numbers of the CPUs, the boot CPU's first.
    pub cpus: List<u32, MAX_CPUS>,
    /// How many of them are the threads of the first core.
    pub threads: usize,
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
    /// PCI.
    pub pci: Option<Pci>,
    /// Whether translation by radix trees is offered.
    pub radix: bool,
    /// Where image and loader's information lie: device tree, RTAS, initial RAM disk.
    pub taken: List<Region, 8>,
    command_line: CommandLine,
}

static PLATFORM: Global<Platform> = Global::new(Platform {
    memory: List::new(Region::NOWHERE),
    cpus: List::new(0),
    threads: 0,
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
        set_xive: None,
        int_on: None,
        read_pci: None,
        write_pci: None,
        change_msi: None,
        query_source: None,
    },
    uart: None,
    pci: None,
    radix: false,
    taken: List::new(Region::NOWHERE),
    command_line: CommandLine::NONE,
});

/// Returns the machine.
pub fn platform() -> &'static Platform {
    PLATFORM.get()
}

impl Platform {
    /// The command line.
    pub fn command_line(&self) -> &str {
        self.command_line.as_str()
    }

    /// The interrupt server number of the CPU with this number, or one that no CPU has.
    pub fn server(&self, index: usize) -> u32 {
        self.cpus.as_slice().get(index).copied().unwrap_or(0xffff)
    }

    /// The first address behind all memory.
    pub fn end_of_memory(&self) -> u64 {
        memory::end(self.memory.as_slice())
    }

    /// Returns the addresses of all whole blocks of so many bytes from `first` on that hold neither image nor what the loader
    /// told.
    pub fn free_blocks(&self, first: u64, size: u64) -> impl Iterator<Item = u64> + Clone {
        let regions = self.memory.as_slice().iter();
        regions.flat_map(move |region| {
            memory::free_blocks(region.clipped(first, u64::MAX), self.taken.as_slice(), size)
        })
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
