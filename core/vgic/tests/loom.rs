// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocol of one SPI under all interleavings of two physical CPUs. Run with
//! `RUSTFLAGS="--cfg loom" cargo test --release --test loom`.
#![cfg(loom)]

#[path = "loom/senders.rs"]
mod senders;

use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use turnstile_vgic::{
    Context, GroupEnables, Host, ListRegister, LrState, Maintenance, Model, RemoteOp, VcpuGic, Vgic,
    VgicConfig, VirtualInterface,
};

const SPI: u32 = 32;
const ROUTER: u32 = 0x6000 + 8 * SPI;

/// One list register.
#[derive(Default)]
struct Hardware(Option<ListRegister>);

impl VirtualInterface for Hardware {
    fn read_lr(&mut self, _: usize) -> LrState {
        self.0.map_or(LrState::Invalid, |lr| lr.state)
    }
    fn write_lr(&mut self, _: usize, lr: ListRegister) {
        self.0 = Some(lr);
    }
    fn clear_lr(&mut self, _: usize) {
        self.0 = None;
    }
    fn empty_lrs(&mut self) -> u16 {
        u16::from(self.0.is_none())
    }
    fn eoi_lrs(&mut self) -> u16 {
        0
    }
    fn take_eoi_count(&mut self) -> u8 {
        0
    }
    fn set_maintenance(&mut self, _: Maintenance) {}
    fn group_enables(&mut self) -> GroupEnables {
        GroupEnables { group0: true, group1: true }
    }
    fn deactivate_physical(&mut self, _: u32) {}
}

struct Machine {
    vgic: Vgic,
    cpus: [Mutex<(Box<VcpuGic>, Hardware)>; 2],
    inboxes: [AtomicU64; 2],
    acknowledged: AtomicUsize,
    active: AtomicBool,
}

impl Host for Machine {
    fn post(&self, vcpu: usize, intid: u32) {
        self.inboxes[vcpu].fetch_or(1 << intid, Ordering::Release);
    }
    fn remote<V: VirtualInterface>(&self, _: &mut VcpuGic, _: &mut V, vcpu: usize, op: RemoteOp) -> u64 {
        self.with(vcpu, |gic, cx| gic.apply(cx, op))
    }
}

impl Machine {
    /// Builds two vCPUs with the SPI enabled and routed to vCPU 1.
    fn new() -> Arc<Self> {
        let model = Model::Gicv3;
        let config = VgicConfig { model, mpidrs: &[0, 1], spis: 32, priority_bits: 5, group1_at_reset: true };
        let vgic = Vgic::new(&config).unwrap();
        let cpus = [0, 1].map(|n| Mutex::new((Box::new(VcpuGic::new(&vgic, n, 1)), Hardware::default())));
        let inboxes = [AtomicU64::new(0), AtomicU64::new(0)];
        let machine =
            Self { vgic, cpus, inboxes, acknowledged: AtomicUsize::new(0), active: AtomicBool::new(false) };
        for vcpu in 0..2 {
            machine.with(vcpu, |gic, cx| gic.load(cx));
        }
        machine.write(0, 2);
        machine.write(0x104, 1);
        machine.write(ROUTER, 1);
        Arc::new(machine)
    }

    fn with<R>(&self, vcpu: usize, run: impl FnOnce(&mut VcpuGic, &mut Context<Hardware, Self>) -> R) -> R {
        let mut cpu = self.cpus[vcpu].lock().unwrap();
        let (gic, hardware) = &mut *cpu;
        run(gic, &mut Context { vgic: &self.vgic, vif: hardware, host: self })
    }

    /// vCPU 0 writes a distributor register.
    fn write(&self, offset: u32, value: u64) {
        self.with(0, |gic, cx| gic.dist_write(cx, offset, 4, value));
    }

    /// A device makes the interrupt pending. Returns how often it had been acknowledged before.
    fn pulse(&self) -> usize {
        let before = self.acknowledged.load(Ordering::SeqCst);
        self.vgic.pulse_spi(self, SPI);
        before
    }

    /// A vCPU looks at its inbox and enters its guest, which handles what is pending.
    fn run(&self, vcpu: usize) {
        let posted = self.inboxes[vcpu].swap(0, Ordering::Acquire);
        self.with(vcpu, |gic, cx| {
            if posted != 0 {
                gic.deliver(cx, SPI);
                gic.settle(cx);
            }
            if cx.vif.0.is_some_and(|lr| lr.state == LrState::Pending) {
                assert!(!self.active.swap(true, Ordering::SeqCst), "active on two vCPUs");
                self.acknowledged.fetch_add(1, Ordering::SeqCst);
                self.active.store(false, Ordering::SeqCst);
                cx.vif.0 = None;
            }
        });
    }

    /// Demands that every pulse has been, or will be, followed by an acknowledge.
    fn finish(&self, before: usize) {
        for _ in 0..3 {
            self.run(0);
            self.run(1);
        }
        assert!(self.acknowledged.load(Ordering::SeqCst) > before, "lost");
        assert!(self.cpus.iter().all(|cpu| cpu.lock().unwrap().1.0.is_none()), "left over");
    }
}

/// Runs vCPU 1 beside what `other` does, in all interleavings.
fn beside(other: impl Fn(&Machine) -> usize + Copy + Send + Sync + 'static) {
    loom::model(move || {
        let machine = Machine::new();
        let guest = {
            let machine = Arc::clone(&machine);
            thread::spawn(move || {
                machine.run(1);
                machine.run(1);
            })
        };
        let before = other(&machine);
        guest.join().unwrap();
        machine.finish(before);
        assert!(machine.acknowledged.load(Ordering::SeqCst) <= 2, "more than pulses");
    });
}

#[test]
fn claim_and_release_beside_pulses() {
    beside(|machine| {
        machine.pulse();
        machine.pulse()
    });
}

#[test]
fn claim_and_release_beside_disable_and_enable() {
    beside(|machine| {
        let before = machine.pulse();
        machine.write(0x184, 1);
        // Nothing can be acknowledged while it is disabled.
        let seen = machine.acknowledged.load(Ordering::SeqCst);
        assert!(machine.cpus[1].lock().unwrap().1.0.is_none());
        assert_eq!(machine.acknowledged.load(Ordering::SeqCst), seen);
        machine.write(0x104, 1);
        before
    });
}

#[test]
fn claim_and_release_beside_a_change_of_route() {
    beside(|machine| {
        let before = machine.pulse();
        machine.write(ROUTER, 0);
        machine.run(0);
        before
    });
}

#[test]
fn a_pulse_after_a_change_of_route() {
    beside(|machine| {
        machine.pulse();
        machine.write(ROUTER, 0);
        machine.pulse()
    });
}

#[test]
fn a_late_post_to_a_former_target() {
    beside(|machine| {
        machine.pulse();
        machine.write(ROUTER, 0);
        machine.write(ROUTER, 1);
        let before = machine.pulse();
        machine.write(ROUTER, 0);
        machine.run(0);
        before
    });
}

#[test]
fn claim_beside_a_group_switched_off_and_on() {
    beside(|machine| {
        let before = machine.pulse();
        machine.write(0, 0);
        machine.write(0, 2);
        before
    });
}

#[test]
fn two_devices_and_the_owner() {
    loom::model(|| {
        let machine = Machine::new();
        machine.pulse();
        machine.run(1);
        let other = {
            let machine = Arc::clone(&machine);
            thread::spawn(move || machine.pulse())
        };
        let before = machine.pulse();
        machine.run(1);
        let before = before.max(other.join().unwrap());
        machine.finish(before);
    });
}

#[test]
fn a_pending_state_cleared_beside_a_claim_never_comes_back() {
    loom::model(|| {
        let machine = Machine::new();
        machine.pulse();
        let guest = {
            let machine = Arc::clone(&machine);
            thread::spawn(move || machine.run(1))
        };
        machine.write(0x284, 1);
        let after = machine.acknowledged.load(Ordering::SeqCst);
        guest.join().unwrap();
        for _ in 0..2 {
            machine.run(0);
            machine.run(1);
        }
        assert_eq!(machine.acknowledged.load(Ordering::SeqCst), after);
    });
}
