// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A vCPU: what others may touch (atomics), and what belongs to the physical CPU where it is resident.

use alloc::boxed::Box;
use core::cell::UnsafeCell;

use turnstile_exitstat::Page;
use turnstile_vgic::{Context, VcpuGic, VirtualInterface};
use turnstile_vm::attention::Attention;
use turnstile_vm::inbox::Inbox;
use turnstile_vm::remote::RemoteCell;

use crate::cpu::PerCpu;
use crate::facility;
use crate::irq::{self, Gic};
use crate::regs;
use crate::sched::Thread;
use crate::vm::{Peers, Vm, Wire};

/// A vCPU.
#[repr(C)]
pub struct Vcpu {
    /// Why it must look before it enters its guest. First: the light path loads it on every exit.
    pub attention: Attention,
    /// Its VM.
    pub vm: &'static Vm,
    /// Its number in the VM.
    pub index: usize,
    /// The physical CPU it is pinned to, or where it begins.
    pub cpu: &'static PerCpu,
    /// Interrupts posted by others.
    pub inbox: Inbox,
    /// Operations asked for by others.
    pub remote: RemoteCell,
    owned: UnsafeCell<Owned>,
    /// What its exits cost, if its VM keeps statistics: its CPU adds, anybody reads. Behind what light exits use, which
    /// lies as if there were none.
    pub statistics: Option<&'static Page>,
    facilities: UnsafeCell<facility::State>,
    /// Its MPIDR_EL1.
    pub vmpidr: u64,
    /// What it has if it shares CPUs with others; `None` if it is pinned.
    pub thread: Option<Thread>,
    /// Where its registers go on an exit that does without techniques. Last, so that nothing else moves.
    #[cfg(feature = "ablation")]
    saved: UnsafeCell<crate::naive::Saved>,
}

/// The part of a vCPU that only its physical CPU touches.
pub struct Owned {
    /// Its interrupts.
    pub gic: VcpuGic,
}

// SAFETY: everything shared is atomic; `owned` is reached only through `Vcpu::owned`, whose contract is that
// only the CPU where the vCPU is resident calls it, and `facilities` so by the CPU that last ran it.
unsafe impl Sync for Vcpu {}
// SAFETY: the owned part may be handed to the CPU that runs the vCPU.
unsafe impl Send for Vcpu {}

impl Vcpu {
    /// Makes vCPU `index` of `vm`, pinned to `cpu`; or a thread that begins there.
    pub fn new(vm: &'static Vm, index: usize, cpu: &'static PerCpu, thread: Option<Thread>) -> Self {
        let mut gic = VcpuGic::new(&vm.vgic, index, irq::list_registers());
        if !irq::backs_list_registers() {
            gic.without_hardware_backing();
        }
        Self {
            attention: Attention::new(),
            vm,
            index,
            cpu,
            inbox: Inbox::new(),
            remote: RemoteCell::new(),
            owned: UnsafeCell::new(Owned { gic }),
            statistics: vm.statistics.then(|| &*Box::leak(Box::new(Page::new(regs::CNTFRQ_EL0.read())))),
            facilities: UnsafeCell::new(facility::State::new(vm)),
            vmpidr: vm.vgic.mpidr(index).unwrap_or(0) | 1 << 31,
            thread,
            #[cfg(feature = "ablation")]
            saved: Default::default(),
        }
    }

    /// Returns the part that belongs to this CPU.
    ///
    /// # Safety
    /// Only on the physical CPU where the vCPU is resident, and only once at a time: exit handlers take it at
    /// their top and pass it down; interrupts are masked, so no other handler runs meanwhile.
    #[inline(always)] // An address computation on the light path.
    #[allow(clippy::mut_from_ref, reason = "the contract above makes the reference unique")]
    pub unsafe fn owned(&self) -> &mut Owned {
        // SAFETY: unique by the contract.
        unsafe { &mut *self.owned.get() }
    }
}

impl Vcpu {
    /// Returns what it has of facilities. Apart from [`Vcpu::owned`], because the next vCPU on its CPU stores into it.
    ///
    /// # Safety
    /// Only on the physical CPU that last ran the vCPU, and only as long as nobody else looks: in an exit handler
    /// between two calls, or in a function of [`facility`].
    #[inline(always)] // An address computation on the light path.
    #[allow(clippy::mut_from_ref, reason = "the contract makes the reference unique")]
    pub unsafe fn facilities(&self) -> &mut facility::State {
        // SAFETY: unique by the contract.
        unsafe { &mut *self.facilities.get() }
    }
}

#[cfg(feature = "ablation")]
impl Vcpu {
    /// Returns where its registers go on an exit that does without techniques.
    ///
    /// # Safety
    /// As for [`Vcpu::owned`].
    #[inline(always)] // An address computation.
    #[allow(clippy::mut_from_ref, reason = "the contract makes the reference unique")]
    pub unsafe fn saved(&self) -> &mut crate::naive::Saved {
        // SAFETY: unique by the contract.
        unsafe { &mut *self.saved.get() }
    }
}

/// Executes an operation that another CPU asked for, if there is one.
pub fn serve_remote<G: Gic>(vcpu: &Vcpu, gic: &mut VcpuGic, vif: &mut impl VirtualInterface) -> bool {
    vcpu.remote.serve(|Wire(op)| {
        let peers = Peers::<G>::new(vcpu.vm);
        gic.apply(&mut Context { vgic: &vcpu.vm.vgic, vif, host: &peers }, op)
    })
}
