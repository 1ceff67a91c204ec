// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose turn it is.

use core::sync::atomic::AtomicU64;

use turnstile_vm::attention::Reasons;

use crate::{Architecture, LocalOf, Queues, SystemOf, with};

/// Takes in those that others have handed over, and those whose time has come.
fn collect<A: Queues>(local: &mut LocalOf<A>, system: &SystemOf<A>, now: u64) {
    local.queue.receive(now);
    while let Some(number) = local.queue.expired(now) {
        wake_up::<A>(local, system, number, now);
    }
}

/// The time of a sleeper has come.
#[inline(never)] // Not part of what each look pays.
fn wake_up<A: Queues>(local: &mut LocalOf<A>, system: &SystemOf<A>, number: u32, now: u64) {
    if A::attention(system.vcpus[number as usize]).wake() {
        local.queue.ready(number, now);
    }
}

#[inline(always)] // Of each switch.
fn pick<A: Queues>(local: &mut LocalOf<A>, system: &SystemOf<A>, now: u64) -> Option<&'static A::Vcpu> {
    local.queue.pick(now).map(|number| system.vcpus[number as usize])
}

/// Lets another vCPU run in place of this one, if it is the other's turn.
pub fn reschedule<A: Architecture>(vcpu: &'static A::Vcpu, thread: &'static A::Thread) {
    let next = with::<A, _>(|local, system| {
        let now = A::ticks();
        collect::<A>(local, system, now);
        if !local.queue.should_switch(now) {
            return None;
        }
        local.queue.preempt(now);
        pick::<A>(local, system, now)
    });
    match next.flatten() {
        Some(next) if !core::ptr::eq(next, vcpu) => hand_over::<A>(vcpu, thread, next, true),
        _ => arrive::<A>(),
    }
}

/// Lets another vCPU run, if one wants to: this one could wait.
pub fn give_way<A: Architecture>(vcpu: &'static A::Vcpu, thread: &'static A::Thread) {
    with::<A, _>(|local, _| local.queue.give_way());
    reschedule::<A>(vcpu, thread);
}

/// Waits until the vCPU `wants` to run, and it is its turn. The CPU is given away as soon as another one wants it; until
/// then the vCPU stays, and interrupts are handed to `serve`.
pub fn wait<A: Architecture>(
    vcpu: &'static A::Vcpu,
    thread: &'static A::Thread,
    mut wants: impl FnMut() -> bool,
    serve: impl FnMut(A::Interrupt),
) {
    A::attention(vcpu).take_only(Reasons::RESCHEDULE);
    let ready = wants();
    if !look::<A>(vcpu, thread, ready, true) {
        stay::<A>(vcpu, thread, wants, serve);
    }
}

/// The first half of [`wait`], for a vCPU that has just looked and wants nothing: true if another one has run, and it is its turn
/// again. Otherwise nobody wants the CPU, and [`stay`] is the other half. What is posted meanwhile is seen by both: where the vCPU
/// is parked, and by the kick that comes with it.
#[inline(always)] // For callers of which this is the whole work.
pub fn leave<A: Architecture>(vcpu: &'static A::Vcpu, thread: &'static A::Thread) -> bool {
    look::<A>(vcpu, thread, false, true)
}

/// Lets another vCPU run in place of one that waits and is `ready` or not, or this one: true if one did. `runs`: this one has run
/// until now.
fn look<A: Architecture>(
    vcpu: &'static A::Vcpu,
    thread: &'static A::Thread,
    ready: bool,
    runs: bool,
) -> bool {
    let next = with::<A, _>(|local, system| {
        let now = A::ticks();
        if runs {
            local.queue.block(now);
        }
        collect::<A>(local, system, now);
        if ready {
            local.queue.ready(thread.as_ref().number, now);
        }
        pick::<A>(local, system, now)
    });
    match next.flatten() {
        Some(next) if core::ptr::eq(next, vcpu) => arrive::<A>(),
        Some(next) => hand_over::<A>(vcpu, thread, next, ready),
        None => return false,
    }
    true
}

/// The rest of a wait, while nobody wants the CPU.
#[inline(never)] // Not part of what a switch pays.
pub fn stay<A: Architecture>(
    vcpu: &'static A::Vcpu,
    thread: &'static A::Thread,
    mut wants: impl FnMut() -> bool,
    mut serve: impl FnMut(A::Interrupt),
) {
    let mut alone = false;
    loop {
        rest::<A>(&mut alone);
        serve(A::pause());
        A::attention(vcpu).take_only(Reasons::RESCHEDULE);
        if look::<A>(vcpu, thread, wants(), false) {
            return;
        }
    }
}

/// This CPU has nothing to run: says so, once to the neighbour that has most to give.
fn rest<A: Architecture>(said: &mut bool) {
    let neighbour = with::<A, _>(|local, system| {
        local.queue.publish(A::ticks());
        A::set_schedule(local.queue.deadline());
        let neighbour = system.shared.busy_neighbour(A::index(A::this()) as u32)?;
        Some(system.cpus[neighbour as usize])
    });
    if let Some(neighbour) = neighbour.flatten()
        && !core::mem::replace(said, true)
    {
        A::reschedule(A::kick_token(neighbour));
    }
}

/// Puts `from`, which is `ready` or parked, and goes on as `to`. Returns when it is `from`'s turn again.
#[inline(always)] // Of each switch, which is all that its two callers do then.
fn hand_over<A: Architecture>(
    from: &'static A::Vcpu,
    thread: &'static A::Thread,
    to: &'static A::Vcpu,
    ready: bool,
) {
    let deadline = A::put(from, thread);
    let attention = A::attention(from);
    if ready {
        attention.put();
    } else {
        match (attention.park(), deadline) {
            (true, None) => {}
            (true, Some(deadline)) => {
                with::<A, _>(|local, _| local.queue.sleep(thread.as_ref().number, deadline));
            }
            (false, _) => {
                with::<A, _>(|local, _| local.queue.ready(thread.as_ref().number, A::ticks()));
            }
        }
    }
    A::load(to);
    A::switch_stack(&thread.as_ref().sp, to);
    arrive::<A>();
}

/// The rest of a switch, by the vCPU that runs now: gives away who is better off elsewhere, tells the others, and sets
/// the time until the next look.
pub fn arrive<A: Architecture>() {
    with::<A, _>(|local, system| {
        if !local.queue.is_alone() {
            balance::<A>(local, system);
        }
        A::set_schedule(local.queue.deadline());
        A::waited_for(local.resident, &mut local.residue, local.queue.has_ready());
    });
}

/// Gives away who is better off elsewhere, and tells the others how far this CPU is.
#[inline(never)] // Apart from the switches of CPUs that share no vCPU with others.
fn balance<A: Architecture>(local: &mut LocalOf<A>, system: &SystemOf<A>) {
    let now = A::ticks();
    while let Some(kick) = local.queue.push(now, |number| A::depart(system.vcpus[number as usize])) {
        if let Some(cpu) = kick {
            A::reschedule(A::kick_token(system.cpus[cpu as usize]));
        }
    }
    local.queue.publish(now);
}

/// Runs the vCPUs that share this CPU, for ever.
pub fn run<A: Architecture>() -> ! {
    A::share_cpu();
    let boot_stack = AtomicU64::new(0);
    let mut said = false;
    loop {
        let next = with::<A, _>(|local, system| {
            let now = A::ticks();
            collect::<A>(local, system, now);
            pick::<A>(local, system, now)
        });
        if let Some(next) = next.flatten() {
            // From here on somebody is always resident, and nobody comes back to the boot stack.
            A::load(next);
            A::switch_stack(&boot_stack, next);
        }
        rest::<A>(&mut said);
        A::idle();
    }
}
