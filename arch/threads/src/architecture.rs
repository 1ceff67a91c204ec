// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an architecture provides, so that its vCPUs may share CPUs: what waking a vCPU takes ([`Queues`]), and what a
//! switch moves ([`Architecture`]).

use core::sync::atomic::AtomicU64;

use spin::Once;
use turnstile_vm::attention::{Attention, KickToken};

use crate::{Scheduler, System, Thread};

/// The run queues of an architecture, and the vCPUs in them; where it has several interrupt controllers, with one of them.
/// All are to have the same types and the same [`Queues::system`].
///
/// Interrupts are masked, or held, in every function.
pub trait Queues: 'static {
    /// What a physical CPU has for itself.
    type Cpu: Sync + 'static;
    /// A vCPU.
    type Vcpu: Sync + 'static;
    /// What a vCPU has that shares CPUs.
    type Thread: AsRef<Thread> + 'static;
    /// What is known of the vCPUs that ran on a CPU: what they have left behind there.
    type Residue: Default;

    /// Returns where all vCPUs that share CPUs are noted.
    fn system() -> &'static Once<System<Self::Vcpu, Self::Cpu>>;
    /// Returns the area of this CPU.
    fn this() -> &'static Self::Cpu;
    /// Returns the number of a CPU among those in use.
    fn index(cpu: &Self::Cpu) -> usize;
    /// Returns what kicks a CPU.
    fn kick_token(cpu: &Self::Cpu) -> KickToken;
    /// Returns the run queue of a CPU, if vCPUs share it.
    fn scheduler(cpu: &Self::Cpu) -> &Once<Scheduler<Self::Vcpu, Self::Cpu, Self::Residue>>;
    /// Returns the attention word of a vCPU.
    fn attention(vcpu: &Self::Vcpu) -> &Attention;
    /// Returns what a vCPU has that shares CPUs; `None` if it is pinned.
    fn thread(vcpu: &Self::Vcpu) -> Option<&Self::Thread>;
    /// Interrupts the CPU with `token`, whose vCPU then looks at its attention word. Ordered behind the stores before it.
    fn kick(token: KickToken);

    /// The count of time, the same on all CPUs.
    fn ticks() -> u64;
    /// Interrupts the CPU with `token`, which then looks at its run queue. Ordered behind the stores before it.
    fn reschedule(token: KickToken);
}

/// The part of an implementation of [`Queues`] that is the same on all machines: for a `PerCpu` that has a number, a kick token and
/// a slot with its run queue, and a `Vcpu` that has an attention word and perhaps a thread.
#[macro_export]
macro_rules! queues_of {
    ($cpu:ty, $vcpu:ty, $thread:ty, $residue:ty) => {
        type Cpu = $cpu;
        type Vcpu = $vcpu;
        type Thread = $thread;
        type Residue = $residue;

        #[cfg(target_os = "none")]
        fn system() -> &'static spin::Once<$crate::System<$vcpu, $cpu>> {
            static SYSTEM: spin::Once<$crate::System<$vcpu, $cpu>> = spin::Once::new();
            &SYSTEM
        }

        /// On the host each test has a machine of its own.
        #[cfg(not(target_os = "none"))]
        fn system() -> &'static spin::Once<$crate::System<$vcpu, $cpu>> {
            std::thread_local!(
                static SYSTEM: &'static spin::Once<$crate::System<$vcpu, $cpu>> =
                    std::boxed::Box::leak(std::boxed::Box::default())
            );
            SYSTEM.with(|system| *system)
        }

        fn index(cpu: &$cpu) -> usize {
            cpu.index
        }

        fn kick_token(cpu: &$cpu) -> turnstile_vm::attention::KickToken {
            cpu.kick_token()
        }

        fn scheduler(cpu: &$cpu) -> &spin::Once<$crate::Scheduler<$vcpu, $cpu, $residue>> {
            cpu.slot()
        }

        fn attention(vcpu: &$vcpu) -> &turnstile_vm::attention::Attention {
            &vcpu.attention
        }

        fn thread(vcpu: &$vcpu) -> Option<&$thread> {
            vcpu.thread.as_ref()
        }
    };
}

/// An architecture: what a switch moves, and how a CPU waits.
///
/// Interrupts are masked, or held, in every function but [`Architecture::pause`] and [`Architecture::idle`].
pub trait Architecture: Queues {
    /// An interrupt that was taken while a vCPU waited.
    type Interrupt;

    /// Lets this CPU be interrupted at a time; never, if there is none. Instead of what was said before.
    fn set_schedule(at: Option<u64>);
    /// Waits until this CPU is interrupted, and takes the interrupt. What it announces is read behind it.
    fn pause() -> Self::Interrupt;
    /// The same on a CPU where no vCPU is resident: the interrupt is the hypervisor's, which handles it.
    fn idle();

    /// Sets up what vCPUs that share this CPU need beside what all do.
    fn share_cpu();
    /// Says whether another vCPU waits for this CPU: hints that the `resident` one could wait are of use then.
    fn waited_for(resident: Option<&'static Self::Vcpu>, residue: &mut Self::Residue, waited_for: bool);

    /// Makes the stack of a vCPU that has never run: it begins by [`crate::arrive`].
    fn prepare(vcpu: &'static Self::Vcpu);
    /// Stores a vCPU's state, which is nobody's then. Returns when its timers want it back.
    fn put(vcpu: &'static Self::Vcpu, thread: &'static Self::Thread) -> Option<u64>;
    /// Makes a vCPU that is queued resident on this CPU: [`Attention::load`], then [`crate::resident`], then its state.
    fn load(vcpu: &'static Self::Vcpu);
    /// Takes what [`Architecture::put`] has left of a vCPU in this CPU's registers, before another CPU loads it.
    fn depart(vcpu: &'static Self::Vcpu);
    /// Goes on on the stack of `to`, and leaves the stack pointer of the one in use in `from`.
    fn switch_stack(from: &AtomicU64, to: &'static Self::Vcpu);
}
