// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The virtual GIC of a toy hypervisor: two list registers in memory stand for the hardware, method calls for exits.
//!
//! A real hypervisor implements `VirtualInterface` over `ICH_*_EL2` (or GICH) and `Host` over its vCPUs; all else stays.
//! `cargo run -p turnstile-vgic --example toy`

use std::cell::RefCell;
use std::collections::BTreeSet;

use turnstile_vgic::*;

const LIST_REGISTERS: usize = 2;

/// The hardware under one vCPU: list registers, and what raises the maintenance interrupt.
#[derive(Default)]
struct Interface {
    lrs: [Option<ListRegister>; LIST_REGISTERS],
    ended: u16,
    ended_elsewhere: u8,
    armed: Maintenance,
    running: Vec<u8>,
}

impl VirtualInterface for Interface {
    fn encode(lr: ListRegister) -> u64 {
        lr.intid.into()
    }
    fn read_lr(&mut self, n: usize) -> LrState {
        self.lrs[n].map_or(LrState::Invalid, |lr| lr.state)
    }
    fn write_lr(&mut self, n: usize, lr: ListRegister) {
        self.lrs[n] = Some(lr);
        self.ended &= !(1 << n);
    }
    fn clear_lr(&mut self, n: usize) {
        self.lrs[n] = None;
        self.ended &= !(1 << n);
    }
    fn empty_lrs(&mut self) -> u16 {
        (0..LIST_REGISTERS).filter(|n| self.lrs[*n].is_none()).fold(0, |bits, n| bits | 1 << n) & !self.ended
    }
    fn eoi_lrs(&mut self) -> u16 {
        self.ended
    }
    fn take_eoi_count(&mut self) -> u8 {
        std::mem::take(&mut self.ended_elsewhere)
    }
    fn set_maintenance(&mut self, maintenance: Maintenance) {
        (self.armed, self.ended_elsewhere) = (maintenance, 0);
    }
    fn group_enables(&mut self) -> GroupEnables {
        GroupEnables { group0: true, group1: true }
    }
    // This toy has no physical interrupts.
    fn is_asserted(&mut self, _: u32) -> bool {
        false
    }
    fn deactivate_physical(&mut self, _: u32) {}
}

impl Interface {
    /// What the CPU would be interrupted for (Arm IHI 0069, section 4.8).
    fn highest(&self) -> Option<ListRegister> {
        let running = self.running.iter().min().copied().unwrap_or(0xff);
        let pending = self.lrs.iter().flatten().filter(|lr| lr.state == LrState::Pending);
        pending.min_by_key(|lr| lr.priority).filter(|lr| lr.priority & 0xf8 < running).copied()
    }
    fn wants_maintenance(&self) -> bool {
        let pending = self.lrs.iter().flatten().any(|lr| lr.state == LrState::Pending);
        self.ended != 0
            || self.armed.lr_entry_not_present && self.ended_elsewhere != 0
            || self.armed.no_pending && !pending
            || self.armed.group0_enabled
            || self.armed.group1_enabled
    }
}

struct Vcpu {
    gic: VcpuGic,
    interface: Interface,
}

/// A VM: its distributor, its vCPUs, and what they were posted.
pub struct Toy {
    vgic: Vgic,
    vcpus: Vec<RefCell<Vcpu>>,
    inboxes: Vec<RefCell<BTreeSet<u32>>>,
}

impl Host for Toy {
    fn post(&self, vcpu: usize, intid: u32) {
        self.inboxes[vcpu].borrow_mut().insert(intid);
    }
    fn is_resident(&self, _: usize) -> bool {
        true
    }
    fn remote<V: VirtualInterface>(&self, _: &mut VcpuGic, _: &mut V, vcpu: usize, op: RemoteOp) -> u64 {
        self.on(vcpu, |gic, cx| gic.apply(cx, op))
    }
}

impl Toy {
    /// Makes a VM with a GICv3 and so many vCPUs, all on.
    pub fn new(vcpus: u64) -> Self {
        let mpidrs: Vec<u64> = (0..vcpus).collect();
        let config = VgicConfig {
            model: Model::Gicv3,
            mpidrs: &mpidrs,
            spis: 32,
            priority_bits: 5,
            group1_at_reset: true,
        };
        let vgic = Vgic::new(&config).expect("the configuration is valid");
        let vcpu = |n| Vcpu {
            gic: VcpuGic::new(&vgic, n, LIST_REGISTERS, Interface::encode),
            interface: Interface::default(),
        };
        let vcpus: Vec<_> = (0..mpidrs.len()).map(|n| RefCell::new(vcpu(n))).collect();
        let inboxes = mpidrs.iter().map(|_| RefCell::default()).collect();
        let toy = Self { vgic, vcpus, inboxes };
        for vcpu in 0..mpidrs.len() {
            toy.on(vcpu, |gic, cx| {
                gic.power_on(cx);
                gic.load(cx);
            });
        }
        toy
    }

    /// Runs `f` with what the operations on a vCPU's interrupts need, as an exit handler does.
    fn on<R>(&self, vcpu: usize, f: impl FnOnce(&mut VcpuGic, &mut Context<'_, Interface, Self>) -> R) -> R {
        let Vcpu { gic, interface } = &mut *self.vcpus[vcpu].borrow_mut();
        f(gic, &mut Context { vgic: &self.vgic, vif: interface, host: self })
    }

    /// The guest writes a register of the distributor: an exit.
    pub fn write(&self, vcpu: usize, offset: u32, value: u64) {
        self.on(vcpu, |gic, cx| gic.dist_write(cx, offset, 4, value));
    }

    /// The guest writes a register in the second frame of its redistributor: an exit.
    pub fn write_private(&self, vcpu: usize, offset: u32, value: u64) {
        self.on(vcpu, |gic, cx| gic.redist_write(cx, vcpu, 0x1_0000 + offset, 4, value));
    }

    /// The guest writes ICC_SGI1R_EL1: an exit.
    pub fn write_sgi1r(&self, sender: usize, value: u64) {
        let intid = SgiRegister::intid(value);
        for target in self.vgic.sgi_targets(SgiRegister::Sgi1r, value).filter(|target| *target != sender) {
            self.post(target, intid);
        }
    }

    /// A device raises or lowers its line.
    pub fn line(&self, intid: u32, high: bool) {
        self.vgic.set_spi_line(self, intid, high);
    }

    /// What a vCPU does before it enters its guest: delivers what was posted, and serves maintenance interrupts.
    pub fn enter(&self, vcpu: usize) {
        let posted = self.inboxes[vcpu].take();
        self.on(vcpu, |gic, cx| {
            posted.into_iter().for_each(|intid| gic.deliver(cx, intid));
            gic.settle(cx);
            while cx.vif.wants_maintenance() {
                gic.maintenance(cx);
            }
        });
    }

    /// The guest reads ICC_IAR1_EL1, which does not exit.
    pub fn acknowledge(&self, vcpu: usize) -> Option<u32> {
        let interface = &mut self.vcpus[vcpu].borrow_mut().interface;
        let highest = interface.highest()?;
        interface.running.push(highest.priority & 0xf8);
        let held = interface.lrs.iter_mut().flatten().find(|lr| lr.intid == highest.intid)?;
        held.state = LrState::Active;
        Some(highest.intid)
    }

    /// The guest writes ICC_EOIR1_EL1 for what it acknowledged last, which does not exit either.
    pub fn end(&self, vcpu: usize, intid: u32) {
        let interface = &mut self.vcpus[vcpu].borrow_mut().interface;
        interface.running.pop();
        let held = |lr: &Option<ListRegister>| lr.is_some_and(|lr| lr.intid == intid && lr.state.active());
        let Some(n) = interface.lrs.iter().position(held) else {
            return interface.ended_elsewhere += 1;
        };
        match &mut interface.lrs[n] {
            Some(lr) if lr.state == LrState::PendingActive => lr.state = LrState::Pending,
            lr => {
                let asks = lr.is_some_and(|lr| lr.backing == Backing::Software { eoi_maintenance: true });
                interface.ended |= u16::from(asks) << n;
                *lr = None;
            }
        }
    }
}

/// Five interrupts are pending at once; two list registers hand them out by priority.
#[allow(dead_code, reason = "a test includes this file as a module")]
fn main() {
    let toy = Toy::new(2);
    toy.write(0, 0, 2); // GICD_CTLR: Group 1
    toy.write_private(0, 0x100, 0xffff); // GICR_ISENABLER0: all SGIs
    toy.write(0, 0x104, 1 << 8); // GICD_ISENABLER1: SPI 40
    toy.write(0, 0x428, 0x80); // GICD_IPRIORITYR10: behind the SGIs
    toy.line(40, true);
    for intid in [3, 1, 7, 5] {
        toy.write_sgi1r(1, intid << 24 | 1); // to the vCPU with Aff0 0
    }
    toy.enter(0);
    while let Some(intid) = toy.acknowledge(0) {
        println!("the guest handles INTID {intid}");
        if intid == 40 {
            toy.line(40, false);
        }
        toy.end(0, intid);
        toy.enter(0);
    }
}
