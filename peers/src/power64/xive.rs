// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PAPR's calls about XIVE: `core/papr` checks them, and KVM's device does what they ask for
//! (Linux, Documentation/virt/kvm/devices/xive.rst).

use turnstile_machine::pseries::{ESB, INTERRUPT_PAGE, TIMA, esb, ipi_sources};
use turnstile_papr::hcall::Hcall;
use turnstile_papr::xive::{Arguments, Failure, Layout, Machine, Queue, Reply, Route, Tables, call};

use super::abi::{self, XiveQueue};
use super::kvm::{Device, Mapping, VcpuFile, Vm};

/// Slots of the guest's memory: RAM is 0.
const TIMA_SLOT: u32 = 1;
const ESB_SLOT: u32 = 2;
/// Pages of the host's in a page of the controller's: KVM needs a host whose pages are as large.
const TIMA_PAGES: usize = (TIMA.size / INTERRUPT_PAGE) as usize;
/// KVM's flag of a queue: each event notifies.
const ALWAYS_NOTIFY: u32 = 1;
/// KVM's bit of a masked source, and where the guest's number of a source begins.
const MASKED: u64 = 1 << 32;
const NUMBER: u32 = 33;
/// Where servers begin, above the priority, in KVM's names of queues and targets.
const SERVER: u32 = 3;

/// The interrupt controller of a guest that drives it itself.
#[derive(Debug)]
pub struct Xive {
    tables: Tables,
    wires: Wires,
}

/// What the calls' effects need.
#[derive(Debug)]
struct Wires {
    device: Device,
    /// The event state buffers.
    buffers: Mapping,
}

impl Xive {
    /// Makes it, with the sources of a machine with so many vCPUs.
    ///
    /// # Errors
    /// KVM's.
    pub fn new(vm: &Vm, vcpus: usize) -> rustix::io::Result<Self> {
        let device = vm.device(abi::DEVICE_XIVE)?;
        vm.map(TIMA_SLOT, TIMA.base, &device.pages(abi::XIVE_TIMA_PAGE, TIMA_PAGES)?)?;
        let sources = ipi_sources(vcpus);
        let buffers = device.pages(abi::XIVE_ESB_PAGE, 2 * sources as usize)?;
        vm.map(ESB_SLOT, ESB.base, &buffers)?;
        for source in 0..sources {
            device.set(abi::XIVE_SOURCE, source.into(), 0_u64)?;
        }
        let layout =
            Layout { management: |source| esb(source) + INTERRUPT_PAGE, trigger: esb, store_eoi: false };
        Ok(Xive { tables: Tables::new(vcpus, 0..sources, layout), wires: Wires { device, buffers } })
    }

    /// Gives a vCPU its ring.
    ///
    /// # Errors
    /// KVM's.
    pub fn connect(&self, vcpu: &VcpuFile, server: usize) -> rustix::io::Result<()> {
        self.wires.device.connect(vcpu, abi::CAP_XIVE, server)
    }

    /// Answers a call.
    pub fn call(&mut self, which: Hcall, arguments: &Arguments) -> Reply {
        call(&mut self.tables, &mut self.wires, which, arguments)
    }
}

fn done(result: rustix::io::Result<()>) -> Result<(), Failure> {
    result.map_err(|_| Failure::Hardware)
}

impl Machine for Wires {
    fn route(&mut self, source: u32, to: Option<Route>) -> Result<(), Failure> {
        let config = to.map_or(MASKED, |to| {
            u64::from(to.priority) | u64::from(to.server) << SERVER | u64::from(to.number) << NUMBER
        });
        done(self.device.set(abi::XIVE_SOURCE_CONFIG, source.into(), config))
    }

    fn place(&mut self, server: u32, priority: u8, queue: Option<Queue>) -> Result<(), Failure> {
        let queue = queue.map_or(XiveQueue::default(), |queue| XiveQueue {
            flags: ALWAYS_NOTIFY,
            shift: queue.shift.into(),
            address: queue.address,
            ..XiveQueue::default()
        });
        let name = u64::from(priority) | u64::from(server) << SERVER;
        done(self.device.set(abi::XIVE_QUEUE_CONFIG, name, queue))
    }

    fn load(&mut self, source: u32, offset: u64) -> u64 {
        self.buffers.load(management(source) + offset).map_or(u64::MAX, u64::from_be)
    }

    fn store(&mut self, source: u32, offset: u64, value: u64) {
        // A source that is none has no page.
        let _ = self.buffers.store(management(source) + offset, value.to_be());
    }

    fn synchronize(&mut self, source: u32) {
        // KVM refuses this for sources alone that go nowhere, and those have no events.
        let _ = self.device.set(abi::XIVE_SOURCE_SYNC, source.into(), 0_u64);
    }
}

/// Where a source's page of management is among the buffers.
fn management(source: u32) -> u64 {
    esb(source) - ESB.base + INTERRUPT_PAGE
}
