// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The senders of a GICv2's SGI under all interleavings: none is lost, none comes twice.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use turnstile_vgic::{
    Context, GroupEnables, Host, ListRegister, LrState, Maintenance, Model, RemoteOp, VcpuGic, Vgic,
    VgicConfig, VirtualInterface,
};

const SGI: u32 = 3;

/// One list register.
#[derive(Default)]
struct Hardware {
    lr: Option<ListRegister>,
    /// The list register asked for maintenance and has ended.
    ended: bool,
}

impl VirtualInterface for Hardware {
    fn encode(lr: ListRegister) -> u64 {
        lr.intid.into()
    }
    fn read_lr(&mut self, _: usize) -> LrState {
        self.lr.map_or(LrState::Invalid, |lr| lr.state)
    }
    fn write_lr(&mut self, _: usize, lr: ListRegister) {
        (self.lr, self.ended) = (Some(lr), false);
    }
    fn clear_lr(&mut self, _: usize) {
        (self.lr, self.ended) = (None, false);
    }
    fn empty_lrs(&mut self) -> u16 {
        u16::from(self.lr.is_none() && !self.ended)
    }
    fn eoi_lrs(&mut self) -> u16 {
        u16::from(self.ended)
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

/// The way to vCPU 0.
struct Way {
    vgic: Vgic,
    inbox: AtomicU64,
}

impl Host for Way {
    fn post(&self, vcpu: usize, intid: u32) {
        // The others take no interrupts here.
        if vcpu == 0 {
            self.inbox.fetch_or(1 << intid, Ordering::Release);
        }
    }
    fn is_resident(&self, vcpu: usize) -> bool {
        vcpu == 0
    }
    fn remote<V: VirtualInterface>(&self, _: &mut VcpuGic, _: &mut V, _: usize, _: RemoteOp) -> u64 {
        unreachable!("nobody is asked");
    }
}

/// vCPU 0, which receives.
struct Receiver {
    way: Arc<Way>,
    gic: Box<VcpuGic>,
    hardware: Hardware,
    /// How often the SGI was taken from each sender.
    taken: [u32; 3],
}

impl Receiver {
    fn new() -> Self {
        let model = Model::Gicv2;
        let config =
            VgicConfig { model, mpidrs: &[0, 1, 2], spis: 0, priority_bits: 5, group1_at_reset: false };
        let vgic = Vgic::new(&config).unwrap();
        let gic = Box::new(VcpuGic::new(&vgic, 0, 1, Hardware::encode));
        let way = Arc::new(Way { vgic, inbox: AtomicU64::new(0) });
        let mut receiver = Self { way, gic, hardware: Hardware::default(), taken: [0; 3] };
        receiver.with(|gic, cx| {
            gic.load(cx);
            gic.dist_write(cx, 0, 4, 1);
        });
        receiver
    }

    fn with<R>(&mut self, run: impl FnOnce(&mut VcpuGic, &mut Context<Hardware, Way>) -> R) -> R {
        let way = Arc::clone(&self.way);
        run(&mut self.gic, &mut Context { vgic: &way.vgic, vif: &mut self.hardware, host: &way })
    }

    /// Looks at its inbox and enters its guest, which takes what is pending.
    fn run(&mut self) {
        if self.way.inbox.swap(0, Ordering::Acquire) != 0 {
            self.with(|gic, cx| {
                gic.deliver(cx, SGI);
                gic.settle(cx);
            });
        }
        while let Some(lr) = self.hardware.lr.take_if(|lr| lr.state == LrState::Pending) {
            self.taken[usize::from(lr.source)] += 1;
            self.hardware.ended = lr.backing != NO_MAINTENANCE;
            if self.hardware.ended {
                self.with(|gic, cx| gic.maintenance(cx));
            }
        }
    }
}

const NO_MAINTENANCE: turnstile_vgic::Backing = turnstile_vgic::Backing::Software { eoi_maintenance: false };

#[test]
fn two_senders_are_two_interrupts() {
    loom::model(|| {
        let mut receiver = Receiver::new();
        let senders = [1, 2].map(|sender| {
            let way = Arc::clone(&receiver.way);
            thread::spawn(move || way.vgic.post_sgi(&*way, 0, SGI, sender))
        });
        receiver.run();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        receiver.run();
        assert_eq!(receiver.taken, [0, 1, 1]);
    });
}

#[test]
fn a_sender_may_merge_with_itself_but_not_get_lost() {
    loom::model(|| {
        let mut receiver = Receiver::new();
        let way = Arc::clone(&receiver.way);
        let sender = thread::spawn(move || {
            way.vgic.post_sgi(&*way, 0, SGI, 1);
            way.vgic.post_sgi(&*way, 0, SGI, 1);
        });
        receiver.run();
        receiver.run();
        let before = receiver.taken[1];
        sender.join().unwrap();
        receiver.run();
        assert!((1..=2).contains(&receiver.taken[1]), "{:?}", receiver.taken);
        assert!(before < 2 || receiver.taken[1] == 2);
    });
}

#[test]
fn a_look_at_the_senders_takes_none_away() {
    loom::model(|| {
        let mut receiver = Receiver::new();
        let way = Arc::clone(&receiver.way);
        let sender = thread::spawn(move || way.vgic.post_sgi(&*way, 0, SGI, 2));
        let seen = receiver.with(|gic, cx| gic.dist_read(cx, 0xf20 + SGI, 1));
        sender.join().unwrap();
        receiver.run();
        receiver.run();
        assert_eq!(receiver.taken, [0, 0, 1], "after {seen:#x} was seen");
    });
}

/// Whose SGI is taken with an earlier one comes with what that sender did.
#[test]
fn a_sender_that_is_early_comes_with_what_it_did() {
    loom::model(|| {
        let mut receiver = Receiver::new();
        let (way, done) = (Arc::clone(&receiver.way), Arc::new(AtomicU32::new(0)));
        way.vgic.post_sgi(&*way, 0, SGI, 1);
        let target = {
            let done = Arc::clone(&done);
            thread::spawn(move || {
                receiver.run();
                receiver.taken[2] == 0 || done.load(Ordering::Relaxed) == 1
            })
        };
        done.store(1, Ordering::Relaxed);
        way.vgic.post_sgi(&*way, 0, SGI, 2);
        assert!(target.join().unwrap());
    });
}
