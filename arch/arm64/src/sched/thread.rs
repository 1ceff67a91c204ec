// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads: how a vCPU that shares CPUs comes and goes.

use crate::cpu;
use crate::cpu::mode::{Mode, Nvhe, Vhe, is_vhe};
use crate::irq::{Gic, PPI_PHYSICAL_TIMER, PPI_VIRTUAL_TIMER, in_gic_of, switched, use_vectors, vectors_of};
use crate::vcpu::frame::Frame;
use crate::vcpu::{facility, switch};
use crate::vm::{On, Thread, Vcpu};

/// A life of a vCPU begins that is a thread.
pub fn begin<G: Gic>(thread: &Thread) {
    if let Some(stolen) = &thread.stolen {
        stolen.begin(turnstile_threads::stolen::<On<G>>(thread));
    }
}

/// Returns where the exit frame of a thread is: at the top of its stack.
pub fn frame(thread: &Thread) -> *mut Frame {
    (thread.stack_top - size_of::<Frame>() as u64) as *mut Frame
}

/// Stores a vCPU's state, which is nobody's then. Returns when its timers want it back.
pub(super) fn put<G: Gic>(vcpu: &'static Vcpu, thread: &'static Thread) -> Option<u64> {
    if is_vhe() { put_in::<Vhe, G>(vcpu, thread) } else { put_in::<Nvhe, G>(vcpu, thread) }
}

pub(super) fn put_in<M: Mode, G: Gic>(vcpu: &'static Vcpu, thread: &'static Thread) -> Option<u64> {
    // SAFETY: the CPU where the vCPU is resident; nobody refers to either across this.
    let (state, gic) = unsafe { (&mut *thread.state.get(), &mut vcpu.owned().gic) };
    state.system.save::<M>();
    state.deferred.save();
    state.timers.put::<M>();
    G::save_interface(&mut state.interface);
    gic.put(&mut G::interface());
    // Before its interrupt is ended: the line of the PMU falls when it stops counting.
    facility::put(vcpu);
    let held = gic.held();
    switched::release_held::<G>(held);
    let waited_for = [PPI_VIRTUAL_TIMER, PPI_PHYSICAL_TIMER].map(|timer| held >> timer & 1 == 0);
    state.timers.deadline(vcpu.vm.cntvoff(), waited_for)
}

/// Makes a vCPU that is queued resident on this CPU.
pub(super) fn load(vcpu: &'static Vcpu) {
    fn load_with<G: Gic>(vcpu: &'static Vcpu) {
        if is_vhe() { load_in::<Vhe, G>(vcpu) } else { load_in::<Nvhe, G>(vcpu) }
    }
    // Of the vCPU's own interface: the one that was put may have had another.
    in_gic_of!(vcpu.vm.vgic.model(), load_with(vcpu));
}

pub(super) fn load_in<M: Mode, G: Gic>(vcpu: &'static Vcpu) {
    let Some(thread) = &vcpu.thread else { return };
    vcpu.attention.load(cpu::this().kick_token());
    switch::load(&vcpu.vm.residence(), vcpu.vmpidr);
    turnstile_threads::resident::<On<G>>(vcpu, thread, |residue, ticks| {
        if let Some(stolen) = &thread.stolen {
            stolen.update(ticks);
        }
        // Two vCPUs of a VM may mean different things by one ASID.
        let last = &mut residue.last[usize::from(vcpu.vm.id)];
        if core::mem::replace(last, thread.common.number) != thread.common.number {
            switch::forget_stage1();
        }
        let vectors = Some(vcpu.vectors);
        if core::mem::replace(&mut residue.vectors, vectors) != vectors {
            use_vectors(vectors_of::<G>(vcpu.statistics.is_some()));
        }
    });
    // SAFETY: the vCPU has just become this CPU's; nobody refers to either across this.
    let (state, gic) = unsafe { (cpu::near(&*thread.state.get()), &mut vcpu.owned().gic) };
    // SAFETY: as above: the state is its own.
    unsafe {
        state.system.load::<M>();
        state.deferred.load();
        switched::restore_held::<G>(gic.held());
        state.timers.load::<M>();
        G::load_interface(&state.interface);
    }
    // Before its interrupts are looked at: the line of the PMU rises when it counts again.
    facility::load(vcpu);
    vcpu.vm.with_gic::<G, _>(|cx| gic.load(cx));
}

/// Makes the stack of a vCPU that has never run.
pub(super) fn prepare(vcpu: &'static Vcpu) {
    let Some(thread) = &vcpu.thread else { return };
    let top = frame(thread) as u64;
    #[cfg(target_os = "none")]
    {
        unsafe extern "C" {
            fn turnstile_thread_start() -> !;
        }
        // x19–x30: the argument of thread_start is in x19, its address in x30.
        let mut saved = [0u64; 12];
        saved[0] = core::ptr::from_ref(vcpu) as u64;
        saved[11] = turnstile_thread_start as *const () as u64;
        // SAFETY: inside the new stack, which nobody uses yet.
        unsafe { thread.common.lay(top, saved) };
    }
    #[cfg(not(target_os = "none"))]
    let _ = (top, vcpu);
}
