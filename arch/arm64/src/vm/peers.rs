// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way from one vCPU, or from the hypervisor itself, to the interrupts of the vCPUs of a VM.

use core::marker::PhantomData;

use turnstile_vgic::{Context, Host, RemoteOp, VcpuGic, VirtualInterface};
use turnstile_vm::attention::Reasons;

use super::objects::{Vcpu, Vm};
use super::queues::On;
use crate::cpu;
use crate::irq::{Absent, Gic, PPI_PHYSICAL_TIMER, PPI_PMU, PPI_VIRTUAL_TIMER, in_gic};
use crate::time;

/// The way from one vCPU, or from the hypervisor itself, to the vCPUs of a VM.
pub struct Peers<'a, G> {
    vm: &'a Vm,
    gic: PhantomData<G>,
}

impl<'a, G: Gic> Peers<'a, G> {
    /// Makes the way to the vCPUs of `vm`.
    #[inline(always)] // Nothing.
    pub fn new(vm: &'a Vm) -> Self {
        Self { vm, gic: PhantomData }
    }
}

impl<G: Gic> Host for Peers<'_, G> {
    #[inline] // On the light exit of an SGI.
    fn post(&self, vcpu: usize, intid: u32) {
        let Some(target) = self.vm.vcpu(vcpu) else { return };
        let posted = match intid {
            0..16 => target.attention.post(Reasons::sgi(intid)),
            _ => target.inbox.post(&target.attention, intid),
        };
        target.notify::<G>(posted);
    }

    fn is_resident(&self, vcpu: usize) -> bool {
        // Who wrote GICD_CTLR has posted before: a vCPU that is in no CPU then, and is loaded, reads its word afterwards.
        self.vm.vcpu(vcpu).is_some_and(|vcpu| vcpu.attention.residence().is_some())
    }

    fn remote<V: VirtualInterface>(&self, me: &mut VcpuGic, vif: &mut V, vcpu: usize, op: RemoteOp) -> u64 {
        let (Some(target), Some(own)) = (self.vm.vcpu(vcpu), self.vm.vcpu(me.index())) else { return 0 };
        if let Some(result) = operate::<G>(target, op) {
            return result;
        }
        target.remote.call(
            &target.attention,
            Wire(op),
            |posted| target.notify::<G>(posted),
            || {
                serve_remote::<G>(own, me, vif);
                serve_absent::<G>(target);
                cpu::relax();
            },
        )
    }
}

/// A [`RemoteOp`] on its way through a [`turnstile_vm::remote::RemoteCell`].
pub struct Wire(pub RemoteOp);

impl From<Wire> for [u64; 4] {
    fn from(wire: Wire) -> Self {
        match wire.0 {
            RemoteOp::RedistRead { offset, size } => [0, offset.into(), size.into(), 0],
            RemoteOp::RedistWrite { offset, size, value } => [1, offset.into(), size.into(), value],
            RemoteOp::State { block } => [2, block.into(), 0, 0],
            RemoteOp::Recall { intid } => [3, intid.into(), 0, 0],
            RemoteOp::ClearPending { intid } => [4, intid.into(), 0, 0],
            RemoteOp::Activate { intid } => [5, intid.into(), 0, 0],
            RemoteOp::Deactivate { intid } => [6, intid.into(), 0, 0],
        }
    }
}

impl From<[u64; 4]> for Wire {
    fn from([kind, a, b, c]: [u64; 4]) -> Self {
        let intid = a as u32;
        Wire(match kind {
            0 => RemoteOp::RedistRead { offset: a as u32, size: b as u8 },
            1 => RemoteOp::RedistWrite { offset: a as u32, size: b as u8, value: c },
            2 => RemoteOp::State { block: a as u32 },
            3 => RemoteOp::Recall { intid },
            4 => RemoteOp::ClearPending { intid },
            5 => RemoteOp::Activate { intid },
            _ => RemoteOp::Deactivate { intid },
        })
    }
}

impl Vm {
    /// Runs `f` with what operations on its vCPUs' interrupts need.
    #[inline(always)] // Three addresses.
    pub fn with_gic<G: Gic, R>(
        &self,
        f: impl FnOnce(&mut Context<'_, G::Interface, Peers<'_, G>>) -> R,
    ) -> R {
        f(&mut Context { vgic: &self.vgic, vif: &mut G::interface(), host: &Peers::new(self) })
    }

    /// Sets the level of the input line of an SPI.
    pub fn set_spi_line(&self, intid: u32, high: bool) {
        fn set<G: Gic>(vm: &Vm, intid: u32, high: bool) {
            vm.vgic.set_spi_line(&Peers::<G>::new(vm), intid, high);
        }
        in_gic!(set(self, intid, high));
    }

    /// Raises and lowers the input line of an SPI.
    pub fn edge_spi(&self, intid: u32) {
        fn edge<G: Gic>(vm: &Vm, intid: u32) {
            vm.vgic.edge_spi(&Peers::<G>::new(vm), intid);
        }
        in_gic!(edge(self, intid));
    }
}

/// Executes an operation that another CPU asked for, if there is one.
pub fn serve_remote<G: Gic>(vcpu: &Vcpu, gic: &mut VcpuGic, vif: &mut impl VirtualInterface) -> bool {
    vcpu.remote.serve(|Wire(op)| {
        let peers = Peers::<G>::new(vcpu.vm);
        gic.apply(&mut Context { vgic: &vcpu.vm.vgic, vif, host: &peers }, op)
    })
}

/// Executes an operation on the interrupts of a vCPU that is in no CPU. `None` if it is in one, or in use.
fn operate<G: Gic>(target: &'static Vcpu, operation: RemoteOp) -> Option<u64> {
    with_absent::<G, _>(target, |cx| {
        // SAFETY: claimed.
        unsafe { target.owned() }.gic.apply(cx, operation)
    })
}

/// Serves the cell of a vCPU, if it is in no CPU: who waits for it may be what keeps it from running.
fn serve_absent<G: Gic>(target: &'static Vcpu) {
    with_absent::<G, _>(target, |cx| {
        // SAFETY: claimed.
        serve_remote::<G>(target, &mut unsafe { target.owned() }.gic, cx.vif)
    });
}

/// Runs `f` while a vCPU is claimed, if that can be. It looks at its interrupts afterwards.
fn with_absent<G: Gic, R>(
    target: &'static Vcpu,
    f: impl FnOnce(&mut Context<'_, Absent, Peers<'_, G>>) -> R,
) -> Option<R> {
    turnstile_threads::with_absent::<On<G>, _>(target, || {
        let peers = Peers::new(target.vm);
        let lines = lines(target);
        f(&mut Context { vgic: &target.vm.vgic, vif: &mut Absent { lines }, host: &peers })
    })
}

/// Returns the lines of a claimed vCPU's private interrupts, a bit for each PPI: those of its timers. Of its counters, which
/// stand still, nothing is known; they keep what they caused.
pub(crate) fn lines(vcpu: &'static Vcpu) -> u32 {
    let Some(thread) = &vcpu.thread else { return !0 };
    // SAFETY: who has claimed the vCPU has its state, too.
    let [virtual_one, physical_one] =
        unsafe { &(*thread.state.get()).timers }.lines(time::ticks(), vcpu.vm.cntvoff());
    1 << PPI_PMU | u32::from(virtual_one) << PPI_VIRTUAL_TIMER | u32::from(physical_one) << PPI_PHYSICAL_TIMER
}
