// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical CPUs that several vCPUs share: their run queues, and the switch from one vCPU to the next.
//!
//! A vCPU that shares CPUs is a *thread* of the hypervisor: it has an EL2 stack of its own, with its exit frame at the
//! top. It gives its CPU away inside an exit, in the full tier, and comes back there, maybe on another CPU. Of a vCPU that
//! blocks nothing is put as long as nobody else wants its CPU: it waits where it is, and coming back costs nothing.
//!
//! Whoever runs next does the rest of a switch ([`arrive`]): only then is the stack of the one before free, and that one
//! may be given to another CPU.

#[cfg(test)]
mod tests;
mod thread;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU64;

use spin::Once;
use turnstile_sched::{Class, RunQueue, Shared};
use turnstile_vgic::{Context, Model, RemoteOp};
use turnstile_vm::attention::Reasons;

use crate::cpu::{self, PerCpu};
use crate::facility;
use crate::irq::{Absent, Acknowledged, Gic, in_gic};
use crate::regs;
use crate::switch;
use crate::time;
use crate::vcpu::{Vcpu, serve_remote};
use crate::vm::Peers;
pub use thread::Thread;
use thread::{load, prepare, put, switch_stack};

/// Slices in a second: 4 ms each.
const SLICES: u64 = 250;

/// A vCPU that shares CPUs, and how.
pub struct Tenant {
    /// The vCPU.
    pub vcpu: &'static Vcpu,
    /// How it competes.
    pub class: Class,
    /// The physical CPUs on which it may run, by their indexes; the first is where it begins.
    pub cpus: Box<[u32]>,
}

/// All vCPUs that share CPUs.
struct System {
    shared: Shared,
    vcpus: Vec<&'static Vcpu>,
    cpus: &'static [&'static PerCpu],
}

static SYSTEM: Once<System> = Once::new();

/// The run queue of a physical CPU, for that CPU alone.
pub struct Scheduler(UnsafeCell<Local>);

// SAFETY: each CPU touches only its own, in `with`.
unsafe impl Sync for Scheduler {}
// SAFETY: as above; before its CPU runs it, the boot CPU alone has it.
unsafe impl Send for Scheduler {}

struct Local {
    queue: RunQueue<'static>,
    /// Which vCPU of each VM ran here last: its translations are in the TLB.
    last: [u32; 256],
    /// The vCPU that is resident.
    resident: Option<&'static Vcpu>,
    /// Whose vectors are in use: of this model, and timed or not.
    vectors: Option<(Model, bool)>,
    /// Whether WFE traps: somebody waits.
    waited_for: bool,
}

/// No vCPU.
const NOBODY: u32 = u32::MAX;

/// Makes the run queues: `tenants` in the order of their numbers. Once, by the boot CPU, before the others
/// are let go.
pub fn start(tenants: Vec<Tenant>, cpus: &'static [&'static PerCpu]) {
    let slice = regs::CNTFRQ_EL0.read() / SLICES;
    let system = SYSTEM.call_once(|| {
        let vcpus = tenants.iter().map(|tenant| tenant.vcpu).collect();
        let threads = tenants.into_iter().map(|tenant| {
            let home = tenant.cpus.first().copied().unwrap_or(0);
            turnstile_sched::Thread::new(tenant.class, home, tenant.cpus)
        });
        System { shared: Shared::new(threads.collect(), cpus.len(), slice), vcpus, cpus }
    });
    for vcpu in &system.vcpus {
        prepare(vcpu);
    }
    for (index, cpu) in (0u32..).zip(cpus) {
        let numbers = (0u32..).zip(&system.shared.threads);
        if !system.shared.threads.iter().any(|thread| thread.may_run_on(index)) {
            continue;
        }
        let mut queue = RunQueue::new(&system.shared, index);
        for (number, _) in numbers.filter(|(_, thread)| thread.home() == index) {
            queue.ready(number, time::ticks());
        }
        cpu.scheduler.call_once(|| {
            let local =
                Local { queue, last: [NOBODY; 256], resident: None, vectors: None, waited_for: false };
            Scheduler(UnsafeCell::new(local))
        });
    }
}

/// Says whether vCPUs share this CPU.
pub fn is_shared(cpu: &PerCpu) -> bool {
    cpu.scheduler.get().is_some()
}

/// Runs `f` on this CPU's queue; `None` if it has none. `f` must not get here again: it calls nothing that posts.
fn with<R>(f: impl FnOnce(&mut Local, &'static System) -> R) -> Option<R> {
    let (system, scheduler) = (SYSTEM.get()?, cpu::this().scheduler.get()?);
    // SAFETY: this CPU alone gets here, interrupts are masked, and `f` does not come back.
    Some(f(unsafe { &mut *scheduler.0.get() }, system))
}

impl Local {
    /// Takes in those that others have handed over, and those whose time has come.
    fn collect(&mut self, system: &System, now: u64) {
        self.queue.receive(now);
        while let Some(number) = self.queue.expired(now) {
            if system.vcpus[number as usize].attention.wake() {
                self.queue.ready(number, now);
            }
        }
    }

    fn pick(&mut self, system: &System, now: u64) -> Option<&'static Vcpu> {
        self.queue.pick(now).map(|number| system.vcpus[number as usize])
    }
}

/// Hands a vCPU that was taken out of where it was parked to its run queue.
#[cold]
pub fn wake<G: Gic>(vcpu: &Vcpu) {
    let (Some(thread), Some(system)) = (&vcpu.thread, SYSTEM.get()) else { return };
    let Some(index) = system.shared.wake(thread.number) else { return };
    let Some(home) = system.cpus.get(index as usize) else { return };
    if !core::ptr::eq(*home, cpu::this()) {
        return G::reschedule(home.kick_token());
    }
    // This CPU looks before it enters the guest of whoever is resident.
    if let Some(resident) = with(|local, _| local.resident).flatten() {
        resident.attention.raise(Reasons::RESCHEDULE);
    }
}

/// Executes an operation on the interrupts of a vCPU that is in no CPU. `None` if it is in one, or in use.
pub fn operate<G: Gic>(target: &'static Vcpu, operation: RemoteOp) -> Option<u64> {
    with_absent::<G, _>(target, |cx| {
        // SAFETY: claimed.
        unsafe { target.owned() }.gic.apply(cx, operation)
    })
}

/// Serves the cell of a vCPU, if it is in no CPU: who waits for it may be what keeps it from running.
pub fn serve_absent<G: Gic>(target: &'static Vcpu) {
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
    target.thread.as_ref()?;
    let claim = target.attention.claim()?;
    let peers = Peers::new(target.vm);
    let result = f(&mut Context { vgic: &target.vm.vgic, vif: &mut Absent, host: &peers });
    target.attention.raise(Reasons::INBOX);
    target.notify::<G>(target.attention.release(claim));
    Some(result)
}

/// Lets another vCPU run in place of this one, if it is the other's turn.
pub fn reschedule<G: Gic>(vcpu: &'static Vcpu, thread: &'static Thread) {
    let next = with(|local, system| {
        let now = time::ticks();
        local.collect(system, now);
        if !local.queue.should_switch(now) {
            return None;
        }
        local.queue.preempt(now);
        local.pick(system, now)
    });
    match next.flatten() {
        Some(next) if !core::ptr::eq(next, vcpu) => hand_over::<G>(vcpu, thread, next, true),
        _ => arrive::<G>(),
    }
}

/// Lets another vCPU run, if one wants to: this one could wait.
pub fn give_way<G: Gic>(vcpu: &'static Vcpu, thread: &'static Thread) {
    with(|local, _| local.queue.give_way());
    reschedule::<G>(vcpu, thread);
}

/// Waits until the vCPU `wants` to run, and it is its turn. The CPU is given away as soon as another one wants it; until
/// then the vCPU stays, and interrupts are handed to `serve`.
pub fn wait<G: Gic>(
    vcpu: &'static Vcpu,
    thread: &'static Thread,
    mut wants: impl FnMut() -> bool,
    mut serve: impl FnMut(Acknowledged),
) {
    with(|local, _| local.queue.block(time::ticks()));
    let mut alone = false;
    loop {
        vcpu.attention.take_only(Reasons::RESCHEDULE);
        let ready = wants();
        let next = with(|local, system| {
            let now = time::ticks();
            local.collect(system, now);
            if ready {
                local.queue.ready(thread.number, now);
            }
            local.pick(system, now)
        });
        match next.flatten() {
            Some(next) if core::ptr::eq(next, vcpu) => return arrive::<G>(),
            Some(next) => return hand_over::<G>(vcpu, thread, next, ready),
            None => rest::<G>(&mut alone),
        }
        cpu::wfi();
        let acknowledged = G::acknowledge();
        // What the interrupt announces is read after it.
        cpu::isb();
        serve(acknowledged);
    }
}

/// This CPU has nothing to run: says so, once to the neighbour that has most to give.
fn rest<G: Gic>(said: &mut bool) {
    let neighbour = with(|local, system| {
        local.queue.publish(time::ticks());
        time::set_schedule(local.queue.deadline());
        let neighbour = system.shared.busy_neighbour(cpu::this().index as u32)?;
        Some(system.cpus[neighbour as usize])
    });
    if let Some(neighbour) = neighbour.flatten()
        && !core::mem::replace(said, true)
    {
        G::reschedule(neighbour.kick_token());
    }
    cpu::isb();
}

/// Puts `from`, which is `ready` or parked, and goes on as `to`. Returns when it is `from`'s turn again.
fn hand_over<G: Gic>(from: &'static Vcpu, thread: &'static Thread, to: &'static Vcpu, ready: bool) {
    let deadline = put::<G>(from, thread);
    if ready {
        from.attention.put();
    } else {
        let parked = from.attention.park();
        with(|local, _| match deadline {
            _ if !parked => local.queue.ready(thread.number, time::ticks()),
            Some(deadline) => local.queue.sleep(thread.number, deadline),
            None => {}
        });
    }
    load(to);
    switch_stack(&thread.sp, to);
    arrive::<G>();
}

/// The rest of a switch, by the vCPU that runs now: gives away who is better off elsewhere, tells the others, and sets
/// the time until the next look.
pub fn arrive<G: Gic>() {
    with(|local, system| {
        let now = time::ticks();
        while let Some(kick) = local.queue.push(now, |number| facility::depart(system.vcpus[number as usize]))
        {
            if let Some(cpu) = kick {
                G::reschedule(system.cpus[cpu as usize].kick_token());
            }
        }
        local.queue.publish(now);
        time::set_schedule(local.queue.deadline());
        let waited_for = local.queue.has_ready();
        if waited_for != local.waited_for {
            local.waited_for = waited_for;
            switch::trap_wfe(waited_for);
        }
    });
}

/// Runs the vCPUs that share this CPU, for ever.
pub fn run() -> ! {
    fn run_with<G: Gic>() -> ! {
        switch::share_cpu();
        let boot_stack = AtomicU64::new(0);
        let mut said = false;
        loop {
            let next = with(|local, system| {
                let now = time::ticks();
                local.collect(system, now);
                local.pick(system, now)
            });
            if let Some(next) = next.flatten() {
                // From here on somebody is always resident, and nobody comes back to the boot stack.
                load(next);
                switch_stack(&boot_stack, next);
            }
            rest::<G>(&mut said);
            crate::exit::wait::wait_for_interrupt();
        }
    }
    in_gic!(run_with())
}
