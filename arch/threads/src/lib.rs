// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical CPUs that several vCPUs share: their run queues, and when one vCPU gives way to the next. What a vCPU's state
//! is, and how it gets into a CPU and out of it, is the architecture's ([`Architecture`]); what waking one takes is less
//! ([`Queues`]).
//!
//! A vCPU that shares CPUs is a *thread* of the hypervisor: it has a stack of its own, with its exit frame at the
//! top. It gives its CPU away inside an exit, in the full tier, and comes back there, maybe on another CPU. Of a vCPU that
//! blocks nothing is put as long as nobody else wants its CPU: it waits where it is, and coming back costs nothing.
//!
//! Whoever runs next does the rest of a switch ([`arrive`]): only then is the stack of the one before free, and that one
//! may be given to another CPU.
//!
//! | module | what |
//! |---|---|
//! | [`architecture`] | what an architecture provides |
//! | [`turn`] | whose turn it is: waiting, giving way, switching |
//! | [`stack`] | their stacks |
//! | [`absent`] | vCPUs that are in no CPU: waking them, and acting on their state |
#![no_std]

extern crate alloc;

pub mod absent;
pub mod architecture;
pub mod stack;
pub mod turn;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU64;

use turnstile_sched::{Class, RunQueue, Shared};

pub use absent::{notify, wake, with_absent};
pub use architecture::{Architecture, Queues};
pub use turn::{arrive, give_way, leave, reschedule, run, stay, wait};

/// Slices in a second: 4 ms each.
const SLICES: u64 = 250;

/// A vCPU that shares CPUs, and how.
pub struct Tenant<V: 'static> {
    /// The vCPU.
    pub vcpu: &'static V,
    /// How it competes.
    pub class: Class,
    /// The physical CPUs on which it may run, by their indexes; the first is where it begins.
    pub cpus: Box<[u32]>,
}

/// What a vCPU that shares CPUs has on every architecture.
#[derive(Debug)]
pub struct Thread {
    /// Its number among those that share CPUs.
    pub number: u32,
    /// Where its stack ends while it does not run.
    pub sp: AtomicU64,
}

impl Thread {
    /// Makes thread `number`, which has never run.
    pub const fn new(number: u32) -> Self {
        Self { number, sp: AtomicU64::new(0) }
    }
}

/// All vCPUs that share CPUs, and all CPUs.
pub struct System<V: 'static, C: 'static> {
    shared: Shared,
    vcpus: Vec<&'static V>,
    cpus: &'static [&'static C],
}

/// The run queue of a physical CPU, for that CPU alone, and the `R` that vCPUs leave behind there.
pub struct Scheduler<V: 'static, C: 'static, R>(UnsafeCell<Local<V, C, R>>);

// SAFETY: each CPU touches only its own, in `with`.
unsafe impl<V: Sync, C: Sync, R> Sync for Scheduler<V, C, R> {}
// SAFETY: as above; before its CPU runs it, the boot CPU alone has it.
unsafe impl<V: Sync, C: Sync, R> Send for Scheduler<V, C, R> {}

struct Local<V: 'static, C: 'static, R> {
    /// All of them: who finds this one has found that.
    system: &'static System<V, C>,
    queue: RunQueue<'static>,
    /// The vCPU that is resident.
    resident: Option<&'static V>,
    residue: R,
}

type SystemOf<A> = System<<A as Queues>::Vcpu, <A as Queues>::Cpu>;
type LocalOf<A> = Local<<A as Queues>::Vcpu, <A as Queues>::Cpu, <A as Queues>::Residue>;

/// Makes the run queues: `tenants` in the order of their numbers. Once, by the boot CPU, before the others
/// are let go. `frequency` is that of [`Queues::ticks`], in Hz.
pub fn start<A: Architecture>(
    tenants: Vec<Tenant<A::Vcpu>>,
    cpus: &'static [&'static A::Cpu],
    frequency: u64,
) {
    let system = A::system().call_once(|| {
        let vcpus = tenants.iter().map(|tenant| tenant.vcpu).collect();
        let threads = tenants.into_iter().map(|tenant| {
            let home = tenant.cpus.first().copied().unwrap_or(0);
            turnstile_sched::Thread::new(tenant.class, home, tenant.cpus)
        });
        System { shared: Shared::new(threads.collect(), cpus.len(), frequency / SLICES), vcpus, cpus }
    });
    for vcpu in &system.vcpus {
        A::prepare(vcpu);
    }
    for (index, cpu) in (0u32..).zip(cpus) {
        let numbers = (0u32..).zip(&system.shared.threads);
        if !system.shared.threads.iter().any(|thread| thread.may_run_on(index)) {
            continue;
        }
        let mut queue = RunQueue::new(&system.shared, index);
        for (number, _) in numbers.filter(|(_, thread)| thread.home() == index) {
            queue.ready(number, A::ticks());
        }
        A::scheduler(cpu).call_once(|| {
            let local = Local { system, queue, resident: None, residue: A::Residue::default() };
            Scheduler(UnsafeCell::new(local))
        });
    }
}

/// Says whether vCPUs share a CPU.
pub fn is_shared<A: Queues>(cpu: &A::Cpu) -> bool {
    A::scheduler(cpu).get().is_some()
}

/// Returns how many ticks a thread has been ready in all, and did not run.
pub fn stolen<A: Queues>(thread: &A::Thread) -> u64 {
    A::system().get().map_or(0, |system| system.shared.threads[thread.as_ref().number as usize].stolen())
}

/// Returns when a thread was last ready, and did not run yet.
pub fn ready_at<A: Queues>(thread: &A::Thread) -> u64 {
    A::system().get().map_or(0, |system| system.shared.threads[thread.as_ref().number as usize].ready_at())
}

/// Notes that a vCPU is this CPU's now, before it is told of anything that others post: whoever is woken meanwhile is for
/// this vCPU to look for, not for the one that was put, which would be parked with a reason that nobody wakes it for.
/// `f` gets what vCPUs have left behind here, and the ticks that were stolen from this one.
#[inline] // Of each switch.
pub fn resident<A: Queues>(vcpu: &'static A::Vcpu, thread: &A::Thread, f: impl FnOnce(&mut A::Residue, u64)) {
    with::<A, _>(|local, system| {
        local.resident = Some(vcpu);
        f(&mut local.residue, system.shared.threads[thread.as_ref().number as usize].stolen());
    });
}

/// Runs `f` on this CPU's queue; `None` if it has none. `f` must not get here again: it calls nothing that posts.
fn with<A: Queues, T>(f: impl FnOnce(&mut LocalOf<A>, &'static SystemOf<A>) -> T) -> Option<T> {
    let scheduler = A::scheduler(A::this()).get()?;
    // SAFETY: this CPU alone gets here, interrupts are masked, and `f` does not come back.
    let local = unsafe { &mut *scheduler.0.get() };
    let system = local.system;
    Some(f(local, system))
}
