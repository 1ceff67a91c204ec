// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocol of one SPI under all interleavings of two physical CPUs. Run with
//! `RUSTFLAGS="--cfg loom" cargo test --release --test loom`.
//!
//! loom looks at the last access to a value alone when it thinks of other orders, so which thread is the first one matters:
//! some tests try it both ways.
#![cfg(loom)]

#[path = "loom/own.rs"]
mod own;
#[path = "loom/senders.rs"]
mod senders;

use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use turnstile_vgic::{
    Context, GROUPS_CHANGED, GroupEnables, Host, ListRegister, LrState, Maintenance, Model, RemoteOp,
    VcpuGic, Vgic, VgicConfig, VirtualInterface,
};

const SPI: u32 = 32;
const ROUTER: u32 = 0x6000 + 8 * SPI;
/// The targets of the SPI, with a GICv2.
const TARGETS: u32 = 0x800 + SPI;

/// One list register.
#[derive(Default)]
struct Hardware(Option<ListRegister>);

impl VirtualInterface for Hardware {
    fn encode(lr: ListRegister) -> u64 {
        lr.intid.into()
    }
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
    fn is_asserted(&mut self, _: u32) -> bool {
        true
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
    fn is_resident(&self, _: usize) -> bool {
        true
    }
    fn remote<V: VirtualInterface>(&self, _: &mut VcpuGic, _: &mut V, vcpu: usize, op: RemoteOp) -> u64 {
        self.with(vcpu, |gic, cx| gic.apply(cx, op))
    }
}

impl Machine {
    /// Builds two vCPUs with the SPI enabled and routed to vCPU 1.
    fn new() -> Arc<Self> {
        let machine = Self::of(Model::Gicv3);
        machine.write(0, 2);
        machine.write(ROUTER, 1);
        Arc::new(machine)
    }

    /// Builds those of a GICv2, of which the first one is on, with these targets of the SPI.
    fn of_gicv2(targets: u64) -> Arc<Self> {
        let machine = Self::of(Model::Gicv2);
        machine.with(0, |gic, cx| gic.power_on(cx));
        machine.write(0, 1);
        machine.with(0, |gic, cx| gic.dist_write(cx, TARGETS, 1, targets));
        Arc::new(machine)
    }

    fn of(model: Model) -> Self {
        let group1_at_reset = model == Model::Gicv3;
        let config = VgicConfig { model, mpidrs: &[0, 1], spis: 32, priority_bits: 5, group1_at_reset };
        let vgic = Vgic::new(&config).unwrap();
        let cpus = [0, 1].map(|n| {
            Mutex::new((Box::new(VcpuGic::new(&vgic, n, 1, Hardware::encode)), Hardware::default()))
        });
        let inboxes = [AtomicU64::new(0), AtomicU64::new(0)];
        let machine =
            Self { vgic, cpus, inboxes, acknowledged: AtomicUsize::new(0), active: AtomicBool::new(false) };
        for vcpu in 0..2 {
            machine.with(vcpu, |gic, cx| gic.load(cx));
        }
        machine.write(0x104, 1);
        machine
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

    /// A vCPU looks at its inbox.
    fn look(&self, vcpu: usize) {
        self.look_and(vcpu, |_| {});
    }

    fn look_and(&self, vcpu: usize, then: impl FnOnce(&mut Context<Hardware, Self>)) {
        let posted = self.inboxes[vcpu].swap(0, Ordering::Acquire);
        self.with(vcpu, |gic, cx| {
            for intid in [GROUPS_CHANGED, SPI].into_iter().filter(|intid| posted >> intid & 1 != 0) {
                gic.deliver(cx, intid);
            }
            if posted != 0 {
                gic.settle(cx);
            }
            then(cx);
        });
    }

    /// A vCPU looks at its inbox and enters its guest, which handles what is pending.
    fn run(&self, vcpu: usize) {
        self.look_and(vcpu, |cx| {
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

/// vCPU 1 enters its guest, twice.
fn guest(machine: &Machine) {
    (0..2).for_each(|_| machine.run(1));
}

/// Runs vCPU 1 beside what `other` does, in all interleavings.
fn beside(other: impl Fn(&Machine) -> usize + Copy + Send + Sync + 'static) {
    first_and_second(Machine::new, other, guest, |machine, before, ()| {
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

/// What an owner gives up because it has seen the group off is not lost when the group is on again meanwhile.
#[test]
fn giving_up_beside_a_group_switched_on() {
    loom::model(|| {
        let machine = Machine::new();
        machine.pulse();
        machine.look(1);
        machine.write(0, 0);
        let owner = {
            let machine = Arc::clone(&machine);
            thread::spawn(move || machine.look(1))
        };
        machine.write(0, 2);
        owner.join().unwrap();
        machine.finish(0);
    });
}

#[test]
fn a_group_is_off_once_no_write_is_in_progress() {
    let in_progress = |machine: &Machine, light: bool| match light {
        true => machine.vgic.read_control_light(0, 4).is_none(),
        false => machine.with(0, |gic, cx| gic.dist_read(cx, 0, 4)) >> 31 != 0,
    };
    for light in [true, false] {
        both_ways(
            |machine| {
                machine.pulse();
            },
            move |machine| {
                machine.write(0, 0);
                (in_progress(machine, light), machine.acknowledged.load(Ordering::Relaxed))
            },
            |machine, (in_progress, before)| {
                let after = machine.acknowledged.load(Ordering::SeqCst);
                assert!(in_progress || before == after, "taken from a group that is off");
            },
        );
    }
}

/// Two edges may be one interrupt, but whoever takes it knows of what was done before either.
#[test]
fn an_edge_that_is_one_with_another_comes_with_what_was_done_before_it() {
    loom::model(|| {
        let machine = Machine::new();
        machine.write(0xc08, 2);
        machine.vgic.edge_spi(&*machine, SPI);
        let done = Arc::new(AtomicBool::new(false));
        let owner = {
            let (machine, done) = (Arc::clone(&machine), Arc::clone(&done));
            thread::spawn(move || {
                machine.run(1);
                done.load(Ordering::Relaxed)
            })
        };
        done.store(true, Ordering::Relaxed);
        machine.vgic.edge_spi(&*machine, SPI);
        let seen = owner.join().unwrap();
        let before = machine.acknowledged.load(Ordering::SeqCst);
        machine.run(1);
        let comes_again = machine.acknowledged.load(Ordering::SeqCst) > before;
        assert!(before == 1 && (seen || comes_again), "taken without what was done");
    });
}

/// Runs vCPU 1 beside what `other` does, each being the first thread once.
fn both_ways<R: Send + 'static>(
    prepare: impl Fn(&Machine) + Copy + Send + Sync + 'static,
    other: impl Fn(&Machine) -> R + Copy + Send + Sync + 'static,
    judge: impl Fn(&Machine, R) + Copy + Send + Sync + 'static,
) {
    let machine = move || {
        let machine = Machine::new();
        prepare(&machine);
        machine
    };
    first_and_second(machine, other, guest, move |machine, result, ()| judge(machine, result));
    first_and_second(machine, guest, other, move |machine, (), result| judge(machine, result));
}

/// Runs two threads, and judges what has come of them.
fn first_and_second<A, B: Send + 'static>(
    machine: impl Fn() -> Arc<Machine> + Send + Sync + 'static,
    first: impl Fn(&Machine) -> A + Send + Sync + 'static,
    second: impl Fn(&Machine) -> B + Copy + Send + Sync + 'static,
    judge: impl Fn(&Machine, A, B) + Send + Sync + 'static,
) {
    loom::model(move || {
        let machine = machine();
        let other = Arc::clone(&machine);
        let other = thread::spawn(move || second(&other));
        let one = first(&machine);
        let other = other.join().unwrap();
        judge(&machine, one, other);
    });
}

/// With a GICv2 an interrupt goes to the first of its targets that is on: one that comes on has it, and when one goes off, the
/// next.
#[test]
fn a_pulse_beside_a_target_that_comes_on_or_goes_off() {
    let pulse = |machine: &Machine| {
        machine.pulse();
    };
    let on = |machine: &Machine| machine.with(1, |gic, cx| gic.power_on(cx));
    let comes_on = || Machine::of_gicv2(0b10);
    first_and_second(comes_on, pulse, on, |machine, (), ()| machine.finish(0));
    first_and_second(comes_on, on, pulse, |machine, (), ()| machine.finish(0));
    let off = |machine: &Machine| machine.with(0, |gic, cx| gic.power_off(cx));
    let goes_off = move || {
        let machine = Machine::of_gicv2(0b11);
        on(&machine);
        machine
    };
    first_and_second(goes_off, pulse, off, |machine, (), ()| machine.finish(0));
    first_and_second(goes_off, off, pulse, |machine, (), ()| machine.finish(0));
}

/// Whoever declines an interrupt because its group is off is seen by who switches the group on, or sees it on.
#[test]
fn a_pulse_beside_a_group_switched_on() {
    both_ways(
        |machine| {
            machine.write(0, 0);
            machine.look(1);
        },
        |machine| {
            machine.pulse();
            machine.write(0, 2);
        },
        |machine, ()| machine.finish(0),
    );
    loom::model(|| {
        let machine = Machine::new();
        machine.write(0, 0);
        machine.look(1);
        let device = {
            let machine = Arc::clone(&machine);
            thread::spawn(move || {
                machine.pulse();
                machine.run(1);
            })
        };
        machine.write(0, 2);
        device.join().unwrap();
        machine.finish(0);
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
