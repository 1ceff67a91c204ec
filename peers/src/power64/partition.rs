// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the virtual machine: memory with the guest in it, vCPUs, the interrupt controller.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use rustix::event::EventfdFlags;
use turnstile_devices::Uart16550;
use turnstile_machine::pseries::Interrupts;
use turnstile_machine::pseries::boot::{self, plan};
use turnstile_machine::{Functions, Source};
use turnstile_papr::Memory;
use turnstile_papr::hcall::Hcall;
use turnstile_papr::processors::{Processors, Start};

use super::abi::{self, MmuConfig};
use super::kvm::{Device, Mapping, VcpuFile, Vm};
use super::options::Controller;
use super::xive::Xive;
use crate::doorbell::Doorbell;
use crate::options::Options;

/// How often the time base of POWER9 and Power10 counts in a second.
const TIMEBASE: u64 = 512_000_000;
/// RAM's slot of the guest's memory.
const RAM: u32 = 0;
/// LPCR: interrupts are taken little-endian, and where with translation on (Power ISA 3.0B, Book III 2.2).
const ILE: u64 = 1 << 25;
const AIL: u64 = 3 << 23;
/// Those of its bits that calls change.
pub const MODES: u64 = ILE | AIL;

/// What the vCPUs of a virtual machine share.
pub struct Partition {
    vm: Vm,
    /// Its RAM.
    pub ram: Ram,
    /// Which vCPUs run.
    pub processors: Processors,
    /// The bits of LPCR that calls have set.
    modes: AtomicU64,
    /// The process table.
    table: Mutex<MmuConfig>,
    /// Held while a vCPU is started; those that wait for it are told.
    starting: Mutex<()>,
    started: Condvar,
}

/// A vCPU with what it shares.
pub struct Vcpu {
    /// KVM's.
    pub file: VcpuFile,
    /// Its number.
    pub index: usize,
    /// What it shares.
    pub partition: Arc<Partition>,
}

/// A virtual machine, ready to run.
pub struct Machine {
    /// Its vCPUs.
    pub vcpus: Vec<Vcpu>,
    xive: Option<Xive>,
    doorbell: Option<Doorbell>,
    /// KVM takes a controller away from the vCPUs when its file is closed.
    _xics: Option<Device>,
}

/// The devices that the monitor emulates.
pub struct Devices {
    /// A serial line.
    pub serial: Uart16550,
    /// Where the guest drives its interrupt controller itself, the calls by which it configures it.
    pub xive: Option<Xive>,
    /// The doorbell, if there is one.
    pub doorbell: Option<Doorbell>,
}

/// Makes the devices of a machine in their reset state.
pub fn devices(machine: &mut Machine) -> Devices {
    Devices { serial: Uart16550::new(), xive: machine.xive.take(), doorbell: machine.doorbell.take() }
}

/// Makes the machine that the options describe, with `guest` in its memory.
///
/// # Errors
/// Says what KVM, or the guest's image, does not allow.
pub fn build(options: &Options, guest: &[u8]) -> Result<Machine> {
    let size = options.partition.memory << 20;
    let initrd = options.partition.initrd.as_ref();
    let initrd =
        initrd.map(|path| fs::read(path).with_context(|| format!("cannot read {path:?}"))).transpose()?;
    let interrupts = match options.partition.interrupts {
        Controller::Xive => Interrupts::Xive,
        Controller::Xics => Interrupts::Xics,
    };
    let source = Source {
        kernel: guest,
        initrd: initrd.as_deref(),
        cmdline: &options.cmdline,
        memory: size,
        vcpus: options.vcpus,
        functions: Functions::default(),
    };
    let partition = boot::Partition { threads: 1, interrupts, timebase: TIMEBASE };
    let plan = plan(&source, &partition).map_err(|error| anyhow::anyhow!("the guest: {error}"))?;
    let vm = Vm::new().context("cannot create a virtual machine: is there a /dev/kvm?")?;
    let ram = Ram(Mapping::anonymous(size as usize).context("cannot map the memory")?);
    vm.map(RAM, 0, &ram.0).context("cannot give the machine its memory")?;
    for load in &plan.loads {
        anyhow::ensure!(ram.write(load.address, &load.bytes), "cannot load the guest");
    }
    for (address, bytes) in plan.relocations.iter() {
        anyhow::ensure!(ram.write(address, &bytes), "cannot relocate the guest");
    }
    // The other calls that the kernel answers it answers unasked.
    for call in [Hcall::SetMode, Hcall::Random].iter().filter_map(|call| call.number()) {
        vm.enable_hcall(call).context("cannot let the kernel answer a call")?;
    }
    let partition = Partition {
        processors: Processors::new(options.vcpus),
        modes: AtomicU64::new(if plan.start.little_endian { ILE } else { 0 }),
        table: Mutex::new(MmuConfig { flags: MmuConfig::RADIX, process_table: MmuConfig::TABLE_RADIX }),
        starting: Mutex::new(()),
        started: Condvar::new(),
        vm,
        ram,
    };
    partition.processors.reset(Start {
        entry: plan.start.entry,
        argument: plan.start.tree,
        little_endian: plan.start.little_endian,
    });
    let doorbell = connect_doorbell(&partition.vm, options)?;
    Ok(Machine { doorbell, ..connect(partition, interrupts, options.vcpus)? })
}

/// Gives the machine the doorbell that the options ask for.
fn connect_doorbell(vm: &Vm, options: &Options) -> Result<Option<Doorbell>> {
    let Some(base) = options.doorbell else { return Ok(None) };
    let event = rustix::event::eventfd(0, EventfdFlags::empty()).context("cannot make an event")?;
    vm.tell_event(Doorbell::place(base), &event).context("cannot make writes an event")?;
    let doorbell = Doorbell::start(base, options.doorbell_cpu(), move || {
        let mut count = [0; 8];
        rustix::io::read(&event, &mut count)?;
        Ok(u64::from_ne_bytes(count))
    });
    doorbell.map(Some).context("cannot start the doorbell's thread")
}

/// Makes the vCPUs, each with its part of the interrupt controller.
fn connect(partition: Partition, interrupts: Interrupts, count: usize) -> Result<Machine> {
    let partition = Arc::new(partition);
    let mut vcpus = Vec::new();
    for index in 0..count {
        let file = partition.vm.vcpu(index).with_context(|| format!("cannot create vCPU {index}"))?;
        vcpus.push(Vcpu { file, index, partition: Arc::clone(&partition) });
    }
    let (xive, xics) = match interrupts {
        Interrupts::Xive => {
            let xive = Xive::new(&partition.vm, count).context("cannot create a XIVE")?;
            for vcpu in &vcpus {
                xive.connect(&vcpu.file, vcpu.index).context("cannot give a vCPU its part of the XIVE")?;
            }
            (Some(xive), None)
        }
        Interrupts::Xics => {
            let xics = partition.vm.device(abi::DEVICE_XICS).context("cannot create a XICS")?;
            for vcpu in &vcpus {
                let connected = xics.connect(&vcpu.file, abi::CAP_XICS, vcpu.index);
                connected.context("cannot give a vCPU its part of the XICS")?;
            }
            (None, Some(xics))
        }
    };
    Ok(Machine { vcpus, xive, doorbell: None, _xics: xics })
}

impl Partition {
    /// Waits until a vCPU is started.
    pub fn wait_for_start(&self, vcpu: usize) -> Start {
        let mut starting = held(&self.starting);
        loop {
            if let Some(start) = self.processors.take_start(vcpu) {
                return start;
            }
            starting = self.started.wait(starting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Tells those that wait that a vCPU is started.
    pub fn tell_started(&self) {
        let _starting = held(&self.starting);
        self.started.notify_all();
    }

    /// Changes modes of all vCPUs: each takes them at its next exit.
    pub fn set_modes(&self, mask: u64, modes: u64) {
        let update = |old: u64| Some(old & !mask | modes);
        // It always updates; the order of what else is done does not matter.
        let _ = self.modes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    /// The modes of all vCPUs.
    pub fn modes(&self) -> u64 {
        self.modes.load(Ordering::Relaxed)
    }

    /// Sets the process table, if there is a new one, and whether the guest invalidates translations itself.
    ///
    /// # Errors
    /// KVM's.
    pub fn set_process_table(&self, entry: Option<u64>, gtse: bool) -> rustix::io::Result<()> {
        let mut table = held(&self.table);
        table.process_table = entry.unwrap_or(table.process_table);
        table.flags = MmuConfig::RADIX | if gtse { MmuConfig::GTSE } else { 0 };
        self.vm.configure_mmu(*table)
    }
}

/// Bits of LPCR for where interrupts are taken.
pub fn interrupt_location(location: u8) -> u64 {
    u64::from(location) << AIL.trailing_zeros() & AIL
}

/// The bit of LPCR for interrupts that are taken little-endian.
pub fn little_endian_interrupts(little: bool) -> u64 {
    if little { ILE } else { 0 }
}

/// The masks of the two.
pub const LOCATION: u64 = AIL;
/// See above.
pub const LITTLE_ENDIAN: u64 = ILE;

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The guest's RAM, from its address zero on.
pub struct Ram(Mapping);

impl Ram {
    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.0.size() as u64
    }
}

impl Memory for Ram {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.0.read(address, bytes).is_some()
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        self.0.write(address, bytes).is_some()
    }
}
